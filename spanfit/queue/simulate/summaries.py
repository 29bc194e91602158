"""What many replays say together: means with intervals, and differences to the first way, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spanfit.profiler import statistics
from spanfit.queue.simulate.sweep import CaseFigures
from spanfit.results.schema import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A figure of a way over all seeds.

    Attributes
    ----------
    scenario, way, name : str
    nseeds : int
        Seeds under which the figure has a value.
    estimate : Estimate
        Mean with the 95% interval of Student's t over seeds.
    difference : Estimate or None
        To the first way, seed by seed, which have the same jobs, errors and failures; None for the first way itself.
    npairs : int
        Seeds under which both ways have a value.
    """

    scenario: str
    way: str
    name: str
    nseeds: int
    estimate: Estimate
    difference: Estimate | None
    npairs: int


def summarize(results: Sequence[CaseFigures], ways: Sequence[str]) -> tuple[Summary, ...]:
    """Return each figure of each scenario and way over seeds, the ways in their order.

    Parameters
    ----------
    results : sequence of CaseFigures
    ways : sequence of str
        Labels; differences are to the first.
    """
    found = []
    for scenario in dict.fromkeys(result.scenario for result in results):
        ordered = sorted(results, key=lambda result: result.seed)
        own = {(result.way, result.seed): result.figures for result in ordered if result.scenario == scenario}
        names = dict.fromkeys(name for figures in own.values() for name in figures)
        for name in names:
            values = {
                way: {seed: float(value) for (label, seed), each in own.items()
                      if label == way and (value := each.get(name)) is not None}
                for way in ways
            }  # fmt: skip
            found += [_summary(scenario, way, name, values, ways[0]) for way in ways if values[way]]
    return tuple(found)


def _summary(scenario: str, way: str, name: str, values: Mapping[str, Mapping[int, float]], first: str) -> Summary:
    own, base = values[way], values[first]
    shared = sorted(own.keys() & base.keys())
    differences = [own[seed] - base[seed] for seed in shared]
    return Summary(
        scenario=scenario,
        way=way,
        name=name,
        nseeds=len(own),
        estimate=statistics.interval(list(own.values())),
        difference=statistics.interval(differences) if differences and way != first else None,
        npairs=len(shared),
    )

"""Edge: many replays, one after the other or spread over MPI processes.

Started as ``mpirun -n 3 python -m mpi4py.futures -m spanfit simulate sweep ...``, one process hands out replays and the
others run them, on any hosts; started alone, one process runs all.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanfit.errors import ConfigError
from spanfit.queue.simulate.metrics import figures_of, flat_figures
from spanfit.queue.simulate.scenario import Scenario, Way, largest_minipod, run_scenario, with_way

_WORLD_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One replay of a sweep."""

    scenario: Scenario
    way: Way
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFigures:
    """The figures of one replay, by name."""

    scenario: str
    way: str
    seed: int
    figures: Mapping[str, float | None]


def plan_cases(scenarios: Sequence[Scenario], ways: Sequence[Way], seeds: Sequence[int]) -> tuple[Case, ...]:
    """Return a case for each scenario, seed and way."""
    return tuple(
        Case(scenario=scenario, way=way, seed=seed) for scenario in scenarios for seed in seeds for way in ways
    )


def run_case(case: Case) -> CaseFigures:
    """Return the figures of one replay."""
    outcome = run_scenario(with_way(case.scenario, case.way), case.seed)
    figures = flat_figures(figures_of(outcome, largest_minipod(case.scenario.ground)))
    return CaseFigures(scenario=case.scenario.name, way=case.way.label, seed=case.seed, figures=figures)


def run_cases(
    cases: Sequence[Case], environment: Mapping[str, str], run: Callable[[Case], Any] = run_case
) -> Iterator[Any]:
    """Return what ``run`` returns for each case, as they end; other processes start at once.

    Parameters
    ----------
    cases : sequence of Case
    environment : mapping of str to str
        Tells whether this is one of several MPI processes.
    run : callable
        A function of a module, so that other processes find it.

    Raises
    ------
    ConfigError
        If there are several MPI processes and each would run everything.
    """
    if "mpi4py.futures" in sys.modules:
        return _spread(cases, run)
    if several := next((name for name in _WORLD_SIZES if int(environment.get(name, "1")) > 1), None):
        raise ConfigError(
            f"{several}: found {environment[several]} MPI processes that would each run the whole sweep; start it as "
            "mpirun -n 3 python -m mpi4py.futures -m spanfit simulate sweep ..."
        )
    return map(run, cases)


def _spread(cases: Sequence[Case], run: Callable[[Case], Any]) -> Iterator[Any]:
    """Return results from the other processes of this MPI world; a world of one does the work itself."""
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor

    if MPI.COMM_WORLD.Get_size() == 1:
        return map(run, cases)
    return iter(MPIPoolExecutor().map(run, cases, unordered=True))

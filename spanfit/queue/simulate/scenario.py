"""What is replayed: a cluster, jobs, what is told of them, announced jobs, failures and rules, all in one value."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.simulate.faults import FaultRates, faults
from spanfit.queue.simulate.outcome import ReplayOutcome
from spanfit.queue.simulate.replay import Replay, ReplayJob, ReplayRules
from spanfit.queue.simulate.sources import Source
from spanfit.queue.simulate.workload import Telling, Told, forecasts_of, replay_jobs

Forecaster = Callable[[Sequence[QueueJob], float], Sequence[Forecast]]
"""Gives a forecast of each job with this upper quantile, as a trained predictor does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An announced job, its times counted from the first possible submission.

    Attributes
    ----------
    job_id : str
    nnodes : int
    announced_s, expected_s, arrives_s : float
        When it is told, when it then is expected, and when it is there [s].
    runtime_s : float
        How long it runs, which the policy is told, too [s].
    nrows, ncolumns : int or None
    alpha : float
    """

    job_id: str
    nnodes: int
    announced_s: float
    expected_s: float
    arrives_s: float
    runtime_s: float
    nrows: int | None = None
    ncolumns: int | None = None
    alpha: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster and what happens on it, but for the policy and the seed.

    Attributes
    ----------
    name : str
    ground : Ground
    source : Source
    announced : tuple of Announcement
    telling : Telling
    forecaster : Forecaster or None
        The predictor, where runtimes are told by a model.
    preemptable_share : float
        Share of the jobs that may be stopped.
    fault_rates : FaultRates or None
    rules : QueueRules
    replay : ReplayRules
        ``until_s`` counts from the first possible submission.

    Raises
    ------
    ValueError
        With a line for everything that cannot be.
    """

    name: str
    ground: Ground
    source: Source
    announced: tuple[Announcement, ...] = ()
    telling: Telling = field(default_factory=Telling)
    forecaster: Forecaster | None = None
    preemptable_share: float = 0.0
    fault_rates: FaultRates | None = None
    rules: QueueRules = field(default_factory=QueueRules)
    replay: ReplayRules = field(default_factory=ReplayRules)

    def __post_init__(self) -> None:
        """Refuse what cannot be, all of it at once."""
        if found := list(_faults_of(self)):
            raise ValueError("\n".join(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A policy under a name, with what else is changed for it.

    Attributes
    ----------
    policy : PolicyName
    told : Told or None
        Told this way instead of as the scenario says.
    """

    policy: PolicyName
    told: Told | None = None

    @property
    def label(self) -> str:
        """How tables call it: the policy, and what it is told where that is not the scenario's."""
        return self.policy.value if self.told is None else f"{self.policy.value}/{self.told.value}"


def parse_way(text: str) -> Way:
    """Return the way of a label such as ``spanfit`` or ``spanfit/limit``.

    Raises
    ------
    ValueError
        If it names no policy, or nothing that can be told.
    """
    policy, _, told = text.partition("/")
    policies, tellings = [each.value for each in PolicyName], [each.value for each in Told]
    if policy not in policies or (told and told not in tellings) or text.endswith("/"):
        raise ValueError(
            f"found {text!r}, expected one of {', '.join(policies)}, and after a / what it is told where that is not "
            f"the scenario's: {', '.join(tellings)}"
        )
    return Way(policy=PolicyName(policy), told=Told(told) if told else None)


def with_way(scenario: Scenario, way: Way) -> Scenario:
    """Return the scenario under a policy."""
    telling = scenario.telling if way.told is None else replace(scenario.telling, told=way.told)
    return replace(scenario, rules=replace(scenario.rules, policy=way.policy), telling=telling)


def even_ground(nminipods: int, nnodes: int, gpu_model: str | None = None) -> Ground:
    """Return a ground of ``nnodes`` nodes over minipods whose sizes differ by one at most.

    >>> even_ground(2, 5).minipods
    (0, 0, 0, 1, 1)
    """
    sizes = [nnodes // nminipods + (index < nnodes % nminipods) for index in range(nminipods)]
    width = len(str(nnodes - 1))
    return Ground(
        names=tuple(f"n{node:0{width}d}" for node in range(nnodes)),
        minipods=tuple(minipod for minipod, size in enumerate(sizes) for _ in range(size)),
        labels=tuple(f"minipod{minipod}" for minipod in range(nminipods)),
        gpu_models=(gpu_model,) * nnodes if gpu_model else (),
    )


def run_scenario(scenario: Scenario, seed: int) -> ReplayOutcome:
    """Return what happens; the same seed gives the same jobs, errors and failures under every policy.

    Parameters
    ----------
    scenario : Scenario
    seed : int
    """
    seeds = [int(each.generate_state(1)[0]) for each in np.random.SeedSequence(seed).spawn(4)]
    nnodes = len(scenario.ground.names)
    start_s, drawn = scenario.source.draw(nnodes, seeds[0])
    jobs = replay_jobs(
        drawn,
        forecasts_of(drawn, scenario.telling, seeds[1]),
        nnodes=nnodes,
        preemptable_share=scenario.preemptable_share,
        seed=seeds[2],
    )
    if scenario.telling.told is Told.MODEL and scenario.forecaster is not None:
        told = scenario.forecaster([each.job for each in jobs], scenario.rules.quantile)
        jobs = tuple(replace(each, forecast=forecast) for each, forecast in zip(jobs, told, strict=True))
    rates = scenario.fault_rates
    return Replay(
        (*jobs, *(announced_job(each, start_s) for each in scenario.announced)),
        scenario.ground,
        decide=decide,
        choose=choose,
        rules=scenario.rules,
        replay=replace(scenario.replay, until_s=start_s + scenario.replay.until_s),
        faults=() if rates is None else faults(nnodes, rates, start_s=start_s, seed=seeds[3]),
    ).run()


def announced_job(each: Announcement, start_s: float) -> ReplayJob:
    """Return an announced job whose times count from ``start_s``."""
    job = QueueJob(
        job_id=each.job_id,
        nnodes=each.nnodes,
        submitted_s=start_s + each.announced_s,
        expected_start_s=start_s + each.expected_s,
        nrows=each.nrows,
        ncolumns=each.ncolumns,
        alpha=each.alpha,
    )
    forecast = Forecast(mean_s=each.runtime_s, upper_s=each.runtime_s)
    return ReplayJob(job=job, forecast=forecast, runtime_s=each.runtime_s, arrives_s=start_s + each.arrives_s)


def _faults_of(scenario: Scenario) -> Iterator[str]:
    nnodes, names = len(scenario.ground.names), [each.job_id for each in scenario.announced]
    if scenario.telling.told is Told.MODEL and scenario.forecaster is None:
        yield "told: found model, but no predictor; expected one, or perfect, lognormal or limit"
    if len(set(names)) != len(names):
        yield f"announced jobs: found names {', '.join(names)}, expected a name for each"
    for each in scenario.announced:
        if not 1 <= each.nnodes <= nnodes:
            yield f"announced job {each.job_id}: found {each.nnodes} nodes, expected 1 to {nnodes}"
        if (each.nrows or each.nnodes) * (each.ncolumns or 1) != each.nnodes or (each.nrows and not each.ncolumns):
            yield (
                f"announced job {each.job_id}: found {each.nrows} rows and {each.ncolumns} columns, expected neither, "
                f"or both with a product of {each.nnodes}"
            )
        if each.announced_s > min(each.arrives_s, each.expected_s):
            yield f"announced job {each.job_id}: found it announced after it arrives or is expected, expected before"


def largest_minipod(ground: Ground) -> int:
    """Return the nodes of the largest minipod."""
    return max(mask.bit_count() for mask in ground.masks)

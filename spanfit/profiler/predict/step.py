"""The time of a step: every rank's program over the links of a placement, the critical path as it comes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from spanfit.errors import ConfigError
from spanfit.profiler.predict.alike import representatives
from spanfit.profiler.predict.network import HOST, Network, build_network
from spanfit.profiler.predict.parameters import ParametersFile
from spanfit.profiler.predict.ranks import StepRun, everyone, run_step
from spanfit.results.schema import Estimate
from spanfit.topology.model import Cluster, RankMap
from spanfit.workload.program import Collect, Compute, Operation, Program, Receive, Send

NDRAWS = 9
"""How often unfair shares are drawn unless the caller says otherwise."""
EVERYONE_UP_TO = 64
"""Beyond so many ranks, those that are alike are represented by few, and one draw is made."""
_NORMAL_95 = 1.96
_MEDIAN_FACTOR = 1.25
"""How much wider than a mean's the error of a median is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """What a step will take in a placement.

    Attributes
    ----------
    time_s : Estimate
        Median over draws of unfair shares; the 95% interval holds the error of the fit and what the draws differ by.
    communication_share : float
        Share of the step in which the rank that computes least does not compute.
    busiest_uplink : str
        The uplink that carries most in one direction, "" where nothing leaves a switch.
    busiest_uplink_bytes : float
    ndraws : int
    """

    time_s: Estimate
    communication_share: float
    busiest_uplink: str
    busiest_uplink_bytes: float
    ndraws: int


def predict_step(
    programs: Sequence[Program],
    cluster: Cluster,
    rank_map: RankMap,
    fabric: ParametersFile,
    *,
    ndraws: int = NDRAWS,
    seed: int = 0,
) -> StepPrediction:
    """Return what a step takes where rank i of a job runs as ``rank_map`` says.

    Parameters
    ----------
    programs : sequence of Program
        Of each rank of the job.
    cluster : Cluster
    rank_map : RankMap
        Holds as many ranks as there are programs.
    fabric : ParametersFile
    ndraws : int
        How often unfair shares are drawn; one draw is enough where the parameters have no spread.
    seed : int

    Raises
    ------
    ConfigError
        If the ranks do not fit the programs, or a program has compute of unknown time or a collective that is not
        modelled.
    """
    if len(programs) != rank_map.nranks:
        raise ConfigError(
            f"placement: found {rank_map.nranks} ranks, expected {len(programs)}, one for each program of the job"
        )
    network = build_network(cluster, rank_map)
    least_compute_s = min(map(compute_s, programs))
    parameters, is_unfair = fabric.parameters, fabric.parameters.spread > 0
    if len(programs) <= EVERYONE_UP_TO:
        cast = everyone(dict(enumerate(programs)), network, fabric.library)
    else:
        cast, ndraws = representatives(programs, network, fabric.library, is_unfair=is_unfair), 1
    draws = range(seed, seed + (ndraws if is_unfair else 1))
    runs = [run_step(cast, network, parameters, fabric.library, draw) for draw in draws]
    return _summed_up(network, runs, least_compute_s, fabric.error)


def side_by_side(programs: Sequence[Program], ngpus_per_node: int) -> tuple[Program, ...]:
    """Return the programs of all ranks where each local rank of the nodes does, with its like, what one is told to."""

    def moved(operation: Operation, local_rank: int) -> Operation:
        if isinstance(operation, Send | Receive):
            return replace(operation, peer=operation.peer * ngpus_per_node + local_rank)
        if isinstance(operation, Collect):
            return replace(operation, group=tuple(rank * ngpus_per_node + local_rank for rank in operation.group))
        return operation

    return tuple(
        tuple(moved(operation, local_rank) for operation in program)
        for program in programs
        for local_rank in range(ngpus_per_node)
    )


def compute_s(program: Program) -> float:
    """Return the seconds that a program computes; ConfigError where the time of a part is not known."""
    return sum(map(_known_s, (each for each in program if isinstance(each, Compute))))


def _known_s(compute: Compute) -> float:
    if compute.time_s is None:
        raise ConfigError(
            f"compute of stage {compute.timer.stage}: found no time, expected one; "
            "give the job a flops_per_s, so that its compute can be timed"
        )
    return compute.time_s


def _summed_up(network: Network, runs: Sequence[StepRun], least_compute_s: float, error: float) -> StepPrediction:
    middle, half = _interval([math.log(run.time_s) for run in runs], error)
    carried_bytes, uplink = _busiest(network, runs[0].carried_bytes)
    return StepPrediction(
        time_s=Estimate(value=math.exp(middle), ci_low=math.exp(middle - half), ci_high=math.exp(middle + half)),
        communication_share=1 - least_compute_s / math.exp(middle),
        busiest_uplink=uplink,
        busiest_uplink_bytes=carried_bytes,
        ndraws=len(runs),
    )


def _interval(logs: Sequence[float], error: float) -> tuple[float, float]:
    """Return the median of log times and half the width of its interval."""
    middle = median(logs)
    spread = math.sqrt(sum((log - middle) ** 2 for log in logs) / len(logs))
    return middle, _NORMAL_95 * math.hypot(error, _MEDIAN_FACTOR * spread / math.sqrt(len(logs)))


def _busiest(network: Network, carried_bytes: Iterable[float]) -> tuple[float, str]:
    """Return the bytes of the uplink that carries most, and which it is."""
    uplinks = [
        (float(round(carried)), link.label())
        for link, carried in zip(network.links, carried_bytes, strict=True)
        if link.link_class != HOST and carried
    ]
    return max(uplinks, key=lambda found: found[0], default=(0.0, ""))

"""The time of a step: every rank's program over the links of a placement, the critical path as it comes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from spanfit.errors import ConfigError
from spanfit.profiler.predict.alike import lanes, representatives
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import Network, Wiring
from spanfit.profiler.predict.parameters import ParametersFile
from spanfit.profiler.predict.ranks import Cast, Shortened, everyone, run_step, shortened
from spanfit.profiler.predict.traffic import LinkTraffic, link_traffic
from spanfit.results.schema import Estimate
from spanfit.topology.model import Cluster, RankMap
from spanfit.workload.job import Job, StepJob
from spanfit.workload.program import Compute, Program
from spanfit.workload.script import Script, write_script

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


class StepPredictor:
    """What a step of one job takes in placements on one cluster.

    Made once, it answers for as many placements as are asked for: the job's programs and the cluster's wiring are read
    once, and placements that differ by the names of nodes and switches only are simulated once.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    fabric : ParametersFile
        To rank many placements, take ``fabric.fair()``: one draw does, and ranks of a node that are alike run as one.
    ngpus_per_node : int
        Ranks on each node; a job known by its volumes only runs once for each.
    ndraws : int
        How often unfair shares are drawn; one draw is made where shares are fair, or ranks stand for others.
    seed : int

    Raises
    ------
    ConfigError
        If the job has compute of unknown time.

    Examples
    --------
    >>> from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters
    >>> from spanfit.topology.model import Node
    >>> nodes = tuple(Node(name=f"n{i}", fabric=(f"m{i // 2}", "core")) for i in range(4))
    >>> cluster = Cluster(name="four", tiers=("minipod", "core"), nodes=nodes)
    >>> fabric = ParametersFile(
    ...     schema_version=PARAMETERS_VERSION, run_ids=(), curves_hashes=(), cluster="four", cluster_hash="",
    ...     library=Library.NCCL, error=0.02, residuals=(), not_fitted={},
    ...     parameters=Parameters(rates_bytes_per_s={"host": 1e9, "minipod": 5e8}),
    ... )
    >>> job = StepJob(name="job", dp=2, pp=2, nmicrobatches=1, activation_bytes=10**6, gradient_bytes=10**8,
    ...               forward_s=0.01, backward_s=0.02)
    >>> predictor = StepPredictor(job, cluster, fabric)
    >>> rows, columns = ("n0", "n1", "n2", "n3"), ("n0", "n2", "n1", "n3")
    >>> [round(predictor.step_time_s(seated(job, cells, 1)), 3) for cells in (rows, columns)]
    [0.441, 0.168]
    >>> predictor.traffic(seated(job, columns, 1)).busiest_bytes
    2000000
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        fabric: ParametersFile,
        *,
        ngpus_per_node: int = 1,
        ndraws: int = NDRAWS,
        seed: int = 0,
    ) -> None:
        self.fabric = fabric
        self.script = write_script(job, ngpus_per_node)
        self.ngpus_per_node = ngpus_per_node
        self.least_compute_s = min(map(compute_s, self.script.programs))
        self._wiring = Wiring(cluster)
        self._is_unfair = fabric.parameters.spread > 0
        is_drawn = self._is_unfair and self.script.nranks <= EVERYONE_UP_TO
        self._draws = range(seed, seed + (ndraws if is_drawn else 1))
        self._short: Shortened = {}
        self._known: dict[bytes, tuple[float, ...]] = {}

    def predict(self, rank_map: RankMap) -> StepPrediction:
        """Return what a step takes where rank i of the job runs as ``rank_map`` says.

        Raises
        ------
        ConfigError
            If the ranks do not fit the job or its nodes, or it has a collective that is not modelled.
        """
        network = self._network(rank_map)
        middle, half = _interval(self._logs(network), self.fabric.error)
        moved = link_traffic(self.script, network, self.fabric.library)
        return StepPrediction(
            time_s=Estimate(value=math.exp(middle), ci_low=math.exp(middle - half), ci_high=math.exp(middle + half)),
            communication_share=1 - self.least_compute_s / math.exp(middle),
            busiest_uplink=moved.busiest,
            busiest_uplink_bytes=float(moved.busiest_bytes),
            ndraws=len(self._draws),
        )

    def step_time_s(self, rank_map: RankMap) -> float:
        """Return what :meth:`predict` estimates, and nothing else [s]."""
        return math.exp(median(self._logs(self._network(rank_map))))

    def traffic(self, rank_map: RankMap) -> LinkTraffic:
        """Return what leaves switches in a step, without simulating it."""
        return link_traffic(self.script, self._network(rank_map), self.fabric.library)

    def _network(self, rank_map: RankMap) -> Network:
        if faults := list(self._faults(rank_map)):
            raise ConfigError(f"placement: {'; '.join(faults)}")
        return self._wiring.network(rank_map)

    def _faults(self, rank_map: RankMap) -> Iterator[str]:
        """Yield why a placement is none of this job."""
        if self.script.nranks != rank_map.nranks:
            yield f"found {rank_map.nranks} ranks, expected {self.script.nranks}, one for each of the job"
        if self.ngpus_per_node != rank_map.ngpus_per_node:
            yield (
                f"found {rank_map.ngpus_per_node} ranks on a node, expected {self.ngpus_per_node}, for which this "
                "predictor was made"
            )
        if twice := [name for name, count in Counter(rank_map.node_names).items() if count > 1]:
            yield f"found {', '.join(twice[:8])} more than once, expected every node once"

    def _logs(self, network: Network) -> tuple[float, ...]:
        """Return the logarithm of the step time in each draw."""
        key = network.digest()
        if key not in self._known:
            parameters, library = self.fabric.parameters, self.fabric.library
            cast = _cast_of(self.script, network, library, is_unfair=self._is_unfair)
            cast = shortened(cast, parameters, self._short)
            times_s = [run_step(cast, network, parameters, library, draw) for draw in self._draws]
            self._known[key] = tuple(map(math.log, times_s))
        return self._known[key]


def _cast_of(script: Script, network: Network, library: Library, *, is_unfair: bool) -> Cast:
    """Return whom to simulate: everyone while ranks are few, and of ranks alike one where that changes nothing."""
    if script.nranks > EVERYONE_UP_TO:
        return representatives(script, network, library, is_unfair=is_unfair)
    if is_unfair or library is Library.GLOO:
        return everyone(script, network, library)
    return lanes(script, network, library)


def seated(job: Job, names: Sequence[str], ngpus_per_node: int) -> RankMap:
    """Return where a job's ranks run; ``names`` holds the node of each cell of its grid, row by row."""
    if isinstance(job, StepJob):
        return RankMap(node_names=tuple(names), ngpus_per_node=ngpus_per_node)
    _, ncolumns = job.layout.grid(ngpus_per_node)
    cells = job.layout.node_cells(ngpus_per_node)
    in_rank_order = tuple(names[row * ncolumns + column] for row, column in cells)
    return RankMap(node_names=in_rank_order, ngpus_per_node=ngpus_per_node)


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


def _interval(logs: Sequence[float], error: float) -> tuple[float, float]:
    """Return the median of log times and half the width of its interval."""
    middle = median(logs)
    spread = math.sqrt(sum((log - middle) ** 2 for log in logs) / len(logs))
    return middle, _NORMAL_95 * math.hypot(error, _MEDIAN_FACTOR * spread / math.sqrt(len(logs)))

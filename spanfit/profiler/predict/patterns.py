"""Micro-patterns: collectives on groups of a stated shape, as curves hold them, measured and simulated alike.

A curve does not say on which nodes its groups lay, but the shape of a group (nodes, span, order, how many at once)
says as much on a fabric whose links of a class are alike: groups are drawn as a campaign draws them.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import median

from spanfit.bench.case import Concurrency, RankOrder
from spanfit.bench.groups import NodeTree, draw_groups, order_ranks
from spanfit.collectives import Collective, busbw_factor
from spanfit.errors import FitError
from spanfit.profiler.curves_file import Curve, CurvesFile
from spanfit.profiler.predict.collectives import Library, Part, whole
from spanfit.profiler.predict.network import Network, build_network
from spanfit.profiler.predict.parameters import Parameters
from spanfit.profiler.predict.sharing import Sharing
from spanfit.profiler.predict.simulation import Event, Process, Simulation
from spanfit.topology.model import Cluster, NodeState, RankMap

_POINT_TO_POINT = (Collective.SEND, Collective.SEND_RECV)
_USED = (*_POINT_TO_POINT, Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
"""``exchange`` is not among them: gloo lets the two directions of one connection take turns, whatever its links are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Groups that do the same at the same time.

    Attributes
    ----------
    name : str
        The curve that it is a point of.
    groups : tuple of tuple of int
        Ranks of each group in rank order.
    time_s : float
        What was measured: the median over groups, each with its slowest rank [s].
    """

    name: str
    network: Network
    collective: Collective
    size_bytes: int
    groups: tuple[tuple[int, ...], ...]
    time_s: float

    @property
    def is_collective(self) -> bool:
        """Whether it is more than a message of each rank."""
        return self.collective not in _POINT_TO_POINT

    @property
    def shares_links(self) -> bool:
        """Whether flows of the pattern share a link, so that unfair shares matter."""
        links = [link for edge in self._edges() for link in self.network.path(*edge)]
        return len(links) > len(set(links))

    def carried_bytes(self) -> dict[int, float]:
        """Return the least that each link carries, if no collective sends more than busbw counts."""
        carried: dict[int, float] = {}
        for edge in self._edges():
            for link in self.network.path(*edge):
                size_bytes = self.size_bytes * busbw_factor(self.collective, len(self.groups[0]))
                carried[link] = carried.get(link, 0.0) + size_bytes
        return carried

    def _edges(self) -> list[tuple[int, int]]:
        return [edge for group in self.groups for edge in _edges(self.collective, group)]


def _edges(collective: Collective, group: tuple[int, ...]) -> list[tuple[int, int]]:
    if collective is Collective.SEND:
        return list(zip(group, group[len(group) // 2 :], strict=False))
    return [(rank, group[place - 1]) for place, rank in enumerate(group)]


def patterns(curves: CurvesFile, cluster: Cluster) -> Iterator[Pattern]:
    """Yield the points of curves that hold a time and tell of the fabric: flows of one message, and rings.

    Raises
    ------
    FitError
        If the curves name a group that the idle nodes of the cluster do not hold.
    """
    idle = [node for node in cluster.nodes if node.state is NodeState.IDLE]
    names = tuple(node.name for nodes in cluster.minipods(idle).values() for node in nodes)
    tree = NodeTree(tiers=cluster.tiers, fabric=tuple(node.fabric for node in cluster.select(names)))
    networks: dict[int, Network] = {}
    for curve in curves.curves:
        if Collective(curve.operation) not in _USED or curve.rail >= 0:
            continue
        per_node = curve.nranks // curve.nnodes
        if per_node not in networks:
            networks[per_node] = build_network(cluster, RankMap(node_names=names, ngpus_per_node=per_node))
        try:
            groups = _groups(curve, tree)
        except ValueError as error:
            raise FitError(f"run {curves.run_id}: {error}; expected curves of cluster {cluster.name}") from None
        for point in curve.points:
            if point.time_s is not None:
                yield Pattern(
                    name=f"{curve.operation} {curve.nnodes} nodes span {curve.span} {curve.tier} {curve.rank_order} "
                    f"{curve.concurrency}",
                    network=networks[per_node],
                    collective=Collective(curve.operation),
                    size_bytes=point.size_bytes,
                    groups=groups,
                    time_s=point.time_s.value,
                )


def _groups(curve: Curve, tree: NodeTree) -> tuple[tuple[int, ...], ...]:
    drawn = draw_groups(tree.siblings(curve.tier), curve.nnodes, curve.span, Random(0))
    chosen = drawn[: {Concurrency.ALONE: 1, Concurrency.PAIR: 2}.get(Concurrency(curve.concurrency), len(drawn))]
    domains, per_node = tree.domains(curve.tier), curve.nranks // curve.nnodes
    return tuple(
        tuple(
            node * per_node + local
            for node in order_ranks(group, domains, RankOrder(curve.rank_order))
            for local in range(per_node)
        )
        for group in chosen
    )


def simulate_pattern(pattern: Pattern, parameters: Parameters, library: Library, ndraws: int, seed: int = 0) -> float:
    """Return the time of a pattern [s], the median over groups and draws."""
    ndraws = ndraws if parameters.spread and pattern.shares_links else 1
    times_s = [time_s for draw in range(ndraws) for time_s in _draw(pattern, parameters, library, seed + draw)]
    return math.exp(median(map(math.log, times_s)))


def _draw(pattern: Pattern, parameters: Parameters, library: Library, seed: int) -> list[float]:
    """Return the time of each group's slowest rank."""
    sharing = Sharing(parameters.conduct(pattern.network), seed)
    simulation = Simulation(pattern.network.route, sharing, parameters.latency_s)
    ends_s = [0.0] * len(pattern.groups)

    def ended(number: int, process: Process) -> Process:
        yield parameters.start_s
        yield from process
        ends_s[number] = max(ends_s[number], simulation.now_s)

    for number, group in enumerate(pattern.groups):
        for process in _processes(pattern, group, simulation, parameters, library):
            simulation.spawn(ended(number, process))
    simulation.run()
    return ends_s


def _processes(
    pattern: Pattern, group: tuple[int, ...], simulation: Simulation, parameters: Parameters, library: Library
) -> Iterable[Process]:
    collective, size_bytes = pattern.collective, float(pattern.size_bytes)
    if collective in _POINT_TO_POINT:
        edges = _edges(collective, group)
        return [_wait([simulation.receive(None, *edge), simulation.send(None, *edge, size_bytes)]) for edge in edges]
    if library is Library.GLOO:
        return [
            _call(
                Part(simulation, group, me, 0, parameters.reduction_s_per_byte).run(collective, size_bytes), parameters
            )
            for me in range(len(group))
        ]
    flow = whole(pattern.network, library, collective, group, size_bytes)
    arrival = Event()
    simulation.carry(group, flow.use, flow.edge_bytes, arrival)
    return [_call(_later([arrival], flow.hops * parameters.latency_s), parameters)]


def _wait(events: list[Event]) -> Process:
    yield from events


def _later(events: list[Event], delay_s: float) -> Process:
    yield delay_s
    yield from events


def _call(process: Process, parameters: Parameters) -> Process:
    yield from process
    yield parameters.call_s

"""A placement after nodes have failed: the same spreads with the fewest moved nodes, or the best trade between both."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from spanfit.errors import ConfigError, InfeasibleError
from spanfit.placer.constraints import by_minipod, ep_nodes, free_nodes
from spanfit.placer.joint import Weighing
from spanfit.placer.model import Grid, Placement, PlacementStatus, column_spreads, row_spreads
from spanfit.placer.moves import Bools, Damage, Plan, applied
from spanfit.placer.place import crossing_of
from spanfit.placer.rules import ACCELERATOR
from spanfit.placer.search import Task, solve_ways
from spanfit.placer.seats import ep_spreads, seated
from spanfit.placer.settle import Mended, mend
from spanfit.topology.model import Cluster, Node

_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMove:
    """A node rank that gets another node."""

    node_rank: int
    old: str
    new: str
    minipod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to mend: its largest spreads, its objective, and how many ranks get other nodes."""

    dp_spread: int
    pp_spread: int
    objective: float
    nmoves: int
    is_fewest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A mended placement.

    Attributes
    ----------
    placement : Placement
    moves : tuple of NodeMove
        Failed ranks among them.
    options : tuple of Option
        All that were found, the chosen one first.
    again_objective : float
        What placing the job again reached, where every node may move.
    """

    placement: Placement
    moves: tuple[NodeMove, ...]
    options: tuple[Option, ...]
    again_objective: float


def repair(
    placement: Placement,
    cluster: Cluster,
    failed: Collection[str],
    *,
    max_moves: int | None = None,
    time_limit_s: float = 10.0,
    seed: int = 0,
) -> Repair:
    """Return a placement without its failed nodes: of the lowest objective, then with the fewest moves.

    Spares that the placement kept are used up like any free node. Nodes of the placement that the cluster says are
    down or drained count as failed too.

    Parameters
    ----------
    placement : Placement
    cluster : Cluster
        As it is now; nodes that the job holds may be idle, allocated or reserved there.
    failed : collection of str
        Nodes of the placement.
    max_moves : int, optional
        The most moves that an option may have.
    time_limit_s : float
        For all searches together.
    seed : int

    Raises
    ------
    ConfigError
        If a failed node is not of the placement, a node of the placement not of the cluster, or a pinned one lost.
    InfeasibleError
        If the free nodes cannot mend it, in numbers.
    """
    start = time.perf_counter()
    wounded = _Wounded.of(placement, cluster, failed)
    found = [*_options(wounded, time_limit_s / 2, seed)]
    allowed = [each for each in found if max_moves is None or len(each[1].plan) <= max_moves]
    if not allowed:
        raise InfeasibleError(_shortage(wounded, [len(mended.plan) for _, mended in found], max_moves))
    best = min(allowed, key=lambda each: (round(each[0].objective, 9), each[0].nmoves))
    options = [best[0], *(option for option, _ in found if option is not best[0])]
    weighing = Weighing(
        alpha=placement.alpha,
        beta=placement.beta,
        ep_weight=placement.ep_weight,
        reading=placement.reading,
        time_limit_s=time_limit_s / 2,
        seed=seed,
    )
    again = solve_ways(wounded.task, weighing)
    weakest = min(again, key=lambda each: each.bound)
    mended, moves = wounded.mended(best[1].plan, weakest.bound, weakest.certificate)
    lowest = min(seated(wounded.task, each, each.solution.grid, weighing).objective for each in again)
    mended = replace(mended, solve_s=time.perf_counter() - start)
    return Repair(placement=mended, moves=moves, options=tuple(options), again_objective=lowest)


def _options(wounded: "_Wounded", time_limit_s: float, seed: int) -> Iterator[tuple[Option, Mended]]:
    """Yield how to mend at the placement's own largest spreads, and one wider each, until nothing can be better."""
    placement = wounded.placement
    a, b = max(placement.dp_spreads), max(placement.pp_spreads)
    cheapest_first = sorted(
        product((0, 1), repeat=2), key=lambda wider: placement.alpha * wider[0] + placement.beta * wider[1]
    )
    for wider_a, wider_b in cheapest_first:
        mended = mend(wounded.damage(a + wider_a, b + wider_b), time_limit_s=time_limit_s / 4, seed=seed)
        if mended is None:
            continue
        after = applied(wounded.grid, mended.plan)
        option = Option(
            dp_spread=max(column_spreads(after)),
            pp_spread=max(row_spreads(after)),
            objective=_objective(placement, after),
            nmoves=len(mended.plan),
            is_fewest=mended.is_fewest,
        )
        yield option, mended
        if len(mended.plan) == len(wounded.failed) and not placement.ep_weight:
            return


def _objective(placement: Placement, grid: Grid) -> float:
    """Return the objective of a grid under a placement's weights."""
    count = placement.reading.of
    value = placement.alpha * count(max(column_spreads(grid))) + placement.beta * count(max(row_spreads(grid)))
    return value + placement.ep_weight * count(max(_ep_spreads(placement, grid), default=1))


def _ep_spreads(placement: Placement, grid: Grid) -> tuple[int, ...]:
    return ep_spreads(grid, ep_nodes(placement.job)) if placement.ep_spreads else ()


def _shortage(wounded: "_Wounded", found: Sequence[int], max_moves: int | None) -> str:
    job, failed, unused = wounded.placement.job, len(wounded.failed), wounded.unused()
    if found:
        return f"job {job.name} can be mended with {min(found)} moves; max_moves allows {max_moves}; allow more"
    listed = by_minipod(wounded.task.cluster, unused)
    return (
        f"job {job.name} has lost nodes: {failed}; other free nodes: {len(unused)}{f' ({listed})' if listed else ''}; "
        f"no moves within one more minipod a group mend it; free {max(1, failed - len(unused))} more or place it again"
    )


def _check(placement: Placement, cluster: Cluster, failed: Collection[str]) -> None:
    """Raise ConfigError unless the failed nodes are of the placement, and its nodes of the cluster."""
    names, known = placement.rank_map.node_names, {node.name for node in cluster.nodes}
    if strangers := sorted(set(failed) - set(names)):
        raise ConfigError(f"failed: found {', '.join(strangers)}; expected nodes of the placement")
    if gone := [name for name in names if name not in known]:
        raise ConfigError(
            f"the placement has nodes {', '.join(gone)}, which cluster {cluster.name} does not; give the cluster "
            "that it was made for, failed nodes included in whatever state"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wounded:
    """A placement, the cluster as it is now, the nodes that can mend it, and which ranks lack one."""

    placement: Placement
    task: Task
    usable: tuple[Node, ...]
    failed: frozenset[str]
    grid: Grid

    @classmethod
    def of(cls, placement: Placement, cluster: Cluster, failed: Collection[str]) -> "_Wounded":
        _check(placement, cluster, failed)
        names = placement.rank_map.node_names
        rules = replace(placement.rules, spares=0, excluded=tuple(sorted({*placement.rules.excluded, *failed})))
        task = Task(
            job=placement.job, cluster=cluster, rules=rules, nodes=free_nodes(placement.job, cluster, rules, names)
        )
        usable = task.nodes
        if rules.within:
            home = {cluster.switch(node, rules.within) for node in cluster.select(names)}
            usable = tuple(node for node in usable if cluster.switch(node, rules.within) in home)
        lost = frozenset(names) - {node.name for node in usable}
        if pinned := sorted(lost & set(placement.rules.pinned)):
            raise ConfigError(f"failed: found {', '.join(pinned)}, which the placement pins; place the job again")
        index = {path: number for number, path in enumerate(cluster.minipods())}
        seats = dict(zip(placement.cells, cluster.select(names), strict=True))
        nrows, ncolumns = len(placement.pp_spreads), len(placement.dp_spreads)
        rows = (tuple(index[cluster.minipod(seats[row, column])] for column in range(ncolumns)) for row in range(nrows))
        return cls(
            placement=placement,
            task=task,
            usable=usable,
            failed=lost,
            grid=tuple(rows),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.placement.rank_map.node_names

    def dead(self) -> tuple[tuple[int, int], ...]:
        pairs = zip(self.placement.cells, self.names, strict=True)
        return tuple(cell for cell, name in pairs if name in self.failed)

    def unused(self) -> tuple[Node, ...]:
        used = set(self.names)
        return tuple(node for node in self.usable if node.name not in used)

    def damage(self, a: int, b: int) -> Damage:
        cluster = self.task.cluster
        held = Counter(cluster.minipod(node) for node in self.unused())
        spare = tuple(held[path] for path in cluster.minipods())
        return Damage(grid=self.grid, failed=self.dead(), spare=spare, a=a, b=b, may=self._mask())

    def _mask(self) -> Bools | None:
        """Return where cells may lie under rules on pins, models or EP domains, None where there are no such rules.

        A cell may go where all nodes are of its own model. A cell whose EP group may not leave its domain stays where
        it is, and only a node of the domain can replace its own; a cell of a pinned node stays too.
        """
        rules, cluster = self.task.rules, self.task.cluster
        if not (rules.pinned or rules.binds_models or rules.ep_within):
            return None
        pinned = frozenset(rules.pinned)
        members = cluster.minipods(self.usable)
        models = [{node.gpu_model for node in members.get(path, ())} for path in cluster.minipods()]
        may = np.zeros((len(self.grid), len(self.grid[0]), len(models)), dtype=bool)
        for cell, node in zip(self.placement.cells, cluster.select(self.names), strict=True):
            may[*cell, self.grid[cell[0]][cell[1]]] = True
            if node.name not in pinned and not rules.ep_within:
                suits = [not rules.binds_models or found == {node.gpu_model} for found in models]
                may[cell] |= np.array(suits)
        return may

    def mended(self, plan: Plan, bound: float, certificate: str) -> tuple[Placement, tuple[NodeMove, ...]]:
        """Return the placement after a plan, and its moves."""
        placement, cluster = self.placement, self.task.cluster
        names = self._names(plan)
        free = {node.name for node in self.usable} - set(names)
        grid = applied(self.grid, plan)
        label_of = cluster.switch_labels("minipod")
        labels = [label_of[path] for path in cluster.minipods()]
        minipods = tuple(labels[grid[row][column]] for row, column in placement.cells)
        value = _objective(placement, grid)
        is_optimal = value - bound <= _SAME
        moves = tuple(
            NodeMove(node_rank=rank, old=old, new=new, minipod=minipods[rank])
            for rank, (old, new) in enumerate(zip(self.names, names, strict=True))
            if old != new
        )
        mended = replace(
            placement,
            rank_map=replace(placement.rank_map, node_names=names),
            minipods=minipods,
            dp_spreads=column_spreads(grid),
            pp_spreads=row_spreads(grid),
            ep_spreads=_ep_spreads(placement, grid),
            objective=value,
            bound=value if is_optimal else bound,
            status=PlacementStatus.OPTIMAL if is_optimal else PlacementStatus.FEASIBLE,
            certificate=certificate,
            solver="repair",
            rules=self.task.rules,
            spares=tuple(name for name in placement.spares if name in free),
            crossing=crossing_of(grid, placement.job, labels),
            step_s=None,
        )
        return mended, moves

    def _names(self, plan: Plan) -> tuple[str, ...]:
        """Return the node of each rank after a plan; a rank takes a node of its old leaf where one is left."""
        cluster = self.task.cluster
        by_name = {node.name: node for node in cluster.nodes}
        paths = list(cluster.minipods())
        name_of = dict(zip(self.placement.cells, self.names, strict=True))
        staying = {name for cell, name in name_of.items() if cell not in plan}
        pool = [node for node in self.usable if node.name not in staying]
        spares = set(self.placement.spares)
        for cell, minipod in plan.items():
            old = by_name[name_of[cell]]
            fitting = [node for node in pool if cluster.minipod(node) == paths[minipod] and self._suits(node, old)]
            if not fitting:
                raise InfeasibleError(
                    f"no node that is free suits {old.name} by the rules on models and EP domains; place the job again"
                )
            new = min(fitting, key=lambda node: (node.fabric != old.fabric, node.name not in spares))
            pool.remove(new)
            name_of[cell] = new.name
        return tuple(name_of[cell] for cell in self.placement.cells)

    def _suits(self, node: Node, old: Node) -> bool:
        rules, cluster = self.task.rules, self.task.cluster
        if rules.binds_models and node.gpu_model != old.gpu_model:
            return False
        if rules.ep_within == ACCELERATOR:
            return node.accelerator_domain is not None and node.accelerator_domain == old.accelerator_domain
        return not rules.ep_within or cluster.switch(node, rules.ep_within) == cluster.switch(old, rules.ep_within)

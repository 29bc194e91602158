"""Why a placement is as it is: the groups of every minipod, and what one more free node somewhere would buy."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from spanfit.placer.constraints import free_nodes
from spanfit.placer.joint import Weighing
from spanfit.placer.model import Placement
from spanfit.placer.search import Task
from spanfit.topology.model import Cluster

_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class MinipodUse:
    """A minipod as a placement uses it.

    Attributes
    ----------
    minipod : str
    free, taken : int
        Nodes that the job might have, those that it takes among them, and those that it takes.
    dp_groups, pp_groups : int
        Groups that touch it.
    widest : int
        Groups of either kind that touch it and have the largest spread of their kind, where that is above 1.
    gain : float or None
        By how much the objective would fall with one more free unit (a node, or a whole EP group that must not leave
        its domain) here; None where that was not looked at.
    """

    minipod: str
    free: int
    taken: int
    dp_groups: int
    pp_groups: int
    widest: int
    gain: float | None


def explain(placement: Placement, cluster: Cluster, *, time_limit_s: float = 5.0) -> tuple[MinipodUse, ...]:
    """Return how a placement uses every minipod, those that limit it first.

    One more node is tried by solving again, once for all minipods of as many free nodes, while time is left. It is not
    tried where the rules pin nodes or leave several ways, where a node more is no longer a node in one pool.
    """
    task = Task(
        job=placement.job,
        cluster=cluster,
        rules=placement.rules,
        nodes=free_nodes(placement.job, cluster, placement.rules, placement.rank_map.node_names),
    )
    gains = _gains(placement, task, time_limit_s)
    labels = cluster.switch_labels("minipod")
    free = {labels[path]: len(nodes) for path, nodes in cluster.minipods(task.nodes).items()}
    found = [_use(placement, minipod, nodes, gains.get(minipod)) for minipod, nodes in free.items()]
    return tuple(sorted(found, key=lambda use: (-(use.gain or 0.0), -use.widest, -use.taken)))


def _use(placement: Placement, minipod: str, free: int, gain: float | None) -> MinipodUse:
    cells = [cell for cell, name in zip(placement.cells, placement.minipods, strict=True) if name == minipod]
    rows, columns = {row for row, _ in cells}, {column for _, column in cells}
    widest_row, widest_column = max(placement.pp_spreads), max(placement.dp_spreads)
    return MinipodUse(
        minipod=minipod,
        free=free,
        taken=len(cells),
        dp_groups=len(columns),
        pp_groups=len(rows),
        widest=sum(placement.pp_spreads[row] == widest_row > 1 for row in rows)
        + sum(placement.dp_spreads[column] == widest_column > 1 for column in columns),
        gain=gain,
    )


def _gains(placement: Placement, task: Task, time_limit_s: float) -> Mapping[str, float]:
    """Return by how much one more unit in each minipod lowers the objective, of those that there was time for."""
    rules = placement.rules
    if rules.pinned or rules.within or rules.one_model or rules.stage_models or placement.ep_weight:
        return {}
    ground = task.ground(rules)
    free = ground.pooled(task.nodes).free
    labels = task.cluster.switch_labels("minipod")
    deadline = time.monotonic() + time_limit_s
    by_room: dict[int, float] = {}
    for minipod in sorted(range(len(free)), key=lambda m: -free[m]):
        left_s = deadline - time.monotonic()
        if free[minipod] not in by_room and left_s > 0:
            weighing = Weighing(
                alpha=placement.alpha, beta=placement.beta, reading=placement.reading, time_limit_s=left_s / 2
            )
            more = [*free[:minipod], free[minipod] + 1, *free[minipod + 1 :]]
            value = weighing.solve(ground.nrows, ground.ncolumns, more).objective
            by_room[free[minipod]] = max(0.0, placement.objective - value)
    return {labels[path]: by_room[room] for path, room in zip(ground.minipods, free, strict=True) if room in by_room}

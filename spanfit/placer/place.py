"""A job on the free nodes of a cluster: from the cluster to the problem, and from its grid back to nodes and ranks."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from spanfit.errors import ConfigError, InfeasibleError
from spanfit.placer.baselines import best_fit
from spanfit.placer.model import (
    SCHEMA_VERSION,
    Grid,
    JobSpec,
    Placement,
    PlacementStatus,
    Problem,
    column_spreads,
    objective,
    row_spreads,
)
from spanfit.placer.solve import solve
from spanfit.topology.model import Cluster, Node, NodeState, RankMap, SwitchPath
from spanfit.weights.model import WeightEntry, WeightSet

_CHAIN_STARTS = 16
_SAME = 1e-9


def free_nodes(job: JobSpec, cluster: Cluster) -> tuple[Node, ...]:
    """Return the nodes that the job may take: idle, with enough GPUs and of its GPU model as far as is known."""
    return tuple(
        node
        for node in cluster.nodes
        if node.state is NodeState.IDLE
        and (node.ngpus is None or node.ngpus >= job.ngpus_per_node)
        and (job.gpu_model is None or node.gpu_model == job.gpu_model)
    )


def place(
    job: JobSpec,
    cluster: Cluster,
    *,
    alpha: float,
    beta: float,
    weights_hash: str = "",
    time_limit_s: float = 10.0,
    seed: int = 0,
) -> Placement:
    """Return a job's nodes in node-rank order, with what is known of the placement's objective.

    Parameters
    ----------
    job : JobSpec
    cluster : Cluster
    alpha, beta : float
        Weights of the largest DP (column) and PP (row) spread, shares of one that sum to 1.
    weights_hash : str
        SHA-256 of the weights file, "" where the weights were given by hand.
    time_limit_s : float
        Wall-clock seconds for the solver.
    seed : int

    Raises
    ------
    InfeasibleError
        If too few nodes are free.
    ConfigError
        If the weights are no shares of one.
    """
    if not (0 <= alpha <= 1 and abs(alpha + beta - 1) <= _SAME):
        raise ConfigError(f"alpha is {alpha}, beta is {beta}; expected shares of one that sum to 1")
    members = cluster.minipods(free_nodes(job, cluster))
    nrows, ncolumns = job.layout.grid(job.ngpus_per_node)
    _check_room(job, cluster, members, nrows * ncolumns)
    free = tuple(len(nodes) for nodes in members.values())
    problem = Problem(nrows=nrows, ncolumns=ncolumns, free=free, alpha=alpha, beta=beta)
    start = time.perf_counter()
    solution = solve(problem, time_limit_s=time_limit_s, seed=seed)
    solve_s = time.perf_counter() - start
    grid, peer = orderly(solution.grid), best_fit(problem)
    nodes = _assign(grid, list(members.values()))
    cells = job.layout.node_cells(job.ngpus_per_node)
    label_of = cluster.switch_labels("minipod")
    labels = [label_of[path] for path in members]
    return Placement(
        schema_version=SCHEMA_VERSION,
        job=job,
        cluster=cluster.name,
        rank_map=RankMap(node_names=tuple(nodes[cell].name for cell in cells), ngpus_per_node=job.ngpus_per_node),
        cells=cells,
        minipods=tuple(labels[grid[row][column]] for row, column in cells),
        dp_spreads=column_spreads(grid),
        pp_spreads=row_spreads(grid),
        objective=solution.objective,
        bound=solution.bound,
        status=solution.status,
        certificate=solution.certificate,
        solver=solution.solver,
        solve_s=solve_s,
        best_fit_objective=objective(peer, problem),
        best_fit_dp_spread=max(column_spreads(peer)),
        best_fit_pp_spread=max(row_spreads(peer)),
        alpha=alpha,
        beta=beta,
        weights_hash=weights_hash,
    )


def _check_room(job: JobSpec, cluster: Cluster, members: Mapping[SwitchPath, Sequence[Node]], needed: int) -> None:
    total = sum(map(len, members.values()))
    if total >= needed:
        return
    label_of = cluster.switch_labels("minipod")
    by_minipod = ", ".join(f"{label_of[path]} {len(nodes)}" for path, nodes in members.items())
    model = f" of {job.gpu_model}" if job.gpu_model else ""
    raise InfeasibleError(
        f"job {job.name} needs {needed} nodes of {job.ngpus_per_node} GPUs; cluster {cluster.name} has {total} free"
        f"{model}{f' ({by_minipod})' if by_minipod else ''}; free {needed - total} more or make the job smaller"
    )


def orderly(grid: Grid) -> Grid:
    """Return the grid with its rows and columns in an order in which neighbours change minipods least.

    Equal rows become adjacent, so a ring over a column crosses minipods about as often as it must; columns are
    ordered so that a chain along a row does.
    """
    cells = np.array(grid)
    cells = cells[:, _chain(cells.T, is_ring=False)]
    cells = cells[_chain(cells, is_ring=True)]
    return tuple(tuple(int(cell) for cell in row) for row in cells)


def _chain(vectors: npt.NDArray[np.int64], *, is_ring: bool) -> npt.NDArray[np.intp]:
    """Return an order of vectors with few changes between neighbours: as they are, or the nearest next, greedily."""
    distinct, place = np.unique(vectors, axis=0, return_inverse=True)
    first_seen = list(dict.fromkeys(place.ravel().tolist()))
    distance = np.stack([(distinct != vector).sum(axis=1) for vector in distinct])
    orders = [first_seen, *(_nearest_next(distance, start) for start in first_seen[:_CHAIN_STARTS])]

    def changes(order: Sequence[int]) -> int:
        closing = int(distance[order[-1], order[0]]) if is_ring else 0
        return int(distance[order[:-1], order[1:]].sum()) + closing

    best = min(orders, key=changes)
    return np.argsort(np.argsort(best)[place.ravel()], kind="stable")


def _nearest_next(distance: npt.NDArray[np.int64], start: int) -> list[int]:
    order, remaining = [start], np.ones(len(distance), dtype=bool)
    remaining[start] = False
    while remaining.any():
        row = np.where(remaining, distance[order[-1]], np.iinfo(np.int64).max)
        order.append(int(row.argmin()))
        remaining[order[-1]] = False
    return order


def _assign(grid: Grid, members: Sequence[Iterable[Node]]) -> dict[tuple[int, int], Node]:
    """Return the node of each cell: row by row, each minipod gives its nodes leaf by leaf."""
    givers: list[Iterator[Node]] = [iter(_by_leaf(nodes)) for nodes in members]
    return {(row, column): next(givers[m]) for row, line in enumerate(grid) for column, m in enumerate(line)}


def _by_leaf(nodes: Iterable[Node]) -> list[Node]:
    leaves: dict[SwitchPath, list[Node]] = {}
    for node in nodes:
        leaves.setdefault(node.fabric, []).append(node)
    return [node for leaf in leaves.values() for node in leaf]


def verify(placement: Placement, cluster: Cluster) -> None:
    """Raise ValueError, naming every broken invariant, unless a placement is what it says on a cluster.

    Spreads and objective are recomputed from the cluster's own minipods of the named nodes.
    """
    faults = list(_node_faults(placement, cluster)) or list(_value_faults(placement, cluster))
    if faults:
        raise ValueError("\n".join(faults))


def _node_faults(placement: Placement, cluster: Cluster) -> Iterator[str]:
    names, job = placement.rank_map.node_names, placement.job
    allowed = {node.name for node in free_nodes(job, cluster)}
    if len(set(names)) < len(names):
        yield "a node has two node ranks"
    if strangers := [name for name in names if name not in allowed]:
        yield f"nodes {', '.join(strangers)} are not free for job {job.name} in cluster {cluster.name}"
    if placement.cells != job.layout.node_cells(job.ngpus_per_node):
        yield "cells are not those of the job's layout"
    if len(names) != len(placement.cells) or placement.rank_map.ngpus_per_node != job.ngpus_per_node:
        yield f"the rank map has {placement.rank_map.nranks} ranks; expected {job.layout.nranks}"


def _value_faults(placement: Placement, cluster: Cluster) -> Iterator[str]:
    nodes = cluster.select(placement.rank_map.node_names)
    label_of = cluster.switch_labels("minipod")
    found = [label_of[cluster.minipod(node)] for node in nodes]
    columns: dict[int, set[str]] = {}
    rows: dict[int, set[str]] = {}
    for (row, column), minipod in zip(placement.cells, found, strict=True):
        rows.setdefault(row, set()).add(minipod)
        columns.setdefault(column, set()).add(minipod)
    dp_spreads = tuple(len(columns[column]) for column in sorted(columns))
    pp_spreads = tuple(len(rows[row]) for row in sorted(rows))
    value = placement.alpha * max(dp_spreads) + placement.beta * max(pp_spreads)
    if tuple(found) != placement.minipods:
        yield "minipods are not those of the nodes"
    if (dp_spreads, pp_spreads) != (placement.dp_spreads, placement.pp_spreads):
        yield f"spreads are {dp_spreads} (DP) and {pp_spreads} (PP); the placement says otherwise"
    if abs(value - placement.objective) > _SAME:
        yield f"objective is {value}; the placement says {placement.objective}"
    if placement.bound > placement.objective + _SAME:
        yield f"bound {placement.bound} is above the objective {placement.objective}"
    is_met = placement.objective - placement.bound <= _SAME
    if is_met != (placement.status is PlacementStatus.OPTIMAL):
        yield f"status is {placement.status}, bound {placement.bound}, objective {placement.objective}"


def choose_weights(weights: WeightSet, job: JobSpec, entry: str | None = None) -> WeightEntry:
    """Return the entry of a name; unless a name is given the only entry, or the only one of the job's GPU model.

    Raises
    ------
    ConfigError
        If no entry fits, or several do.
    """
    found = [each for each in weights.entries if entry is None or each.job == entry]
    if len(found) > 1:
        found = [each for each in found if each.gpu_model == job.gpu_model]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{each.job} ({each.gpu_model})" for each in found or weights.entries) or "none"
    wanted = f"named {entry}" if entry else f"of GPU model {job.gpu_model or 'unknown'}"
    if found:
        raise ConfigError(f"weights have {len(found)} entries {wanted}: {known}; choose one with --entry")
    raise ConfigError(f"weights have no entry {wanted}; they have {known}; choose one with --entry")

"""From the grid of a placement to its nodes: an order of rows and columns, and a node for each cell."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.placer.constraints import ep_nodes
from spanfit.placer.joint import Weighing
from spanfit.placer.model import Grid, column_spreads, row_spreads
from spanfit.placer.offers import Block, Ground, Offer, Unit
from spanfit.placer.search import Found, Task
from spanfit.topology.model import Node, RankMap, SwitchPath

_CHAIN_STARTS = 16

Order = Sequence[int]


def orders(grid: Grid, *, are_columns_fixed: bool = False) -> tuple[Order, Order]:
    """Return an order of the rows and one of the columns in which neighbours change minipods least.

    Equal rows become adjacent, so a ring over a column crosses minipods about as often as it must; columns are
    ordered so that a chain along a row does, unless they are fixed.
    """
    cells = np.array(grid)
    columns = range(cells.shape[1]) if are_columns_fixed else _chain(cells.T, is_ring=False)
    return _chain(cells[:, columns], is_ring=True), columns


def _arranged(grid: Grid, rows: Order, columns: Order) -> Grid:
    """Return a grid with its rows and columns in an order."""
    return tuple(tuple(grid[row][column] for column in columns) for row in rows)


def _chain(vectors: npt.NDArray[np.int64], *, is_ring: bool) -> list[int]:
    """Return an order of vectors with few changes between neighbours: as they are, or the nearest next, greedily."""
    distinct, place = np.unique(vectors, axis=0, return_inverse=True)
    first_seen = list(dict.fromkeys(place.ravel().tolist()))
    distance = np.stack([(distinct != vector).sum(axis=1) for vector in distinct])
    ways = [first_seen, *(_nearest_next(distance, start) for start in first_seen[:_CHAIN_STARTS])]

    def changes(order: Sequence[int]) -> int:
        closing = int(distance[order[-1], order[0]]) if is_ring else 0
        return int(distance[order[:-1], order[1:]].sum()) + closing

    best = min(ways, key=changes)
    return list(map(int, np.argsort(np.argsort(best)[place.ravel()], kind="stable")))


def _nearest_next(distance: npt.NDArray[np.int64], start: int) -> list[int]:
    order, remaining = [start], np.ones(len(distance), dtype=bool)
    remaining[start] = False
    while remaining.any():
        row = np.where(remaining, distance[order[-1]], np.iinfo(np.int64).max)
        order.append(int(row.argmin()))
        remaining[order[-1]] = False
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A grid of nodes in its final order.

    Attributes
    ----------
    found : Found
        What it was made of.
    grid : tuple of tuple of int
        Minipod index of each node.
    cells : tuple of (int, int)
        Row and column of each node rank.
    rank_map : RankMap
    names : tuple of str
        What people call each minipod of the cluster.
    labels : tuple of str
        Minipod of each node rank.
    dp_spreads, pp_spreads, ep_spreads : tuple of int
        Minipods that each group touches; no EP spreads where EP groups stay inside nodes, or neither weights nor rules
        ask for them.
    spares : tuple of str
        Free nodes that stay in the minipods (or EP domains) that are used, as many as the rules want.
    objective : float
    """

    found: Found
    grid: Grid
    cells: tuple[tuple[int, int], ...]
    rank_map: RankMap
    names: tuple[str, ...]
    labels: tuple[str, ...]
    dp_spreads: tuple[int, ...]
    pp_spreads: tuple[int, ...]
    ep_spreads: tuple[int, ...]
    spares: tuple[str, ...]
    objective: float


def seated(task: Task, found: Found, units: Grid, weighing: Weighing) -> Seated:
    """Return where the nodes of a job sit, given a grid of units of a solved way."""
    job, ground = task.job, found.ground
    rows, columns = orders(units, are_columns_fixed=found.offer.are_columns_fixed)
    nodes = _spread_out(_seats(found.offer, units, rows, columns))
    grid = stretched(_arranged(units, rows, columns), ground.unit)
    cells = job.layout.node_cells(job.ngpus_per_node)
    label_of = task.cluster.switch_labels("minipod")
    names = tuple(label_of[path] for path in ground.minipods)
    dp_spreads, pp_spreads = column_spreads(grid), row_spreads(grid)
    are_ep_told = bool(weighing.ep_weight or task.rules.ep_within) and ep_nodes(job) > 1
    ep = ep_spreads(grid, ep_nodes(job)) if are_ep_told else ()
    value = weighing.value(max(dp_spreads), max(pp_spreads), max(ep, default=1))
    rank_map = RankMap(node_names=tuple(nodes[cell].name for cell in cells), ngpus_per_node=job.ngpus_per_node)
    return Seated(
        found=found,
        grid=grid,
        cells=cells,
        rank_map=rank_map,
        names=names,
        labels=tuple(names[grid[row][column]] for row, column in cells),
        dp_spreads=dp_spreads,
        pp_spreads=pp_spreads,
        ep_spreads=ep,
        spares=tuple(_spares(task, ground, nodes.values())),
        objective=value,
    )


def ep_spreads(grid: Grid, size: int) -> tuple[int, ...]:
    """Return the minipods that each EP group, ``size`` neighbours in a column, touches, column by column."""
    return tuple(
        len(set(column[start : start + size]))
        for column in zip(*grid, strict=True)
        for start in range(0, len(column), size)
    )


def stretched(units: Grid, size: int) -> Grid:
    """Return the grid of nodes of a grid of units: each row stands for ``size`` neighbours."""
    return tuple(tuple(row) for row in units for _ in range(size))


def _spares(task: Task, ground: Ground, used: Collection[Node]) -> Iterator[str]:
    """Yield the first free nodes that stay in each minipod, or EP domain, that is used."""
    taken = {node.name for node in used}
    left = {ground.home(node): task.rules.spares for node in used} if task.rules.spares else {}
    for node in task.nodes if left else ():
        if node.name not in taken and left.get(ground.home(node), 0):
            left[ground.home(node)] -= 1
            yield node.name


def _seats(offer: Offer, grid: Grid, rows: Order, columns: Order) -> dict[tuple[int, int], Unit]:
    """Return the unit of each cell, row by row, of a grid that is to be arranged in an order."""
    block_of = {(row, column): block for block in offer.blocks for row in block.rows for column in block.columns}
    cells = {
        (row, column): (id(block_of[old_row, old_column]), grid[old_row][old_column])
        for row, old_row in enumerate(rows)
        for column, old_column in enumerate(columns)
    }
    needed: dict[tuple[int, int], int] = {}
    for key in cells.values():
        needed[key] = needed.get(key, 0) + 1
    blocks = {id(block): block for block in offer.blocks}
    givers = {key: _given(blocks[key[0]], key[1], count) for key, count in needed.items()}
    return {cell: next(givers[key]) for cell, key in cells.items()}


def _given(block: Block, minipod: int, count: int) -> Iterator[Unit]:
    """Return the first units of a minipod, those of a leaf together, leaves in the order of their first unit."""
    leaves: dict[SwitchPath, list[Unit]] = {}
    for unit in block.units[minipod][:count]:
        leaves.setdefault(unit[0].fabric, []).append(unit)
    return iter([unit for units in leaves.values() for unit in units])


def _spread_out(units: dict[tuple[int, int], Unit]) -> dict[tuple[int, int], Node]:
    """Return the node of each cell of the grid of nodes: the nodes of a unit are neighbours in its column."""
    return {
        (row * len(unit) + place, column): node
        for (row, column), unit in units.items()
        for place, node in enumerate(unit)
    }

"""Dual recursive bi-partition: minipods are halved, and the job's graph is cut to match, by Fiduccia-Mattheyses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Grid, Problem

_PASSES = 4
_PATIENCE = 50
"""Moves of a pass without a new best cut, after which it ends."""

_OUTSIDE = 2

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_LOCKED = float("inf")
"""The loss of a cell that has moved in this pass."""

_Losses = dict[int, float]
_Heap = list[tuple[float, int]]


def bisect(problem: Problem, counts: Sequence[tuple[int, int]]) -> Grid:
    """Return a grid to which each minipod gives a number of nodes, by dual recursive bi-partition.

    Parameters
    ----------
    problem : Problem
    counts : sequence of (int, int)
        Minipods and the nodes of each, which sum to the cells of the grid.
    """
    graph = _Graph(problem)
    grid = np.empty(problem.ncells, dtype=np.int64)
    pending = [(graph.whole(), list(counts))]
    while pending:
        block, given = pending.pop()
        if len(given) == 1:
            grid[block.cells] = given[0][0]
            continue
        halves = _halves(given)
        is_first = graph.cut(block, sum(nodes for _, nodes in halves[0]))
        pending += zip(graph.parts(block, is_first), halves, strict=True)
    return tuple(map(tuple, grid.reshape(problem.nrows, problem.ncolumns).tolist()))


def _halves(counts: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return minipods in two halves of about as many nodes, the largest dealt first."""
    halves: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    sizes = [0, 0]
    for minipod, nodes in sorted(counts, key=lambda count: (-count[1], count[0])):
        side = int(sizes[1] < sizes[0])
        halves[side].append((minipod, nodes))
        sizes[side] += nodes
    return halves


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Cells that are cut further, and the edges between them: both ends, as indices into ``cells``, and weights."""

    cells: Ints
    ends: Ints
    weights: Floats


class _Graph:
    """The job's graph: a ring over each column, each edge weighed alpha, a chain along each row, weighed beta.

    ``side`` says of every cell on which side of the present cut it lies, ``sides`` is the same memory as an array.
    """

    def __init__(self, problem: Problem) -> None:
        self.nrows, self.ncolumns = problem.nrows, problem.ncolumns
        self.alpha, self.beta = problem.alpha, problem.beta
        self.side = bytearray([_OUTSIDE]) * problem.ncells
        self.sides = np.frombuffer(self.side, dtype=np.uint8)

    def whole(self) -> _Block:
        cells = np.arange(self.nrows * self.ncolumns)
        grid = cells.reshape(self.nrows, self.ncolumns)
        rings = np.stack([grid, np.roll(grid, -1, axis=0)]).reshape(2, -1)[:, : cells.size if self.nrows > 1 else 0]
        chains = np.stack([grid[:, :-1], grid[:, 1:]]).reshape(2, -1)
        weights = np.repeat([self.alpha, self.beta], [rings.shape[1], chains.shape[1]])
        return _Block(cells=cells, ends=np.hstack([rings, chains]), weights=weights)

    def parts(self, block: _Block, is_first: Bools) -> Iterator[_Block]:
        """Yield the first and the second part of a block that is cut."""
        for is_in in (is_first, ~is_first):
            kept = is_in[block.ends].all(axis=0)
            place = np.cumsum(is_in) - 1
            yield _Block(cells=block.cells[is_in], ends=place[block.ends[:, kept]], weights=block.weights[kept])

    def neighbours(self, cell: int) -> Iterator[tuple[int, float]]:
        """Yield each neighbour of a cell once, with the weight of all edges to it; in a ring of two there are two."""
        column, ncells = cell % self.ncolumns, self.nrows * self.ncolumns
        if self.nrows > 2:
            yield (cell - self.ncolumns) % ncells, self.alpha
        if self.nrows > 1:
            yield (cell + self.ncolumns) % ncells, self.alpha if self.nrows > 2 else 2 * self.alpha
        if column:
            yield cell - 1, self.beta
        if column < self.ncolumns - 1:
            yield cell + 1, self.beta

    def cut(self, block: _Block, size: int) -> Bools:
        """Return which cells of a block are its first ``size``: the better of two first cuts, each made better."""
        by_column = np.lexsort((block.cells // self.ncolumns, block.cells % self.ncolumns))
        found = [self._refined(block, order[:size]) for order in (np.argsort(block.cells), by_column)]
        return min(found, key=lambda each: round(each[0], 9))[1]

    def _refined(self, block: _Block, first: Ints) -> tuple[float, Bools]:
        self.sides[block.cells] = 0
        self.sides[block.cells[first]] = 1
        weight, losses = self._crossed(block)
        for _ in range(_PASSES):
            if not self._pass(losses):
                break
            weight, losses = self._crossed(block)
        is_first = self.sides[block.cells] == 1
        self.sides[block.cells] = _OUTSIDE
        return weight, is_first

    def _crossed(self, block: _Block) -> tuple[float, _Losses]:
        """Return the weight of the edges that a cut crosses, and what the cut loses by each cell at them that moves."""
        ends = self.sides[block.cells][block.ends]
        is_crossed = ends[0] != ends[1]
        signed = np.where(is_crossed, -block.weights, block.weights)
        ncells = len(block.cells)
        losses = np.bincount(block.ends[0], signed, ncells) + np.bincount(block.ends[1], signed, ncells)
        border = np.unique(block.ends[:, is_crossed])
        known = dict(zip(block.cells[border].tolist(), losses[border].tolist(), strict=True))
        return float(block.weights[is_crossed].sum()), known

    def _loss(self, cell: int) -> float:
        """Return by how much the cut grows when a cell changes sides."""
        side, own = self.side, self.side[cell]
        inside = ((other, weight) for other, weight in self.neighbours(cell) if side[other] != _OUTSIDE)
        return sum(weight if side[other] == own else -weight for other, weight in inside)

    def _pass(self, losses: _Losses) -> int:
        """Move cells in turn, each once, for a better cut of the same sizes; return how many moves were kept."""
        heaps: tuple[_Heap, _Heap] = ([], [])
        for cell, loss in losses.items():
            heaps[self.side[cell]].append((loss, cell))
        heapify(heaps[0])
        heapify(heaps[1])
        gained, best, kept, mover = 0.0, 1e-9, 0, 1
        moved: list[int] = []
        while len(moved) - kept < _PATIENCE and (found := _next(heaps[mover], losses)):
            loss, cell = found
            gained -= loss
            moved.append(cell)
            self._move(cell, losses, heaps)
            if len(moved) % 2 == 0 and gained > best:
                best, kept = gained, len(moved)
            mover = 1 - mover
        for cell in moved[kept:]:
            self.side[cell] = 1 - self.side[cell]
        return kept

    def _move(self, cell: int, losses: _Losses, heaps: tuple[_Heap, _Heap]) -> None:
        """Move a cell to the other side for good, and mend what its neighbours would lose."""
        side, old = self.side, self.side[cell]
        side[cell] = 1 - old
        losses[cell] = _LOCKED
        for other, weight in self.neighbours(cell):
            if side[other] == _OUTSIDE or (known := losses.get(other)) == _LOCKED:
                continue
            if known is None:
                losses[other] = self._loss(other)
            else:
                losses[other] = known - 2 * weight if side[other] == old else known + 2 * weight
            heappush(heaps[side[other]], (losses[other], other))


def _next(heap: _Heap, losses: _Losses) -> tuple[float, int] | None:
    """Return the cell of a side that loses least; what has changed since it was pushed is passed over."""
    while heap:
        loss, cell = heappop(heap)
        if losses[cell] == loss:
            return loss, cell
    return None

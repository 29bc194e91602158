"""Dual recursive bi-partition: minipods are halved, and the job's graph is cut to match, by Fiduccia-Mattheyses."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Grid, Problem

_PASSES = 4
_PATIENCE = 50
"""Moves of a pass without a new best cut, after which it ends."""

_OUTSIDE = -1

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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
    pending = [(np.arange(problem.ncells), list(counts))]
    while pending:
        block, given = pending.pop()
        if len(given) == 1:
            grid[block] = given[0][0]
            continue
        first_half, second_half = _halves(given)
        is_first = graph.cut(block, sum(nodes for _, nodes in first_half))
        pending += [(block[is_first], first_half), (block[~is_first], second_half)]
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


class _Graph:
    """The job's graph: a ring over each column, each edge weighed alpha, a chain along each row, weighed beta."""

    def __init__(self, problem: Problem) -> None:
        self.nrows, self.ncolumns = problem.nrows, problem.ncolumns
        self.alpha, self.beta = problem.alpha, problem.beta
        cells = np.arange(problem.ncells).reshape(self.nrows, self.ncolumns)
        self.edges = [
            (np.stack([cells, np.roll(cells, -1, axis=0)]).reshape(2, -1), self.alpha),
            (np.stack([cells[:, :-1], cells[:, 1:]]).reshape(2, -1), self.beta),
        ]

    def neighbours(self, cell: int) -> Iterator[tuple[int, float]]:
        column = cell % self.ncolumns
        if self.nrows > 1:
            yield (cell - self.ncolumns) % (self.nrows * self.ncolumns), self.alpha
            yield (cell + self.ncolumns) % (self.nrows * self.ncolumns), self.alpha
        if column:
            yield cell - 1, self.beta
        if column < self.ncolumns - 1:
            yield cell + 1, self.beta

    def cut(self, block: Ints, size: int) -> Bools:
        """Return which cells of a block are its first ``size``: the better of two first cuts, each made better."""
        by_row, by_column = np.sort(block), block[np.lexsort((block // self.ncolumns, block % self.ncolumns))]
        found = [self._refined(block, order[:size]) for order in (by_row, by_column)]
        return min(found, key=lambda each: round(each[0], 9))[1]

    def _refined(self, block: Ints, first: Ints) -> tuple[float, Bools]:
        side = np.full(self.nrows * self.ncolumns, _OUTSIDE, dtype=np.int8)
        side[block], side[first] = 0, 1
        weight, border = self._crossed(side)
        for _ in range(_PASSES):
            moved = self._pass(side.tolist(), border.tolist())
            if not moved:
                break
            side[moved] = 1 - side[moved]
            weight, border = self._crossed(side)
        return weight, side[block] == 1

    def _crossed(self, side: npt.NDArray[np.int8]) -> tuple[float, Ints]:
        """Return the weight of the edges that a cut crosses inside its block, and the cells at them."""
        weight, border = 0.0, []
        for (one, other), each in self.edges:
            crossed = side[one] + side[other] == 1
            crossed &= (side[one] != _OUTSIDE) & (side[other] != _OUTSIDE)
            weight += each * int(crossed.sum())
            border += [one[crossed], other[crossed]]
        return weight, np.unique(np.concatenate(border))

    def _gain(self, side: list[int], cell: int) -> float:
        """Return by how much the cut falls when a cell changes sides."""
        own = side[cell]
        return sum(
            weight if side[other] != own else -weight
            for other, weight in self.neighbours(cell)
            if side[other] != _OUTSIDE and other != cell
        )

    def _pass(self, side: list[int], border: list[int]) -> list[int]:
        """Return the cells that change sides for a better cut of the same sizes: they move in turn, each once."""
        locked: set[int] = set()
        heaps: tuple[list[tuple[float, int]], ...] = ([], [])
        for cell in border:
            heappush(heaps[side[cell]], (-self._gain(side, cell), cell))
        gained, best, kept, mover = 0.0, 1e-9, 0, 1
        moved: list[int] = []
        while len(moved) - kept < _PATIENCE:
            found = self._next(heaps[mover], side, locked, mover)
            if found is None:
                break
            loss, cell = found
            gained -= loss
            side[cell] = 1 - mover
            locked.add(cell)
            moved.append(cell)
            for other, _ in self.neighbours(cell):
                if side[other] != _OUTSIDE and other not in locked:
                    heappush(heaps[side[other]], (-self._gain(side, other), other))
            if len(moved) % 2 == 0 and gained > best:
                best, kept = gained, len(moved)
            mover = 1 - mover
        return moved[:kept]

    def _next(
        self, heap: list[tuple[float, int]], side: list[int], locked: set[int], mover: int
    ) -> tuple[float, int] | None:
        """Return the free cell of a side with the highest gain, negated; entries whose gain has changed are mended."""
        while heap:
            gain, cell = heappop(heap)
            if cell in locked or side[cell] != mover:
                continue
            now = -self._gain(side, cell)
            if now <= gain + 1e-9:
                return now, cell
            heappush(heap, (now, cell))
        return None

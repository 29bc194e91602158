"""What pieces of columns minipods can give at most, in whole numbers.

A column of D cells is a stack of at most a pieces, each the cells of one minipod in it. A minipod that touches r rows
gives at most P pieces of at most r cells, and c_m cells in all; all minipods together touch at most b D rows. So give
a piece of t cells a worth g(t) and a touched row a price: if all that the minipods can give, less the price of their
rows, and with the price of b D rows, is worth less than P of the cheapest columns, then no grid has spreads (a, b).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Problem

Whole = npt.NDArray[np.int64]

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """A pair of spreads of a problem, its longer side upright.

    Attributes
    ----------
    nrows, ncolumns : int
        nrows >= ncolumns: rows and columns are exchanged where they were not.
    depth, row_spread : int
        Largest column and row spread of the grid that way round.
    nodes, count : array of shape (ndistinct,)
        Distinct numbers of free nodes, and how many minipods have each.
    """

    nrows: int
    ncolumns: int
    depth: int
    row_spread: int
    nodes: Whole
    count: Whole

    @classmethod
    def of(cls, problem: Problem, a: int, b: int) -> Self:
        """Return a pair (a, b) of a problem."""
        nodes, count = np.unique(np.array([free for free in problem.free if free], dtype=np.int64), return_counts=True)
        sides = [(problem.nrows, a), (problem.ncolumns, b)]
        (nrows, depth), (ncolumns, row_spread) = sides if problem.nrows >= problem.ncolumns else reversed(sides)
        return cls(nrows=nrows, ncolumns=ncolumns, depth=depth, row_spread=row_spread, nodes=nodes, count=count)

    @property
    def longest(self) -> int:
        """Cells of the longest piece."""
        return int(min(self.nrows, self.nodes.max()))


class Stacks:
    """The cheapest stacks of at most ``depth`` pieces that make a column, for worths of pieces of 0, 1, ... cells."""

    def __init__(self, worths: Whole, nrows: int, depth: int) -> None:
        self.worths, self.nrows = worths, nrows
        cells = np.arange(1, len(worths))
        below = np.arange(nrows + 1)[:, None] - cells
        below = np.where(below < 0, nrows + 1, below)
        self.heights = [np.append(0, np.full(nrows + 1, _NEVER))]  # The last entry stands for less than no cells.
        for _ in range(depth - 1):
            least = (self.heights[-1][below] + worths[1:]).min(axis=1)
            self.heights.append(np.append(np.minimum(least, _NEVER), _NEVER))
        self.last = np.array([heights[below[nrows]] + worths[1:] for heights in self.heights])
        self.least = int(self.last.min())

    def cheapest(self, most: int) -> Iterator[tuple[int, ...]]:
        """Yield up to ``most`` stacks, each with another last piece, the cheapest first."""
        costs = self.last.min(axis=0)
        for place in np.argsort(costs, kind="stable")[:most].tolist():
            if costs[place] >= _NEVER // 2:
                return
            yield tuple(sorted(self._read(int(self.last[:, place].argmin()), place + 1)))

    def _read(self, others: int, piece: int) -> Iterator[int]:
        """Yield the pieces of the cheapest stack of that many others below a piece."""
        yield piece
        left = self.nrows - piece
        for heights in reversed(self.heights[:others]):
            cells = np.arange(1, min(len(self.worths) - 1, left) + 1)
            piece = int(cells[(heights[left - cells] + self.worths[cells]).argmin()])
            yield piece
            left -= piece


class Givings:
    """What minipods can give: by rows touched, pieces and cells, the most worth in at most so many of each."""

    def __init__(self, worths: Whole, ncolumns: int, most_cells: int) -> None:
        self.worths, self.ncolumns = worths, ncolumns
        table = np.zeros((ncolumns + 1, most_cells + 1), dtype=np.int64)
        self.tables = np.zeros((len(worths), *table.shape), dtype=np.int64)
        for rows, worth in enumerate(worths.tolist()):
            if worth > 0:
                for start in range(rows, most_cells + 1, rows):
                    end = min(start + rows, most_cells + 1)
                    fuller = table[:-1, start - rows : end - rows] + worth
                    np.maximum(table[1:, start:end], fuller, out=table[1:, start:end])
            self.tables[rows] = table

    def gains(self, nodes: Whole, row_price: int) -> Whole:
        """Return, by rows touched and minipod, the most that minipods can give less the price of those rows."""
        return np.asarray(self.tables[:, -1, nodes] - row_price * np.arange(len(self.worths))[:, None])

    def pieces(self, nodes: int, rows: int) -> tuple[int, ...]:
        """Return the pieces that a minipod gives from so many rows, in one of the best ways."""
        table, found = self.tables[rows], []
        left, cells = self.ncolumns, nodes
        while table[left, cells] > 0:
            longest = min(rows, cells)
            fits = table[left - 1, cells - longest : cells][::-1] + self.worths[1 : longest + 1] == table[left, cells]
            if fits.any():
                found.append(int(fits.argmax()) + 1)
                left -= 1
                cells -= found[-1]
            else:
                cells -= 1
        return tuple(found)


def pieces_value(sides: Sides, worths: tuple[int, ...], row_price: int) -> tuple[int, int]:
    """Return the most worth that minipods can give, with the price of all rows, and what P columns need at least."""
    prices = np.array(worths, dtype=np.int64)
    gains = Givings(prices, sides.ncolumns, int(sides.nodes.max())).gains(sides.nodes, row_price)
    rows = row_price * sides.row_spread * sides.nrows
    return rows + int(sides.count @ gains.max(axis=0)), sides.ncolumns * Stacks(prices, sides.nrows, sides.depth).least

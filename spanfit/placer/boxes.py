"""What boxes of rows and columns, one a minipod, can hold of a grid, in exact arithmetic.

A grid of largest column spread a and largest row spread b gives minipod m some r rows and k columns with sum r <= b D
and sum k <= a P, and at most min(c_m, r k) cells. Prices of rows and columns bound the sum from above; a table over
both sums counts it.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Problem

Whole = npt.NDArray[np.int64]

_WORD = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """The boxes that are worth a look, for each distinct number of free nodes.

    Attributes
    ----------
    rows, columns, cells : array of shape (ndistinct, 2 * ncolumns)
        r, k and min(c_m, r k). For each k the cells are concave in r with their kink at c_m / k, so r is one of floor
        and ceil of that, at most D.
    count : array of shape (ndistinct,)
        Minipods of that many nodes.
    """

    rows: Whole
    columns: Whole
    cells: Whole
    count: Whole


def boxes_of(problem: Problem) -> Boxes:
    """Return the boxes of a problem's minipods."""
    return _boxes(problem.nrows, problem.ncolumns, problem.free)


@lru_cache(maxsize=8)
def _boxes(nrows: int, ncolumns: int, free: tuple[int, ...]) -> Boxes:
    nodes = np.array([nodes for nodes in free if nodes], dtype=np.int64)
    distinct, count = np.unique(nodes, return_counts=True)
    widths = np.arange(1, ncolumns + 1)
    rows = np.minimum(np.concatenate([distinct[:, None] // widths, -(-distinct[:, None] // widths)], axis=1), nrows)
    columns = np.broadcast_to(np.concatenate([widths, widths]), rows.shape)
    return Boxes(rows=rows, columns=columns, cells=np.minimum(distinct[:, None], rows * columns), count=count)


def box_value(problem: Problem, a: int, b: int, row_price: Fraction, column_price: Fraction) -> Fraction:
    """Return the most cells that (a, b) can hold by the box relaxation priced at (lambda, mu), exactly.

    Notes
    -----
    lambda b D + mu a P + sum over m of max(0, max over boxes r x k of min(c_m, r k) - lambda r - mu k), in whole
    numbers of 1 / scale: in machine words where they are wide enough, else in Python's.
    """
    scale = row_price.denominator * column_price.denominator
    row, column = int(row_price * scale), int(column_price * scale)
    boxes, nrows, ncolumns = boxes_of(problem), problem.nrows, problem.ncolumns
    fits = scale * max(problem.free) + row * nrows + column * ncolumns < _WORD
    rows, columns, cells = (each if fits else each.astype(object) for each in (boxes.rows, boxes.columns, boxes.cells))
    gains = (scale * cells - row * rows - column * columns).max(axis=1).tolist()
    total = sum(count * max(0, gain) for count, gain in zip(boxes.count.tolist(), gains, strict=True))
    return Fraction(row * b * nrows + column * a * ncolumns + total, scale)


def most_cells(problem: Problem, a: int, b: int, row_price: Fraction, column_price: Fraction) -> int:
    """Return the most cells of boxes with sum r <= b D and sum k <= a P, or ncells - 1 if that is below ncells.

    Notes
    -----
    A table over (sum k, sum r), filled minipod by minipod. r is floor or ceil of c_m / k, but of one minipod, by
    exchange: moving a row between two boxes that are both between 0 and their kink changes nothing or gains. The
    prices only tell which boxes are worth a look: the relaxation is worth V at them, so a box that falls short of its
    minipod's best by more than V - N lies in no filling of N cells. All of it is in whole numbers.
    """
    scale = row_price.denominator * column_price.denominator
    row, column = int(row_price * scale), int(column_price * scale)
    surplus = int(box_value(problem, a, b, row_price, column_price) * scale) - problem.ncells * scale
    if surplus < 0:
        return problem.ncells - 1
    shape = a * problem.ncolumns + 1, b * problem.nrows + 1
    plain, other = np.full(shape, -1, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
    plain[0, 0] = 0
    for nodes in problem.free:
        if nodes:
            boxes = _worthy_boxes(problem, nodes, scale, row, column, surplus)
            plain, other = _with_minipod(plain, other, boxes)
    return max(int(plain.max()), int(other.max()), problem.ncells - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worthy:
    """What a minipod may do: nothing, boxes (r, k, cells), or k columns of any r from low to high."""

    may_idle: bool
    boxes: tuple[tuple[int, int, int], ...]
    between: tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=1024)
def _worthy_boxes(problem: Problem, nodes: int, scale: int, row: int, column: int, surplus: int) -> _Worthy:
    boxes, between = [], []
    every = [
        (r, k, min(nodes, r * k))
        for k in range(1, problem.ncolumns + 1)
        for r in {min(problem.nrows, nodes // k), min(problem.nrows, -(-nodes // k))}
        if r
    ]
    best = max(0, *(scale * cells - row * r - column * k for r, k, cells in every))
    for r, k, cells in every:
        if best - (scale * cells - row * r - column * k) <= surplus:
            boxes.append((r, k, cells))
    for k in range(1, problem.ncolumns + 1):
        slope = scale * k - row
        most = min(problem.nrows, nodes // k) - 1
        short = best + column * k - surplus
        if slope > 0:
            low, high = max(1, -(-short // slope)), most
        elif slope < 0:
            low, high = 1, min(most, -short // -slope)
        else:
            low, high = 1, most if short <= 0 else 0
        if low <= high:
            between.append((k, low, high))
    return _Worthy(may_idle=best <= surplus, boxes=tuple(boxes), between=tuple(between))


_Table = npt.NDArray[np.int32]


def _with_minipod(plain: _Table, other: _Table, worthy: _Worthy) -> tuple[_Table, _Table]:
    """Return the most cells by (sum k, sum r) with one more minipod; -1 where a sum is out of reach."""
    after = [table.copy() if worthy.may_idle else np.full_like(table, -1) for table in (plain, other)]
    for r, k, cells in worthy.boxes:
        for table, target in zip((plain, other), after, strict=True):
            if k < table.shape[0] and r < table.shape[1]:
                source = table[:-k, :-r]
                np.maximum(target[k:, r:], np.where(source < 0, -1, source + cells), out=target[k:, r:])
    for k, low, high in worthy.between:
        if k < plain.shape[0] and low < plain.shape[1]:
            np.maximum(after[1][k:], _best_rows(plain[:-k], k, low, high), out=after[1][k:])
    return after[0], after[1]


def _best_rows(table: _Table, k: int, low: int, high: int) -> _Table:
    """Return, for each sum of rows x, the most of table[x - r] + k r over low <= r <= high; -1 where there is none."""
    nrows = table.shape[1]
    slope = k * np.arange(nrows, dtype=np.int32)
    window = np.where(table < 0, np.iinfo(np.int32).min // 2, table - slope)
    width, wanted = 1, high - low + 1
    while width < wanted:
        step = min(width, wanted - width)
        if step < nrows:
            window[:, step:] = np.maximum(window[:, step:], window[:, :-step])
        width += step
    found = np.full_like(table, -1)
    found[:, low:] = np.maximum(window[:, : nrows - low] + slope[low:], -1)
    return found

"""Grids whose strips of columns minipods fill one after another, in an order that is found by annealing.

A chain leaves no node unused. So where minipods hold hardly more than the job needs, it reaches pairs of spreads that
stacks of whole sub-bands do not. A minipod goes on beside where it ended, so rows that meet it in two strips count it
once; therefore more strips than the row spread may do.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from spanfit.placer.construct import flip, transpose
from spanfit.placer.model import Grid, Problem
from spanfit.placer.strips import even_widths, filled
from spanfit.placer.traffic import Ints, touches

_STEPS = 400
_STEPS_BETWEEN_STOPS = 8
_HEAT = 0.02
"""Excess that is accepted at first, in rows, as a share of all rows."""
_COLUMN_EXCESS = 0.25
"""What a minipod too many in a column counts as, in rows that have one too many, as a share of all rows."""


def chains(problem: Problem, a: int, b: int, *, seed: int, stop: Callable[[], bool]) -> Iterator[Grid]:
    """Yield grids that reach (a, b), one at most for a number of strips, until ``stop`` says so."""
    for is_flipped, turned, depth, row_spread in ((False, problem, a, b), (True, transpose(problem), b, a)):
        for number in _numbers(turned.ncolumns, row_spread):
            cells = _annealed(
                turned, even_widths(turned.ncolumns, number), depth, row_spread, random.Random(seed), stop
            )
            if cells is not None:
                grid = tuple(map(tuple, cells.tolist()))
                yield flip(grid) if is_flipped else grid


def _numbers(ncolumns: int, row_spread: int) -> list[int]:
    """Return numbers of strips, the likeliest first."""
    wanted = (row_spread, ncolumns, 2 * row_spread, row_spread + 1, row_spread + 2)
    return list(dict.fromkeys(min(number, ncolumns) for number in wanted))


def _annealed(
    problem: Problem,
    widths: Sequence[int],
    depth: int,
    row_spread: int,
    source: random.Random,
    stop: Callable[[], bool],
) -> Ints | None:
    """Return the cells of an order whose strips reach the spreads, or None where none was found."""
    order = source.sample(range(len(problem.free)), len(problem.free))
    cells = filled(problem, widths, order)
    cost = _excess(cells, len(order), depth, row_spread)
    for step in range(_STEPS):
        if cost == 0:
            return cells
        if step % _STEPS_BETWEEN_STOPS == 0 and stop():
            return None
        after = _moved(order, source)
        cells = filled(problem, widths, after)
        excess = _excess(cells, len(order), depth, row_spread)
        heat = _HEAT * problem.nrows * (1 - step / _STEPS) ** 2
        if excess <= cost or source.random() < math.exp((cost - excess) / heat):
            order, cost = after, excess
    return None


def _moved(order: Sequence[int], source: random.Random) -> list[int]:
    """Return an order after two minipods were exchanged, or one was put elsewhere."""
    after = list(order)
    one, other = source.randrange(len(after)), source.randrange(len(after))
    if source.random() < 0.5:
        after[one], after[other] = after[other], after[one]
    else:
        after.insert(other, after.pop(one))
    return after


def _excess(cells: Ints, nminipods: int, depth: int, row_spread: int) -> float:
    """Return how far the spreads of columns and rows lie above what they may be, 0 where they do not."""
    columns, rows = (touched.sum(axis=1) for touched in touches(cells, nminipods))
    above = np.maximum(columns - depth, 0).sum() * _COLUMN_EXCESS * len(cells)
    return float(above + np.maximum(rows - row_spread, 0).sum())

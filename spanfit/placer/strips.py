"""Grids of strips of columns or of rows, each filled with one minipod after another; the paper's slabs are two of them.

A strip of w columns that k minipods fill costs w rings k crossings each and every row one minipod, so few wide strips
spare the chains and many narrow ones the rings. Strips leave no node unused but for the order of the minipods, so they
exist at any slack; what they seldom have is the least largest spread.
"""

import random
from collections.abc import Iterator, Sequence

import numpy as np

from spanfit.placer.construct import transpose
from spanfit.placer.model import Grid, Problem
from spanfit.placer.traffic import Ints, touches

_NUMBERS = 12
_SHUFFLES = 4
_SHUFFLED_CELLS = 6000
"""Cells of all grids of drawn orders together, for one number of strips."""


def strips(problem: Problem, *, most: float, seed: int = 0) -> Iterator[Grid]:
    """Yield grids of strips whose objective is ``most`` at most.

    Parameters
    ----------
    problem : Problem
        Its minipods hold the job.
    most : float
    seed : int
        Of the orders of minipods that are drawn.
    """
    for is_flipped, turned in ((False, problem), (True, transpose(problem))):
        for number in _numbers(turned, most):
            widths = even_widths(turned.ncolumns, number)
            for order in _orders(turned, seed):
                for cells in (filled(turned, widths, order), _filled_wholly(turned, widths, order)):
                    if cells is not None and _objective(cells, turned) <= most:
                        yield tuple(map(tuple, (cells.T if is_flipped else cells).tolist()))


def even_widths(ncolumns: int, number: int) -> list[int]:
    """Return the columns of each of so many strips, as even as can be."""
    return [(ncolumns + place) // number for place in range(number)]


def filled(problem: Problem, widths: Sequence[int], order: Sequence[int]) -> Ints:
    """Return strips of columns that minipods fill row by row, down and up in turn: each goes on beside where it ended.

    Parameters
    ----------
    problem : Problem
    widths : sequence of int
        Columns of each strip, all columns together.
    order : sequence of int
        Of the minipods.
    """
    cells = np.repeat(order, np.array(problem.free)[order])
    blocks, start = [], 0
    for place, width in enumerate(widths):
        block = cells[start : start + problem.nrows * width].reshape(problem.nrows, width)
        blocks.append(block[::-1] if place % 2 else block)
        start += block.size
    return np.hstack(blocks)


def _objective(cells: Ints, problem: Problem) -> float:
    """Return the objective of a grid that is an array."""
    columns, rows = touches(cells, len(problem.free))
    return problem.value(int(columns.sum(axis=1).max()), int(rows.sum(axis=1).max()))


def _numbers(problem: Problem, most: float) -> Sequence[int]:
    """Return numbers of strips, some of those that the objective allows.

    Rows touch a minipod of each strip, unless one minipod fills several, and strips have the fewest minipods that hold
    the job to share.
    """
    largest = np.cumsum(sorted(problem.free, reverse=True))
    fewest = int(np.searchsorted(largest, problem.ncells)) + 1
    least = problem.reading.of(1)
    highest = int((most - least * problem.alpha) / problem.beta) if problem.beta else problem.ncolumns
    deepest = int((most - least * problem.beta) / problem.alpha) if problem.alpha else problem.nrows
    first, last = max(1, -(-fewest // max(1, deepest))), min(problem.ncolumns, max(1, highest))
    steps = min(_NUMBERS, last - first + 1)
    return list(dict.fromkeys(first + (last - first) * step // max(1, steps - 1) for step in range(steps)))


def _orders(problem: Problem, seed: int) -> Iterator[list[int]]:
    """Yield orders of the minipods: the largest first, the smallest first, some drawn, none of them for large jobs."""
    largest = sorted(range(len(problem.free)), key=lambda m: -problem.free[m])
    yield largest
    yield largest[::-1]
    source = random.Random(seed)
    for _ in range(min(_SHUFFLES, _SHUFFLED_CELLS // problem.ncells)):
        yield source.sample(largest, len(largest))


def _filled_wholly(problem: Problem, widths: Sequence[int], order: Sequence[int]) -> Ints | None:
    """Return strips in which every row of a strip is of one minipod, or None where the minipods hold too few."""
    minipods, blocks = np.array(order), []
    left = np.array(problem.free)[minipods]
    for width in widths:
        room = left // width
        before = np.cumsum(room) - room
        nrows = np.clip(problem.nrows - before, 0, room)
        if nrows.sum() < problem.nrows:
            return None
        left = left - nrows * width
        blocks.append(np.repeat(np.repeat(minipods, nrows)[:, None], width, axis=1))
    return np.hstack(blocks)

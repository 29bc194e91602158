"""Small placement problems and their exhaustive answers."""

import random
from itertools import combinations_with_replacement, product

from hypothesis import strategies as st

from spanfit.placer.model import Problem, column_spreads, row_spreads

SMALL_SHAPES = ((2, 2), (3, 2), (2, 3), (4, 2), (3, 3), (2, 4), (5, 2), (6, 2), (4, 3))


def problem(nrows: int, ncolumns: int, free: tuple[int, ...], alpha: float = 0.5) -> Problem:
    return Problem(nrows=nrows, ncolumns=ncolumns, free=free, alpha=alpha, beta=round(1 - alpha, 9))


def even(nodes: int, minipods: int) -> tuple[int, ...]:
    """Return free nodes of a cluster whose minipods are as even as possible."""
    base, rest = divmod(nodes, minipods)
    return tuple(base + (index < rest) for index in range(minipods))


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    """Draw a feasible problem of at most 12 cells and 3 minipods."""
    nrows, ncolumns = draw(st.sampled_from(SMALL_SHAPES))
    ncells = nrows * ncolumns
    minipods = draw(st.integers(1, 3 if ncells < 10 else 2))
    free = draw(st.lists(st.integers(0, ncells), min_size=minipods, max_size=minipods))
    free[0] += max(0, ncells - sum(free))
    return problem(nrows, ncolumns, tuple(free), draw(st.sampled_from((0.0, 0.3, 0.5, 0.7, 1.0))))


def medium_problem(seed: int) -> Problem:
    """Return a random problem of 24 to 32 nodes in 2 to 5 minipods."""
    source = random.Random(seed)
    nrows, ncolumns = source.choice(((13, 2), (6, 4), (8, 4), (4, 8)))
    weights = [source.uniform(0.2, 1) for _ in range(source.randint(2, 5))]
    room = nrows * ncolumns * source.choice((1.0, 1.1, 1.3, 1.7))
    free = [int(room * weight / sum(weights)) for weight in weights]
    free[0] += max(0, nrows * ncolumns - sum(free))
    return problem(nrows, ncolumns, tuple(free), source.choice((0.2, 0.5, 0.8)))


def reachable(given: Problem) -> set[tuple[int, int]]:
    """Return the (largest column, largest row) spreads of every grid that fits, tried one by one.

    Rows are alike, so multisets of rows are enough.
    """
    minipods = range(len(given.free))
    found = set()
    for grid in combinations_with_replacement(list(product(minipods, repeat=given.ncolumns)), given.nrows):
        cells = [cell for row in grid for cell in row]
        if all(cells.count(m) <= given.free[m] for m in minipods):
            found.add((max(column_spreads(grid)), max(row_spreads(grid))))
    return found


def is_reachable(pairs: set[tuple[int, int]], a: int, b: int) -> bool:
    return any(x <= a and y <= b for x, y in pairs)


def best(given: Problem, pairs: set[tuple[int, int]]) -> float:
    return min(given.alpha * a + given.beta * b for a, b in pairs)


class Counted:
    """Says stop after it was asked a number of times."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0

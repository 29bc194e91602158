"""Grids found by which minipods each column may touch: a local search over the sets by the value of a linear program.

Give every column j a set Y_j of at most a minipods; the pair (a, b) has a grid with these sets iff D rows fit, each of
at most b minipods. As fractions that is a linear program over row patterns, with as many constraints as minipods. The
search changes the sets by what the prices say a change is worth, from many random starts. Whenever the program holds D
rows, it tries to make them whole. All of it is compiled (``kernel``); where that is missing, the other ways of building
grids are all there are.
"""

from collections.abc import Callable

import numpy as np

from spanfit.placer.construct import flip, transpose
from spanfit.placer.model import Grid, Problem

try:
    from spanfit.placer._kernel import MOST_MINIPODS as _MOST_MINIPODS
    from spanfit.placer._kernel import Search
except ImportError:
    _MOST_MINIPODS = 0

LOOK_S = 5e-4
"""Seconds of work, about, between two looks at the allowance."""
_WORK_PER_S = 6e8


def is_compiled() -> bool:
    """Return whether the search is there: installing it takes a C++ compiler, loading it the same C++ library."""
    return _MOST_MINIPODS > 0


def can_search(nminipods: int) -> bool:
    """Return whether the search was compiled, and takes so many minipods."""
    return nminipods <= _MOST_MINIPODS


class ColumnSearch:
    """A search for a grid that reaches (a, b), which can be continued when there is more time."""

    def __init__(self, problem: Problem, a: int, b: int, seed: int) -> None:
        self.is_flipped = problem.ncolumns > problem.nrows
        upright = transpose(problem) if self.is_flipped else problem
        depth, row_spread = (b, a) if self.is_flipped else (a, b)
        self.minipods = np.flatnonzero(problem.free)
        self.search = Search(
            capacity=[problem.free[minipod] for minipod in self.minipods],
            nrows=upright.nrows,
            ncolumns=upright.ncolumns,
            depth=depth,
            row_spread=row_spread,
            seed=seed,
        )

    def run(self, stop: Callable[[], bool]) -> Grid | None:
        """Return a grid that should reach the pair, or None where none was found before ``stop`` says so."""
        while not stop():
            if self.search.run(LOOK_S * _WORK_PER_S):
                grid = tuple(tuple(row) for row in self.minipods[self.search.rows].tolist())
                return flip(grid) if self.is_flipped else grid
        return None

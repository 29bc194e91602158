"""Grids that reach a pair of spreads: whole rows, whole columns, and stacks of bands."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from itertools import zip_longest

from spanfit.placer.bands import Shape
from spanfit.placer.bounds import refute
from spanfit.placer.model import Grid, Problem, check_capacity, column_spreads, row_spreads
from spanfit.placer.stacks import build

_SHAPES, _SHAPES_ACROSS = 5, 3
"""Shapes of normal effort: groups of the columns of the longer side, and of those of the other."""


class Effort(IntEnum):
    """How hard to look for a grid; the value is the steps of one local search."""

    DEAL = 0
    QUICK = 400
    NORMAL = 2500


def transpose(problem: Problem) -> Problem:
    """Return the problem with rows and columns exchanged, their weights too."""
    return replace(problem, nrows=problem.ncolumns, ncolumns=problem.nrows, alpha=problem.beta, beta=problem.alpha)


def flip(grid: Grid) -> Grid:
    """Return a grid with rows and columns exchanged."""
    return tuple(zip(*grid, strict=True))


def reaches(grid: Grid, problem: Problem, a: int, b: int) -> bool:
    """Return whether a grid fits the minipods with column spreads of at most a and row spreads of at most b."""
    try:
        check_capacity(grid, problem)
    except ValueError:
        return False
    return max(column_spreads(grid)) <= a and max(row_spreads(grid)) <= b


def construct(problem: Problem, a: int, b: int, *, effort: Effort = Effort.NORMAL, seed: int = 0) -> Grid | None:
    """Return a grid with column spreads of at most a and row spreads of at most b, or None where none was found.

    With a = 1 or b = 1 None means that there is none.
    """
    return next((grid for grid in attempts(problem, a, b, effort=effort, seed=seed) if grid is not None), None)


def attempts(
    problem: Problem, a: int, b: int, *, effort: Effort, seed: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[Grid | None]:
    """Yield, for each way to build a grid that reaches (a, b), the grid or None, until ``stop`` says so."""
    if b == 1:
        yield whole_rows(problem) if refute(problem, a, b) is None else None
        return
    if a == 1:
        yield flip(whole_rows(transpose(problem))) if refute(problem, a, b) is None else None
        return
    for is_flipped, shape in _shapes(problem, a, b, effort):
        if stop():
            return
        grid = build(shape, problem.free, iterations=int(effort), seed=seed, stop=stop)
        if grid is not None and is_flipped:
            grid = flip(grid)
        yield grid if grid is not None and reaches(grid, problem, a, b) else None


def whole_rows(problem: Problem) -> Grid:
    """Return the grid whose rows each lie in one minipod, from as few minipods as possible.

    Raises
    ------
    ValueError
        If the minipods do not hold nrows whole rows.
    """
    rows: list[int] = []
    for minipod in sorted(range(len(problem.free)), key=lambda m: -problem.free[m]):
        rows += [minipod] * (problem.free[minipod] // problem.ncolumns)
    if len(rows) < problem.nrows:
        raise ValueError(f"the minipods hold {len(rows)} whole rows; expected {problem.nrows}")
    return tuple((minipod,) * problem.ncolumns for minipod in rows[: problem.nrows])


def _shapes(problem: Problem, a: int, b: int, effort: Effort) -> list[tuple[bool, Shape]]:
    """Return the shapes to try, as (rows and columns exchanged, shape), the likeliest first."""
    sides = (problem.nrows, problem.ncolumns, a, b), (problem.ncolumns, problem.nrows, b, a)
    if effort > Effort.QUICK:
        is_flipped = problem.ncolumns > problem.nrows
        return [
            *((is_flipped, shape) for shape in _broad_shapes(*sides[is_flipped])[:_SHAPES]),
            *((not is_flipped, shape) for shape in _broad_shapes(*sides[not is_flipped])[:_SHAPES_ACROSS]),
        ]
    pairs = zip_longest(*(_shapes_one_way(*side, most=2) for side in sides))
    return [(bool(way), shape) for pair in pairs for way, shape in enumerate(pair) if shape is not None]


def _broad_shapes(nrows: int, ncolumns: int, depth: int, row_spread: int) -> list[Shape]:
    """Return shapes, first those with room for several minipods side by side in a group."""
    most = min(row_spread - 1, ncolumns)
    numbers = dict.fromkeys([*range(most, max(0, most - 2), -1), 1, min(row_spread, ncolumns), *range(most - 2, 1, -1)])
    return [
        Shape(nrows=nrows, ncolumns=ncolumns, depth=depth, row_spread=row_spread, ngroups=number) for number in numbers
    ]


def _shapes_one_way(nrows: int, ncolumns: int, depth: int, row_spread: int, *, most: int) -> list[Shape]:
    """Return shapes of columns of at most ``depth`` minipods, the likeliest first.

    As many groups as the row spread, the exact variant, one group, then up to ``most`` numbers of groups in all.
    """
    largest = min(row_spread, ncolumns)
    numbers = list(dict.fromkeys([largest, 1, *range(largest - 1, 1, -1)]))[:most]
    shapes = [
        Shape(nrows=nrows, ncolumns=ncolumns, depth=depth, row_spread=row_spread, ngroups=number) for number in numbers
    ]
    if 1 <= row_spread - 1 <= ncolumns:
        shapes.insert(1, replace(shapes[0], ngroups=row_spread - 1, is_exact=True))
    return shapes

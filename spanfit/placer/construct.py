"""Grids that reach a pair of spreads: whole rows, whole columns, and stacks of bands."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum

from spanfit.placer.bands import Shape
from spanfit.placer.bounds import refute
from spanfit.placer.model import Grid, Problem, check_capacity, column_spreads, row_spreads
from spanfit.placer.stacks import build


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
    most = 2 if effort <= Effort.QUICK else max(a, b)
    upright = shapes_one_way(problem.nrows, problem.ncolumns, a, b, most=most)
    flipped = shapes_one_way(problem.ncolumns, problem.nrows, b, a, most=most)
    ways = [(place, False, shape) for place, shape in enumerate(upright)]
    ways += [(place, True, shape) for place, shape in enumerate(flipped)]
    return [(is_flipped, shape) for _, is_flipped, shape in sorted(ways, key=lambda way: way[:2])]


def shapes_one_way(nrows: int, ncolumns: int, depth: int, row_spread: int, *, most: int) -> list[Shape]:
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

"""Which pairs of spreads (a, b) no placement can reach, each with a proof that can be checked again.

Notation: a grid of D rows and P columns, N = D P cells, minipod m with c_m free nodes. A grid of largest column spread
a and largest row spread b gives minipod m some rows R_m and columns C_m with sum |R_m| <= b D and sum |C_m| <= a P,
and at most min(c_m, |R_m| |C_m|) cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np

from spanfit.placer.boxes import box_value, boxes_of, most_cells
from spanfit.placer.model import Problem
from spanfit.placer.pieces import Sides, pieces_value

_EVALUATIONS = 60
_DENOMINATOR = 1 << 20
_ROOT_BITS = 60
_MOST_WORTH = 1 << 36
"""Sums of so large worths stay in machine words."""


class Rule(StrEnum):
    """Why a pair of spreads cannot be reached."""

    WHOLE_ROWS = "whole rows"
    WHOLE_COLUMNS = "whole columns"
    PRODUCT = "product"
    BOX = "box"
    WHOLE_BOXES = "whole boxes"
    PIECES = "pieces of columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A proof that no grid has column spreads of at most a and row spreads of at most b.

    Attributes
    ----------
    a, b : int
    rule : Rule
    reached, needed : Fraction
        What can be reached at most, and what would be needed; reached < needed.
    row_price, column_price : Fraction
        The multipliers (lambda, mu) of the box rules, 0 for most others; the price of a touched row for pieces.
    worths : tuple of int
        What a piece of 0, 1, ... cells of a column is worth (``pieces``), () for other rules.
    """

    a: int
    b: int
    rule: Rule
    reached: Fraction
    needed: Fraction
    row_price: Fraction = Fraction(0)
    column_price: Fraction = Fraction(0)
    worths: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the proof in words."""
        reached, needed = f"{float(self.reached):.4g}", f"{float(self.needed):.4g}"
        if self.rule is Rule.WHOLE_ROWS:
            return f"b = 1, and {self.a} minipods hold {reached} whole rows of {needed}"
        if self.rule is Rule.WHOLE_COLUMNS:
            return f"a = 1, and {self.b} minipods hold {reached} whole columns of {needed}"
        if self.rule is Rule.PRODUCT:
            return f"a b = {reached}, and the product bound is {needed}"
        if self.rule is Rule.WHOLE_BOXES:
            return f"({self.a}, {self.b}) holds at most {reached} of {needed} cells (whole boxes, all of them counted)"
        if self.rule is Rule.PIECES:
            share = f"{float(self.reached / self.needed):.4g}"
            return f"({self.a}, {self.b}): pieces of columns are worth {share} of what a grid needs (pieces bound)"
        prices = f"lambda = {float(self.row_price):.4g}, mu = {float(self.column_price):.4g}"
        return f"({self.a}, {self.b}) holds at most {reached} of {needed} cells (box bound, {prices})"


def refute(problem: Problem, a: int, b: int) -> Certificate | None:
    """Return a checked proof that (a, b) cannot be reached, or None where none was found.

    With a = 1 or b = 1 None means that the pair can be reached.
    """
    if a < 1 or b < 1:
        raise ValueError(f"spreads are ({a}, {b}); expected at least 1")
    if b == 1:
        return _refute_whole(problem, a, b, Rule.WHOLE_ROWS)
    if a == 1:
        return _refute_whole(problem, a, b, Rule.WHOLE_COLUMNS)
    return refute_by_product(problem, a, b) or _refute_box(problem, a, b)


def check(certificate: Certificate, problem: Problem) -> bool:
    """Return whether a proof holds for a problem, in exact arithmetic and from its numbers alone."""
    a, b = certificate.a, certificate.b
    if certificate.rule is Rule.BOX:
        prices = certificate.row_price, certificate.column_price
        return min(prices) >= 0 and box_value(problem, a, b, *prices) < problem.ncells
    if certificate.rule is Rule.WHOLE_BOXES:
        prices = certificate.row_price, certificate.column_price
        return min(prices) >= 0 and most_cells(problem, a, b, *prices) < problem.ncells
    if certificate.rule is Rule.PIECES:
        return pieces_certificate(problem, a, b, certificate.worths, int(certificate.row_price)) is not None
    if certificate.rule is Rule.PRODUCT:
        return refute_by_product(problem, a, b) is not None
    return min(a, b) == 1 and _refute_whole(problem, a, b, certificate.rule) is not None


def pieces_certificate(problem: Problem, a: int, b: int, worths: tuple[int, ...], row_price: int) -> Certificate | None:
    """Return the proof that worths of pieces of columns and the price of a row give, or None where they give none.

    The worths belong to the longer side of the grid, upright.
    """
    sides = Sides.of(problem, a, b)
    is_whole = len(worths) == sides.longest + 1 and not worths[0] and row_price >= 0
    if not is_whole or max(row_price, *map(abs, worths)) > _MOST_WORTH:
        return None
    reached, needed = pieces_value(sides, worths, row_price)
    if reached >= needed:
        return None
    return Certificate(
        a=a,
        b=b,
        rule=Rule.PIECES,
        reached=Fraction(reached),
        needed=Fraction(needed),
        row_price=Fraction(row_price),
        worths=worths,
    )


def whole_groups(free: Sequence[int], size: int, count: int) -> int:
    """Return how many groups of ``size`` nodes the ``count`` most fitting minipods hold without a split."""
    return sum(sorted((nodes // size for nodes in free), reverse=True)[:count])


def _refute_whole(problem: Problem, a: int, b: int, rule: Rule) -> Certificate | None:
    """Edges, exact: b = 1 iff whole rows fill the grid, and then a is the number of minipods; a = 1 by symmetry."""
    if rule is Rule.WHOLE_ROWS:
        reached, needed = whole_groups(problem.free, problem.ncolumns, a), problem.nrows
    else:
        reached, needed = whole_groups(problem.free, problem.nrows, b), problem.ncolumns
    if reached >= needed:
        return None
    return Certificate(a=a, b=b, rule=rule, reached=Fraction(reached), needed=Fraction(needed))


def product_bound(problem: Problem) -> Fraction:
    """Return a lower bound of a * b, the square of sum sqrt(n_m / N) under the filling that makes it smallest.

    Notes
    -----
    Cauchy-Schwarz on n_m <= |R_m| |C_m|; the sum is concave in n, so filling the largest minipods first is its
    minimum. Roots are rounded down in integers, so the result is exact as a bound.
    """
    return _product_bound(problem.free, problem.ncells)


@lru_cache(maxsize=8)
def _product_bound(free: tuple[int, ...], ncells: int) -> Fraction:
    left, roots = ncells, 0
    for nodes in sorted(free, reverse=True):
        taken = min(nodes, left)
        roots += isqrt(taken << 2 * _ROOT_BITS)
        left -= taken
    return Fraction(roots * roots, ncells << 2 * _ROOT_BITS)


def refute_by_product(problem: Problem, a: int, b: int) -> Certificate | None:
    """Return a proof by the product bound that no pair of product a * b or less can be reached, or None."""
    needed = product_bound(problem)
    if a * b >= needed:
        return None
    return Certificate(a=a, b=b, rule=Rule.PRODUCT, reached=Fraction(a * b), needed=needed)


def _refute_box(problem: Problem, a: int, b: int) -> Certificate | None:
    """Search (lambda, mu) in floats; whatever is found is proven again in integers."""
    value, row, column = box_prices(problem, a, b, problem.ncells)
    if value >= problem.ncells - 1e-6:
        return None
    prices = _as_fraction(row), _as_fraction(column)
    reached = box_value(problem, a, b, *prices)
    return _box_certificate(problem, a, b, Rule.BOX, reached, *prices)


def _as_fraction(price: float) -> Fraction:
    return Fraction(round(price * _DENOMINATOR), _DENOMINATOR)


def box_prices(problem: Problem, a: int, b: int, enough: int) -> tuple[float, float, float]:
    """Return the lowest value of the priced relaxation that was found, below ``enough`` if any, and its prices.

    Notes
    -----
    Polyak steps towards ``enough``, or towards what lies a little below the best value where ``enough`` is 0.
    """
    boxes, ncells = boxes_of(problem), problem.ncells
    box_rows, box_columns, box_cells = (each.astype(float) for each in (boxes.rows, boxes.columns, boxes.cells))
    row_room, column_room = b * problem.nrows, a * problem.ncolumns
    row_scale, column_scale = problem.ncolumns / b, problem.nrows / a
    row, column = row_scale / 2, column_scale / 2
    lines = np.arange(len(boxes.count))
    best = (float("inf"), row, column)
    for evaluation in range(_EVALUATIONS):
        gains = box_cells - row * box_rows - column * box_columns
        chosen = gains.argmax(axis=1)
        gain = gains[lines, chosen]
        weight = np.where(gain > 0, boxes.count, 0.0)
        value = row * row_room + column * column_room + float(weight @ gain)
        best = min(best, (value, row, column))
        if value < enough - 1e-6:
            break
        row_slope = (row_room - float(weight @ box_rows[lines, chosen])) * row_scale
        column_slope = (column_room - float(weight @ box_columns[lines, chosen])) * column_scale
        if enough and min(row_slope, column_slope) >= 0 and weight @ box_cells[lines, chosen] >= enough:
            break  # These boxes fit, so no prices go below.
        row_slope = 0.0 if row <= 0 < row_slope else row_slope
        column_slope = 0.0 if column <= 0 < column_slope else column_slope
        norm = row_slope**2 + column_slope**2
        if norm < 1e-12:
            break
        near = enough - (1.0 if evaluation <= _EVALUATIONS // 2 else 0.01)
        target = near if enough else best[0] - 0.02 * ncells * 0.9**evaluation
        step = (value - target) / norm
        row = max(0.0, row - step * row_slope * row_scale)
        column = max(0.0, column - step * column_slope * column_scale)
    return best


def _box_certificate(
    problem: Problem, a: int, b: int, rule: Rule, reached: Fraction, row_price: Fraction, column_price: Fraction
) -> Certificate | None:
    if reached >= problem.ncells:
        return None
    return Certificate(
        a=a,
        b=b,
        rule=rule,
        reached=reached,
        needed=Fraction(problem.ncells),
        row_price=row_price,
        column_price=column_price,
    )


def whole_boxes_work(problem: Problem, a: int, b: int) -> float:
    """Return about how many table entries ``refute_whole_boxes`` looks at."""
    value, row, column = box_prices(problem, a, b, 0)
    boxes = boxes_of(problem)
    gains = boxes.cells - row * boxes.rows - column * boxes.columns
    short = np.maximum(gains.max(axis=1), 0)[:, None] - gains
    worthy = (short <= value - problem.ncells) @ np.ones(gains.shape[1])
    return float(boxes.count @ worthy) * 5 * a * problem.ncolumns * b * problem.nrows


def refute_whole_boxes(problem: Problem, a: int, b: int) -> Certificate | None:
    """Return a proof by whole boxes that (a, b) cannot be reached, or None; stronger and dearer than ``refute``."""
    _, row, column = box_prices(problem, a, b, 0)
    prices = _as_fraction(row), _as_fraction(column)
    reached = Fraction(most_cells(problem, a, b, *prices))
    return _box_certificate(problem, a, b, Rule.WHOLE_BOXES, reached, *prices)

"""Which pairs of spreads (a, b) no placement can reach, each with a proof that can be checked again.

Notation: a grid of D rows and P columns, N = D P cells, minipod m with c_m free nodes. A grid of largest column spread
a and largest row spread b gives minipod m some rows R_m and columns C_m with sum |R_m| <= b D and sum |C_m| <= a P,
and at most min(c_m, |R_m| |C_m|) cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import isqrt

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Problem

_EVALUATIONS = 60
_DENOMINATOR = 1 << 20
_ROOT_BITS = 60


class Rule(StrEnum):
    """Why a pair of spreads cannot be reached."""

    WHOLE_ROWS = "whole rows"
    WHOLE_COLUMNS = "whole columns"
    PRODUCT = "product"
    BOX = "box"


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
        The multipliers (lambda, mu) of the box rule, 0 for the others.
    """

    a: int
    b: int
    rule: Rule
    reached: Fraction
    needed: Fraction
    row_price: Fraction = Fraction(0)
    column_price: Fraction = Fraction(0)

    def __str__(self) -> str:
        """Return the proof in words."""
        reached, needed = f"{float(self.reached):.4g}", f"{float(self.needed):.4g}"
        if self.rule is Rule.WHOLE_ROWS:
            return f"b = 1, and {self.a} minipods hold {reached} whole rows of {needed}"
        if self.rule is Rule.WHOLE_COLUMNS:
            return f"a = 1, and {self.b} minipods hold {reached} whole columns of {needed}"
        if self.rule is Rule.PRODUCT:
            return f"a b = {reached}, and the product bound is {needed}"
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
    return _refute_product(problem, a, b) or _refute_box(problem, a, b)


def check(certificate: Certificate, problem: Problem) -> bool:
    """Return whether a proof holds for a problem, in exact arithmetic and from its numbers alone."""
    a, b = certificate.a, certificate.b
    if certificate.rule is Rule.BOX:
        prices = certificate.row_price, certificate.column_price
        return min(prices) >= 0 and box_value(problem, a, b, *prices) < problem.ncells
    if certificate.rule is Rule.PRODUCT:
        return _refute_product(problem, a, b) is not None
    return min(a, b) == 1 and _refute_whole(problem, a, b, certificate.rule) is not None


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
    left, roots = problem.ncells, 0
    for nodes in sorted(problem.free, reverse=True):
        taken = min(nodes, left)
        roots += isqrt(taken << 2 * _ROOT_BITS)
        left -= taken
    return Fraction(roots * roots, problem.ncells << 2 * _ROOT_BITS)


def _refute_product(problem: Problem, a: int, b: int) -> Certificate | None:
    needed = product_bound(problem)
    if a * b >= needed:
        return None
    return Certificate(a=a, b=b, rule=Rule.PRODUCT, reached=Fraction(a * b), needed=needed)


def box_value(problem: Problem, a: int, b: int, row_price: Fraction, column_price: Fraction) -> Fraction:
    """Return the most cells that (a, b) can hold by the box relaxation priced at (lambda, mu), exactly.

    Notes
    -----
    lambda b D + mu a P + sum over m of max(0, max over k <= P, r of min(c_m, r k) - lambda r - mu k). For each k the
    term is concave in r with its kink at c_m / k, so r is one of floor and ceil of that, at most D.
    """
    scale = row_price.denominator * column_price.denominator
    row, column = int(row_price * scale), int(column_price * scale)
    nrows, ncolumns = problem.nrows, problem.ncolumns
    total = row * b * nrows + column * a * ncolumns
    gains: dict[int, int] = {}
    for nodes in problem.free:
        if nodes not in gains:
            gains[nodes] = max(
                0,
                *(
                    scale * min(nodes, r * k) - row * r - column * k
                    for k in range(1, ncolumns + 1)
                    for r in (min(nrows, nodes // k), min(nrows, -(-nodes // k)))
                ),
            )
        total += gains[nodes]
    return Fraction(total, scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boxes:
    """The boxes (r rows x k columns) of each distinct number of free nodes, as arrays of shape (distinct, 2P)."""

    rows: npt.NDArray[np.float64]
    columns: npt.NDArray[np.float64]
    cells: npt.NDArray[np.float64]
    count: npt.NDArray[np.float64]


def _boxes(problem: Problem) -> _Boxes:
    free, count = np.unique([nodes for nodes in problem.free if nodes], return_counts=True)
    widths = np.arange(1, problem.ncolumns + 1)
    floors = free[:, None] // widths
    ceils = -(-free[:, None] // widths)
    rows = np.minimum(np.concatenate([floors, ceils], axis=1), problem.nrows)
    columns = np.broadcast_to(np.concatenate([widths, widths]), rows.shape)
    cells = np.minimum(free[:, None], rows * columns)
    return _Boxes(
        rows=rows.astype(float), columns=columns.astype(float), cells=cells.astype(float), count=count.astype(float)
    )


def _refute_box(problem: Problem, a: int, b: int) -> Certificate | None:
    """Search (lambda, mu) by Polyak steps in floats; whatever is found is proven again in integers."""
    boxes, ncells = _boxes(problem), problem.ncells
    row_room, column_room = b * problem.nrows, a * problem.ncolumns
    row_scale, column_scale = problem.ncolumns / b, problem.nrows / a
    row, column = row_scale / 2, column_scale / 2
    lines = np.arange(len(boxes.count))
    for evaluation in range(_EVALUATIONS):
        gains = boxes.cells - row * boxes.rows - column * boxes.columns
        best = gains.argmax(axis=1)
        weight = np.where(gains[lines, best] > 0, boxes.count, 0.0)
        value = row * row_room + column * column_room + float(weight @ gains[lines, best])
        if value < ncells - 1e-6:
            certificate = _box_certificate(problem, a, b, row, column)
            if certificate is not None:
                return certificate
        row_slope = (row_room - float(weight @ boxes.rows[lines, best])) * row_scale
        column_slope = (column_room - float(weight @ boxes.columns[lines, best])) * column_scale
        row_slope = 0.0 if row <= 0 < row_slope else row_slope
        column_slope = 0.0 if column <= 0 < column_slope else column_slope
        norm = row_slope**2 + column_slope**2
        if norm < 1e-12:
            return None
        target = ncells - (1.0 if evaluation <= _EVALUATIONS // 2 else 0.01)
        step = (value - target) / norm
        row = max(0.0, row - step * row_slope * row_scale)
        column = max(0.0, column - step * column_slope * column_scale)
    return None


def _box_certificate(problem: Problem, a: int, b: int, row: float, column: float) -> Certificate | None:
    row_price = Fraction(round(row * _DENOMINATOR), _DENOMINATOR)
    column_price = Fraction(round(column * _DENOMINATOR), _DENOMINATOR)
    reached = box_value(problem, a, b, row_price, column_price)
    if reached >= problem.ncells:
        return None
    return Certificate(
        a=a,
        b=b,
        rule=Rule.BOX,
        reached=reached,
        needed=Fraction(problem.ncells),
        row_price=row_price,
        column_price=column_price,
    )

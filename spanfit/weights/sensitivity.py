"""Over which range of alpha a placement stays the same: exact breakpoints between pairs of spreads, no grid of alphas.

At a fixed alpha the best placement has spreads (a, b) that minimise alpha a + (1 - alpha) b, a straight line in alpha
for each pair. The best value is the lower envelope of those lines, so it changes its pair only where two lines of the
envelope cross. Solving at the crossing of two known lines either finds a pair below both, or proves that they are
neighbours on the envelope (Eisner and Severance, 1976): as many solutions as the envelope has pairs and corners.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from spanfit.results.schema import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """The spreads of a placement.

    Attributes
    ----------
    dp, pp : int
        Minipods that the widest DP group (column) and the widest PP group (row) touches.
    is_proven : bool
        Whether no placement has a lower objective at the alpha that it was made for.
    """

    dp: int
    pp: int
    is_proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaRange:
    """A range of alpha in which one pair of spreads is best.

    Attributes
    ----------
    low, high : float
        The ends, where the neighbouring pair is as good.
    dp, pp : int
        The spreads.
    is_proven : bool
        Whether the answers at both ends were proven to be optimal; else a better pair may take part of the range.
    """

    low: float
    high: float
    dp: int
    pp: int
    is_proven: bool


def alpha_ranges(solve: Callable[[float], Spreads]) -> tuple[AlphaRange, ...]:
    """Return the ranges of alpha from 0 to 1, in order, each with its best spreads.

    Parameters
    ----------
    solve : callable
        Returns the spreads of the best placement at an alpha.

    Examples
    --------
    >>> whole_rows, whole_columns = Spreads(dp=4, pp=1, is_proven=True), Spreads(dp=1, pp=2, is_proven=True)
    >>> found = alpha_ranges(lambda alpha: whole_rows if alpha < 0.25 else whole_columns)
    >>> [(piece.low, piece.high, piece.dp, piece.pp) for piece in found]
    [(0.0, 0.25, 4, 1), (0.25, 1.0, 1, 2)]
    """
    known = {Fraction(0): solve(0.0), Fraction(1): solve(1.0)}
    unsure = {alpha for alpha, found in known.items() if not found.is_proven}
    corners = _corners(known[Fraction(0)], known[Fraction(1)], solve, unsure)
    cuts = [Fraction(0), *(cut for cut, _ in corners), Fraction(1)]
    pairs = [known[Fraction(0)], *(after for _, after in corners)]
    ranges = [
        AlphaRange(
            low=float(low),
            high=float(high),
            dp=pair.dp,
            pp=pair.pp,
            is_proven=not {low, high} & unsure,
        )
        for low, high, pair in zip(cuts, cuts[1:], pairs, strict=False)
        if low < high
    ]
    return tuple(ranges)


def _corners(
    left: Spreads, right: Spreads, solve: Callable[[float], Spreads], unsure: set[Fraction]
) -> list[tuple[Fraction, Spreads]]:
    """Return the alphas at which the envelope between two of its lines turns, each with the spreads after it.

    ``unsure`` takes the corners at which the answer was not proven.
    """
    corner = _crossing(left, right)
    if corner is None:
        return []
    found = solve(float(corner))
    if _value(found, corner) >= _value(left, corner):
        if not found.is_proven:
            unsure.add(corner)
        return [(corner, right)]
    return [*_corners(left, found, solve, unsure), *_corners(found, right, solve, unsure)]


def _crossing(left: Spreads, right: Spreads) -> Fraction | None:
    """Return the alpha at which the line of the left pair rises above that of the right one; None where it does not.

    Pairs that were not proven may be no better than another one everywhere.
    """
    wider, narrower = left.dp - right.dp, right.pp - left.pp
    return Fraction(narrower, wider + narrower) if min(wider, narrower) >= 0 < wider + narrower else None


def _value(spreads: Spreads, alpha: Fraction) -> Fraction:
    return alpha * spreads.dp + (1 - alpha) * spreads.pp


def holding(ranges: tuple[AlphaRange, ...], alpha: float) -> AlphaRange:
    """Return the range that holds an alpha; at a breakpoint the one below it."""
    return next(piece for piece in ranges if alpha <= piece.high)


def is_decided(ranges: tuple[AlphaRange, ...], alpha: Estimate) -> bool:
    """Return whether every alpha of an interval has the same best spreads; without an interval nothing is decided."""
    if alpha.ci_low is None or alpha.ci_high is None:
        return False
    piece = holding(ranges, alpha.value)
    return piece.low <= alpha.ci_low and alpha.ci_high <= piece.high

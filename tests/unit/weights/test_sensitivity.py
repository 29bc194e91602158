from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.results.schema import Estimate
from spanfit.weights.sensitivity import AlphaRange, Spreads, alpha_ranges, holding, is_decided

PAIRS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=12)


def best_of(pairs: list[tuple[int, int]], calls: list[float] | None = None) -> Callable[[float], Spreads]:
    def solve(alpha: float) -> Spreads:
        if calls is not None:
            calls.append(alpha)
        exact = Fraction(alpha).limit_denominator(10_000)
        dp, pp = min(pairs, key=lambda pair: (exact * pair[0] + (1 - exact) * pair[1], sum(pair)))
        return Spreads(dp=dp, pp=pp, is_proven=True)

    return solve


def value(pair: tuple[int, int], alpha: Fraction) -> Fraction:
    return alpha * pair[0] + (1 - alpha) * pair[1]


@given(PAIRS, st.fractions(0, 1, max_denominator=97))
def test_every_alpha_has_the_best_pair_of_all(pairs: list[tuple[int, int]], alpha: Fraction) -> None:
    ranges = alpha_ranges(best_of(pairs))
    piece = holding(ranges, float(alpha))
    assert value((piece.dp, piece.pp), alpha) == min(value(pair, alpha) for pair in pairs)


@given(PAIRS)
def test_ranges_join_from_0_to_1_and_neighbours_tie_where_they_meet(pairs: list[tuple[int, int]]) -> None:
    ranges = alpha_ranges(best_of(pairs))
    assert (ranges[0].low, ranges[-1].high) == (0.0, 1.0)
    for left, right in pairwise(ranges):
        assert left.high == right.low
        cut = Fraction(left.high).limit_denominator(1000)
        assert value((left.dp, left.pp), cut) == value((right.dp, right.pp), cut)
        assert left.dp > right.dp and left.pp < right.pp


def test_breakpoints_are_exact_and_take_few_placements() -> None:
    calls: list[float] = []
    ranges = alpha_ranges(best_of([(8, 1), (4, 2), (2, 4), (1, 8)], calls))
    assert [(each.low, each.high) for each in ranges] == [(0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)]
    assert len(calls) <= 2 * len(ranges) + 1


def test_the_shape_of_fig_12_changes_at_a_half() -> None:
    # 12 nodes, 6 x 2 in two minipods of 6: PP-aligned (2, 1), DP-aligned (1, 2); the paper's alpha 0.8 is DP's.
    ranges = alpha_ranges(best_of([(2, 1), (1, 2), (2, 2)]))
    assert [(each.low, each.high, each.dp, each.pp) for each in ranges] == [(0.0, 0.5, 2, 1), (0.5, 1.0, 1, 2)]
    assert holding(ranges, 0.8).dp == 1


def test_an_answer_that_was_not_proven_makes_its_ranges_unsure() -> None:
    def solve(alpha: float) -> Spreads:
        return Spreads(dp=4, pp=1, is_proven=True) if alpha < 0.5 else Spreads(dp=1, pp=4, is_proven=alpha == 1.0)

    assert [each.is_proven for each in alpha_ranges(solve)] == [False, False]


def test_an_end_that_was_not_proven_may_be_worse_everywhere() -> None:
    def solve(alpha: float) -> Spreads:
        return Spreads(dp=2, pp=2, is_proven=True) if alpha < 1 else Spreads(dp=3, pp=3, is_proven=False)

    assert alpha_ranges(solve) == (AlphaRange(low=0.0, high=1.0, dp=2, pp=2, is_proven=False),)


@pytest.mark.parametrize(
    ("alpha", "is_told"),
    [
        (Estimate(value=0.3, ci_low=0.1, ci_high=0.45), True),
        (Estimate(value=0.3, ci_low=0.1, ci_high=0.55), False),
        (Estimate(value=0.3, ci_low=None, ci_high=None), False),
    ],
)
def test_an_interval_within_one_range_decides(alpha: Estimate, is_told: bool) -> None:
    assert is_decided(alpha_ranges(best_of([(2, 1), (1, 2)])), alpha) is is_told

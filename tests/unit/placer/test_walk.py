"""The order in which a walk tries pairs of spreads."""

from dataclasses import replace

import pytest

from spanfit.placer.walk import Walk
from tests.unit.placer.factories import problem

ENOUGH = 40
TWENTY = problem(75, 16, (88,) * 12 + (18,) * 8, 0.3)


def walk_of(alpha: float) -> Walk:
    return Walk(replace(TWENTY, alpha=alpha, beta=1 - alpha), 0, lambda: 10.0, 1.0)


@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_a_leap_in_lines_tries_several_lines_abreast_and_halves_the_way_back(alpha: float) -> None:
    walk, tried = walk_of(alpha), []

    def build(a: int, b: int, share: float) -> bool:
        tried.append((a, b))
        return a * b >= ENOUGH

    walk.leap_in_lines(build, share=0.1, most=0.5)
    common = [b if alpha == 0.3 else a for a, b in tried]
    assert len(set(common[:4])) == 4
    assert tried[0] == next(walk_of(alpha).open_pairs())
    a, b = [(a, b) for a, b in tried if a * b >= ENOUGH][-1]
    before = (a - 1, b) if alpha == 0.3 else (a, b - 1)
    assert before in tried
    assert before[0] * before[1] < ENOUGH


def test_a_leap_in_lines_leaves_out_what_would_not_better_the_best_grid() -> None:
    walk = walk_of(0.3)
    walk.offer_incumbents()
    assert walk.best is not None
    best, tried = walk.best.rank[0], []

    def build(a: int, b: int, share: float) -> bool:
        tried.append(0.3 * a + 0.7 * b)
        return False

    walk.leap_in_lines(build, share=0.1, most=0.5)
    assert tried
    assert max(tried) < best


def test_stacks_are_tried_once_for_each_pair() -> None:
    walk = walk_of(0.3)
    build = walk.by_quick_stacks_or_shares
    a, b = next(walk.open_pairs())
    build(a, b, 0.1)
    assert {(pair[2], pair[3]) for pair in walk.stacked} == {(a, b)}
    left_s = walk.allowance_s
    walk.by_stacks(next(iter(walk.stacked))[0])(a, b, 0.1)
    assert walk.allowance_s == left_s

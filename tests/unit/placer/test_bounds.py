from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.bounds import Rule, check, product_bound, refute, refute_whole_boxes
from spanfit.placer.boxes import box_value, most_cells
from spanfit.placer.model import Problem
from tests.unit.placer.factories import is_reachable, problem, reachable, small_problems

FULL = problem(75, 16, (60,) * 20)


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_refuted_pairs_have_no_grid_and_edges_are_exact(small: Problem) -> None:
    pairs = reachable(small)
    for a in range(1, 4):
        for b in range(1, 4):
            is_refuted = refute(small, a, b) is not None
            assert not (is_refuted and is_reachable(pairs, a, b))
            if a == 1 or b == 1:
                assert is_refuted != is_reachable(pairs, a, b)


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_product_bound_is_below_every_grid(small: Problem) -> None:
    assert product_bound(small) <= min(a * b for a, b in reachable(small))


def test_product_bound_of_equal_full_minipods_is_their_number() -> None:
    assert product_bound(problem(6, 6, (9, 9, 9, 9))) == 4


def test_box_rule_refutes_what_the_product_rule_cannot() -> None:
    # 20 minipods of 60 nodes: 20 boxes of whole rows and columns do not tile 75 x 16, although 4 x 5 = 20.
    assert product_bound(FULL) <= 20
    assert float(product_bound(FULL)) == pytest.approx(20)
    certificate = refute(FULL, 4, 5)
    assert certificate is not None
    assert certificate.rule is Rule.BOX


@pytest.mark.parametrize(
    ("a", "b", "rule"), [(2, 1, Rule.WHOLE_ROWS), (1, 2, Rule.WHOLE_COLUMNS), (2, 2, Rule.PRODUCT), (4, 5, Rule.BOX)]
)
def test_certificates_hold_for_their_problem_and_not_for_a_roomier_one(a: int, b: int, rule: Rule) -> None:
    certificate = refute(FULL, a, b)
    assert certificate is not None
    assert certificate.rule is rule
    assert check(certificate, FULL)
    assert not check(certificate, replace(FULL, free=(1200, 1200)))
    assert certificate.reached < certificate.needed


def test_a_tampered_box_certificate_does_not_hold() -> None:
    certificate = refute(FULL, 4, 5)
    assert certificate is not None
    assert not check(replace(certificate, row_price=Fraction(-1)), FULL)
    assert not check(replace(certificate, row_price=certificate.row_price + 20), FULL)
    assert not check(replace(certificate, a=9, b=9), FULL)


def test_box_value_is_the_priced_relaxation_written_out() -> None:
    # One minipod of 5 nodes on a 4 x 3 grid, lambda = 1/2, mu = 1/3, a = b = 1: of all boxes r x k the dearest is
    # 2 rows x 3 columns: 5 - 1 - 1 = 3; the room is 1/2 * 4 + 1/3 * 3.
    every = max(min(5, r * k) - Fraction(r, 2) - Fraction(k, 3) for r in range(1, 5) for k in range(1, 4))
    assert box_value(problem(4, 3, (5,)), 1, 1, Fraction(1, 2), Fraction(1, 3)) == 2 + 1 + every
    assert every == 3


def test_box_value_is_exact_beyond_machine_words() -> None:
    given_problem = problem(4, 3, (5, 5, 2))
    row, column = Fraction(1, 2) + Fraction(1, 10**12), Fraction(1, 3) + Fraction(1, 10**15)
    every = {
        nodes: max(Fraction(0), *(min(nodes, r * k) - row * r - column * k for r in range(1, 5) for k in range(1, 4)))
        for nodes in (5, 2)
    }
    assert box_value(given_problem, 2, 1, row, column) == 4 * row + 6 * column + 2 * every[5] + every[2]


def test_spreads_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        refute(problem(2, 2, (4,)), 0, 1)


def whole_boxes(given_problem: Problem, a: int, b: int) -> int:
    """Return the most cells of boxes, by every choice of (r, k) of every minipod."""
    sums = {(0, 0): 0}
    for nodes in given_problem.free:
        after = dict(sums)
        for r, k in product(range(1, given_problem.nrows + 1), range(1, given_problem.ncolumns + 1)):
            for (rows, columns), cells in sums.items():
                place = rows + r, columns + k
                after[place] = max(after.get(place, 0), cells + min(nodes, r * k))
        sums = after
    room = b * given_problem.nrows, a * given_problem.ncolumns
    return max(cells for (rows, columns), cells in sums.items() if rows <= room[0] and columns <= room[1])


@settings(max_examples=30, deadline=None)
@given(small_problems(), st.fractions(0, 2, max_denominator=8), st.fractions(0, 2, max_denominator=8))
def test_whole_boxes_count_what_every_choice_of_boxes_gives(small: Problem, row: Fraction, column: Fraction) -> None:
    for a, b in ((1, 2), (2, 2), (2, 1)):
        most = max(whole_boxes(small, a, b), small.ncells - 1)
        assert most_cells(small, a, b, row, column) == most, "whatever the prices are"
        certificate = refute_whole_boxes(small, a, b)
        assert (certificate is not None) == (most < small.ncells)
        assert certificate is None or check(certificate, small)


def test_whole_boxes_refute_what_priced_boxes_cannot() -> None:
    # Ten minipods of 144 nodes on 150 x 8: boxes of fractions hold 1,231 cells at (3, 3), whole ones fewer than 1,200.
    tenths = problem(150, 8, (144,) * 10)
    assert refute(tenths, 3, 3) is None
    certificate = refute_whole_boxes(tenths, 3, 3)
    assert certificate is not None
    assert certificate.rule is Rule.WHOLE_BOXES
    assert check(certificate, tenths)
    assert not check(certificate, problem(150, 8, (600, 600)))
    assert not check(replace(certificate, row_price=Fraction(-1)), tenths)
    assert "whole boxes" in str(certificate)

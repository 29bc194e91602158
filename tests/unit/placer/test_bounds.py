from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings

from spanfit.placer.bounds import Rule, box_value, check, product_bound, refute
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


def test_spreads_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        refute(problem(2, 2, (4,)), 0, 1)

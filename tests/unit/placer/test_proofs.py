"""Which pairs are left, and that no certificate counts unless it holds."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from spanfit.placer.bounds import Rule, refute
from spanfit.placer.model import Problem
from spanfit.placer.proofs import Proofs
from tests.unit.placer.factories import is_reachable, problem, reachable, small_problems

FULL = problem(75, 16, (60,) * 20, 0.3)


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_pairs_rise_and_those_of_too_small_a_product_have_no_grid(small: Problem) -> None:
    proofs, pairs = Proofs(small), reachable(small)
    assert (np.diff(proofs.values) >= -1e-9).all()
    refuted = proofs.pairs[~proofs.is_left].tolist()
    assert not any(is_reachable(pairs, a, b) for a, b in refuted)
    assert proofs.bound() <= min(small.alpha * a + small.beta * b for a, b in pairs) + 1e-9


def test_a_certificate_closes_its_pair_and_all_lower_ones() -> None:
    proofs = Proofs(FULL)
    left = set(map(tuple, proofs.pairs[proofs.is_left].tolist()))
    assert (4, 5) in left
    assert proofs.add(refute(FULL, 4, 5))
    closed = left - set(map(tuple, proofs.pairs[proofs.is_left].tolist()))
    assert closed == {(4, 5)}
    assert not proofs.add(None)


@pytest.mark.parametrize("pair", [(4, 5), (2, 1), (2, 2)])
def test_a_certificate_that_does_not_hold_is_not_counted(pair: tuple[int, int]) -> None:
    certificate = refute(FULL, *pair)
    assert certificate is not None
    proofs = Proofs(FULL)
    before = proofs.is_left.copy()
    assert not proofs.add(replace(certificate, a=20, b=16))
    assert not proofs.add(replace(certificate, rule=Rule.BOX, row_price=Fraction(-1)))
    assert (proofs.is_left == before).all()


def test_a_bound_is_told_by_what_refutes_the_pairs_below_it() -> None:
    proofs = Proofs(FULL)
    assert proofs.explain(1.0) == "no pair of spreads lies lower"
    assert "product bound" in proofs.explain(proofs.bound())
    proofs.add_model(4, 5, "HiGHS")
    assert "(4, 5) has no grid (exact type model, by HiGHS)" in proofs.explain(4.8)


def test_all_pairs_closed_leave_no_bound() -> None:
    proofs = Proofs(FULL)
    proofs.add_model(20, 16, "HiGHS")
    assert proofs.bound() == np.inf

"""The pieces bound: its counts, its certificates, and that it refutes nothing that has a grid."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.bounds import Rule, check, pieces_certificate, refute, refute_whole_boxes
from spanfit.placer.construct import transpose
from spanfit.placer.model import Problem
from spanfit.placer.pieces import Givings, Sides, Stacks
from spanfit.placer.worths import Worths
from tests.unit.placer.factories import is_reachable, problem, reachable, small_problems

# Forty minipods of 60 nodes on 75 x 16: no minipod has more than four fifths of a column.
FORTY = problem(75, 16, (60,) * 40)


def never() -> bool:
    return False


def stacks_of(nrows: int, depth: int, longest: int) -> list[tuple[int, ...]]:
    return [
        pieces
        for count in range(1, depth + 1)
        for pieces in combinations_with_replacement(range(1, longest + 1), count)
        if sum(pieces) == nrows
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 20), min_size=4, max_size=6), st.integers(1, 3))
def test_the_cheapest_stack_is_the_cheapest_of_all(worths: list[int], depth: int) -> None:
    nrows, longest = 7, len(worths)
    prices = np.array([0, *worths])
    every = {stack: int(prices[list(stack)].sum()) for stack in stacks_of(nrows, depth, longest)}
    stacks = Stacks(prices, nrows, depth)
    if not every:
        assert stacks.least > 10**9
        return
    assert stacks.least == min(every.values())
    found = list(stacks.cheapest(5))
    assert every[found[0]] == stacks.least
    assert set(found) <= every.keys()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-5, 20), min_size=5, max_size=5), st.integers(1, 3), st.integers(1, 9), st.integers(0, 6))
def test_minipods_give_the_most_of_all_ways(worths: list[int], ncolumns: int, nodes: int, row_price: int) -> None:
    prices = np.array([0, *worths])
    givings = Givings(prices, ncolumns, 9)
    gains = givings.gains(np.array([nodes]), row_price)[:, 0]
    for rows in range(6):
        ways = [
            pieces
            for count in range(ncolumns + 1)
            for pieces in combinations_with_replacement(range(1, rows + 1), count)
            if sum(pieces) <= nodes
        ]
        most = max(int(prices[list(pieces)].sum()) for pieces in ways)
        assert gains[rows] == most - row_price * rows
        pieces = givings.pieces(nodes, rows)
        assert pieces in [tuple(sorted(way, reverse=False)) for way in ways] or tuple(sorted(pieces)) in ways
        assert int(prices[list(pieces)].sum()) == most


@settings(max_examples=25, deadline=None)
@given(small_problems())
def test_refuted_pairs_have_no_grid(small: Problem) -> None:
    pairs, worths = reachable(small), Worths(small)
    for a, b in ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2)):
        certificate = worths.refute(a, b, never)
        if certificate is not None:
            assert check(certificate, small)
            assert not is_reachable(pairs, a, b)


@pytest.mark.parametrize("given_problem", [FORTY, transpose(FORTY)])
def test_pieces_refute_what_boxes_cannot_either_way_round(given_problem: Problem) -> None:
    a, b = (3, 7) if given_problem.nrows == 75 else (7, 3)
    assert refute(given_problem, a, b) is None
    assert refute_whole_boxes(given_problem, a, b) is None
    certificate = Worths(given_problem).refute(a, b, never)
    assert certificate is not None
    assert certificate.rule is Rule.PIECES
    assert certificate.reached < certificate.needed
    assert check(certificate, given_problem)
    assert "pieces" in str(certificate)
    assert not check(certificate, replace(given_problem, free=(1200, 1200)))
    assert not check(replace(certificate, a=a + 2, b=b + 2), given_problem)
    assert not check(replace(certificate, worths=certificate.worths[:-1]), given_problem)
    assert not check(replace(certificate, worths=(1 << 40, *certificate.worths[1:])), given_problem)
    assert not check(replace(certificate, row_price=-certificate.row_price - 1), given_problem)


def test_a_pair_that_the_program_cannot_refute_spares_the_search_of_higher_ones() -> None:
    worths = Worths(FORTY)
    assert worths.refute(4, 7, never) is None
    assert worths.held == [(4, 7)]
    assert worths.refute(5, 7, never) is None
    assert worths.held == [(4, 7)]


def test_a_search_that_is_stopped_refutes_nothing_and_goes_on_later() -> None:
    worths = Worths(FORTY)
    assert worths.refute(3, 7, lambda: True) is None
    assert not worths.held
    assert worths.refute(3, 7, never) is not None


def test_worthless_pieces_prove_nothing() -> None:
    sides = Sides.of(FORTY, 3, 7)
    assert (sides.nrows, sides.ncolumns, sides.depth, sides.row_spread, sides.longest) == (75, 16, 3, 7, 60)
    assert pieces_certificate(FORTY, 3, 7, (0,) * 61, 0) is None
    assert pieces_certificate(FORTY, 3, 7, (0, *range(1, 61)), 0) is None

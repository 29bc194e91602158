"""Chains: strips that minipods fill one after another."""

from itertools import islice

import pytest
from hypothesis import given, settings

from spanfit.placer.chains import chains
from spanfit.placer.construct import reaches, transpose
from spanfit.placer.model import Problem
from tests.unit.placer.factories import Counted, is_reachable, problem, reachable, small_problems

TIGHT = problem(150, 8, (161, 160, 40, 20, 161, 160, 160, 160, 160, 42))
"""Seven minipods of a column and a little, and three small ones; searches over stacks of sub-bands end at (4, 3)."""


@pytest.mark.parametrize(("a", "b"), [(3, 4), (2, 7), (3, 5)])
def test_a_chain_reaches_what_leaves_hardly_a_node_over_either_way_round(a: int, b: int) -> None:
    (grid,) = islice(chains(TIGHT, a, b, seed=0, stop=Counted(400)), 1)
    assert reaches(grid, TIGHT, a, b)
    (turned,) = islice(chains(transpose(TIGHT), b, a, seed=0, stop=Counted(400)), 1)
    assert reaches(turned, transpose(TIGHT), b, a)


def test_without_time_there_is_no_chain() -> None:
    assert not list(chains(TIGHT, 2, 4, seed=0, stop=Counted(0)))


@settings(max_examples=25, deadline=None)
@given(small_problems())
def test_chains_of_small_grids_reach_pairs_that_have_a_grid(small: Problem) -> None:
    pairs = reachable(small)
    for a, b in ((1, 2), (2, 2), (2, 3), (3, 2)):
        for grid in chains(small, a, b, seed=1, stop=Counted(30)):
            assert reaches(grid, small, a, b)
            assert is_reachable(pairs, a, b)

import random

import numpy as np
import pytest
from hypothesis import given, settings

from spanfit.placer.construct import reaches
from spanfit.placer.highs import MipStatus, solve_here
from spanfit.placer.mip import paper_model, read_paper, read_types, type_model, type_model_size
from spanfit.placer.model import Problem
from spanfit.placer.slabs import largest_split, minipods_used, paper_closed_form, transport, unit_grid
from tests.unit.placer.factories import is_reachable, medium_problem, problem, reachable, small_problems


@pytest.mark.parametrize("seed", range(12))
def test_the_closed_form_equals_the_verbatim_mip(seed: int) -> None:
    source = random.Random(seed)
    size, nunits = source.randint(2, 4), source.randint(2, 5)
    free = [source.randint(size - 1, 2 * size + 2) for _ in range(4)]
    free[0] += max(0, nunits * size - sum(free))
    used_weight = source.choice((0.0, 0.2, 0.5, 0.8, 1.0))
    weights = used_weight, 1 - used_weight
    model = paper_model(nunits, size, free, *weights)
    answer = solve_here(model.mip, time_limit_s=20, seed=0)
    assert answer.status is MipStatus.OPTIMAL
    assert answer.values is not None
    exact, fast = read_paper(model, answer.values.tolist()), paper_closed_form(nunits, size, free, *weights)
    for taken in (exact, fast):
        assert [sum(unit.values()) for unit in taken] == [size] * nunits
        assert all(sum(unit.get(j, 0) for unit in taken) <= free[j] for j in range(4))
    values = [weights[0] * minipods_used(t) + weights[1] * largest_split(t) for t in (exact, fast)]
    assert values[0] == pytest.approx(values[1])


def test_the_closed_form_is_beaten_where_minipods_are_tiny() -> None:
    # Its two candidates split a unit over 3 or use no fewer; the model as printed is the smaller one.
    model = paper_model(2, 4, (3, 1, 1, 3), 0.0, 1.0)
    answer = solve_here(model.mip, time_limit_s=20, seed=0)
    assert answer.values is not None
    exact, fast = read_paper(model, answer.values.tolist()), paper_closed_form(2, 4, (3, 1, 1, 3), 0.0, 1.0)
    assert largest_split(exact) == 2
    assert largest_split(fast) >= 2


@settings(max_examples=25, deadline=None)
@given(small_problems())
def test_the_type_model_is_feasible_exactly_where_some_grid_is(small: Problem) -> None:
    pairs = reachable(small)
    for a, b in ((1, 2), (2, 1), (2, 2)):
        model = type_model(small, a, b)
        answer = solve_here(model.mip, time_limit_s=20, seed=0)
        assert answer.status is not MipStatus.STOPPED
        assert (answer.status is MipStatus.OPTIMAL) == is_reachable(pairs, a, b)
        if answer.values is not None:
            assert reaches(read_types(model, answer.values.tolist()), small, a, b)


@pytest.mark.parametrize("seed", range(4))
def test_type_model_grids_reach_their_pair(seed: int) -> None:
    medium = medium_problem(seed)
    model = type_model(medium, 3, 3)
    answer = solve_here(model.mip, time_limit_s=20, seed=0)
    assert answer.values is not None
    assert reaches(read_types(model, answer.values.tolist()), medium, 3, 3)


def test_type_model_size_counts_its_flows() -> None:
    given_problem = problem(6, 4, (9, 0, 9, 9))
    model = type_model(given_problem, 2, 2)
    integers = len(model.counts) + sum(len(column) for column in model.touches)
    assert len(model.mip.cost) - integers == type_model_size(given_problem, 2) == 3 * 2 * 4


def test_transport_reroutes_earlier_units() -> None:
    # Unit 0 first takes all of minipod 0; unit 1 may take nothing else, so unit 0 has to give way.
    assert transport([[0, 1], [0]], [2, 2], [2, 2]) == [{1: 2}, {0: 2}]


def test_transport_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="unit 1 lacks 1 of 2 nodes"):
        transport([[0], [0]], [2, 2], [3, 9])


def test_unit_grid_keeps_nodes_of_a_minipod_together() -> None:
    assert unit_grid([{2: 1, 0: 2}, {0: 3}]) == ((0, 0, 0), (0, 0, 2))


def test_factors_that_order_columns_stay_small_whatever_the_minipods() -> None:
    given_problem = problem(20, 2, (1,) * 40)
    assert np.abs(type_model(given_problem, 2, 2).mip.value).max() <= 2**11

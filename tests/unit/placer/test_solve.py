import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import ExitCode, InfeasibleError
from spanfit.placer.baselines import BASELINES, Baseline
from spanfit.placer.bounds import product_bound
from spanfit.placer.construct import transpose
from spanfit.placer.model import (
    PlacementStatus,
    Problem,
    check_capacity,
    column_spreads,
    objective,
    row_spreads,
)
from spanfit.placer.paper import solve_paper
from spanfit.placer.solve import Solver, solve
from tests.unit.placer.factories import best, medium_problem, problem, reachable, small_problems

# 1,200 nodes in 40 equal minipods, slack 1.2: two pairs of spreads below the best grid stay open.
OPEN = problem(75, 16, (36,) * 40)


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_small_problems_are_solved_as_by_brute_force(small: Problem) -> None:
    solution = solve(small)
    check_capacity(solution.grid, small)
    assert solution.status is PlacementStatus.OPTIMAL
    assert solution.objective == pytest.approx(objective(solution.grid, small))
    assert solution.objective == pytest.approx(best(small, reachable(small)))


def check_invariants(given_problem: Problem, seed: int = 0) -> None:
    solution = solve(given_problem, seed=seed)
    check_capacity(solution.grid, given_problem)
    assert solution.objective == pytest.approx(objective(solution.grid, given_problem))
    assert solution.bound <= solution.objective
    assert (solution.status is PlacementStatus.OPTIMAL) == (solution.bound == solution.objective)
    assert max(column_spreads(solution.grid)) * max(row_spreads(solution.grid)) >= product_bound(given_problem)
    for place in BASELINES.values():
        assert solution.objective <= objective(place(given_problem, seed), given_problem) + 1e-9
    assert solution.objective <= solve_paper(given_problem).counted + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_medium_problems_keep_the_invariants(seed: int) -> None:
    check_invariants(medium_problem(seed), seed)


def test_1200_nodes_keep_the_invariants() -> None:
    check_invariants(problem(150, 8, tuple(20 + 4 * (index % 9) for index in range(40)), 0.3))


@settings(max_examples=15, deadline=None)
@given(small_problems(), st.randoms(use_true_random=False))
def test_small_optima_do_not_depend_on_the_order_of_things(small: Problem, source: random.Random) -> None:
    value = solve(small).objective
    shuffled = source.sample(small.free, len(small.free))
    assert solve(replace(small, free=tuple(shuffled))).objective == pytest.approx(value)
    assert solve(replace(small, free=(0, *small.free, 0))).objective == pytest.approx(value)
    assert solve(transpose(small)).objective == pytest.approx(value)


@settings(max_examples=15, deadline=None)
@given(small_problems(), st.integers(1, 5))
def test_more_nodes_and_merged_minipods_never_hurt(small: Problem, more: int) -> None:
    value = solve(small).objective
    assert solve(replace(small, free=(small.free[0] + more, *small.free[1:]))).objective <= value + 1e-9
    if len(small.free) > 1:
        merged = (small.free[0] + small.free[1], *small.free[2:])
        assert solve(replace(small, free=merged)).objective <= value + 1e-9


def test_the_same_seed_gives_the_same_solution() -> None:
    medium = medium_problem(3)
    assert solve(medium, seed=5) == solve(medium, seed=5)


@pytest.mark.parametrize("given_problem", [OPEN, problem(150, 8, (102, 98, 71, 38, 9, *[63] * 14))])
def test_the_clock_changes_nothing_while_there_is_time(given_problem: Problem) -> None:
    # A clock that stands still is the fastest machine there is; the other is ten times as fast as this one.
    still = solve(given_problem, time_limit_s=0.3, clock=lambda: 0.0)
    assert solve(given_problem, time_limit_s=0.3, clock=lambda: time.monotonic() / 10) == still


def test_a_grid_of_fewer_minipods_is_preferred_among_equals() -> None:
    # alpha 0 leaves columns unpriced; still one minipod is enough.
    solution = solve(problem(4, 2, (3, 9, 3), 0.0))
    assert {cell for row in solution.grid for cell in row} == {1}


def test_the_time_limit_holds_and_the_best_grid_is_kept() -> None:
    start = time.monotonic()
    solution = solve(OPEN, time_limit_s=0.5)
    assert time.monotonic() - start < 1.0
    check_capacity(solution.grid, OPEN)
    assert solution.status is PlacementStatus.FEASIBLE
    assert solution.bound < solution.objective


def test_no_time_at_all_still_gives_a_baseline() -> None:
    solution = solve(OPEN, time_limit_s=0.0)
    instant = [place for name, place in BASELINES.items() if name is not Baseline.TOPO_AWARE]
    assert solution.objective == min(*(objective(place(OPEN, 0), OPEN) for place in instant), solve_paper(OPEN).counted)
    assert solution.bound < solution.objective


@pytest.mark.parametrize("time_limit_s", [0.0, 0.01, 0.03, 0.1, 0.2])
def test_however_short_the_time_no_instant_baseline_is_better(time_limit_s: float) -> None:
    # Whole columns are best found by the closed form; constructions that time cuts short are much worse.
    big = problem(1250, 10, (199,) * 46 + (200,) * 18)
    assert solve(big, time_limit_s=time_limit_s).objective <= solve_paper(big).counted == 9.0


def test_an_answer_says_its_seconds_and_gap_by_the_clock_that_it_is_given() -> None:
    ticks = iter(range(10**6))
    solution = solve(OPEN, time_limit_s=20, clock=lambda: float(next(ticks)))
    assert solution.solve_s >= 20
    assert solution.gap == solution.objective / solution.bound - 1


def test_the_closed_form_of_the_paper_has_its_own_value_and_our_bound() -> None:
    figure_12 = problem(6, 2, (6, 6), 0.8)
    solution = solve(figure_12, solver=Solver.PAPER_CLOSED_FORM)
    assert solution.solver == "paper, closed form"
    assert solution.objective == pytest.approx(1.2)
    assert solution.status is PlacementStatus.OPTIMAL


def test_too_few_free_nodes_are_told_in_numbers() -> None:
    with pytest.raises(InfeasibleError, match=r"needs 6 nodes \(3 x 2\), 5 are free: 3, 2 by minipod; free 1 more"):
        solve(problem(3, 2, (3, 2)))
    assert InfeasibleError.exit_code is ExitCode.INFEASIBLE

"""The solvers beside brute force, beside each other, and their invariants on many problems."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.baselines import BASELINES
from spanfit.placer.bounds import check, product_bound, refute, refute_whole_boxes
from spanfit.placer.construct import transpose
from spanfit.placer.highs import MipStatus, best_engine, solve_here
from spanfit.placer.mip import type_model
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
from spanfit.placer.worths import Worths
from tests.unit.placer.factories import (
    SMALL_SHAPES,
    best,
    is_reachable,
    medium_problem,
    problem,
    reachable,
    small_problems,
)


def small_problem(source: random.Random) -> Problem:
    nrows, ncolumns = source.choice(SMALL_SHAPES[:-1])
    minipods = source.randint(1, 3)
    free = [source.randint(0, nrows * ncolumns) for _ in range(minipods)]
    free[0] += max(0, nrows * ncolumns - sum(free))
    return problem(nrows, ncolumns, tuple(free), source.choice((0.3, 0.5, 0.7)))


@pytest.mark.timeout(900)
def test_brute_force_the_type_model_and_the_solver_agree_on_500_small_problems() -> None:
    source = random.Random(7)
    for _ in range(500):
        small = small_problem(source)
        pairs = reachable(small)
        a, b = source.choice(((1, 2), (2, 1), (2, 2), (2, 3), (3, 2)))
        answer = solve_here(type_model(small, a, b).mip, time_limit_s=20, seed=0)
        assert (answer.status is MipStatus.OPTIMAL) == is_reachable(pairs, a, b)
        solution = solve(small)
        assert solution.status is PlacementStatus.OPTIMAL
        assert solution.objective == pytest.approx(best(small, pairs))


@settings(max_examples=2000, deadline=None)
@given(small_problems(), st.randoms(use_true_random=False), st.integers(1, 5))
@pytest.mark.timeout(900)
def test_the_invariants_hold_on_2000_small_problems(small: Problem, source: random.Random, more: int) -> None:
    solution = solve(small, time_limit_s=60)
    check_capacity(solution.grid, small)
    a, b = max(column_spreads(solution.grid)), max(row_spreads(solution.grid))
    assert solution.objective == pytest.approx(small.alpha * a + small.beta * b) == solution.bound
    assert a * b >= product_bound(small)
    worths = Worths(small)
    for pair in ((1, 2), (2, 1), (2, 2)):
        by_pieces = worths.refute(*pair, lambda: False)
        for certificate in (refute(small, *pair), refute_whole_boxes(small, *pair), by_pieces):
            assert certificate is None or check(certificate, small)
            assert certificate is None or not (a <= pair[0] and b <= pair[1])
    peers = [objective(place(small, 0), small) for place in BASELINES.values()]
    assert solution.objective <= min(*peers, solve_paper(small).counted) + 1e-9
    shuffled = replace(small, free=(0, *source.sample(small.free, len(small.free))))
    assert solve(shuffled).objective == pytest.approx(solution.objective)
    assert solve(transpose(small)).objective == pytest.approx(solution.objective)
    roomier = replace(small, free=(small.free[0] + more, *small.free[1:]))
    assert solve(roomier).objective <= solution.objective + 1e-9
    merged = replace(small, free=(sum(small.free[:2]), *small.free[2:]))
    assert solve(merged).objective <= solution.objective + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_solvers_agree_on_medium_problems(seed: int) -> None:
    medium = medium_problem(seed)
    fast, exact, paper = (solve(medium, solver=solver) for solver in (Solver.FAST, Solver.EXACT, Solver.PAPER))
    assert (fast.status, exact.status) == (PlacementStatus.OPTIMAL, PlacementStatus.OPTIMAL)
    assert fast.objective == pytest.approx(exact.objective)
    assert paper.bound <= fast.objective <= paper.objective + 1e-9


def test_a_pair_that_no_bound_of_the_exact_solver_refutes_is_settled_by_the_model() -> None:
    given_problem = problem(6, 2, (4, 4, 0, 1, 0, 3))
    solution = solve(given_problem, solver=Solver.EXACT)
    assert (solution.status, solution.objective) == (PlacementStatus.OPTIMAL, 2.5)
    assert best_engine() in solution.certificate
    fast = solve(given_problem)
    assert (fast.status, fast.objective) == (PlacementStatus.OPTIMAL, 2.5)
    assert "pieces" in fast.certificate

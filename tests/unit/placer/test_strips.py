import pytest
from hypothesis import given, settings

from spanfit.placer.model import Problem, check_capacity, column_spreads, objective, row_spreads
from spanfit.placer.paper import GroupUnit, solve_paper
from spanfit.placer.strips import strips
from tests.unit.placer.factories import problem, small_problems


@settings(max_examples=30, deadline=None)
@given(small_problems())
def test_strips_fit_and_keep_to_the_objective(drawn: Problem) -> None:
    most = drawn.alpha * 2 + drawn.beta * 2
    for grid in strips(drawn, most=most):
        check_capacity(grid, drawn)
        assert objective(grid, drawn) <= most + 1e-9


@pytest.mark.parametrize("free", [(9, 9, 9), (12, 9, 7), (5, 5, 5, 5, 5)])
@pytest.mark.parametrize("unit", list(GroupUnit))
def test_the_slabs_of_the_paper_are_among_them(free: tuple[int, ...], unit: GroupUnit) -> None:
    given_problem = problem(6, 4, free)
    slab = solve_paper(given_problem, unit=unit).grid
    spreads = max(column_spreads(slab)), max(row_spreads(slab))
    found = {(max(column_spreads(grid)), max(row_spreads(grid))) for grid in strips(given_problem, most=100.0)}
    assert any(a <= spreads[0] and b <= spreads[1] for a, b in found)


def test_strips_fill_minipods_that_hold_no_node_too_many() -> None:
    given_problem = problem(6, 4, (7, 7, 7, 3))
    grids = list(strips(given_problem, most=100.0))
    assert grids
    assert all(sorted(cell for row in grid for cell in row) == [0] * 7 + [1] * 7 + [2] * 7 + [3] * 3 for grid in grids)


def test_another_seed_draws_other_orders() -> None:
    given_problem = problem(12, 6, (20, 19, 18, 17, 16))
    one, same, other = (list(strips(given_problem, most=100.0, seed=seed)) for seed in (0, 0, 1))
    assert one == same != other

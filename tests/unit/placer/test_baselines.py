import pytest

from spanfit.placer.baselines import (
    BASELINES,
    Baseline,
    as_given,
    best_fit,
    fill_rows,
    gpu_packing,
    random_fit,
    slurm_tree,
    topo_aware,
)
from spanfit.placer.construct import flip
from spanfit.placer.model import Grid, Problem, check_capacity, column_spreads, row_spreads
from spanfit.placer.traffic import crossings
from tests.unit.placer.factories import even, medium_problem, problem


def spreads(given_problem: Problem) -> tuple[int, int]:
    grid = best_fit(given_problem)
    return max(column_spreads(grid)), max(row_spreads(grid))


def test_best_fit_fills_the_tightest_minipods_to_the_brim() -> None:
    assert best_fit(problem(3, 2, (4, 3, 2))) == ((2, 2), (1, 1), (1, 0))
    assert best_fit(problem(3, 2, (9, 7, 2))) == ((1, 1), (1, 1), (1, 1)), "a minipod that fits the job takes it whole"


def test_best_fit_has_the_spreads_of_the_paper_reproduction() -> None:
    assert spreads(problem(6, 2, even(18, 3))) == (2, 1)
    assert spreads(problem(12, 8, even(438, 5))) == (2, 2)
    assert spreads(problem(46, 8, even(1019, 11))) == (4, 2)


def test_gpu_packing_fills_the_largest_first() -> None:
    assert gpu_packing(problem(3, 2, (2, 3, 4))) == ((2, 2), (2, 2), (1, 1))


def test_slurm_takes_the_smallest_that_holds_the_rest_else_the_largest() -> None:
    assert slurm_tree(problem(3, 2, (5, 9, 7))) == ((2, 2), (2, 2), (2, 2))
    assert slurm_tree(problem(5, 2, (4, 3, 5, 2))) == ((0, 0), (0, 0), (2, 2), (2, 2), (2, 3)), "node table order"


def test_as_given_uses_up_minipods_in_the_order_of_the_cluster() -> None:
    assert as_given(problem(3, 2, (2, 1, 9))) == ((0, 0), (1, 2), (2, 2))


@pytest.mark.parametrize(("alpha", "spreads"), [(0.1, (2, 1)), (0.9, (1, 2))])
def test_topo_aware_cuts_the_edges_that_weigh_least(alpha: float, spreads: tuple[int, int]) -> None:
    grid = topo_aware(problem(4, 4, (8, 8), alpha))
    assert (max(column_spreads(grid)), max(row_spreads(grid))) == spreads


def test_refining_a_cut_lowers_what_crosses_it() -> None:
    """Ten of twenty cells cut by rows leave a ragged edge, which costs two edges of rows more than it must."""
    ragged = fill_rows([(0, 10), (1, 10)], problem(5, 4, (10, 10), 0.5))
    refined = topo_aware(problem(5, 4, (10, 10), 0.5))

    def weight(grid: Grid) -> float:
        found = crossings(grid, 2)
        return 0.5 * found.ranked_rings + 0.5 * found.chains

    assert weight(refined) <= weight(ragged)
    assert sorted(cell for row in refined for cell in row) == [0] * 10 + [1] * 10


@pytest.mark.parametrize("shape", [(2, 6), (2, 2), (7, 5), (12, 3), (1, 6)])
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8])
def test_a_refined_cut_crosses_no_more_than_either_first_cut(shape: tuple[int, int], alpha: float) -> None:
    nrows, ncolumns = shape
    for first in range(nrows * ncolumns // 2 + 1, nrows * ncolumns):
        counts = [(0, first), (1, nrows * ncolumns - first)]
        given_problem = problem(nrows, ncolumns, (first, nrows * ncolumns - first), alpha)
        by_column = flip(fill_rows(counts, problem(ncolumns, nrows, given_problem.free)))

        def weight(grid: Grid) -> float:
            found = crossings(grid, 2)
            return alpha * found.ranked_rings + (1 - alpha) * found.chains

        firsts = [weight(fill_rows(counts, given_problem)), weight(by_column)]
        assert weight(topo_aware(given_problem)) <= min(firsts) + 1e-9


def test_random_fit_draws_by_seed_and_is_balanced() -> None:
    given_problem = problem(50, 8, (300,) * 4)
    assert random_fit(given_problem, 1) == random_fit(given_problem, 1) != random_fit(given_problem, 2)
    cells = [cell for row in random_fit(given_problem, 1) for cell in row]
    assert all(70 <= cells.count(minipod) <= 130 for minipod in range(4))
    assert cells == sorted(cells)


@pytest.mark.parametrize("baseline", list(BASELINES))
def test_baselines_fit_the_minipods(baseline: Baseline) -> None:
    for seed in range(20):
        medium = medium_problem(seed)
        check_capacity(BASELINES[baseline](medium, seed), medium)


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 nodes given; expected 4"):
        fill_rows([(0, 3)], problem(2, 2, (3,)))

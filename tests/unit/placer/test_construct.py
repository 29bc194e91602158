import pytest
from hypothesis import given, settings

from spanfit.placer.construct import Effort, attempts, construct, flip, reaches, transpose, whole_rows
from spanfit.placer.model import Problem, column_spreads
from tests.unit.placer.factories import is_reachable, medium_problem, problem, reachable, small_problems


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_grids_reach_their_pair_and_edges_are_always_built(small: Problem) -> None:
    pairs = reachable(small)
    for a in range(1, 4):
        for b in range(1, 4):
            grid = construct(small, a, b, effort=Effort.QUICK)
            assert grid is None or reaches(grid, small, a, b)
            if min(a, b) == 1:
                assert (grid is not None) == is_reachable(pairs, a, b)


@pytest.mark.parametrize("seed", range(6))
def test_medium_grids_reach_their_pair(seed: int) -> None:
    medium = medium_problem(seed)
    built = 0
    for a in range(2, 5):
        for b in range(2, 5):
            for grid in attempts(medium, a, b, effort=Effort.QUICK, seed=seed):
                if grid is not None:
                    built += 1
                    assert reaches(grid, medium, a, b)
    assert built


@pytest.mark.parametrize(
    ("nrows", "ncolumns", "free", "a", "b"),
    [
        (12, 12, (36,) * 4, 2, 2),  # tiles
        (80, 15, (60,) * 20, 4, 5),  # full minipods, no room to spare
        (150, 8, (480, 480, 480), 2, 2),  # fewer minipods than sub-bands: one is split
        (10, 6, (22, 20, 18), 2, 2),  # minipods that are no whole rows: cell by cell
    ],
)
def test_known_pairs_are_built(nrows: int, ncolumns: int, free: tuple[int, ...], a: int, b: int) -> None:
    given_problem = problem(nrows, ncolumns, free)
    assert construct(given_problem, a, b) is not None


def test_1200_nodes_in_40_minipods_are_built_by_a_quick_search() -> None:
    big = problem(150, 8, tuple(30 + index % 11 for index in range(40)))
    assert construct(big, 5, 8, effort=Effort.QUICK) is not None


def test_the_same_seed_gives_the_same_grid() -> None:
    big = problem(75, 16, tuple(20 + index for index in range(40)))
    grids = {construct(big, 4, 8, seed=3) for _ in range(2)}
    assert len(grids) == 1
    assert None not in grids


def test_stop_ends_the_search_at_once() -> None:
    big = problem(75, 16, (60,) * 20)
    assert list(attempts(big, 4, 5, effort=Effort.NORMAL, seed=0, stop=lambda: True)) == []


def test_whole_rows_use_the_fewest_minipods() -> None:
    assert column_spreads(whole_rows(problem(5, 4, (9, 13, 12)))) == (2,) * 4
    with pytest.raises(ValueError, match="hold 5 whole rows; expected 6"):
        whole_rows(problem(6, 4, (9, 13)))


def test_transposing_twice_changes_nothing() -> None:
    given_problem = problem(5, 4, (9, 13), 0.3)
    assert transpose(transpose(given_problem)) == given_problem
    assert flip(flip(((0, 1), (1, 1), (0, 0)))) == ((0, 1), (1, 1), (0, 0))

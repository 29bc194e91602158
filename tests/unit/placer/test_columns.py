"""The compiled search over the sets of columns: its linear program, whole rows, and the grids it builds."""

import importlib
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from spanfit.placer import columns
from spanfit.placer.columns import ColumnSearch
from spanfit.placer.construct import reaches, transpose
from spanfit.placer.exchanges import Items, exchange_items
from spanfit.placer.highs import MipStatus, solve_here
from spanfit.placer.mip import Builder
from spanfit.placer.model import PlacementStatus, Problem
from spanfit.placer.pieces import Whole
from spanfit.placer.solve import solve
from tests.unit.placer.factories import Counted, is_reachable, problem, reachable, small_problems

if shutil.which("c++") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
    pytest.importorskip("spanfit.placer._kernel", reason="no C++ compiler, or no headers of Python")
kernel = importlib.import_module("spanfit.placer._kernel")

Bools = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def never() -> bool:
    return False


def every_pattern(allowed: Bools, row_spread: int) -> Whole:
    choices = np.array(np.meshgrid(*[np.flatnonzero(column) for column in allowed])).reshape(len(allowed), -1).T
    return np.asarray(choices[[len(set(pattern)) <= row_spread for pattern in choices.tolist()]])


def most_rows(allowed: Bools, capacity: list[int], row_spread: int) -> float:
    """Return the program's value over every pattern, by HiGHS."""
    build = Builder()
    patterns = every_pattern(allowed, row_spread)
    shares = [build.variable(0, 1e6, is_integer=False, cost=-1.0) for _ in patterns]
    for m, nodes in enumerate(capacity):
        terms = [(share, float((pattern == m).sum())) for share, pattern in zip(shares, patterns, strict=True)]
        build.row(terms, upper=nodes)
    answer = solve_here(build.finish(), time_limit_s=20, seed=0)
    assert answer.status is MipStatus.OPTIMAL
    assert answer.values is not None
    return float(answer.values.sum())


@pytest.mark.parametrize("seed", range(20))
def test_the_program_has_the_value_that_highs_finds_over_every_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nminipods, row_spread = int(rng.integers(3, 6)), int(rng.integers(2, 4))
    allowed = rng.random((3, nminipods)) < 0.6
    allowed[:, 0] = True
    capacity = rng.integers(1, 20, nminipods).tolist()
    (found,) = kernel.most_rows(capacity=capacity, row_spread=row_spread, sets=[allowed])
    assert found == pytest.approx(most_rows(allowed, capacity, row_spread), rel=1e-4)


def test_a_program_that_starts_from_the_last_basis_finds_what_one_from_nothing_finds() -> None:
    rng = np.random.default_rng(0)
    capacity = rng.integers(5, 20, 6).tolist()
    allowed = rng.random((4, 6)) < 0.6
    allowed[:, 0] = True
    sets = [allowed.copy()]
    for _ in range(200):  # So many that the inverse of the basis is made anew on the way.
        allowed[rng.integers(4), rng.integers(1, 6)] ^= True
        sets.append(allowed.copy())
    afresh = [kernel.most_rows(capacity=capacity, row_spread=3, sets=[each])[0] for each in sets]
    assert kernel.most_rows(capacity=capacity, row_spread=3, sets=sets) == pytest.approx(afresh, rel=1e-4)


@settings(max_examples=200, deadline=None)
@given(small_problems())
def test_grids_found_by_columns_reach_their_pair(small: Problem) -> None:
    pairs = reachable(small)
    for a, b in ((1, 2), (2, 2), (2, 3), (3, 2)):
        grid = ColumnSearch(small, a, b, 0).run(Counted(12))
        if grid is not None:
            assert reaches(grid, small, a, b)
            assert is_reachable(pairs, a, b)


@pytest.mark.parametrize(
    ("given_problem", "a", "b"),
    [
        (problem(150, 8, (126,) * 4 + (151, 40, 210, 60, 98, 197)), 3, 4),
        (problem(100, 12, (108, 50, 96, 20, 35, 60, 130, 44, 71, 55, 90, 38, 61, 77, 25, 83, 49, 102, 66, 60)), 5, 4),
        # One in some millions of sets has rows for all of its 1,200 nodes, with none to spare.
        (problem(300, 4, (60, 95, 87, 88, 268, 127, 64, 208, 82, 181)), 3, 3),
    ],
)
def test_columns_build_pairs_of_1200_nodes_either_way_round(given_problem: Problem, a: int, b: int) -> None:
    grid = ColumnSearch(given_problem, a, b, 0).run(Counted(2000))
    assert grid is not None
    assert reaches(grid, given_problem, a, b)
    turned = ColumnSearch(transpose(given_problem), b, a, 0).run(Counted(2000))
    assert turned is not None
    assert reaches(turned, transpose(given_problem), b, a)


def test_rows_are_made_whole_where_they_are_hard_to() -> None:
    tight = problem(100, 12, (122, 101, 15, 245, 245, 86, 244, 113, 48, 41))
    grid = ColumnSearch(tight, 4, 2, 0).run(Counted(4000))
    assert grid is not None
    assert reaches(grid, tight, 4, 2)


def test_the_same_seed_finds_the_same_grid_however_often_it_is_stopped() -> None:
    hard = problem(300, 4, (60, 95, 87, 88, 268, 127, 64, 208, 82, 181))
    whole = ColumnSearch(hard, 3, 3, 5).run(Counted(4000))
    stopped = ColumnSearch(hard, 3, 3, 5)
    grids = (stopped.run(Counted(2)) for _ in range(4000))
    assert whole is not None
    assert next(grid for grid in grids if grid is not None) == whole


def test_a_search_takes_the_work_that_it_is_given() -> None:
    search = ColumnSearch(problem(150, 8, (120,) * 10), 2, 2, 0).search
    for _ in range(200):
        assert not search.run(1e5)
        assert search.rows.shape == (0, 8)
    assert search.work_done == pytest.approx(2e7, rel=0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": []},
        {"capacity": [3, 0]},
        {"capacity": [1] * 129},
        {"nrows": 0},
        {"depth": 0},
        {"row_spread": 0},
    ],
)
def test_what_no_search_can_be_made_of_is_refused(wrong: dict[str, object]) -> None:
    given = {"capacity": [3, 3], "nrows": 2, "ncolumns": 2, "depth": 1, "row_spread": 1, "seed": 0, **wrong}
    with pytest.raises(ValueError, match="a search"):
        kernel.Search(**given)


def test_sets_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="one line for each column"):
        kernel.most_rows(capacity=[3, 3], row_spread=1, sets=[np.ones((2, 3), dtype=bool)])


def test_without_it_grids_are_built_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_MOST_MINIPODS", 0)
    monkeypatch.setattr(columns.ColumnSearch, "run", lambda *_: pytest.fail("searched by columns"))
    hard = problem(300, 4, (60, 95, 87, 88, 268, 127, 64, 208, 82, 181))
    answer = solve(hard, time_limit_s=0.3)
    assert answer.status is PlacementStatus.FEASIBLE
    assert "no C++ compiler" in answer.certificate


def test_exchanges_give_every_group_what_it_needs() -> None:
    sizes = np.array([9, 8, 2, 1, 5, 5])
    worth = np.stack([sizes, sizes, np.zeros(6, dtype=np.int64)], axis=1)
    start = np.array([0, 0, 1, 1, 2, 2])
    items = Items(worth=worth, need=np.array([10, 10, 0]), is_blank=np.zeros(6, dtype=bool))
    group, lacks = exchange_items(items, start, steps=50, seed=0, stop=never)
    assert lacks == 0
    assert [int(sizes[group == g].sum()) >= 10 for g in (0, 1)] == [True, True]
    assert np.bincount(group).tolist() == [2, 2, 2]
    same, left = exchange_items(items, start, steps=50, seed=0, stop=lambda: True)
    assert (same.tolist(), left) == (start.tolist(), 7)

"""Rows of fixed columns' sets, their linear program, and the search over the sets."""

import numpy as np
import pytest
from hypothesis import given, settings

from spanfit.placer.columns import ColumnSearch
from spanfit.placer.construct import reaches, transpose
from spanfit.placer.exchanges import Items, exchange_items
from spanfit.placer.highs import MipStatus, solve_here
from spanfit.placer.mip import Builder
from spanfit.placer.mixes import Bools, Ints, cover, mix
from spanfit.placer.model import Problem
from spanfit.placer.rows import whole_rows_of
from tests.unit.placer.factories import Counted, is_reachable, medium_problem, problem, reachable, small_problems

NONE = np.empty((0, 3), dtype=np.int64)
NONE_OF_FOUR = np.empty((0, 4), dtype=np.int64)


def never() -> bool:
    return False


def every_pattern(allowed: Bools, row_spread: int) -> Ints:
    choices = np.array(np.meshgrid(*[np.flatnonzero(column) for column in allowed])).reshape(len(allowed), -1).T
    return choices[[len(set(pattern)) <= row_spread for pattern in choices.tolist()]]


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


@pytest.mark.parametrize("seed", range(12))
def test_the_program_has_the_value_that_highs_finds_over_every_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nminipods, row_spread = int(rng.integers(3, 6)), int(rng.integers(2, 4))
    allowed = rng.random((3, nminipods)) < 0.6
    allowed[:, 0] = True
    capacity = rng.integers(1, 20, nminipods)
    found = mix(allowed, capacity.astype(float), row_spread, least=0.0, warm=NONE, stop=never)
    assert found.value == pytest.approx(most_rows(allowed, capacity.tolist(), row_spread), rel=1e-4)
    assert found.rows.sum() == pytest.approx(found.value, rel=1e-6)
    used = np.zeros(nminipods)
    for pattern, rows in zip(found.patterns, found.rows, strict=True):
        assert len(set(pattern.tolist())) <= row_spread
        assert allowed[np.arange(3), pattern].all()
        np.add.at(used, pattern, rows)
    assert (used <= capacity + 1e-5).all()
    assert capacity @ found.prices == pytest.approx(found.value, rel=1e-4), "the prices pay for the rows"


@pytest.mark.parametrize("seed", range(8))
def test_a_program_that_starts_from_the_last_basis_finds_what_one_from_nothing_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = rng.integers(5, 20, 6).astype(float)
    allowed = rng.random((4, 6)) < 0.6
    allowed[:, 0] = True
    found = mix(allowed, capacity, 3, least=0.0, warm=NONE_OF_FOUR, stop=never)
    before = found.basis.copy()
    for _ in range(5):
        allowed[rng.integers(4), rng.integers(1, 6)] ^= True
        afresh = mix(allowed, capacity, 3, least=0.0, warm=NONE_OF_FOUR, stop=never)
        after = mix(allowed, capacity, 3, least=0.0, warm=found.patterns[:0], stop=never, start=found.basis)
        assert after.value == pytest.approx(afresh.value, rel=1e-4)
        assert capacity @ after.prices == pytest.approx(after.value, rel=1e-4)
    assert (found.basis.level == before.level).all(), "the basis to start from is left as it was"


def test_cover_prefers_few_minipods_that_serve_all() -> None:
    table = np.array([[1.0, 3.0, 10.0], [10.0, 1.0, 10.0], [10.0, 2.0, 1.0]])
    assert cover(table, 1) == [1]
    assert sorted(cover(table, 3)) == [0, 1, 2]


def test_rows_are_made_whole_by_moving_cells_and_exchanging_rows() -> None:
    allowed = np.ones((3, 3), dtype=bool)
    capacity = np.array([6, 5, 6])
    patterns, shares = np.array([[0, 0, 1]]), np.array([5.0])
    found = whole_rows_of(patterns, shares, allowed, capacity, 2, 5, exchanges=40, stop=never)
    assert found is not None
    assert found.shape == (5, 3)
    assert (np.bincount(found.ravel(), minlength=3) <= capacity).all()
    assert max(len(set(row)) for row in found.tolist()) <= 2


def test_rows_that_cannot_fit_are_given_up() -> None:
    allowed, capacity = np.ones((2, 2), dtype=bool), np.array([3, 3])
    assert whole_rows_of(np.array([[0, 1]]), np.array([4.0]), allowed, capacity, 2, 4, exchanges=9, stop=never) is None


@settings(max_examples=15, deadline=None)
@given(small_problems())
def test_grids_found_by_columns_reach_their_pair(small: Problem) -> None:
    pairs = reachable(small)
    for a, b in ((2, 2), (2, 3), (3, 2)):
        grid = ColumnSearch(small, a, b, 0).run(Counted(12))
        if grid is not None:
            assert reaches(grid, small, a, b)
            assert is_reachable(pairs, a, b)


@pytest.mark.parametrize(
    ("given_problem", "a", "b"),
    [
        (problem(150, 8, (126,) * 4 + (151, 40, 210, 60, 98, 197)), 3, 4),
        (problem(100, 12, (108, 50, 96, 20, 35, 60, 130, 44, 71, 55, 90, 38, 61, 77, 25, 83, 49, 102, 66, 60)), 5, 4),
    ],
)
def test_columns_build_pairs_of_1200_nodes_either_way_round(given_problem: Problem, a: int, b: int) -> None:
    grid = ColumnSearch(given_problem, a, b, 0).run(Counted(200))
    assert grid is not None
    assert reaches(grid, given_problem, a, b)
    turned = ColumnSearch(transpose(given_problem), b, a, 0).run(Counted(200))
    assert turned is not None
    assert reaches(turned, transpose(given_problem), b, a)


def test_where_the_value_stalls_an_integer_program_makes_rows_whole() -> None:
    tight = problem(100, 12, (122, 101, 15, 245, 245, 86, 244, 113, 48, 41))
    search = ColumnSearch(tight, 4, 2, 0)
    grid = search.run(Counted(2000))
    assert grid is not None
    assert reaches(grid, tight, 4, 2)
    assert search.climbs is not None
    assert any(climb.tried for climb in search.climbs)


def test_a_search_goes_on_where_it_stopped() -> None:
    medium = medium_problem(3)
    search = ColumnSearch(medium, 2, 2, 0)
    assert search.run(Counted(0)) is None
    assert search.climbs is not None
    kept = search.climbs[0]
    search.run(Counted(5))
    assert search.climbs[0] is kept


def test_too_many_minipods_are_left_to_others() -> None:
    assert ColumnSearch(problem(40, 20, (10,) * 80), 10, 10, 0).run(never) is None


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

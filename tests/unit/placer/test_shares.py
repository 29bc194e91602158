"""Grids of groups whose minipods share what is over."""

import pytest
from hypothesis import given, settings

from spanfit.placer.construct import reaches, transpose
from spanfit.placer.model import Problem
from spanfit.placer.shares import Layout, ShareSearch, Sharing, layouts, partitions
from tests.unit.placer.factories import Counted, is_reachable, problem, reachable, small_problems


def test_numbers_are_cut_most_evenly_first() -> None:
    assert partitions(8, 3)[:3] == [(3, 3, 2), (4, 2, 2), (4, 3, 1)]
    assert partitions(30, 4) == [(8, 8, 7, 7)]
    assert partitions(3, 4) == []


def test_layouts_with_single_columns_need_no_shared_rows() -> None:
    found = layouts(10, 4, 3, 4)
    assert [(each.widths, each.is_whole) for each in found] == [((1, 1, 1, 1), True), ((2, 1, 1), False)]
    assert [each.has_glue for each in layouts(10, 5, 3, 2)] == [False, True, False, False, True]


def test_an_empty_place_takes_what_another_group_has_over() -> None:
    # Two groups of 2 columns of 10 rows: 20 cells each. 26 + 14 nodes: 6 of the first must go to the second.
    layout = Layout(nrows=10, widths=(2, 2), depth=2, row_spread=2, is_whole=True)
    grid = Sharing(layout, (26, 14)).run(1, 0, Counted(99))
    assert grid is not None
    assert reaches(grid, problem(10, 4, (26, 14)), 2, 2)


def test_cells_that_make_no_whole_row_share_one_with_the_glue() -> None:
    # Odd numbers of nodes in groups of 2 columns, none to spare.
    free = (27, 13)
    layout = Layout(nrows=10, widths=(2, 2), depth=2, row_spread=2, is_whole=False)
    assert (
        Sharing(Layout(nrows=10, widths=(2, 2), depth=2, row_spread=2, is_whole=True), free).run(2, 0, Counted(99))
        is None
    )
    grid = Sharing(layout, free).run(1, 0, Counted(99))
    assert grid is not None
    assert reaches(grid, problem(10, 4, free), 2, 2)


@settings(max_examples=25, deadline=None)
@given(small_problems())
def test_grids_of_shares_reach_their_pair_or_are_seen_not_to(small: Problem) -> None:
    pairs = reachable(small)
    for a, b in ((2, 2), (2, 3), (3, 2)):
        grid = ShareSearch(small, a, b, 0).run(Counted(60))
        if grid is not None and reaches(grid, small, a, b):
            assert is_reachable(pairs, a, b)


@pytest.mark.parametrize(
    ("given_problem", "a", "b"),
    [
        (problem(150, 8, (95, 88, 41, 102, 76, 31, 9, 64, 90, 27, 84, 15, 70, 99, 50, 36, 83, 22, 68, 50)), 6, 4),
        (problem(100, 12, (*range(11, 51), 20, 6)), 10, 4),
    ],
)
def test_shares_build_pairs_of_full_clusters_either_way_round(given_problem: Problem, a: int, b: int) -> None:
    grid = ShareSearch(given_problem, a, b, 0).run(Counted(200))
    assert grid is not None
    assert reaches(grid, given_problem, a, b)
    turned = ShareSearch(transpose(given_problem), b, a, 0).run(Counted(200))
    assert turned is not None
    assert reaches(turned, transpose(given_problem), b, a)


def test_a_search_goes_on_with_its_best_layouts() -> None:
    search = ShareSearch(problem(75, 16, (60,) * 20), 4, 5, 0)
    nlayouts = len(search.sharings)
    assert search.run(Counted(500)) is None
    tried = len(search.tried)
    assert search.runs == tried < nlayouts
    assert search.run(Counted(500)) is None
    assert tried < len(search.tried) < search.runs
    assert len(search.tried) + len(search.sharings) == nlayouts

"""Whole rows by an integer program over sets of minipods."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.mixes import Bools, Ints
from spanfit.placer.row_sets import rows_by_sets


def rows_of(
    allowed: Bools, capacity: Sequence[int] | Ints, patterns: Ints | list[list[int]], row_spread: int, nrows: int
) -> Ints | None:
    rows, npivots = rows_by_sets(allowed, np.array(capacity), np.array(patterns), row_spread, nrows, seed=0)
    assert npivots >= 0
    return rows


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(2, 6), st.integers(3, 6), st.integers(2, 3))
def test_rows_that_exist_are_found_again_within_capacity(
    seed: int, nrows: int, ncolumns: int, nminipods: int, row_spread: int
) -> None:
    rng = np.random.default_rng(seed)
    sets = [rng.choice(nminipods, size=row_spread, replace=False) for _ in range(nrows)]
    grid = np.array([rng.choice(members, size=ncolumns) for members in sets])
    allowed = np.zeros((ncolumns, nminipods), dtype=bool)
    allowed[np.arange(ncolumns), grid] = True
    capacity = np.bincount(grid.ravel(), minlength=nminipods)
    rows = rows_of(allowed, capacity, grid, row_spread, nrows)
    assert rows is not None
    assert rows.shape == grid.shape
    assert allowed[np.arange(ncolumns), rows].all()
    assert (np.bincount(rows.ravel(), minlength=nminipods) <= capacity).all()
    assert max(len(set(row)) for row in rows.tolist()) <= row_spread


def test_sets_that_no_pattern_had_are_found_by_exchange() -> None:
    # Two columns: minipods 0 and 1 serve the first, 2 and 3 the second; 0 and 2 alone hold one of two rows.
    allowed = np.array([[True, True, False, False], [False, False, True, True]])
    rows = rows_of(allowed, (1, 1, 1, 1), [[0, 2]], 2, 2)
    assert rows is not None
    assert sorted(rows[:, 0].tolist()) == [0, 1]
    assert sorted(rows[:, 1].tolist()) == [2, 3]


@pytest.mark.parametrize(("capacity", "nrows"), [((1, 1, 1, 1), 3), ((1, 0, 1, 1), 2)])
def test_rows_beyond_the_capacity_are_not_found(capacity: tuple[int, ...], nrows: int) -> None:
    allowed = np.array([[True, True, False, False], [False, False, True, True]])
    assert rows_of(allowed, capacity, [[0, 2]], 2, nrows) is None

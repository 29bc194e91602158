from itertools import pairwise

from spanfit.placer.model import Grid, column_spreads, row_spreads
from spanfit.placer.seats import ep_spreads, orders, stretched


def arranged(grid: Grid, *, are_columns_fixed: bool = False) -> Grid:
    rows, columns = orders(grid, are_columns_fixed=are_columns_fixed)
    return tuple(tuple(grid[row][column] for column in columns) for row in rows)


def test_orderly_rows_and_columns_change_minipods_least() -> None:
    grid = ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3), (4, 3, 4, 3))
    tidy = arranged(grid)
    assert sorted(column_spreads(tidy)) == sorted(column_spreads(grid))
    assert row_spreads(tidy) == (2,) * 5
    changes = [sum(left != right for left, right in pairwise(row)) for row in tidy]
    assert changes == [1] * 5
    ring = [sum(tidy[i][j] != tidy[i - 1][j] for i in range(5)) for j in range(4)]
    assert sorted(ring) == [2, 2, 3, 3]


def test_fixed_columns_stay_while_rows_move() -> None:
    grid = ((0, 1, 0), (2, 3, 2), (0, 1, 0))
    assert arranged(grid, are_columns_fixed=True) == ((0, 1, 0), (0, 1, 0), (2, 3, 2))


def test_ep_groups_are_neighbours_in_a_column() -> None:
    grid = ((0, 0), (0, 1), (1, 1), (0, 1))
    assert ep_spreads(grid, 2) == (1, 2, 2, 1)
    assert ep_spreads(grid, 1) == (1,) * 8
    assert stretched(((0, 1), (2, 2)), 2) == ((0, 1), (0, 1), (2, 2), (2, 2))

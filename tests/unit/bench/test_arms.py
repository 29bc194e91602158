from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.arms import MISALIGNED_SAMPLE, Arm, misaligned, plan_arms


def minipods_of(*sizes: int) -> tuple[tuple[int, ...], ...]:
    """Return node ranks counted through minipods of these sizes."""
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True))


def grid(arm: Arm, minipods: tuple[tuple[int, ...], ...], ncolumns: int) -> list[list[int]]:
    """Return the minipod of each cell, a list a row."""
    where = {node: index for index, nodes in enumerate(minipods) for node in nodes}
    cells = [where[node] for node in arm.node_ranks]
    return [cells[start : start + ncolumns] for start in range(0, len(cells), ncolumns)]


def columns(rows: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*rows, strict=True)]


def by_name(nrows: int, ncolumns: int, minipods: tuple[tuple[int, ...], ...], seed: int = 0) -> dict[str, Arm]:
    return {arm.name: arm for arm in plan_arms(nrows, ncolumns, minipods, seed)}


def brute_force(nrows: int, ncolumns: int) -> set[frozenset[frozenset[int]]]:
    """Return every way to split the cells evenly over two unnamed minipods so that each row and column crosses."""
    cells = range(nrows * ncolumns)
    groups = [{cell for cell in cells if cell // ncolumns == row} for row in range(nrows)]
    groups += [{cell for cell in cells if cell % ncolumns == column} for column in range(ncolumns)]
    found = set()
    for chosen in combinations(cells, len(cells) // 2):
        one, other = frozenset(chosen), frozenset(cells) - frozenset(chosen)
        if all(group & one and group & other for group in groups):
            found.add(frozenset((one, other)))
    return found


SHAPES = [(4, 2, (4, 4)), (2, 4, (4, 4)), (6, 2, (6, 6)), (4, 4, (4, 4, 4, 4)), (4, 4, (8, 8)), (12, 8, (48, 48))]


@pytest.mark.parametrize(("nrows", "ncolumns", "sizes"), SHAPES)
def test_dp_aligned_keeps_every_column_in_a_minipod(nrows: int, ncolumns: int, sizes: tuple[int, ...]) -> None:
    minipods = minipods_of(*sizes)
    rows = grid(by_name(nrows, ncolumns, minipods)["dp-aligned"], minipods, ncolumns)
    assert all(len(set(column)) == 1 for column in columns(rows))
    firsts = rows[0]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize(("nrows", "ncolumns", "sizes"), SHAPES)
def test_pp_aligned_keeps_every_row_in_a_minipod_and_rows_in_minipod_order(
    nrows: int, ncolumns: int, sizes: tuple[int, ...]
) -> None:
    minipods = minipods_of(*sizes)
    rows = grid(by_name(nrows, ncolumns, minipods)["pp-aligned"], minipods, ncolumns)
    assert all(len(set(row)) == 1 for row in rows)
    firsts = [row[0] for row in rows]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize(("nrows", "ncolumns", "sizes"), SHAPES)
def test_packed_fills_minipods_in_the_order_of_megatron_ranks(
    nrows: int, ncolumns: int, sizes: tuple[int, ...]
) -> None:
    minipods = minipods_of(*sizes)
    rows = grid(by_name(nrows, ncolumns, minipods)["packed"], minipods, ncolumns)
    in_rank_order = [cell for column in columns(rows) for cell in column]
    assert in_rank_order == sorted(in_rank_order)


@pytest.mark.parametrize(("nrows", "ncolumns", "sizes"), SHAPES)
def test_misaligned_crosses_in_every_row_and_column(nrows: int, ncolumns: int, sizes: tuple[int, ...]) -> None:
    minipods = minipods_of(*sizes)
    arms = [arm for arm in plan_arms(nrows, ncolumns, minipods, 0) if arm.name.startswith("misaligned")]
    assert arms
    for arm in arms:
        rows = grid(arm, minipods, ncolumns)
        assert all(len(set(group)) > 1 for group in (*rows, *columns(rows)))


@pytest.mark.parametrize(("nrows", "ncolumns", "sizes"), SHAPES)
def test_every_arm_uses_each_node_once(nrows: int, ncolumns: int, sizes: tuple[int, ...]) -> None:
    arms = plan_arms(nrows, ncolumns, minipods_of(*sizes), 0)
    assert len({arm.name for arm in arms}) == len(arms)
    for arm in arms:
        assert sorted(arm.node_ranks) == list(range(sum(sizes)))


@pytest.mark.parametrize(("nrows", "ncolumns"), [(4, 2), (2, 4)])
def test_small_grids_give_all_seven_misaligned_placements(nrows: int, ncolumns: int) -> None:
    expected = brute_force(nrows, ncolumns)
    found = [
        frozenset(frozenset(cell for cell, minipod in enumerate(cells) if minipod == wanted) for wanted in range(2))
        for cells in misaligned(nrows, ncolumns, (4, 4), seed=0)
    ]
    assert len(expected) == len(found) == 7
    assert set(found) == expected


@pytest.mark.parametrize(
    ("nrows", "ncolumns", "sizes"),
    [(6, 2, (6, 6)), (12, 8, (48, 48)), (24, 2, (24, 24)), (46, 8, (184, 184)), (8, 8, (16,) * 4)],
)
def test_large_grids_give_ten_distinct_seeded_placements(nrows: int, ncolumns: int, sizes: tuple[int, ...]) -> None:
    found = misaligned(nrows, ncolumns, sizes, seed=1)
    assert len(set(found)) == len(found) == MISALIGNED_SAMPLE == 10
    assert found == misaligned(nrows, ncolumns, sizes, seed=1)
    assert set(found) != set(misaligned(nrows, ncolumns, sizes, seed=2))
    for cells in found:
        assert tuple(cells.count(minipod) for minipod in range(len(sizes))) == sizes


@given(st.permutations(range(8)))
def test_arms_seat_the_nodes_that_they_are_given(nodes: list[int]) -> None:
    minipods = (tuple(nodes[:4]), tuple(nodes[4:]))
    for name, arm in by_name(4, 2, minipods).items():
        assert sorted(arm.node_ranks) == list(range(8))
        rows = grid(arm, minipods, 2)
        assert (name == "pp-aligned") == all(row[0] == row[1] for row in rows)


def test_minipods_of_other_sizes_are_not_interchangeable() -> None:
    # Three of nine cells, one in each row and column: the permutations of three.
    permutations_of_three = {
        tuple(int(row[i] == j) for i in range(3) for j in range(3)) for row in permutations(range(3))
    }
    assert set(misaligned(3, 3, (6, 3), seed=0)) == permutations_of_three


def test_sizes_that_let_nothing_cross_are_refused() -> None:
    with pytest.raises(ValueError, match="no placement is misaligned in all kinds"):
        misaligned(2, 3, (4, 2), seed=0)
    with pytest.raises(ValueError, match="found only 0 misaligned placements of 12 x 12; expected 10"):
        misaligned(12, 12, (141, 3), seed=0)


@pytest.mark.parametrize(
    ("nrows", "ncolumns", "sizes", "message"),
    [
        (4, 2, (4, 3), "the job needs 8 nodes; expected exactly so many, found 7"),
        (4, 2, (6, 2), "minipods of 6, 2 nodes do not hold 2 whole DP groups of 4 nodes"),
        (2, 4, (6, 2), "minipods of 6, 2 nodes do not hold 2 whole PP groups of 4 nodes"),
        (2, 2, (4,), "no placement is misaligned in all kinds; expected dp or pp of at least 2 over 2 minipods"),
    ],
)
def test_what_has_no_arms_is_refused_with_numbers(
    nrows: int, ncolumns: int, sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan_arms(nrows, ncolumns, minipods_of(*sizes), 0)

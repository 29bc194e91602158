from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.report.placement_map import MAX_BARS, blocks, minipod_bars, placement_grid, short_names, used_minipods
from tests.unit.report.factory import placed

MINIPODS = st.sampled_from(["m0", "m1", "m2"])


def texts(svg: str) -> list[str]:
    namespace = "{http://www.w3.org/2000/svg}text"
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(namespace)]


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(MINIPODS, min_size=n, max_size=n), min_size=1, max_size=6))
)
def test_blocks_cover_each_cell_once_with_its_minipod(grid: list[list[str]]) -> None:
    painted: dict[tuple[int, int], str] = {}
    for block in blocks(placed(grid)):
        for row in range(block.row, block.row + block.nrows):
            for column in range(block.column, block.column + block.ncolumns):
                assert (row, column) not in painted
                painted[row, column] = block.minipod
    assert painted == {(row, column): name for row, line in enumerate(grid) for column, name in enumerate(line)}


def test_equal_neighbouring_rows_are_one_block() -> None:
    grid = [["m0", "m0"]] * 100 + [["m1", "m2"]] * 50
    assert [(block.row, block.nrows, block.ncolumns) for block in blocks(placed(grid))] == [
        (0, 100, 2),
        (100, 50, 1),
        (100, 50, 1),
    ]


def test_small_cells_are_labelled_one_by_one_and_large_grids_by_block() -> None:
    small = texts(placement_grid(placed([["m0", "m1"], ["m0", "m1"]])))
    assert small.count("m0") == small.count("m1") == 2
    large = placement_grid(placed([[f"m{column // 4}" for column in range(16)]] * 150))
    assert texts(large).count("m3") == 1 and len(large) < 40_000


def test_every_minipod_has_a_bar_with_what_it_gives_out_of_what_was_free() -> None:
    placement = placed([["m0", "m1"], ["m0", "m0"]])
    shown = texts(minipod_bars(placement, {"m0": 5, "m1": 1, "m2": 4}))
    assert {"m0", "3 of 5", "m1", "1 of 1", "m2", "0 of 4"} < set(shown)
    assert {"3", "1"} < set(texts(minipod_bars(placement))) and "m2" not in texts(minipod_bars(placement))


def test_many_minipods_share_the_last_line() -> None:
    grid = [[f"m{row}"] for row in range(MAX_BARS + 8)]
    assert {"9 more", "9 of 9"} < set(texts(minipod_bars(placed(grid), {name: 1 for (name,) in grid})))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["m0", "m1"], ["m0", "m1"]),
        (["a/m0", "b/m0", "b/m1"], ["a/m0", "b/m0", "m1"]),
        (["odd/"], ["odd/"]),
    ],
)
def test_short_names_stay_distinct(names: list[str], short: list[str]) -> None:
    assert list(short_names(names).values()) == short


def test_minipods_come_in_the_order_of_the_grid() -> None:
    assert used_minipods(placed([["m2", "m0"], ["m2", "m1"]])) == {"m2": 2, "m0": 1, "m1": 1}

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.workload.layout import MEGATRON, MEGATRON_PP_FIRST, ParallelLayout

ORDERS = ["-".join(axes) for axes in permutations(("tp", "cp", "ep", "dp", "pp"))]
DEGREES = st.integers(1, 4)
LAYOUTS = st.builds(ParallelLayout, dp=DEGREES, pp=DEGREES, tp=DEGREES, cp=DEGREES, order=st.sampled_from(ORDERS))


@pytest.mark.parametrize(
    ("dp", "tp", "pp", "grid"),
    [(12, 4, 2, (6, 2)), (24, 4, 8, (12, 8)), (46, 8, 8, (46, 8)), (6, 8, 2, (6, 2))],
)
def test_acceptance_check_1_eq_1_gives_the_grids_of_the_paper(dp: int, tp: int, pp: int, grid: tuple[int, int]) -> None:
    layout = ParallelLayout(dp=dp, tp=tp, pp=pp)
    assert layout.grid(8) == grid
    assert grid[0] * grid[1] * 8 == layout.nranks


def coordinates(layout: ParallelLayout) -> Iterator[tuple[int, int, int, int]]:
    """Yield every (tp, cp, dp, pp)."""
    return product(range(layout.tp), range(layout.cp), range(layout.dp), range(layout.pp))


@given(DEGREES, DEGREES, DEGREES, DEGREES)
def test_ranks_are_numbered_as_megatron_does(tp_degree: int, cp_degree: int, dp_degree: int, pp_degree: int) -> None:
    usual = ParallelLayout(tp=tp_degree, cp=cp_degree, dp=dp_degree, pp=pp_degree)
    pp_first = replace(usual, order=MEGATRON_PP_FIRST)
    assert usual.order == MEGATRON == "tp-cp-ep-dp-pp"
    for tp, cp, dp, pp in coordinates(usual):
        expected = tp + tp_degree * (cp + cp_degree * (dp + dp_degree * pp))
        assert usual.rank(tp=tp, cp=cp, dp=dp, pp=pp) == expected
        expected = tp + tp_degree * (cp + cp_degree * (pp + pp_degree * dp))
        assert pp_first.rank(tp=tp, cp=cp, dp=dp, pp=pp) == expected


def test_groups_of_a_small_layout_are_those_of_megatron() -> None:
    # The 16 GPUs of Megatron's own example: TP 2, PP 4, DP 2.
    layout = ParallelLayout(dp=2, pp=4, tp=2)
    assert layout.groups("tp") == tuple((rank, rank + 1) for rank in range(0, 16, 2))
    assert layout.groups("dp") == ((0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15))
    assert layout.groups("pp") == ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
    assert layout.groups("cp") == tuple((rank,) for rank in range(16))


@given(LAYOUTS, st.sampled_from(["dp", "pp", "tp", "cp"]))
def test_groups_of_a_kind_partition_the_ranks(layout: ParallelLayout, kind: str) -> None:
    groups = layout.groups(kind)
    assert sorted(rank for group in groups for rank in group) == list(range(layout.nranks))
    assert {len(group) for group in groups} == {getattr(layout, kind)}


@given(LAYOUTS, st.integers(1, 4))
def test_nodes_hold_each_cell_once_or_the_order_is_refused(layout: ParallelLayout, replicas: int) -> None:
    ngpus = layout.tp * layout.cp * replicas
    if layout.dp % replicas:
        with pytest.raises(ValueError, match="dp is"):
            layout.node_cells(ngpus)
        return
    # The cells on each node, by looking at every rank.
    on_node: dict[int, set[tuple[int, int]]] = {}
    for tp, cp, dp, pp in coordinates(layout):
        node = layout.rank(tp=tp, cp=cp, dp=dp, pp=pp) // ngpus
        on_node.setdefault(node, set()).add((dp // replicas, pp))
    if any(len(cells) > 1 for cells in on_node.values()):
        with pytest.raises(ValueError, match="on one node"):
            layout.node_cells(ngpus)
        return
    found = layout.node_cells(ngpus)
    rows, columns = layout.grid(ngpus)
    assert sorted(found) == list(product(range(rows), range(columns)))
    assert all(on_node[node] == {cell} for node, cell in enumerate(found))


def test_node_ranks_run_down_the_columns_in_megatron_order_and_along_the_rows_with_pp_first() -> None:
    assert ParallelLayout(dp=4, pp=2, tp=4).node_cells(8) == ((0, 0), (1, 0), (0, 1), (1, 1))
    pp_first = ParallelLayout(dp=4, pp=2, tp=8, order=MEGATRON_PP_FIRST)
    assert pp_first.node_cells(8) == tuple((row, column) for row in range(4) for column in range(2))


@pytest.mark.parametrize("order", [MEGATRON_PP_FIRST, "dp-tp-cp-ep-pp", "pp-tp-cp-ep-dp"])
def test_orders_that_mix_cells_on_a_node_are_refused(order: str) -> None:
    with pytest.raises(ValueError, match=r"puts cells .* on one node; expected tp and cp"):
        ParallelLayout(dp=4, pp=2, tp=4, order=order).node_cells(8)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"dp": 0, "pp": 1}, "dp is 0; expected at least 1"),
        ({"dp": 1, "pp": 1, "cp": -1}, "cp is -1; expected at least 1"),
        ({"dp": 4, "pp": 1, "ep": 3}, "ep is 3; expected a divisor of dp = 4"),
        ({"dp": 1, "pp": 1, "order": "tp-dp-pp"}, "order is 'tp-dp-pp'; expected each of tp, cp, ep, dp, pp once"),
        ({"dp": 1, "pp": 1, "order": "tp-tp-ep-dp-pp"}, "order is 'tp-tp-ep-dp-pp'"),
    ],
)
def test_a_layout_that_is_none_is_refused(degrees: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParallelLayout(**degrees)  # type: ignore[arg-type]


def test_a_grid_that_does_not_fill_nodes_is_refused_with_numbers() -> None:
    with pytest.raises(ValueError, match="tp x cp is 3; expected a divisor of the 8 GPUs of a node"):
        ParallelLayout(dp=8, pp=1, tp=3).grid(8)
    with pytest.raises(ValueError, match="tp x cp is 16; expected a divisor of the 8 GPUs"):
        ParallelLayout(dp=8, pp=1, tp=8, cp=2).grid(8)
    with pytest.raises(ValueError, match="dp is 3; expected a multiple of 2, the replicas that share a node of 8 GPUs"):
        ParallelLayout(dp=3, pp=1, tp=4).grid(8)


@given(LAYOUTS)
def test_coordinates_and_ranks_name_each_other(layout: ParallelLayout) -> None:
    for rank in range(layout.nranks):
        assert layout.rank(**layout.coordinate(rank)) == rank


@given(LAYOUTS, st.sampled_from(["dp", "pp", "tp", "cp", "ep", "edp", "dp-cp"]), st.booleans())
def test_a_rank_is_in_the_group_that_it_is_told(layout: ParallelLayout, kind: str, halves: bool) -> None:
    layout = replace(layout, ep=2) if halves and layout.dp % 2 == 0 else replace(layout, ep=layout.dp)
    groups = layout.groups(kind)
    assert sorted(rank for group in groups for rank in group) == list(range(layout.nranks))
    for group in groups:
        assert all(layout.group_of(kind, rank) == group for rank in group)


def test_experts_are_shared_out_over_neighbours_and_copied_over_the_rest() -> None:
    layout = ParallelLayout(dp=4, pp=1, cp=2, ep=2)
    assert layout.groups("ep") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert layout.groups("edp") == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert layout.groups("dp-cp") == (tuple(range(8)),)

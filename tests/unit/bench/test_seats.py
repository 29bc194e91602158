"""A world without some of the campaign's nodes measures with its own ranks and writes the campaign's."""

from dataclasses import replace

import pytest

from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch, load_launch
from spanfit.bench.lines import render_visit, world_ranks

CASE = BenchCase(
    kind=CaseKind.COLLECTIVE,
    operation="all_reduce",
    size_bytes=1024,
    dtype="float32",
    redop="sum",
    in_place=False,
    groups=((3, 0), (4, 1)),
    tier="minipod",
    span=2,
    rank_order=RankOrder.SORTED,
    concurrency=Concurrency.ALL,
    draw=0,
    arm="",
    warmup=1,
    repetitions=1,
)
WHOLE = LaunchPlan(
    run_id="run",
    launch=0,
    attempt=1,
    backend="gloo",
    node_names=("n0", "n1", "n2", "n3", "n4"),
    ngpus_per_node=2,
    timeout_s=60.0,
    shard="shard",
    visits=(Visit(position=5, block=0, case=CASE),),
)
WITHOUT_N2 = replace(WHOLE, node_names=("n0", "n1", "n3", "n4"), node_ranks=(0, 1, 3, 4), heartbeats="beats")
BY_LOCAL_RANK = replace(WHOLE, local_environment=({"NCCL_IB_HCA": "mlx5_0"}, {}), stacks_after_s=54.0)


def test_a_whole_world_has_the_campaigns_ranks() -> None:
    rows = [[float(rank)] for rank in range(10)]
    assert WHOLE.seat(CASE) == CASE
    assert WHOLE.unseat(rows) == rows


def test_groups_are_renumbered_for_the_world_and_back() -> None:
    assert WITHOUT_N2.seat(CASE).groups == ((2, 0), (3, 1))
    rows = [[1.0, 100.0 + rank] for rank in range(8)]
    assert WITHOUT_N2.unseat(rows) == [*rows[:4], [], [], *rows[4:]]


def test_a_line_holds_the_campaigns_case_and_ranks_with_the_times_of_the_worlds_ranks() -> None:
    rows = [[1.0, 100.0 + rank] for rank in range(8)]
    line = render_visit(WITHOUT_N2, WITHOUT_N2.visits[0], WITHOUT_N2.unseat(rows))
    assert line["case_id"] == CASE.case_id
    assert line["ranks"] == ((6, 7, 0, 1), (8, 9, 2, 3))
    seated = world_ranks(WITHOUT_N2.seat(CASE), 2)
    assert line["times_s"] == [[[100.0 + rank] for rank in ranks] for ranks in seated]


def test_a_case_that_needs_an_absent_node_has_no_seat() -> None:
    with pytest.raises(KeyError):
        replace(WITHOUT_N2, node_ranks=(0, 1, 2, 3)).seat(CASE)


@pytest.mark.parametrize("plan", [WHOLE, WITHOUT_N2, BY_LOCAL_RANK])
def test_a_plan_survives_the_file(plan: LaunchPlan) -> None:
    assert load_launch(dump_launch(plan)) == plan

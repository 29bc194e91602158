from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.case import ALL_GPUS, EACH_RAIL, LaunchPlan, Visit
from spanfit.bench.lines import drop_torn_line, misplaced, render_visit, world_ranks
from tests.unit.bench.test_case import CASE, OTHER_CASE

COLLECTIVE = replace(CASE, **{**OTHER_CASE, "rail": ALL_GPUS})  # type: ignore[arg-type]


def plan_of(ngpus_per_node: int) -> LaunchPlan:
    return LaunchPlan(
        run_id="demo-1",
        launch=2,
        attempt=1,
        backend="gloo",
        node_names=("n0", "n1", "n2", "n3"),
        ngpus_per_node=ngpus_per_node,
        timeout_s=1.0,
        shard="shard",
        visits=(),
    )


def test_the_nodes_of_a_collective_expand_to_all_their_gpus_in_rank_order() -> None:
    case = replace(COLLECTIVE, groups=((2, 0), (1, 3)))
    assert world_ranks(case, 1) == ((2, 0), (1, 3))
    assert world_ranks(case, 3) == ((6, 7, 8, 0, 1, 2), (3, 4, 5, 9, 10, 11))


def test_one_rail_takes_a_rank_of_each_node_and_all_rails_at_once_have_groups_of_their_own() -> None:
    case = replace(COLLECTIVE, groups=((2, 0), (1, 3)))
    assert world_ranks(replace(case, rail=1), 2) == ((5, 1), (3, 7))
    assert world_ranks(replace(case, rail=EACH_RAIL), 2) == ((4, 0), (2, 6), (5, 1), (3, 7))


def test_the_gpus_of_a_step_form_a_lane_for_each_local_rank() -> None:
    case = replace(CASE, groups=((3, 1, 0, 2),))
    assert world_ranks(case, 1) == ((3, 1, 0, 2),)
    assert world_ranks(case, 2) == ((6, 2, 0, 4), (7, 3, 1, 5))


@pytest.mark.parametrize(
    ("hosts", "fault"),
    [
        (("n0", "n1", "n2", "n3"), ""),
        (("n0.cluster", "n1.cluster", "n2", "n3"), ""),
        # As a rendezvous would number them that sorts names, or any that puts its own host first.
        (("n0", "n2", "n1", "n3"), "rank 1 runs on n2, expected n1; rank 2 runs on n1, expected n2"),
        (("n1", "n0", "n2", "n3"), "rank 0 runs on n1, expected n0; rank 1 runs on n0, expected n1"),
        (("n0", "n1", "n2", "n30"), "rank 3 runs on n30, expected n3"),
        (("n0",), "the world has 1 ranks; expected 4"),
    ],
)
def test_a_world_elsewhere_or_in_another_order_is_told(hosts: tuple[str, ...], fault: str) -> None:
    assert misplaced(plan_of(1), hosts) == fault


def test_the_hosts_of_several_ranks_a_node_follow_each_other() -> None:
    hosts = ("n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3")
    assert misplaced(plan_of(2), hosts) == ""
    assert misplaced(plan_of(2), ("n0", "n1", "n2", "n3") * 2).startswith("rank 1 runs on n1, expected n0")


def test_a_visit_is_a_line_with_the_seconds_of_each_group_rank_and_repetition() -> None:
    visit = Visit(position=7, block=1, case=replace(COLLECTIVE, groups=((1, 0), (2, 3))))
    gathered = [[1.0, rank + 0.1, rank + 0.2] for rank in range(4)]
    line = render_visit(plan_of(1), visit, gathered)
    assert (line["type"], line["status"], line["reason"]) == ("case", "ok", "")
    assert (line["launch"], line["comm_id"], line["position"], line["block"]) == (2, "2.1.1", 7, 1)
    assert line["case_id"] == visit.case.case_id
    assert line["ranks"] == ((1, 0), (2, 3))
    assert line["times_s"] == [[[1.1, 1.2], [0.1, 0.2]], [[2.1, 2.2], [3.1, 3.2]]]


def test_wrong_values_mark_the_visit_and_name_the_ranks() -> None:
    visit = Visit(position=0, block=0, case=replace(COLLECTIVE, groups=((0, 1),)))
    gathered = [[float(rank not in (1, 3)), 0.5] for rank in range(8)]
    line = render_visit(plan_of(2), visit, gathered)
    assert (line["status"], line["reason"]) == ("wrong_result", "wrong values on ranks 1, 3")


def test_a_rank_that_takes_no_part_cannot_make_the_visit_wrong() -> None:
    visit = Visit(position=0, block=0, case=replace(COLLECTIVE, groups=((0, 1),)))
    gathered = [[1.0, 0.5], [1.0, 0.5], [0.0, float("nan")], [0.0, float("nan")]]
    line = render_visit(plan_of(1), visit, gathered)
    assert line["status"] == "ok"
    assert line["times_s"] == [[[0.5], [0.5]]]


def test_parts_are_told_apart_by_their_repetitions_and_notes_are_kept() -> None:
    visit = Visit(position=0, block=0, case=replace(COLLECTIVE, groups=((1, 0),), repetitions=2))
    gathered = [[1.0, rank + 0.1, rank + 0.2, rank + 0.3, rank + 0.4] for rank in range(2)]
    line = render_visit(plan_of(1), visit, gathered, parts=("whole", "first"), notes={"warmup": 6})
    assert line["parts"] == {"whole": [[[1.1, 1.2], [0.1, 0.2]]], "first": [[[1.3, 1.4], [0.3, 0.4]]]}
    assert line["times_s"] == line["parts"]["whole"]
    assert line["warmup"] == 6
    alone = render_visit(plan_of(1), visit, [row[:3] for row in gathered], parts=("all_reduce",))
    assert "parts" not in alone
    assert alone["times_s"] == line["times_s"]


def test_a_case_that_cannot_be_timed_is_a_final_line_without_times() -> None:
    visit = Visit(position=0, block=0, case=replace(COLLECTIVE, groups=((0, 1),)))
    gathered = [[1.0] + [float("nan")] * 4] * 2
    line = render_visit(plan_of(1), visit, gathered, parts=("all_reduce",), fault="too few cores")
    assert (line["status"], line["reason"], line["final"]) == ("failed", "too few cores", True)
    assert line["times_s"] == [[[], []]]


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("a\nb\n", "a\nb\n"), ("a\nb", "a\n"), ("b", ""), ('{"é": 1}\n{"é', '{"é": 1}\n')],
)
def test_a_torn_last_line_is_dropped_before_more_is_written(tmp_path: Path, before: str, after: str) -> None:
    shard = tmp_path / "shard"
    drop_torn_line(shard)
    assert not shard.exists()
    shard.write_text(before, encoding="utf-8")
    drop_torn_line(shard)
    assert shard.read_text(encoding="utf-8") == after

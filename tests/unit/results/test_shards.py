import json
import math
from pathlib import Path
from typing import Any

import pytest

from spanfit.errors import StoreError
from spanfit.results.schema import Measurement, Status
from spanfit.results.shards import Shard, append_failure, measurements, read_shard

MINIPODS = ("p0", "p0", "p1", "p1")


def line_of(ranks: list[list[int]], times_s: list[list[list[float]]], **changes: Any) -> dict[str, Any]:
    """Return a case's line; ``times_s`` is by group, rank and repetition."""
    case = {
        "kind": "collective",
        "operation": "all_reduce",
        "size_bytes": 1024,
        "dtype": "float32",
        "redop": "sum",
        "in_place": False,
        "tier": "minipod",
        "rank_order": "sorted",
        "concurrency": "all",
        "draw": 0,
        "arm": "",
        "rail": -1,
        "step": None,
    }
    line = {
        "type": "case",
        "launch": 1,
        "comm_id": "1.0",
        "position": 4,
        "block": 0,
        "case_id": "abc",
        "case": case,
        "status": "ok",
        "reason": "",
        "ranks": ranks,
        "times_s": times_s,
    }
    return line | changes


def rows_of(*lines: dict[str, Any], ngpus_per_node: int = 1) -> list[Measurement]:
    return list(measurements("run", [Shard(worlds=(), cases=lines)], ngpus_per_node, {"minipod": MINIPODS}))


WORLD = {"type": "world", "comm_id": "1.0"}


def written(folder: Path, text: str) -> Path:
    path = folder / "launch-001.jsonl"
    path.write_text(text)
    return path


def test_a_shard_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_shard(tmp_path / "none") == Shard(worlds=(), cases=())


def test_worlds_and_cases_are_told_apart(tmp_path: Path) -> None:
    case = line_of([[0, 1]], [[[1.0], [2.0]]])
    shard = read_shard(written(tmp_path, "".join(json.dumps(line) + "\n" for line in (WORLD, case, WORLD))))
    assert shard == Shard(worlds=(WORLD, WORLD), cases=(case,))


def test_a_last_line_cut_short_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    whole, last = json.dumps(WORLD) + "\n", json.dumps(line_of([[0, 1]], [[[1.0], [2.0]]])) + "\n"
    for end in range(len(last)):
        assert read_shard(written(tmp_path, whole + last[:end])) == Shard(worlds=(WORLD,), cases=())
    assert len(read_shard(written(tmp_path, whole + last)).cases) == 1


def test_a_broken_line_before_the_last_is_refused_with_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, f'{json.dumps(WORLD)}\n{{"type": "ca\n{json.dumps(WORLD)}\n')
    with pytest.raises(StoreError) as error:
        read_shard(path)
    assert str(error.value).startswith(f"{path}:2: not a JSON line (")
    assert str(error.value).endswith("remove the file to measure it again")


def test_failed_cases_are_not_finished_and_wrong_ones_are() -> None:
    shard = Shard(
        worlds=(),
        cases=(
            line_of([[0]], [], case_id="good"),
            line_of([[0]], [], case_id="good", block=1, status="failed"),
            line_of([[0]], [], case_id="wrong", status="wrong_result"),
        ),
    )
    assert shard.finished() == {(0, "good"), (0, "wrong")}


def test_a_row_has_the_slowest_and_the_fastest_rank_of_its_repetition() -> None:
    rows = rows_of(line_of([[3, 0, 2]], [[[0.3, 0.1], [0.1, 0.2], [0.2, 0.3]]]))
    assert [(r.repetition, r.time_s, r.slowest_rank, r.time_min_s, r.fastest_rank) for r in rows] == [
        (0, 0.3, 3, 0.1, 0),
        (1, 0.3, 2, 0.1, 3),
    ]
    assert {(r.run_id, r.launch, r.comm_id, r.position, r.case_id, r.status) for r in rows} == {
        ("run", 1, "1.0", 4, "abc", Status.OK)
    }


def test_every_group_and_repetition_is_a_row_and_spans_are_counted_from_minipods() -> None:
    times_s = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]
    rows = rows_of(line_of([[0, 1], [1, 3]], times_s))
    assert [(row.group, row.repetition, row.time_s, row.span) for row in rows] == [
        (0, 0, 3.0, 1),
        (0, 1, 4.0, 1),
        (1, 0, 7.0, 2),
        (1, 1, 8.0, 2),
    ]


def test_ranks_of_one_node_are_one_node() -> None:
    (row,) = rows_of(line_of([[2, 3, 4, 5]], [[[1.0]] * 4]), ngpus_per_node=2)
    assert (row.nranks, row.nnodes, row.span) == (4, 2, 2)
    (row,) = rows_of(line_of([[0, 1, 2, 3]], [[[1.0]] * 4]), ngpus_per_node=2)
    assert (row.nranks, row.nnodes, row.span) == (4, 2, 1)


@pytest.mark.parametrize("status", ["failed", "wrong_result"])
def test_a_case_that_did_not_end_well_is_a_row_a_group_without_times(status: str) -> None:
    # A wrong result has times, which nobody may use.
    times_s = [] if status == "failed" else [[[1.0], [2.0]], [[3.0], [4.0]]]
    rows = rows_of(line_of([[0, 1], [2, 3]], times_s, status=status, reason="rank 1 died"))
    assert [row.group for row in rows] == [0, 1]
    for row in rows:
        assert math.isnan(row.time_s) and math.isnan(row.time_min_s)
        assert (row.slowest_rank, row.fastest_rank) == (-1, -1)
        assert (row.status, row.reason) == (Status(status), "rank 1 died")


def test_a_step_keeps_how_it_computed() -> None:
    line = line_of([[0, 1]], [[[1.0], [2.0]]])
    assert rows_of(line)[0].compute == ""
    line["case"]["step"] = {"compute": "wait"}
    assert rows_of(line)[0].compute == "wait"


@pytest.mark.parametrize("torn", ["", '{"type": "case", "é'])
def test_a_failure_is_appended_after_a_torn_line_is_dropped(tmp_path: Path, torn: str) -> None:
    path = written(tmp_path, json.dumps(WORLD) + "\n" + torn)
    failure = line_of([[0, 1]], [], status="failed", reason="é died")
    append_failure(path, failure)
    append_failure(path, failure)
    assert read_shard(path) == Shard(worlds=(WORLD,), cases=(failure, failure))


def test_a_failure_begins_a_shard_that_is_not_there_or_only_torn(tmp_path: Path) -> None:
    failure = line_of([[0, 1]], [], status="failed")
    append_failure(tmp_path / "new", failure)
    assert read_shard(tmp_path / "new").cases == (failure,)
    path = written(tmp_path, '{"type": "wor')
    append_failure(path, failure)
    assert read_shard(path).cases == (failure,)


@pytest.mark.parametrize(
    ("rail", "ranks", "rails"), [(-1, [[0, 1, 2, 3]], [-1]), (1, [[1, 7]], [1]), (-2, [[0, 6], [1, 7]], [0, 1])]
)
def test_rows_tell_the_rail_and_the_nodes_of_their_group(rail: int, ranks: list[list[int]], rails: list[int]) -> None:
    line = line_of(ranks, [[[1.0] for _ in group] for group in ranks])
    line["case"]["rail"] = rail
    rows = rows_of(line, ngpus_per_node=2)
    assert [row.rail for row in rows] == rails
    nodes = "0,1" if rail == -1 else "0,3"
    assert {(row.nodes, row.nnodes, row.nranks) for row in rows} == {(nodes, 2, len(ranks[0]))}


def test_a_case_of_several_parts_gives_rows_for_each() -> None:
    first, second = [[[1.0, 2.0], [3.0, 1.0]]], [[[0.1, 0.2], [0.3, 0.1]]]
    line = line_of([[0, 1]], first, parts={"communicator": first, "first_all_reduce": second}, warmup=3)
    found = [(row.operation, row.repetition, row.time_s) for row in rows_of(line)]
    assert found == [
        ("communicator", 0, 3.0),
        ("communicator", 1, 2.0),
        ("first_all_reduce", 0, 0.3),
        ("first_all_reduce", 1, 0.2),
    ]
    assert {row.case_id for row in rows_of(line)} == {"abc"}


def test_a_failed_case_of_several_parts_is_one_row() -> None:
    (row,) = rows_of(line_of([[0, 1]], [[[], []]], parts={"a": [], "b": []}, status="failed", reason="no core"))
    assert (row.operation, row.status, row.reason) == ("all_reduce", Status.FAILED, "no core")


def test_lines_of_other_types_are_passed_over(tmp_path: Path) -> None:
    device = {"type": "device", "comm_id": "1.0.0", "block": 0, "readings": [{"clock_mhz": 1980.0}]}
    shard = read_shard(written(tmp_path, "".join(json.dumps(line) + "\n" for line in (WORLD, device))))
    assert shard == Shard(worlds=(WORLD,), cases=())


def test_a_launch_that_measured_start_ups_says_how_long_its_ranks_took_to_meet() -> None:
    start = line_of([[0, 1]], [[[1.0], [3.0]]])
    start["case"] = start["case"] | {"kind": "startup"}
    world = WORLD | {"init_s": [0.5, 0.2, 0.4, 0.3]}
    shard = Shard(worlds=(world, world), cases=(start,))
    without = Shard(worlds=(world,), cases=(line_of([[0]], [[[1.0]]]),))
    rows = list(measurements("run", [shard], 1, {"minipod": MINIPODS}))
    assert [row.operation for row in rows] == ["process_group", "process_group", "all_reduce"]
    found = rows[0]
    assert (found.kind, found.launch, found.nranks, found.nnodes, found.span) == ("startup", 1, 4, 4, 2)
    assert (found.time_s, found.slowest_rank, found.time_min_s, found.fastest_rank) == (0.5, 0, 0.2, 1)
    assert "process_group" not in {r.operation for r in measurements("run", [without], 1, {"minipod": MINIPODS})}


def test_a_row_names_the_nodes_of_its_group_once_in_rank_order() -> None:
    line = line_of([[2, 3, 0, 1], [6, 7, 4, 5]], [[[1.0]] * 4, [[2.0]] * 4])
    assert [row.nodes for row in rows_of(line, ngpus_per_node=2)] == ["1,0", "3,2"]


def test_a_program_s_one_time_of_a_group_names_no_rank() -> None:
    (row,) = rows_of(line_of([[0, 1]], [[[2.0]]], resolution_s=0.5))
    assert (row.time_s, row.time_resolution_s) == (2.0, 0.5)
    assert math.isnan(row.time_min_s)
    assert (row.slowest_rank, row.fastest_rank) == (-1, -1)

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spanfit.results.importers.imported import Imported
from spanfit.results.importers.inspector import is_inspector, join_records, read_records
from spanfit.results.importers.log import LogStatus


def line(
    rank: int, serial: int, time_us: int, *, coll: str = "AllReduce", communicator: str = "0x1f", **call: Any
) -> str:
    entry = {
        "header": {"id": communicator, "comm_name": "unknown", "rank": rank, "n_ranks": 2, "nnodes": 2},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 1767322000000000,
            "hostname": f"n{rank}",
            "pid": 100 + rank,
        },
        "coll_perf": {
            "coll": coll,
            "coll_sn": serial,
            "coll_msg_size_bytes": 1 << 20,
            "coll_exec_time_us": time_us,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 1.0,
            "coll_busbw_gbs": 1.0,
            **call,
        },
    }
    return json.dumps(entry, separators=(",", ":"))


def joined(*lines: str) -> tuple[Imported, ...]:
    records, foreign = read_records("\n".join(lines))
    return join_records(records, foreign)


def test_a_collective_takes_as_long_as_its_slowest_rank() -> None:
    assert is_inspector(line(0, 1, 50) + "\n")
    (run,) = joined(line(0, 1, 50), line(0, 2, 60), line(1, 1, 55), line(1, 2, 40))
    assert (run.engine, run.nranks, run.hosts, run.communicator) == ("nccl-inspector", 2, ("n0", "n1"), "0x1f")
    assert (run.status, run.version, run.settings) == (LogStatus.OK, "v4.0", {"timing source": "kernel_gpu"})
    assert [each.time_s for each in run.timings] == pytest.approx([55e-6, 60e-6])
    assert [each.time_min_s for each in run.timings] == pytest.approx([50e-6, 40e-6])
    assert run.timings[0].resolution_s == 0.5e-6 and run.timings[0].dtype == "" and not run.timings[0].is_share


def test_a_gather_is_noted_with_one_ranks_share() -> None:
    (run,) = joined(*(line(rank, 1, 50, coll="AllGather") for rank in (0, 1)))
    assert run.timings[0].is_share and run.timings[0].redop == "none"


def test_what_not_every_rank_noted_is_left_out_and_said() -> None:
    (run,) = joined(line(0, 1, 50), line(0, 2, 60), line(1, 1, 55))
    assert [bool(each.reason) for each in run.timings] == [False, True] and run.status is LogStatus.TRUNCATED
    assert run.error == "1 of 2 collectives of communicator 0x1f were not noted by all ranks"


def test_one_file_of_many_has_no_whole_collective_and_no_hosts() -> None:
    (run,) = joined(line(0, 1, 50))
    assert run.hosts is None and all(timing.reason for timing in run.timings)


def test_each_communicator_is_a_run() -> None:
    lines: Iterator[str] = (line(rank, 1, 50, communicator=name) for name in ("0xa", "0xb") for rank in (0, 1))
    assert [run.communicator for run in joined(*lines)] == ["0xa", "0xb"]


def test_times_of_the_hosts_clock_are_marked() -> None:
    lines = [line(rank, 1, 50, coll_timing_source="collective_cpu") for rank in (0, 1)]
    assert joined(*lines)[0].is_cpu_time


def test_sends_and_a_line_that_was_cut_are_not_understood_and_kept_as_that() -> None:
    cut, send = line(0, 2, 60)[:-30], line(0, 3, 60).replace("coll_perf", "p2p_perf")
    (run,) = joined(line(0, 1, 50), line(1, 1, 55), cut, send)
    assert run.foreign == (cut, send)

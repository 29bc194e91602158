from pathlib import Path

import pytest

from spanfit.results.importers.log import LogStatus
from spanfit.results.importers.param import is_param, read_param

TEXT = (Path(__file__).parents[3] / "data" / "imports" / "param_all_reduce.txt").read_text(encoding="utf-8")


def test_a_table_gives_the_slowest_and_the_fastest_rank_of_each_size() -> None:
    assert is_param(TEXT)
    (run,) = read_param(TEXT)
    assert (run.engine, run.backend, run.nranks, run.hosts, run.status) == ("param", "gloo", 4, None, LogStatus.OK)
    assert [(timing.operation, timing.size_bytes, timing.dtype, timing.redop) for timing in run.timings] == [
        ("all_reduce", size, "float32", "sum") for size in (1024, 2048, 4096)
    ]
    first = run.timings[0]
    assert [first.time_s, first.time_min_s] == pytest.approx([82.4e-6, 79.9e-6])
    assert first.resolution_s == pytest.approx(0.05e-6)


def test_the_older_words_of_the_header_are_read_too() -> None:
    older = TEXT.replace("Time(us):p50", "Latency(us):p50")
    assert read_param(older)[0].timings == read_param(TEXT)[0].timings


def test_a_tag_behind_the_type_is_no_part_of_it() -> None:
    (run,) = read_param(TEXT.replace("float32 ", "float32-night-2 "))
    assert {timing.dtype for timing in run.timings} == {"float32"}


def test_several_groups_at_once_are_refused_since_their_lines_mix() -> None:
    (run,) = read_param(TEXT.replace("num_pg 1, groupSize 4", "num_pg 2, groupSize 2"))
    assert run.status is LogStatus.FAILED and "--multi-comms" in run.error
    assert run.timings[0].reason == run.error


def test_a_table_of_pairs_is_not_understood_and_said() -> None:
    header = "\tCOMMS-RES            size (B)  pingLatency(us):p50       p75       p95"
    row = "\tCOMMS-RES-pt2pt-float32           1024                 1.0       1.1       1.2"
    (run,) = read_param(f"{header}\n{row}\n")
    assert run.status is LogStatus.TRUNCATED and run.foreign == (row.strip(),)


def test_a_row_that_was_cut_is_not_a_time() -> None:
    (run,) = read_param(TEXT[: TEXT.index("103.7")].rstrip())
    assert [timing.size_bytes for timing in run.timings] == [1024, 2048] and len(run.foreign) == 1


def test_a_launchers_failure_is_no_good_run() -> None:
    (run,) = read_param(TEXT + "srun: error: n2: task 3: Segmentation fault (core dumped)\n")
    assert run.status is LogStatus.FAILED and "task 3" in run.timings[-1].reason

import math
from pathlib import Path

import pytest

from spanfit.results.importers.log import LogStatus
from spanfit.results.importers.osu import is_osu, read_osu
from spanfit.results.schema import Status

FOLDER = Path(__file__).parents[3] / "data" / "imports"
COLLECTIVE = (FOLDER / "osu_allreduce_full.txt").read_text(encoding="utf-8")
PAIRS = (FOLDER / "osu_pairs.txt").read_text(encoding="utf-8")


def test_a_full_table_gives_the_slowest_and_the_fastest_rank() -> None:
    assert is_osu(COLLECTIVE)
    (run,) = read_osu(COLLECTIVE)
    assert (run.version, run.backend, run.nranks, run.status) == ("7.4", "mpi", None, LogStatus.OK)
    assert run.settings == {"time of": "the slowest rank"} and run.foreign == ()
    last = run.timings[-1]
    assert (last.operation, last.size_bytes, last.dtype, last.redop) == ("all_reduce", 1 << 20, "float32", "sum")
    assert [last.time_s, last.time_min_s] == pytest.approx([620.33e-6, 600.10e-6])
    assert last.resolution_s == pytest.approx(0.005e-6) and not last.is_share


def test_without_full_results_the_time_is_the_mean() -> None:
    (run,) = read_osu(
        "# OSU MPI All-to-All Personalized Exchange Latency Test v7.1\n# Size       Avg Latency(us)\n8  1.50\n"
    )
    (timing,) = run.timings
    assert run.settings == {"time of": "the mean of the ranks"}
    assert (timing.operation, timing.is_share) == ("all_to_all", True) and timing.time_s == pytest.approx(1.5e-6)
    assert math.isnan(timing.time_min_s) and timing.redop == "none"


def test_latency_and_bandwidth_of_a_pair_are_times_of_a_message() -> None:
    latency, bandwidth = read_osu(PAIRS)
    assert (latency.version, latency.nranks, [each.operation for each in latency.timings]) == ("5.9", 2, ["send"] * 2)
    assert [each.size_bytes for each in latency.timings] == [0, 8]
    assert [each.time_s for each in latency.timings] == pytest.approx([1.2e-6, 1.25e-6])
    first, last = bandwidth.timings
    assert (first.operation, first.dtype) == ("send", "int8") and first.time_s == pytest.approx(1024 / 500e6)
    assert first.resolution_s == pytest.approx(first.time_s * 0.005 / 500)
    assert (last.status, last.reason) == (Status.WRONG_RESULT, "validation: Fail") and math.isnan(last.time_s)
    assert bandwidth.status is LogStatus.WRONG_RESULTS
    assert latency.program != bandwidth.program


def test_both_directions_are_counted_once() -> None:
    (run,) = read_osu("# OSU MPI Bi-Directional Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n1000  2000.00\n")
    assert run.timings[0].operation == "exchange" and run.timings[0].time_s == pytest.approx(1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "# OSU MPI Non-blocking Allreduce Latency Test v7.4\n# Size  Overall(us)  Compute(us)\n8  10.0  5.0\n",
        "# OSU MPI Put Latency Test v7.4\n# Window creation: MPI_Win_allocate\n# Size          Latency (us)\n8  10.0\n",
        "# OSU MPI Multi Latency Test v7.4\n# Size          Latency (us)\n8  10.0\n",
        "# OSU MPI_Put Latency Test v5.9\n# Size          Latency (us)\n8  10.0\n",
        "# OSU OpenSHMEM Put Test v7.4\n# Size          Latency (us)\n8  10.0\n",
    ],
)
def test_a_program_that_is_not_read_gives_no_times_but_its_lines(text: str) -> None:
    (run,) = read_osu(text)
    assert {timing.status for timing in run.timings} == {Status.FAILED} and run.status is LogStatus.TRUNCATED
    assert any(line.startswith("8 ") for line in run.foreign)


def test_a_table_that_is_not_read_adds_no_rows_to_the_one_before() -> None:
    other = "# OSU MPI_Get_accumulate latency Test v5.9\n# Size          Latency (us)\n8  7.77\n"
    read, left = read_osu(COLLECTIVE + other)
    assert read == read_osu(COLLECTIVE)[0] and left.foreign == ("8  7.77",)


def test_a_time_of_nothing_and_a_launchers_failure_are_rows_that_failed() -> None:
    text = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4  0.00\n8  1.50\n"
    (run,) = read_osu(text + "mpirun noticed that process rank 3 on node n2 exited on signal 9 (Killed).\n")
    assert [timing.status for timing in run.timings] == [Status.FAILED, Status.OK, Status.FAILED]
    assert run.status is LogStatus.FAILED and "signal 9" in run.timings[-1].reason

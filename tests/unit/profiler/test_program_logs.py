import math
from dataclasses import replace

import pytest

from spanfit.profiler.program_logs import Expected, judge
from spanfit.results.importers.log import Device, ErrorClass, Half, LogRun, LogStatus, Row
from spanfit.results.schema import Status
from tests.unit.bench.test_nccl_tests import CASE


def half(time_us: str, wrong: float | None = 0.0) -> Half:
    algbw = f"{4096 / float(time_us) / 1e3:.3f}"
    return Half(time_us, algbw, algbw, wrong)


def device(rank: int, host: str) -> Device:
    return Device(rank=rank, group=0, pid=rank, host=host, device=0, bus_id="", name=None)


ROW = Row(size_bytes=4096, nelements=1024, dtype="float", redop="prod", root=-1, oop=half("12.34"), ip=half("56.7"))
RUN = LogRun(status=LogStatus.OK, nranks=2, devices=(device(0, "n1"), device(1, "n2")), rows=(ROW,))
EXPECTED = Expected(case=CASE, hosts=("n1.example.org", "n2"), nranks_per_group=2)


def test_the_half_of_the_case_gives_the_time_and_its_last_digit() -> None:
    found = judge(EXPECTED, (RUN,), None, 0, "")
    assert (found.status, found.reason) == (Status.OK, "")
    assert found.time_s == pytest.approx(12.34e-6)
    assert found.resolution_s == pytest.approx(0.005e-6)
    in_place = judge(replace(EXPECTED, case=replace(CASE, in_place=True)), (RUN,), None, 0, "")
    assert in_place.time_s == pytest.approx(56.7e-6)


def test_a_report_has_more_digits() -> None:
    report = LogRun(status=LogStatus.OK, rows=(ROW._replace(oop=half("12.341234")),))
    found = judge(EXPECTED, (RUN,), report, 0, "")
    assert found.time_s == pytest.approx(12.341234e-6, rel=1e-12)
    assert found.resolution_s == pytest.approx(0.5e-12)


def test_ranks_that_fail_before_rank_0_says_what_it_runs_are_of_its_world() -> None:
    early = LogRun(status=LogStatus.FAILED, error="n2: Test CUDA failure", error_class=ErrorClass.CUDA)
    begun = LogRun(status=LogStatus.TRUNCATED, parameters={"nThread": "1"})
    found = judge(EXPECTED, (early, begun), None, 2, "")
    assert found.reason.startswith("n2: Test CUDA failure (exit code 2")


def test_a_time_that_its_bandwidth_contradicts_is_no_result() -> None:
    lie = half("12.34")._replace(time_text="6.17")
    found = judge(EXPECTED, (replace(RUN, rows=(ROW._replace(oop=lie),)),), None, 0, "")
    assert found.status is Status.FAILED
    assert "contradict one another: algbw is not size / time in 1 halves" in found.reason


@pytest.mark.parametrize(
    ("run", "code", "status", "reason", "advice"),
    [
        (replace(RUN, nranks=1), 0, Status.FAILED, "ran as a world of 1 ranks; expected 2", "MPI=1"),
        (replace(RUN, is_interleaved=True), 0, Status.FAILED, "printed several worlds", "MPI=1"),
        (
            replace(RUN, devices=(device(0, "n2"), device(1, "n1"))),
            0,
            Status.FAILED,
            "rank 0 ran on n2, expected n1.example.org",
            "hosts file",
        ),
        (replace(RUN, rows=()), 0, Status.FAILED, "printed no row of 4096 B float32 product; rows printed: none", ""),
        # What a build does not know it takes for float or sum, and goes on.
        (replace(RUN, rows=(ROW._replace(dtype="half"),)), 0, Status.FAILED, "rows printed: 4096 B half prod", ""),
        (replace(RUN, rows=(ROW._replace(redop="sum"),)), 0, Status.FAILED, "rows printed: 4096 B float sum", ""),
        (
            replace(RUN, status=LogStatus.FAILED, error="not enough slots", error_class=ErrorClass.LAUNCHER),
            1,
            Status.FAILED,
            "not enough slots (exit code 1 of the launcher)",
            "",
        ),
        (replace(RUN, rows=(ROW._replace(oop=None),)), 0, Status.FAILED, "without its out-of-place half", ""),
        (replace(RUN, rows=(ROW._replace(oop=half("nan")),)), 0, Status.FAILED, "printed a time of nan us", ""),
        (replace(RUN, rows=(ROW._replace(oop=half("1.0", 7.0)),)), 0, Status.WRONG_RESULT, "7 wrong elements", ""),
        (RUN, 3, Status.FAILED, "the last line (exit code 3: an NCCL call failed)", ""),
        (replace(RUN, status=LogStatus.TRUNCATED), 0, Status.FAILED, "exit code 0, but no whole result", ""),
        (
            replace(RUN, status=LogStatus.FAILED, error="n1: Test timeout", error_class=ErrorClass.TIMEOUT),
            4,
            Status.TIMED_OUT,
            "n1: Test timeout",
            "",
        ),
        (
            replace(RUN, status=LogStatus.FAILED, error="Invalid number", error_class=ErrorClass.NOT_ENOUGH_GPUS),
            5,
            Status.FAILED,
            "Invalid number (exit code 5",
            "lower launch.ranks_per_node",
        ),
    ],
)
def test_a_run_that_is_no_result_says_why(run: LogRun, code: int, status: Status, reason: str, advice: str) -> None:
    found = judge(EXPECTED, (run,), None, code, "the last line")
    assert found.status is status
    assert reason in found.reason
    assert advice in found.advice
    assert bool(found.advice) == bool(advice), "only a fault of the set-up ends a campaign"
    assert math.isnan(found.time_s)


def test_silence_is_told_by_the_last_line() -> None:
    found = judge(EXPECTED, (), None, 127, "p: error while loading shared libraries: libnccl.so.2")
    assert "libnccl.so.2 (exit code 127" in found.reason
    assert "findable" in found.advice


def test_a_split_that_was_not_made_is_no_result() -> None:
    both = replace(EXPECTED, nranks_per_group=1)
    assert "did not make groups of 1 ranks" in judge(both, (RUN,), None, 0, "").reason
    assert judge(both, (replace(RUN, ranks_per_group=1),), None, 0, "").status is Status.OK

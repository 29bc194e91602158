"""The reader of text logs, against rows of known values printed as each version does, and small logs kept as files."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.results.importers.log import ErrorClass, Half, LogRun, LogStatus, PerIteration, Row
from spanfit.results.importers.nccl_text import read_text
from tests.unit.results.importers.rendering import STYLES, V213, V217, Style, foot, head, writes

DATA = Path(__file__).parents[3] / "data" / "nccl_tests"
NOISE = (
    "node01:4000:4011 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
    "0a12:195:195 [0] NCCL INFO Launch mode Parallel",
    "[1779464407.212356] [node01:8738 :0]  parser.c:2305 UCX  WARN  unused environment variable: UCX_IB_GID_INDEX",
    "Authorization required, but no authorization protocol specified",
    "2024 12 31 23 59 59",
    "12 34 float sum",
    "",
)
LABELS = ("", "[1,0]<stdout>:", "0: ", "[0] ", "[pod/launcher-x7k2p/main] 2026-01-28T01:05:00.000000000Z ")
OTHERS = ("", "[1,1]<stderr>:", "1: ")


def float_text(value: float, width: int) -> str:
    """Return a number as getFloatStr of nccl-tests 2.17.3 to 2.19.5 does."""
    text = next((text for places in (2, 1, 0) if len(text := f"{value:.{places}f}") <= width), "")
    return text or f"{value:.1e}"


def make_half(size: int, time_us: float, found: float | None, style: Style) -> Half:
    time, rate = float_text(time_us, 7), f"{size / time_us / 1e3:.2f}"
    return Half(time, rate, rate, found if style.has_groups else None, max_error=None if style.has_groups else found)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Style, list[Row]]:
    """Draw a table: rising sizes, known and unknown types and operations, right and wrong and unchecked results."""
    style = draw(st.sampled_from(STYLES))
    dtype = draw(st.sampled_from(["float", "half", "bfloat16", "f8e4m3", "some_new_type_128"]))
    redop = draw(st.sampled_from(["sum", "mulsum", "none", "newop"])) if "redop" in style.lead else None
    root = draw(st.sampled_from([-1, 0, 131])) if "root" in style.lead else None
    rows = []
    for size in sorted(draw(st.sets(st.integers(0, 1 << 35), min_size=1, max_size=6))):
        found = st.sampled_from([None, 0.0, 96.0, 1048580.0] if style.has_groups else [None, 0.0, 2e-7])
        times = st.floats(0.5, 4e7)
        oop, ip = (make_half(size, draw(times), draw(found), style) for _ in range(2))
        rows.append(Row(size_bytes=size, nelements=size // 4, dtype=dtype, redop=redop, root=root, oop=oop, ip=ip))
    return style, rows


@st.composite
def noises(draw: st.DrawFn, *, inside: bool) -> str:
    """Draw what others print at one point, in whole lines; often nothing."""
    if draw(st.integers(0, 3)):
        return ""
    texts = draw(st.lists(st.sampled_from(NOISE[:3] if inside else NOISE), min_size=1, max_size=2))
    return "".join(
        f"{'' if inside and not i else draw(st.sampled_from(OTHERS))}{text}\n" for i, text in enumerate(texts)
    )


def average(rows: list[Row]) -> float:
    values = [float(half.busbw_text) for row in rows for half in (row.oop, row.ip) if half]
    return sum(values) / len(values)


def plain_text(style: Style, rows: list[Row], label: str = "") -> str:
    lines = [*head(style), *("".join(writes(style, row)) for row in rows), *foot(style, average(rows))]
    return "".join(f"{label}{line}\n" for line in lines)


def is_split_safely(style: Style, row: Row) -> bool:
    """Return whether every cell at the end of a write is padded, so that what is printed behind it cannot join it."""
    last = [half.wrong or 0 for half in (row.oop, row.ip) if half]
    return max(last) < 1e5 and (style.lead[-1] != "redop" or row.redop != "mulsum") and style.lead[-1] != "type"


@settings(max_examples=50)
@given(logs(), st.data())
def test_recovers_every_row_between_whatever_is_printed(log: tuple[Style, list[Row]], data: st.DataObject) -> None:
    style, rows = log
    label = data.draw(st.sampled_from(LABELS), "label")
    again = label if label == "[0] " else ""
    text = "".join(f"{label}{line}\n" for line in head(style))
    noise_inside = noises(inside=True)
    for row in rows:
        pieces = writes(style, row)
        text += label + pieces[0]
        for piece in pieces[1:]:
            noise = data.draw(noise_inside, "noise inside") if is_split_safely(style, row) else ""
            text += f"{noise}{label}{piece}" if noise else f"{again}{piece}"
        text += "\n" + data.draw(noises(inside=False), "noise")
    text += "".join(f"{label}{line}\n" for line in foot(style, average(rows)))
    if data.draw(st.booleans(), "CRLF"):
        text = "\ufeff" + text.replace("\n", "\r\n")
    (run,) = read_text(text)
    assert run.rows == tuple(rows)
    assert run.partial_rows == ()
    assert run.version == style.version
    assert run.avg_busbw == float(f"{average(rows):g}")
    wrong = any(half.wrong for row in rows for half in (row.oop, row.ip) if half)
    assert run.status is (LogStatus.WRONG_RESULTS if wrong else LogStatus.OK)
    assert not [warning for warning in run.warnings if "is not" in warning]


@settings(max_examples=50)
@given(logs(), st.data())
def test_a_log_that_is_cut_gives_no_row_that_was_not_printed(log: tuple[Style, list[Row]], data: st.DataObject) -> None:
    style, rows = log
    label = data.draw(st.sampled_from(LABELS), "label")
    text = plain_text(style, rows, label)
    end = data.draw(st.integers(0, len(text)), "end")
    ends = [len(text[: text.index(writes(style, row)[0])].splitlines()) for row in rows]
    nwhole = sum(1 for line in ends if text[:end].count("\n") >= line + 1)
    found = read_text(text[:end])
    read = found[0].rows if found else ()
    assert read in (tuple(rows[:nwhole]), tuple(rows[: nwhole + 1]))
    partial = found[0].partial_rows if found else ()
    for row in partial:
        whole = next(other for other in rows if other.size_bytes == row.size_bytes)
        assert (row.nelements, row.dtype, row.redop, row.root) == (
            whole.nelements,
            whole.dtype,
            whole.redop,
            whole.root,
        )
        assert (row.oop, row.ip) in ((whole.oop, None), (None, None))
    if found and end < len(text) - 120:
        assert found[0].status is not LogStatus.OK


@settings(max_examples=50)
@given(st.text(max_size=300) | st.text("0123456789 .e+-#\n\tNA/:[]²|", max_size=60), st.integers(0, 2000))
def test_never_raises(junk: str, place: int) -> None:
    text = plain_text(V217, [ROW])
    place %= len(text)
    read_text(text[:place] + junk + text[place:])


ROW = Row(
    size_bytes=1048576,
    nelements=262144,
    dtype="float",
    redop="sum",
    root=-1,
    oop=make_half(1048576, 38.41, 0.0, V217),
    ip=make_half(1048576, 38.79, 0.0, V217),
)


def read_file(name: str) -> tuple[LogRun, ...]:
    return read_text((DATA / f"{name}.log").read_bytes().decode())


def half(time: str, algbw: str, busbw: str, **rest: float | PerIteration | None) -> Half:
    return Half(time, algbw, busbw, **rest)  # type: ignore[arg-type]


def test_milliseconds_of_1_0_become_microseconds_of_the_same_resolution() -> None:
    (run,) = read_file("v1_milliseconds")
    (row,) = run.rows
    assert (row.oop, row.ip) == (half("293", "3.58", "3.58"), half("294", "3.57", "3.57"))
    assert row.oop is not None and row.oop.time_us.resolution == 0.5
    assert (run.status, run.version, run.validation, run.wrong_column) == (LogStatus.OK, "1.0 layout", 0, "res")
    assert [(device.group, device.pid, device.name) for device in run.devices] == [(None, None, "Tesla P100")] * 2
    assert (run.foreign, run.warnings) == ((), ())


def test_a_blank_operation_is_none_and_na_is_no_zero() -> None:
    (run,) = read_file("v27_alltoall_blank_redop")
    oop, ip = half("38.41", "27.30", "13.65", max_error=0.0), half("38.79", "27.03", "13.52")
    assert run.rows == (
        Row(size_bytes=1048576, nelements=131072, dtype="float", redop=None, root=None, oop=oop, ip=ip),
    )
    assert (run.status, run.version, run.foreign) == (LogStatus.OK, "2.0-2.9 layout", ())


def test_a_failure_inside_a_row_keeps_the_leading_cells_and_the_first_error() -> None:
    (run,) = read_file("v2178_failure_inside_row")
    assert run.partial_rows == (
        Row(size_bytes=1048576, nelements=262144, dtype="float", redop="sum", root=-1, oop=None, ip=None),
    )
    error = "n0: Test NCCL failure common.cu:401 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '"
    assert (run.status, run.error, run.error_class) == (LogStatus.FAILED, error, ErrorClass.NCCL)
    assert run.exit_code == 3
    assert [text.split(":")[0] for text in run.foreign] == [".. n0 pid 70", "srun", "slurmstepd"]


def test_worlds_with_labels_of_their_own_are_told_apart() -> None:
    runs = read_file("v2178_two_labelled_worlds")
    assert [(run.prefix, run.devices[0].host, run.nranks, len(run.rows)) for run in runs] == [
        ("0: ", "n0", 1, 1),
        ("1: ", "n1", 1, 1),
    ]
    assert [run.rows[0].oop and run.rows[0].oop.time_text for run in runs] == ["4.20", "4.10"]
    assert all(run.is_interleaved and run.status is LogStatus.OK for run in runs)


def test_the_spread_over_iterations_and_a_rounded_count_of_wrong_elements() -> None:
    (run,) = read_file("v220_spread_wrong_results")
    spreads = [PerIteration(min_us=36.49, max_us=46.09, p99_us=46.09, cv_pct=5.31)]
    spreads += [PerIteration(min_us=37.26, max_us=42.25, p99_us=42.25, cv_pct=3.07)]
    (row,) = run.rows
    assert row.oop == half("38.41", "27.30", "27.30", wrong=1048580.0, per_iteration=spreads[0])
    assert row.ip == half("38.79", "27.03", "27.03", wrong=12.0, per_iteration=spreads[1])
    assert (run.status, run.error) == (LogStatus.WRONG_RESULTS, "# Out of bounds values : 4 FAILED")
    assert (run.version, run.parameters["git hash"]) == ("2.20.0", "a1b2c3d")
    assert "n1:70:99 [0] NCCL INFO in between" in run.foreign


def test_in_place_only_with_cycles_of_rccl_tests() -> None:
    (run,) = read_file("rccl_in_place_only")
    assert [(row.oop, row.ip and row.ip.time_text, row.cycle) for row in run.rows] == [
        (None, "38.79", 0),
        (None, "39.18", 1),
    ]
    assert (run.version, run.rows[0].dtype) == ("rccl-tests develop:ae3e635", "fp8_e4m3")
    assert [device.name for device in run.devices] == ["AMD Instinct MI300X", None]


def test_labels_before_every_write_timestamps_and_a_cut() -> None:
    (run,) = read_file("v2178_timestamps_cut")
    assert [(row.size_bytes, row.timestamp) for row in run.rows] == [(1048576, "2026-01-05 10:11:12")]
    (partial,) = run.partial_rows
    assert partial.oop == half("52.07", "40.28", "40.28", wrong=0.0)
    assert partial.ip == half("52.59", "39.88", "39.88")
    assert (run.status, run.error, run.prefix) == (LogStatus.TRUNCATED, None, "[0] ")


@pytest.mark.parametrize(
    ("line", "status", "error_class", "exit_code"),
    [
        ("n0: Test CUDA failure common.cu:389 'out of memory'", "failed", ErrorClass.CUDA_OUT_OF_MEMORY, None),
        ("n0: Test NCCL failure a.cu:1 'remote process exited or x / '", "failed", ErrorClass.NCCL_REMOTE, None),
        ("n0: Test timeout (30s) common.cu:418", "failed", ErrorClass.TIMEOUT, None),
        ("[n1:70] *** Process received signal *** Signal: Segmentation fault (11)", "failed", ErrorClass.CRASH, None),
        ("srun: error: n0: task 0: Exited with exit code 7", "failed", None, 7),
        ("n0:70:99 [0] NCCL WARN Cuda failure 'out of memory'", "truncated", None, None),
    ],
)
def test_what_ends_a_run(line: str, status: str, error_class: ErrorClass | None, exit_code: int | None) -> None:
    (run,) = read_text("\n".join([*head(V217), "".join(writes(V217, ROW)), line, ""]))
    assert (run.status, run.error_class, run.exit_code) == (status, error_class, exit_code)
    assert run.rows == (ROW,)


def test_a_whole_log_is_not_good_while_a_failure_line_or_a_wrong_row_says_otherwise() -> None:
    good = plain_text(V217, [ROW])
    (low,) = read_text(good.replace("27.165 ", "27.165 FAILED"))
    assert (low.status, low.error_class) == (LogStatus.FAILED, ErrorClass.LOW_BANDWIDTH)
    (late,) = read_text(f"{good} .. n0 pid 70: Test failure common.cu:1189\n")
    assert (late.status, late.error) == (LogStatus.FAILED, ".. n0 pid 70: Test failure common.cu:1189")
    (hidden,) = read_text(good.replace("27.03       0", "27.03       7"))
    assert (hidden.status, hidden.error) == (LogStatus.WRONG_RESULTS, None)


def test_numbers_that_do_not_fit_are_warnings_with_the_row() -> None:
    (run,) = read_text(plain_text(V217, [ROW]).replace(" 38.41   27.30   27.30", " 38.41   29.30   31.30"))
    assert [text.split(", first")[0] for text in run.warnings] == [
        "algbw is not size / time in 1 halves",
        "busbw is not algbw x 1 in 1 halves",
        "the printed average busbw 27.165 is not the mean of the rows, 29.165 GB/s",
    ]
    assert "size 1048576 out-of-place (29.30 GB/s in 38.41 us)" in run.warnings[0]
    assert run.status is LogStatus.OK


def test_runs_that_follow_each_other_are_runs_of_their_own() -> None:
    refused = "srun: error: Unable to create step for job 7: Requested nodes are busy\n"
    runs = read_text(plain_text(V213, [ROW]) + refused + plain_text(V217, [ROW])[:200] + plain_text(V217, [ROW]))
    assert [run.status for run in runs] == [LogStatus.OK, LogStatus.FAILED, LogStatus.TRUNCATED, LogStatus.OK]
    assert runs[1].error_class is ErrorClass.LAUNCHER
    assert [len(run.rows) for run in runs] == [1, 0, 0, 1]


def test_three_worlds_without_labels_are_dealt_out_and_none_is_read_as_one() -> None:
    lines = [line for each in zip(*[plain_text(V217, [ROW]).splitlines()] * 3, strict=True) for line in each]
    runs = read_text("srun: error: n7: task 9: Segmentation fault\n" + "\n".join(lines) + "\n")
    assert [run.status for run in runs] == [LogStatus.FAILED, *[LogStatus.OK] * 3]
    assert [(len(run.rows), run.is_interleaved, run.nranks) for run in runs[1:]] == [(1, True, 2)] * 3
    assert "a guess" in runs[1].warnings[0]


def test_a_launch_that_fails_before_labelled_worlds_is_a_run_of_its_own() -> None:
    refused = "srun: error: Unable to create step for job 7: Requested nodes are busy\n"
    runs = read_text(refused + plain_text(V217, [ROW], "0: ") + plain_text(V217, [ROW], "1: "))
    assert [run.status for run in runs] == [LogStatus.FAILED, LogStatus.OK, LogStatus.OK]
    assert not any(run.is_interleaved for run in runs)


@pytest.mark.parametrize("text", ["", "\n", "hello\nworld\n", "1 2 3\n", "# a comment\n"])
def test_what_is_no_log_has_no_runs(text: str) -> None:
    assert read_text(text) == ()

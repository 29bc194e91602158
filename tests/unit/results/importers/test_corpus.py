"""Every log of the corpus, against what a reader must get out of it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from spanfit.results.importers.log import Device, Half, LogRun, PerIteration, Row, worst
from spanfit.results.importers.reading import read_log

CORPUS = Path(os.environ.get("SPANFIT_SHARED", Path(__file__).parents[5] / "shared")) / "data" / "nccl-tests"
NAMES = sorted(path.with_suffix("") for path in CORPUS.glob("*/*.log"))
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES, ids=lambda path: path.name)
def test_reads_what_the_corpus_says(name: Path) -> None:
    text = name.with_suffix(".log").read_text(encoding="utf-8")
    expected = json.loads(name.with_suffix(".expected.json").read_text())
    runs = read_log(text)
    wanted = expected.get("runs", [expected])
    assert len(runs) == len(wanted)
    assert worst(runs) == expected["status"]
    assert {run.is_interleaved for run in runs} == {expected.get("interleaved", False)}
    for run, want in zip(runs, wanted, strict=True):
        assert_run(run, want, text)


@pytest.mark.corpus
def test_the_corpus_is_all_there(shared_data: Path) -> None:
    assert len(list((shared_data / "nccl-tests").glob("*/*.log"))) == len(NAMES) == 41


def assert_run(run: LogRun, want: dict[str, Any], text: str) -> None:
    assert (run.status, run.error) == (want["status"], want["error"])
    assert_named(run, want, text)
    if "n_ranks_from" in want and run.nranks != want["n_ranks"]:
        # The number comes from a page, a ratio of bandwidths or the command line, not from devices of the log.
        assert run.nranks in (None, len(run.devices))
    else:
        assert run.nranks == want["n_ranks"]
    assert [device_fields(device) for device in run.devices] == want["devices"]
    assert [row_fields(row) for row in run.rows] == [without_marks(row) for row in want["rows"]]
    assert [row_fields(row) for row in run.partial_rows] == [without_marks(row) for row in want.get("partial_rows", [])]
    assert (run.avg_busbw, run.out_of_bounds) == (want["avg_busbw"], want["out_of_bounds"])
    for field, value in optional_fields(run).items():
        is_of_no_header = field == "wrong_column" and "busbw" not in text
        if field in want and not is_of_no_header:
            assert (field, value) == (field, want[field])
    assert {half.time_text for _, _, half in halves(run) if "e" in half.time_text} == {
        printed
        for row in want["rows"]
        for half in (row["oop"], row["ip"])
        if half and (printed := half.get("time_printed"))
    }
    assert not [text for text in run.warnings if "is not" in text], "cross-checks"


def assert_named(run: LogRun, want: dict[str, Any], text: str) -> None:
    """Compare what the log may not print: the program's name and the version, else inferred from the layout."""
    # The corpus names the program also where only a page or a file name did; then the reader must not.
    assert run.program == ("" if want.get("program_printed") is False else want["program"])
    wanted = want["version"]
    if wanted is None:
        assert run.version == ""
    elif re.fullmatch(r"[\d.]+", wanted):
        assert run.version == wanted
    elif wanted.startswith("rccl-tests") and "format" not in want:
        assert run.version.endswith(wanted.split()[-1])
        assert f"Version {run.version.split()[-1]}" in text
    else:
        # Not printed: the corpus infers one in its makers' words, the reader a span; both must be possible at once.
        low, high = span(run.version)
        first, last = span(wanted)
        assert low <= last and first <= high, (run.version, wanted)


def span(version: str) -> tuple[list[int], list[int]]:
    """Return the first and last version that a text such as ``2.10/2.11 layout`` or ``2.19.6+`` names."""
    numbers = [[int(part) for part in found.split(".")] for found in NUMBERS.findall(version.partition("JSON")[0])]
    assert numbers, version
    return min(numbers), [99] if "+" in version else [*max(numbers), 99]


def optional_fields(run: LogRun) -> dict[str, Any]:
    return {
        "error_class": run.error_class,
        "exit_code": run.exit_code,
        "nccl_library": run.nccl_library,
        "validation": run.validation,
        "wrong_column": run.wrong_column,
        "memory_usage": run.memory_usage,
        "prefix": run.prefix,
        "ranks_per_group": run.ranks_per_group,
    }


def device_fields(device: Device) -> dict[str, Any]:
    return {
        "rank": device.rank,
        "group": device.group,
        "pid": device.pid,
        "host": device.host,
        "device": device.device,
        "bus_id": device.bus_id,
        "name": device.name,
    }


def halves(run: LogRun) -> list[tuple[Row, str, Half]]:
    return [(row, place, half) for row in run.rows for place in ("oop", "ip") if (half := getattr(row, place))]


def row_fields(row: Row) -> dict[str, Any]:
    fields = {
        "size_bytes": row.size_bytes,
        "count": row.nelements,
        "dtype": row.dtype,
        "redop": row.redop,
        "root": row.root,
        "oop": half_fields(row.oop),
        "ip": half_fields(row.ip),
    }
    return {**fields, "timestamp": row.timestamp} if row.timestamp else fields


def half_fields(half: Half | None) -> dict[str, Any] | None:
    if half is None:
        return None
    fields: dict[str, Any] = {
        "time_us": float(half.time_text),
        "algbw": float(half.algbw_text),
        "busbw": float(half.busbw_text),
        "wrong": half.wrong,
        "max_error": half.max_error,
        "cpu_time": half.is_cpu_time,
        "per_iter": per_iteration_fields(half.per_iteration),
    }
    return fields


def per_iteration_fields(spread: PerIteration | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"min_us": spread.min_us, "max_us": spread.max_us, "p99_us": spread.p99_us, "cv_pct": spread.cv_pct}


def without_marks(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the corpus with every field of its halves, those that it leaves out as nothing."""
    row = dict(row)
    for place in ("oop", "ip"):
        if row[place]:
            half = {"max_error": None, "cpu_time": False, "per_iter": None, **row[place]}
            half.pop("time_printed", None)
            row[place] = half
    return row

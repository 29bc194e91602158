"""Tables of the OSU micro-benchmarks: blocking collectives, latency and bandwidth between two ranks.

A title ``# OSU MPI Allreduce Latency Test v7.4`` (``MPI-CUDA`` with device buffers, ``NCCL`` or ``xCCL`` for those
programs), from 7.1 ``# Datatype: MPI_FLOAT.``, a header ``# Size  Avg Latency(us)`` and a line for each size. ``-f``
adds ``Min Latency(us)  Max Latency(us)  Iterations``, ``-c`` a ``Validation`` of Pass or Fail, ``-z`` percentiles.
Averages are over the ranks. Ranks and hosts are not printed. The size is what one rank gives to one other for
all-gather, all-to-all, gather and scatter, and the whole buffer for the others. Bandwidths [MB/s, 1e6] are of a window
of messages. Barriers, rates of several pairs, one-sided and non-blocking tests are not read.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from spanfit.collectives import Collective
from spanfit.results.importers.imported import (
    Imported,
    Timing,
    spelt_dtype,
    spelt_operation,
    spelt_redop,
    with_failure,
)
from spanfit.results.importers.judging import failure_of
from spanfit.results.importers.log import LogStatus, Printed
from spanfit.results.schema import Status

ENGINE = "osu"
_PER_PEER = {Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER}

_TITLE = re.compile(
    r"^# OSU (?P<library>MPI|NCCL|RCCL|xCCL|)(?:-\S+)?(?: MANAGED)? ?(?P<what>.*?) ?(?P<kind>Latency|Bandwidth|) Test"
)
"""Of every program, so that none's rows pass for those of the table before; only those of known words are read."""
_VERSION = re.compile(r" v(?P<version>\d[\d.]*)")
_DTYPE = re.compile(r"^# Datatype: (?P<dtype>\w+)")
_HEADER = re.compile(r"^# Size\s+(?P<names>\S.*)")
_ROW = re.compile(r"^\d+\s+\S")
_PAIRS = {"": Collective.SEND, "Bi-Directional": Collective.EXCHANGE}
_BACKENDS = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "rccl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    title: re.Match[str]
    version: str
    dtype: str = ""
    names: tuple[str, ...] = ()


def is_osu(text: str) -> bool:
    """Return whether a text holds a title of these programs."""
    return re.search(r"^# OSU \S+", text, re.MULTILINE) is not None


def read_osu(text: str) -> tuple[Imported, ...]:
    """Return a run for each table of a text; one of a program that is not read has only foreign lines."""
    runs: list[Imported] = []
    table: _Table | None = None
    for line in filter(None, map(str.strip, text.splitlines())):
        if title := _TITLE.match(line):
            version = _VERSION.search(line)
            table = _Table(title=title, version=version["version"] if version else "")
            runs.append(_empty(table))
        elif table and (dtype := _DTYPE.match(line)):
            table = replace(table, dtype=spelt_dtype(dtype["dtype"]))
        elif table and (header := _HEADER.match(line)):
            table = replace(table, names=tuple(re.split(r"\s{2,}", header["names"])))
        elif table and runs:
            runs[-1] = _with_line(runs[-1], table, line)
    return tuple(map(with_failure, runs))


def _empty(table: _Table) -> Imported:
    return Imported(
        engine=ENGINE,
        program=" ".join(filter(None, ("osu", table.title["what"].lower(), table.title["kind"].lower()))),
        version=table.version,
        backend=_BACKENDS.get(table.title["library"], ""),
        nranks=2 if table.title["what"] in _PAIRS else None,
        hosts=None,
        timings=(),
        status=LogStatus.TRUNCATED,
        error="the table has no row",
    )


def _with_line(run: Imported, table: _Table, line: str) -> Imported:
    timings = tuple(_timings(table, line)) if _ROW.match(line) else ()
    if not timings:
        return _with_foreign(run, line)
    run = replace(run, timings=(*run.timings, *timings))
    if run.status is LogStatus.FAILED:
        return run
    is_wrong = run.status is LogStatus.WRONG_RESULTS or timings[0].status is not Status.OK
    status = LogStatus.WRONG_RESULTS if is_wrong else LogStatus.OK
    error = "validation failed" if is_wrong else ""
    settings = {"time of": "the slowest rank" if "Max Latency(us)" in table.names else "the mean of the ranks"}
    return replace(run, status=status, error=error, settings=settings)


def _with_foreign(run: Imported, line: str) -> Imported:
    run = replace(run, foreign=(*run.foreign, line))
    failure = failure_of(line)
    if failure is None or failure.error_class is None or run.status is LogStatus.FAILED:
        return run
    return replace(run, status=LogStatus.FAILED, error=failure.text)


def _timings(table: _Table, line: str) -> Iterator[Timing]:
    """Yield the time of a row, none where it is of a program that is not read or has other cells than its header."""
    size, *values = line.split()
    cells = dict(zip(table.names, values, strict=False))
    what = table.title["what"]
    operation = str(_PAIRS[what]) if what in _PAIRS else spelt_operation(what)
    if operation not in set(Collective) or len(values) != len(table.names):
        return
    timing = Timing(
        operation=operation,
        size_bytes=int(size),
        is_share=operation in _PER_PEER,
        dtype=table.dtype,
        redop=spelt_redop(operation, "sum"),
    )
    if cells.get("Validation", "Pass") != "Pass":
        yield replace(timing, status=Status.WRONG_RESULT, reason=f"validation: {cells['Validation']}")
    elif timed := _timed(timing, cells):
        yield timed


def _timed(timing: Timing, cells: Mapping[str, str]) -> Timing | None:
    found = {
        name.replace(" ", ""): Printed(value=float(text), text=text) for name, text in cells.items() if _is_number(text)
    }
    if rate := found.get("Bandwidth(MB/s)"):
        directions = 2 if timing.operation == Collective.EXCHANGE else 1
        time_s = directions * timing.size_bytes / (rate.value * 1e6) if rate.value else 0.0
        return replace(timing, time_s=time_s, resolution_s=time_s * rate.resolution / rate.value) if time_s else None
    mean = found.get("AvgLatency(us)") or found.get("Latency(us)")
    if mean is None:
        return None
    slowest, fastest = found.get("MaxLatency(us)", mean), found.get("MinLatency(us)")
    timed = replace(timing, time_s=slowest.value * 1e-6, resolution_s=slowest.resolution * 1e-6)
    return replace(timed, time_min_s=fastest.value * 1e-6) if fastest else timed


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?", text) is not None

"""Which program wrote a file that is imported, and what nccl-tests' and rccl-tests' logs say in the common words."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spanfit.results.importers.imported import (
    Imported,
    Timing,
    spelt_dtype,
    spelt_operation,
    spelt_redop,
    with_failure,
)
from spanfit.results.importers.inspector import is_inspector, join_records, read_records
from spanfit.results.importers.log import ErrorClass, Half, LogRun, LogStatus, Row
from spanfit.results.importers.nccl_json import JSON_VERSION
from spanfit.results.importers.osu import is_osu, read_osu
from spanfit.results.importers.param import is_param, read_param
from spanfit.results.importers.reading import read_log
from spanfit.results.schema import Status

_MODES = ("agg iters", "graph", "unalign")
_BLOCKING = "Blocking Enabled"
"""Key of the line that a text prints, in words that differ between versions; a report has ``blocking``."""
_LONE = "one of several worlds of a rank each, where one was meant: nccl-tests was built without MPI=1"
_US = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file, or the files that the processes of one job wrote: by what name it was given, and its runs."""

    name: str
    runs: tuple[Imported, ...]


def read_sources(texts: dict[str, str], *, operation: str = "") -> tuple[Source, ...]:
    """Return the runs of each file, in order; one without any is no log that spanfit knows.

    Parameters
    ----------
    texts : dict of str to str
        The files by name. The Inspector's logs are one source for each folder, which is one job.
    operation : str
        Of the logs whose program does not print its name.
    """
    jobs: dict[str, dict[str, str]] = {}
    sources: list[Source] = []
    for name, text in texts.items():
        if is_inspector(text):
            jobs.setdefault(name.rpartition("/")[0], {})[name] = text
        else:
            sources.append(Source(name=name, runs=_read(text, operation)))
    return (*sources, *(_job(folder, files) for folder, files in jobs.items()))


def _job(folder: str, texts: dict[str, str]) -> Source:
    found = [read_records(text) for text in texts.values()]
    records = [record for each, _ in found for record in each]
    foreign = [line for _, each in found for line in each]
    name = next(iter(texts)) if len(texts) == 1 else f"{folder or '.'} ({len(texts)} files)"
    return Source(name=name, runs=join_records(records, foreign))


def _read(text: str, operation: str) -> tuple[Imported, ...]:
    if is_param(text):
        return read_param(text)
    if is_osu(text):
        return read_osu(text)
    return tuple(from_log(run, operation=operation) for run in read_log(text) if _is_told(run) or run.error)


def _is_told(run: LogRun) -> bool:
    """Return whether a log has anything of a program, and not only that some launch failed."""
    return bool(run.rows or run.partial_rows or run.program or run.parameters or run.devices or run.version)


def from_log(run: LogRun, *, operation: str = "") -> Imported:
    """Return a run of nccl-tests or rccl-tests in the common words; each half of a row is a timing.

    Parameters
    ----------
    operation : str
        What it measured, where the log does not name its program.
    """
    name = spelt_operation(run.program) if run.program else operation
    library = ("rccl" if "rccl" in run.version.lower() else "nccl") if _is_told(run) else ""
    names = {device.name for device in run.devices if device.name}
    is_lone = run.is_interleaved and run.nranks == 1 and run.status is LogStatus.OK
    found = Imported(
        engine=f"{library}-tests" if library else "",
        program=run.program or operation,
        version=run.version,
        backend=library,
        nranks=run.nranks,
        hosts=_hosts(run),
        groups=_groups(run),
        timings=tuple(_timings(run, name)),
        status=LogStatus.FAILED if is_lone else run.status,
        error=_LONE if is_lone else run.error or ("" if run.status is LogStatus.OK else _why(run)),
        gpu_model=", ".join(sorted(names)),
        settings=_settings(run),
        environment=run.environment if JSON_VERSION in run.parameters else None,
        is_cpu_time=any(half.is_cpu_time for half in _halves(run)),
        foreign=run.foreign,
        warnings=run.warnings,
    )
    # A row may be partial and yet have both halves, where only what follows them was cut.
    is_told = run.partial_rows and any(timing.status is Status.FAILED for timing in found.timings)
    return found if is_told or run.error_class is ErrorClass.LOW_BANDWIDTH else with_failure(found)


def _settings(run: LogRun) -> dict[str, str]:
    known = {"NCCL library": str(run.nccl_library)} if run.nccl_library else {}
    if "nThread" in run.parameters:
        is_blocking = _BLOCKING in run.parameters or run.parameters.get("blocking") == "true"
        known["blocking"] = "on" if is_blocking else "off"
    if how := run.parameters.get(_BLOCKING):
        known["how it blocks"] = how
    return known | {name: run.parameters[name] for name in _MODES if name in run.parameters}


def _why(run: LogRun) -> str:
    """Return why a run that names no error is not ok."""
    return run.warnings[0] if run.warnings else "the log ends before the run does"


def _per_device(run: LogRun) -> int:
    """Return the ranks behind each device that is listed, 0 where that cannot be told.

    Text lists every rank. A report of ``-J`` lists the first device of each process.
    """
    listed = len(run.devices)
    counts = (run.parameters.get(name, "") for name in ("nThread", "nGpus"))
    in_process = math.prod(int(count) for count in counts if count.isdigit())
    return next((each for each in (1, in_process) if listed and listed * each == run.nranks), 0)


def _hosts(run: LogRun) -> tuple[str, ...] | None:
    per_device = _per_device(run)
    devices = sorted(run.devices, key=lambda device: device.rank)
    return tuple(device.host for device in devices for _ in range(per_device)) or None


def _groups(run: LogRun) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each communicator where NCCL_TESTS_SPLIT made several."""
    members: dict[int, list[int]] = {}
    per_device = _per_device(run)
    devices = sorted(run.devices, key=lambda device: device.rank)
    for index, device in enumerate(devices):
        members.setdefault(device.group or 0, []).extend(range(index * per_device, (index + 1) * per_device))
    return tuple(map(tuple, members.values())) if len(members) > 1 and per_device else ()


def _timings(run: LogRun, operation: str) -> Iterator[Timing]:
    """Yield a timing for each half, and one for what was not measured, so that nothing is lost in silence."""
    is_told = any(half.wrong for half in _halves(run))
    wrong = "" if is_told or run.status is not LogStatus.WRONG_RESULTS else f"{run.error}; the log does not say where"
    reason = run.error or _why(run)
    for row, is_partial in (*((row, False) for row in run.rows), *((row, True) for row in run.partial_rows)):
        for in_place, half in ((False, row.oop), (True, row.ip)):
            if half:
                yield _timing(row, half, operation, in_place=in_place, wrong=wrong)
            elif is_partial:
                yield _failed(row, operation, reason, in_place=in_place)


def _halves(run: LogRun) -> list[Half]:
    return [half for row in (*run.rows, *run.partial_rows) for half in (row.oop, row.ip) if half]


def _timing(row: Row, half: Half, operation: str, *, in_place: bool, wrong: str) -> Timing:
    time_us = half.time_us.value
    reason = f"{half.wrong:g} wrong elements" if half.wrong else wrong
    if reason:
        return _failed(row, operation, reason, in_place=in_place, status=Status.WRONG_RESULT)
    if not (math.isfinite(time_us) and time_us > 0):
        return _failed(row, operation, f"the time is printed as {half.time_us.text}", in_place=in_place)
    return Timing(
        operation=operation,
        size_bytes=row.size_bytes,
        dtype=spelt_dtype(row.dtype),
        redop=spelt_redop(operation, row.redop),
        in_place=in_place,
        time_s=time_us * _US,
        resolution_s=half.time_us.resolution * _US,
    )


def _failed(row: Row, operation: str, reason: str, *, in_place: bool, status: Status = Status.FAILED) -> Timing:
    return Timing(
        operation=operation,
        size_bytes=row.size_bytes,
        dtype=spelt_dtype(row.dtype),
        redop=spelt_redop(operation, row.redop),
        in_place=in_place,
        status=status,
        reason=reason,
    )

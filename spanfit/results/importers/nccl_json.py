"""JSON reports of nccl-tests (``-J``) and of rccl-tests (``-Z json``), whole or cut off.

The versions of nccl-tests' report: 1 from 2.17.3, 2 from 2.19.2, 3 from 2.19.6. A run that dies leaves the document
without end, or from 2.18.5 closed but without its last keys: valid JSON is no proof of success.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, overload

from spanfit.environment import kept_environment
from spanfit.results.importers.judging import Failure, judge
from spanfit.results.importers.log import Device, ErrorClass, Half, LogRun, LogStatus, PerIteration, Row
from spanfit.results.importers.loose_json import Document, documents, printed

JSON_VERSION = "json version"
"""Key of ``LogRun.parameters`` by which a report is known; of such a run the environment is known too."""

_VERSIONS = {1: "2.17.3-2.19.1", 2: "2.19.2-2.19.5", 3: "2.19.6+"}
_PARAMETERS = {
    "nthreads": "nThread",
    "ngpus": "nGpus",
    "minimum_bytes": "minBytes",
    "maximum_bytes": "maxBytes",
    "step_factor": "step",
    "step_bytes": "step",
    "warmup_iters": "warmup iters",
    "iterations": "iters",
    "aggregated_iterations": "agg iters",
    "validation": "validation",
    "graph": "graph",
    "blocking_collectives": "blocking",
}
_RATES = ("alg_bw", "bus_bw")
_SPREAD = ("min_us", "max_us", "p99_us", "cv_pct")
_LAST_KEYS = ("out_of_bounds", "average_bus_bandwidth", "end_time")
_MISSPELT = {"average_bus_bandwidith": "average_bus_bandwidth", "bandwidith": "bandwidth"}
_RCCL_PROGRAMS = {
    "AllReduce": "all_reduce_perf",
    "AllGather": "all_gather_perf",
    "ReduceScatter": "reduce_scatter_perf",
    "AllToAll": "alltoall_perf",
    "AlltoAll": "alltoall_perf",
    "AllToAllv": "alltoallv_perf",
    "AlltoAllv": "alltoallv_perf",
    "Broadcast": "broadcast_perf",
    "Reduce": "reduce_perf",
    "Gather": "gather_perf",
    "Scatter": "scatter_perf",
    "SendRecv": "sendrecv_perf",
    "HyperCube": "hypercube_perf",
}


def read_json(text: str) -> tuple[LogRun, ...]:
    """Return the runs of a JSON report, in the order of the file; none where it is no report of these programs.

    A list of records is one run for each program and world in it. The environment is kept by allow-list, since the
    report holds all of it.
    """
    runs: list[LogRun] = []
    fragments: list[Document] = []
    for document in documents(text):
        value = document.value
        if _is_record(value):
            fragments.append(document)
        elif isinstance(value, dict) and ("config" in value or "nccl_version" in value):
            runs.append(_report(_respelt(value), is_whole=document.is_whole))
        elif isinstance(value, list) and any(map(_is_record, value)):
            runs += _record_runs(value, "rccl-tests 2025", is_whole=document.is_whole)
    if fragments:
        records, is_whole = [document.value for document in fragments], all(each.is_whole for each in fragments)
        runs += _record_runs(records, "rccl-tests 2024", is_whole=is_whole)
    return tuple(runs)


def _respelt(value: Any) -> Any:
    """Return the report with the keys that versions up to 2.17.8 misspell as later ones write them."""
    average = value.get("average_bus_bandwidith")
    if not isinstance(average, dict):
        return value
    return {**value, "average_bus_bandwidth": {_MISSPELT.get(key, key): item for key, item in average.items()}}


def _report(report: Mapping[str, Any], *, is_whole: bool) -> LogRun:
    config = _table(report.get("config"))
    devices = tuple(_device(each) for each in _tables(config.get("devices")))
    parameters = {name: _text(config[key]) for key, name in _PARAMETERS.items() if key in config}
    rows = tuple(_row(each) for each in _tables(report.get("results")))
    arguments = report.get("args") or [""]
    nranks = len(devices) * _whole(config.get("nthreads"), 1) * _whole(config.get("ngpus"), 1) or None
    ngroups = len({device.group for device in devices})
    average = printed(_table(report.get("average_bus_bandwidth")).get("bandwidth"))
    partial = tuple(row for row, is_complete in rows if not is_complete)
    run = LogRun(
        status=LogStatus.OK,
        program=str(arguments[0]).rpartition("/")[2],
        version=_version(report, is_whole=is_whole),
        nccl_library=_whole(report.get("nccl_version")),
        nranks=nranks,
        ranks_per_group=nranks // ngroups if nranks and ngroups > 1 else None,
        devices=devices,
        rows=tuple(row for row, is_complete in rows if is_complete),
        partial_rows=partial,
        avg_busbw=average.value if average else None,
        out_of_bounds=_whole(_table(report.get("out_of_bounds")).get("count")),
        validation=_whole(config.get("validation")),
        wrong_column="#wrong",
        parameters={JSON_VERSION: str(report.get("version", "")), **parameters},
        environment=kept_environment(dict(str(line).partition("=")[::2] for line in report.get("env") or ())),
    )
    return _judged(run, report, is_whole=is_whole)


def _judged(run: LogRun, report: Mapping[str, Any], *, is_whole: bool) -> LogRun:
    """Return the run with its status: a report that lacks one of its last keys is never ok."""
    missing = [key for key in _LAST_KEYS if key not in report]
    notes = [f"the report has no {', '.join(missing)}: the run did not come to its end"] if missing else []
    notes += [f"last error of NCCL: {text}" for text in report.get("errors") or () if str(text).strip()]
    ended = LogStatus.OK if not missing else LogStatus.FAILED if is_whole else LogStatus.TRUNCATED
    failures = []
    if run.out_of_bounds:
        failures.append(Failure(f"out_of_bounds: {run.out_of_bounds}", ErrorClass.WRONG_RESULTS))
    if _table(report.get("average_bus_bandwidth")).get("okay") == "false":
        failures.append(Failure(f"average_bus_bandwidth: {run.avg_busbw} is not okay", ErrorClass.LOW_BANDWIDTH))
    return judge(replace(run, warnings=tuple(notes)), failures, ended=ended)


def _version(report: Mapping[str, Any], *, is_whole: bool) -> str:
    """Return what the report tells of the program's version, which it does not name."""
    number = report.get("version")
    versions = _VERSIONS.get(number, "2.19.6+") if isinstance(number, int) else "2.17.3+"
    if number == 1 and "average_bus_bandwidith" in report:
        versions = "2.17.3-2.17.8"
    elif number == 1 and "average_bus_bandwidth" in report:
        versions = "2.17.9-2.19.1"
    elif number == 1 and is_whole:
        versions = "2.18.5-2.19.1"
    return f"{versions} (JSON version {number})"


def _device(entry: Mapping[str, Any]) -> Device:
    return Device(
        rank=_whole(entry.get("rank"), -1),
        group=_whole(entry.get("group")),
        pid=_whole(entry.get("pid"), -1),
        host=str(entry.get("hostname", "")),
        device=_whole(entry.get("device"), -1),
        bus_id=str(entry.get("device_hex", "")),
        name=entry.get("device_info"),
    )


def _row(entry: Mapping[str, Any]) -> tuple[Row, bool]:
    """Return a result and whether it is complete: both halves are there, or were not to be measured."""
    halves = {key: _half(entry.get(key), entry.get(f"{key}_per_iter")) for key in ("out_of_place", "in_place")}
    is_complete = all(key in entry and (half or entry[key] is None) for key, half in halves.items())
    row = Row(
        size_bytes=_whole(entry.get("size"), 0),
        nelements=_whole(entry.get("count")),
        dtype=str(entry.get("type", "")),
        redop=entry.get("redop"),
        root=_whole(entry.get("root")),
        oop=halves["out_of_place"],
        ip=halves["in_place"],
    )
    return row, is_complete and any(halves.values())


def _half(entry: Any, per_iteration: Any) -> Half | None:
    """Return a half of a row, None where it was not measured or not written to its end."""
    half = _table(entry)
    is_cpu_time = "cpu_time" in half
    time_us, algbw, busbw = (printed(half.get(key)) for key in ("cpu_time" if is_cpu_time else "time", *_RATES))
    if time_us is None or algbw is None or busbw is None or "nwrong" not in half:
        return None
    wrong = printed(half["nwrong"])
    return Half(
        time_us.text,
        algbw.text,
        busbw.text,
        wrong=wrong.value if wrong else None,
        is_cpu_time=is_cpu_time,
        per_iteration=_per_iteration(_table(per_iteration)),
    )


def _per_iteration(entry: Mapping[str, Any]) -> PerIteration | None:
    found = {name: number.value for name in _SPREAD if (number := printed(entry.get(name)))}
    if len(found) < len(_SPREAD):
        return None
    times_us = tuple(number.value for number in map(printed, entry.get("times_us", ())) if number)
    return PerIteration(**found, times_us=times_us)


def _is_record(value: object) -> bool:
    return isinstance(value, dict) and "size" in value and "inPlace" in value


def _record_runs(records: Sequence[Any], version: str, *, is_whole: bool) -> list[LogRun]:
    """Return the runs of rccl-tests' records: a half each, of which an in-place one completes the row before it."""
    found = [record for record in records if _is_record(record)]
    worlds = [list(group) for _, group in groupby(found, key=lambda record: (record.get("name"), record.get("ranks")))]
    return [
        _record_run(world, version, ended=LogStatus.OK if is_whole or world is not worlds[-1] else LogStatus.TRUNCATED)
        for world in worlds
    ]


def _record_run(records: Sequence[Mapping[str, Any]], version: str, *, ended: LogStatus) -> LogRun:
    rows = _paired(records)
    has_both = any(row.oop for row in rows) and any(row.ip for row in rows)
    complete = tuple(row for row in rows if (row.oop and row.ip if has_both else row.oop or row.ip))
    nwrong = sum(bool(half and half.wrong) for row in rows for half in (row.oop, row.ip))
    failures = [Failure(f"wrong values in {nwrong} records", ErrorClass.WRONG_RESULTS)] if nwrong else []
    first = records[0]
    name = str(first.get("name", ""))
    run = LogRun(
        status=ended,
        program=_RCCL_PROGRAMS.get(name, name),
        version=version,
        nranks=_whole(first.get("ranks")),
        rows=complete,
        partial_rows=tuple(row for row in rows if row not in complete),
        wrong_column="wrong",
        parameters={key: _text(first[key]) for key in ("nodes", "ranksPerNode", "gpusPerRank") if key in first},
        warnings=("the list of records has no end: the run did not come to its end",)
        if ended is not LogStatus.OK
        else (),
    )
    return judge(run, failures, ended=ended)


def _paired(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for record in records:
        half = _record_half(record)
        row = Row(
            size_bytes=_whole(record["size"], 0),
            nelements=None,
            dtype=str(record.get("type", "")),
            redop=record.get("redop"),
            root=None,
            oop=None,
            ip=None,
            cycle=_whole(record.get("numCycle"), 0),
        )
        if not _whole(record["inPlace"]):
            rows.append(row._replace(oop=half))
        elif rows and rows[-1].ip is None and rows[-1]._replace(oop=None) == row:
            rows[-1] = rows[-1]._replace(ip=half)
        else:
            rows.append(row._replace(ip=half))
    return rows


def _record_half(record: Mapping[str, Any]) -> Half | None:
    time_us, algbw, busbw = (printed(record.get(key)) for key in ("time", "algBw", "busBw"))
    if time_us is None or algbw is None or busbw is None:
        return None
    wrong = printed(record.get("wrong", record.get("#wrong")))
    return Half(time_us.text, algbw.text, busbw.text, wrong=wrong.value if wrong else None)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


@overload
def _whole(value: object, default: int) -> int: ...
@overload
def _whole(value: object, default: None = None) -> int | None: ...
def _whole(value: object, default: int | None = None) -> int | None:
    number = printed(value)
    return int(number.value) if number and math.isfinite(number.value) else default


def _text(value: object) -> str:
    number = printed(value)
    return number.text if number else str(value)

"""The job tables of the Acme trace (InternLM/AcmeTrace: ``trace_seren.csv``, ``trace_kalos.csv``), by their heading.

Columns as in the trace's README: job_id, user, node_num, gpu_num, cpu_num, type, state, submit_time, start_time,
end_time; Kalos has mem_per_pod_GB too. ``cluster_log.csv`` of Helios, from the same laboratory, has vc and no type, and
is read as well. The workload's type is read as the partition, a virtual cluster as the department. The column duration
is not used: in Kalos it runs from the submission on.
"""

import csv
import io
import math
from collections.abc import Mapping
from datetime import UTC, datetime

from spanfit.errors import ConfigError
from spanfit.queue.traces.reading import CellError, Collector, JobState, Trace, TraceJob, require_columns, whole

REQUIRED = ("job_id", "user", "node_num", "gpu_num", "state", "submit_time", "start_time", "end_time")
_STATES = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "TIMEOUT": JobState.TIMED_OUT,
    "CANCELLED": JobState.CANCELLED,
    "PREEMPTED": JobState.PREEMPTED,
    "NODE_FAIL": JobState.NODE_FAILED,
}
_OPEN = frozenset({"RUNNING", "PENDING", "SUSPENDED", "REQUEUED"})


def parse_acme(text: str, origin: str) -> Trace:
    """Return the ended jobs of a CSV table of Acme or Helios; ConfigError tells every wrong line at once."""
    reader = csv.DictReader(io.StringIO(text))
    try:
        return _read(reader, origin)
    except csv.Error as error:
        raise ConfigError(
            f"{origin}: after line {reader.line_num}: found no CSV: {error}; expected a job table"
        ) from None


def _read(reader: "csv.DictReader[str]", origin: str) -> Trace:
    heading = tuple(reader.fieldnames or ())
    require_columns(heading, REQUIRED, origin, f"expected a table with {', '.join(REQUIRED)}, as Acme's trace has")
    collector = Collector(origin=origin, kind="acme")
    collector.remarks.append("the layout has no names or time limits: they are unknown")
    if "vc" not in heading:
        collector.remarks.append("no column vc: departments are unknown")
    for row in reader:
        _take(row, f"line {reader.line_num}", collector)
    return collector.trace()


def _take(row: Mapping[str, str | None], place: str, collector: Collector) -> None:
    if None in row or None in row.values():
        collector.mistake(place, "found another number of cells than in the heading")
        return
    cells = {column: (cell or "").strip() for column, cell in row.items()}
    collector.take(place, lambda: _job(cells))


def _job(cells: Mapping[str, str]) -> TraceJob | str:
    """Return the job of a row, or why it is left out."""
    submit_s, start_s, end_s = (_time(column, cells[column]) for column in ("submit_time", "start_time", "end_time"))
    if cells["state"] in _OPEN:
        return "jobs that had not ended"
    if cells["state"] not in _STATES:
        raise CellError(f"state: found {cells['state'][:40]!r}, expected {', '.join((*_STATES, *sorted(_OPEN)))}")
    if start_s is None:
        return "jobs that never started"
    if submit_s is None or end_s is None:
        return "jobs without a submission or an end in the table"
    nnodes = whole("node_num", cells["node_num"])
    return TraceJob(
        job_id=cells["job_id"],
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        state=_STATES[cells["state"]],
        nnodes=nnodes,
        ngpus=whole("gpu_num", cells["gpu_num"]),
        ncpus=whole("cpu_num", cells.get("cpu_num", "")),
        memory_bytes=_memory(cells.get("mem_per_pod_GB", ""), nnodes),
        user=cells["user"],
        department=cells.get("vc", ""),
        partition=cells.get("type", ""),
    )


def _time(column: str, text: str) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "a time as 2023-03-01 00:18:22+08:00, or nothing"
        raise CellError(f"{column}: found {text[:40]!r}, expected {expected}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _memory(text: str, nnodes: int) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise CellError(f"mem_per_pod_GB: found {text[:40]!r}, expected a number of GB") from None
    return value * 1e9 * max(nnodes, 1) if math.isfinite(value) else None

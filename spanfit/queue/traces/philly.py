"""``cluster_job_log`` of Microsoft's Philly trace (msr-fiddle/philly-traces): a JSON list of jobs with their attempts.

The layout is that of the trace's README: status, vc, jobid, attempts (start_time, end_time, detail of ip and gpus),
submitted_time, user. Times are local, taken as UTC. A virtual cluster is read as the department; what a job asked for
is what its first attempt got; it runs from the start of its first attempt to the end of its last.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spanfit.errors import ConfigError
from spanfit.queue.traces.reading import CellError, Collector, JobState, Trace, TraceJob

_STATES = {"Pass": JobState.COMPLETED, "Killed": JobState.CANCELLED, "Failed": JobState.FAILED}
_KEYS = ("status", "jobid", "attempts", "submitted_time")
_NO_TIME = (None, "", "None")


def parse_philly(text: str, origin: str) -> Trace:
    """Return the ended jobs of a ``cluster_job_log``; ConfigError tells every wrong entry at once."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}: line {error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(document, list):
        raise ConfigError(f"{origin}: found {type(document).__name__}, expected a list of jobs as in cluster_job_log")
    collector = Collector(origin=origin, kind="philly")
    collector.remarks.append("the layout has no CPUs, names, partitions or time limits: they are unknown")
    for index, entry in enumerate(document):
        _take(entry, index, collector)
    return collector.trace()


def _take(entry: object, index: int, collector: Collector) -> None:
    if not isinstance(entry, dict):
        collector.mistake(f"entry {index}", f"found {type(entry).__name__}, expected an object")
        return
    place = f"entry {index} ({str(entry.get('jobid'))[:60]})"
    missing = [key for key in _KEYS if key not in entry]
    if missing:
        collector.mistake(place, f"found no key {', '.join(missing)}; expected {', '.join(_KEYS)}")
        return
    collector.take(place, lambda: _job(entry))


def _job(entry: Mapping[str, Any]) -> TraceJob | str:
    """Return the job of an entry, or why it is left out."""
    state = _STATES.get(str(entry["status"]))
    if state is None:
        raise CellError(f"status: found {str(entry['status'])[:40]!r}, expected {', '.join(_STATES)}")
    submit_s = _time("submitted_time", entry["submitted_time"])
    attempts = entry["attempts"]
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise CellError("attempts: found something else, expected a list of objects")
    if not attempts:
        return "jobs that never started"
    start_s = _time("attempts[0].start_time", attempts[0].get("start_time"))
    end_s = _time("attempts[-1].end_time", attempts[-1].get("end_time"))
    if submit_s is None or start_s is None or end_s is None:
        return "jobs without a start or an end in the log"
    gpus = _gpus(attempts[0].get("detail"))
    return TraceJob(
        job_id=str(entry["jobid"]),
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        state=state,
        nnodes=len(gpus),
        ngpus=sum(gpus),
        user=str(entry.get("user") or ""),
        department=str(entry.get("vc") or ""),
    )


def _time(key: str, value: object) -> float | None:
    if value in _NO_TIME:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise CellError(f"{key}: found {str(value)[:40]!r}, expected a time as 2017-10-07 01:11:39, or null") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _gpus(detail: object) -> list[int]:
    """Return the number of GPUs on each server of an attempt."""
    parts = detail if isinstance(detail, list) else [None]
    counts = [part.get("gpus") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(gpus, list) for gpus in counts):
        raise CellError("attempts[0].detail: found something else, expected a list of objects with ip and gpus")
    return [len(gpus) for gpus in counts if gpus is not None]

"""What a runtime predictor knows about a job when it is submitted: what it asks for, and how its like ran before.

The past is strict: a job counts from the moment it ended, so a feature of a job depends only on jobs that had ended
when it was submitted. numpy and the standard library.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.traces.reading import JobState, TraceJob

Floats = npt.NDArray[np.float64]

CATEGORICAL = ("user", "department", "partition")
REQUESTED = (
    *("log_gpus", "nodes", "log_cpus", "cpus_per_gpu", "drives", "log_memory", "log_limit", "hour", "weekday"),
)
GROUPS = ("user", "user_name", "user_gpus", "department", "department_gpus")
"""Whose past runs are looked at: those of the same owner, of the same owner and job name, and so on."""
MEASURES = ("last", "recent", "high", "average", "spread", "failed", "count", "age")
NUMERIC = (*REQUESTED, *(f"{group}_{measure}" for group in GROUPS for measure in MEASURES))
DEPTH = 5
"""So many last runs of a group are looked at one by one."""
MEMORY = 50
"""Averages of a group weigh a new run by one over its runs so far, never by less than one over this."""
MAX_CATEGORIES = 200
"""The most frequent values of a category keep a code of their own; the rest are missing, as are unknown ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is known of a job when it is submitted.

    Attributes
    ----------
    submit_s : float
        Unix time [s].
    ngpus, nnodes, ncpus, ndrives : int
    memory_bytes : float or None
    time_limit_s : float or None
    user, department, partition, name : str
        Empty where not known.
    """

    submit_s: float
    nnodes: int
    ngpus: int = 0
    ncpus: int = 0
    ndrives: int = 0
    memory_bytes: float | None = None
    time_limit_s: float | None = None
    user: str = ""
    department: str = ""
    partition: str = ""
    name: str = ""


def request_of(job: TraceJob | QueueJob) -> Request:
    """Return what is known of a job of a trace or of the queue when it is submitted."""
    if isinstance(job, TraceJob):
        return Request(
            submit_s=job.submit_s,
            nnodes=job.nnodes,
            ngpus=job.ngpus,
            ncpus=job.ncpus,
            ndrives=job.ndrives,
            memory_bytes=job.memory_bytes,
            time_limit_s=job.time_limit_s,
            user=job.user,
            department=job.department,
            partition=job.partition,
            name=job.name,
        )
    return Request(
        submit_s=job.submitted_s,
        nnodes=job.nnodes,
        ngpus=job.ngpus,
        ncpus=job.ncpus,
        ndrives=job.ndrives,
        time_limit_s=job.time_limit_s,
        user=job.owner,
        department=job.department,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The runs of one group that had ended.

    Attributes
    ----------
    logs : tuple of float
        Logarithms of the last runtimes, the latest last; at most ``DEPTH``.
    count : int
        Of all runs.
    end_s : float
        When the latest ended, Unix time [s].
    average, variance : float
        Of the logarithms, fading.
    failed : float
        Share of runs that failed, fading.
    """

    logs: tuple[float, ...]
    count: int
    end_s: float
    average: float
    variance: float
    failed: float

    def with_run(self, log_runtime: float, end_s: float, has_failed: bool) -> "Past":
        """Return this past with one more run."""
        weight = 1.0 / min(self.count + 1, MEMORY)
        step = log_runtime - self.average
        return Past(
            logs=(*self.logs, log_runtime)[-DEPTH:],
            count=self.count + 1,
            end_s=end_s,
            average=self.average + weight * step,
            variance=(1 - weight) * (self.variance + weight * step * step),
            failed=self.failed + weight * (has_failed - self.failed),
        )


History = Mapping[str, Past]
"""By the key of a group."""

NOTHING = Past(logs=(), count=0, end_s=0.0, average=0.0, variance=0.0, failed=0.0)


def log_runtime(runtime_s: float) -> float:
    """Return the logarithm that predictors work on; a runtime of 0 s has one too."""
    return math.log1p(max(runtime_s, 0.0))


def keys(request: Request) -> tuple[str | None, ...]:
    r"""Return the key of each group in the order of ``GROUPS``; None where the request does not say.

    >>> keys(Request(submit_s=0, nnodes=1, ngpus=8, user="ada"))
    ('user\tada', None, 'user_gpus\tada\t8', None, None)
    """
    user, department = request.user, request.department
    return (
        f"user\t{user}" if user else None,
        f"user_name\t{user}\t{request.name}" if user and request.name else None,
        f"user_gpus\t{user}\t{request.ngpus}" if user else None,
        f"department\t{department}" if department else None,
        f"department_gpus\t{department}\t{request.ngpus}" if department else None,
    )


def remember(history: dict[str, Past], job: TraceJob) -> None:
    """Add a job that ended to a history that is being built."""
    logarithm = log_runtime(job.runtime_s)
    for key in keys(request_of(job)):
        if key is not None:
            history[key] = history.get(key, NOTHING).with_run(logarithm, job.end_s, job.state is JobState.FAILED)


def numeric_row(request: Request, history: History) -> list[float]:
    """Return the values of ``NUMERIC``; NaN is what is not known."""
    row = _requested(request)
    for key in keys(request):
        row += _past(history.get(key, NOTHING) if key is not None else NOTHING, request.submit_s)
    return row


def _requested(request: Request) -> list[float]:
    day = request.submit_s / 86400.0
    return [
        math.log2(1 + request.ngpus),
        float(request.nnodes),
        math.log2(1 + request.ncpus) if request.ncpus else math.nan,
        request.ncpus / request.ngpus if request.ncpus and request.ngpus else math.nan,
        float(request.ndrives),
        math.log2(1 + request.memory_bytes) if request.memory_bytes is not None else math.nan,
        math.log1p(request.time_limit_s) if request.time_limit_s is not None else math.nan,
        24.0 * (day % 1.0),
        float((int(day) + 3) % 7),  # 1970-01-01 was a Thursday; Monday is 0
    ]


def _past(past: Past, now_s: float) -> list[float]:
    if not past.logs:
        return [math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, 0.0, math.nan]
    recent = sum(past.logs) / len(past.logs)
    spread = math.sqrt(past.variance) if past.count > 1 else math.nan
    age = math.log1p(max(now_s - past.end_s, 0.0))
    return [past.logs[-1], recent, max(past.logs), past.average, spread, past.failed, math.log1p(past.count), age]


def history_of(jobs: Iterable[TraceJob], before: History) -> History:
    """Return a history with more jobs that ended."""
    history = dict(before)
    for job in sorted(jobs, key=lambda job: (job.end_s, job.job_id)):
        remember(history, job)
    return history


def numeric_table(jobs: Sequence[TraceJob], requests: Sequence[Request], before: History) -> Floats:
    """Return the values of ``NUMERIC`` for each request, from what had ended when it was submitted.

    Parameters
    ----------
    jobs : sequence of TraceJob
        Each counts for the requests with ``end_s <= submit_s``.
    requests : sequence of Request
    before : mapping
        A history that counts for all of them.
    """
    ended = sorted(jobs, key=lambda job: (job.end_s, job.job_id))
    history, position = dict(before), 0
    table = np.empty((len(requests), len(NUMERIC)))
    for index in sorted(range(len(requests)), key=lambda index: requests[index].submit_s):
        while position < len(ended) and ended[position].end_s <= requests[index].submit_s:
            remember(history, ended[position])
            position += 1
        table[index] = numeric_row(requests[index], history)
    return table


Codes = Mapping[str, Mapping[str, int]]
"""The code of each value of each category."""


def codes_of(requests: Iterable[Request]) -> Codes:
    """Return codes for the most frequent values of each category, the most frequent first."""
    rows = tuple(requests)
    found = {}
    for category in CATEGORICAL:
        counts: dict[str, int] = {}
        for row in rows:
            value = getattr(row, category)
            if value:
                counts[value] = counts.get(value, 0) + 1
        kept = heapq.nsmallest(MAX_CATEGORIES, counts, key=lambda value: (-counts[value], value))
        found[category] = {value: code for code, value in enumerate(kept)}
    return found


def code_table(requests: Sequence[Request], codes: Codes) -> Floats:
    """Return the code of each category of each request; NaN where it has none."""
    rows = [[codes[category].get(getattr(row, category), math.nan) for category in CATEGORICAL] for row in requests]
    return np.array(rows, dtype=np.float64).reshape(len(requests), len(CATEGORICAL))


def without(request: Request, fields: Iterable[str]) -> Request:
    """Return a request that does not tell some of its texts, such as ``name``."""
    changes: dict[str, Any] = dict.fromkeys(fields, "")
    return replace(request, **changes)

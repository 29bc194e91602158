"""What a trace of ended jobs holds, whatever wrote it, and how its mistakes are told. Standard library.

A trace holds only jobs that ran and ended. What else a file lists (steps, jobs that never started or still run, earlier
runs of requeued jobs) is dropped, counted by reason, and told.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from spanfit.errors import ConfigError

SHOWN_MISTAKES = 20
"""A message lists so many mistakes of a file and counts the rest."""


class JobState(StrEnum):
    """How a job ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAILED = "node_failed"


CUT_SHORT = frozenset({JobState.CANCELLED, JobState.PREEMPTED, JobState.NODE_FAILED})
"""Ends that say nothing about how long the job would have run; such jobs teach no predictor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job that ran and ended.

    Attributes
    ----------
    job_id : str
    submit_s, start_s, end_s : float
        Unix time [s].
    nnodes, ngpus, ncpus, ndrives : int
        What it asked for; 0 where the trace does not say.
    state : JobState
    memory_bytes : float or None
        Over all its nodes [B].
    user, department, partition, name : str
        Empty where the trace does not say.
    time_limit_s : float or None
        The longest that it was allowed to run [s].
    """

    job_id: str
    submit_s: float
    start_s: float
    end_s: float
    nnodes: int
    state: JobState
    ngpus: int = 0
    ncpus: int = 0
    ndrives: int = 0
    memory_bytes: float | None = None
    user: str = ""
    department: str = ""
    partition: str = ""
    name: str = ""
    time_limit_s: float | None = None

    @property
    def runtime_s(self) -> float:
        """From its start to its end [s]."""
        return self.end_s - self.start_s

    @property
    def is_cut_short(self) -> bool:
        """Whether its end says nothing about how long it would have run."""
        return self.state in CUT_SHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """How many rows of a file were left out, and why."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The ended jobs of one source, by submit time.

    Attributes
    ----------
    origin : str
        What messages call it, such as its path.
    kind : str
        ``sacct``, ``philly``, ``acme`` or ``synthetic``.
    jobs : tuple of TraceJob
    dropped : tuple of Dropped
    remarks : tuple of str
        What the source does not say and what was taken instead.
    """

    origin: str
    kind: str
    jobs: tuple[TraceJob, ...]
    dropped: tuple[Dropped, ...] = ()
    remarks: tuple[str, ...] = ()


class CellError(ValueError):
    """A cell of a row holds what its column cannot; the text says column, found and expected."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """Gathers the jobs, drops and mistakes of one file while a reader goes through it."""

    origin: str
    kind: str
    jobs: dict[str, TraceJob] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def drop(self, reason: str) -> None:
        """Count a row that is left out."""
        self.counts[reason] += 1

    def mistake(self, place: str, text: str) -> None:
        """Note what is wrong at a place of the file."""
        self.mistakes.append(f"{self.origin}: {place}: {text}")

    def take(self, place: str, read: Callable[[], TraceJob | str]) -> None:
        """Keep the job that is read at a place, count it by why it is left out, or note what is wrong with a cell."""
        try:
            job = read()
        except CellError as error:
            self.mistake(place, str(error))
            return
        if isinstance(job, str):
            self.drop(job)
        else:
            self.add(job)

    def add(self, job: TraceJob) -> None:
        """Keep a job; of several runs under one id the one that started last."""
        if job.end_s < job.start_s or job.start_s < job.submit_s:
            self.drop("times that go back (a clock was set, or summer time ended)")
            return
        known = self.jobs.get(job.job_id)
        if known is not None:
            self.drop("the same row twice" if known == job else "earlier runs of a requeued job")
        if known is None or (job.start_s, job.end_s) >= (known.start_s, known.end_s):
            self.jobs[job.job_id] = job

    def trace(self) -> Trace:
        """Return the trace; ConfigError tells every mistake at once, or that nothing is left."""
        if self.mistakes:
            raise ConfigError(told(self.mistakes))
        dropped = tuple(Dropped(reason=reason, count=count) for reason, count in sorted(self.counts.items()))
        if not self.jobs:
            left = "; ".join(f"{item.count} {item.reason}" for item in dropped) or "it has no rows"
            raise ConfigError(f"{self.origin}: found no job that ran and ended ({left}); expected at least one")
        jobs = sorted(self.jobs.values(), key=lambda job: (job.submit_s, job.job_id))
        return Trace(origin=self.origin, kind=self.kind, jobs=tuple(jobs), dropped=dropped, remarks=tuple(self.remarks))


def told(mistakes: Sequence[str]) -> str:
    """Return the first mistakes, a line each, and how many more there are."""
    more = len(mistakes) - SHOWN_MISTAKES
    lines = list(mistakes[:SHOWN_MISTAKES])
    return "\n".join([*lines, f"and {more} more mistakes"] if more > 0 else lines)


def require_columns(found: Iterable[str], required: Iterable[str], origin: str, cure: str) -> None:
    """Raise ConfigError naming every column that a heading lacks."""
    columns = set(found)
    missing = [name for name in required if name not in columns]
    if missing:
        raise ConfigError(f"{origin}: line 1: found no column {', '.join(missing)}; {cure}")


def whole(column: str, text: str) -> int:
    """Return a whole number from 0 up, also where it is printed with ``.0``; an empty cell is 0."""
    try:
        value = float(text) if text else 0.0
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0 and value == int(value)):
        raise CellError(f"{column}: found {text[:40]!r}, expected a whole number from 0 up")
    return int(value)


def usable(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """Return the jobs that a predictor may learn from: those whose end was their own, by submit time."""
    kept = (job for job in jobs if not job.is_cut_short)
    return tuple(sorted(kept, key=lambda job: (job.submit_s, job.job_id)))

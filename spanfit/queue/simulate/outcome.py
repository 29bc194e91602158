"""What a replay leaves: a line for each job, series over time, and totals. Standard library."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Lost(StrEnum):
    """Why a run ended before its job did."""

    PREEMPTED = "preempted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of a job.

    Attributes
    ----------
    job_id : str
    nnodes : int
    is_announced : bool
    submitted_s : float
        When it was submitted or announced, Unix time [s].
    wanted_s : float
        When it wanted nodes: its submission, or the arrival of an announced job, Unix time [s].
    started_s, ended_s : float or None
        First start, and end, Unix time [s]; None where the replay was over before.
    waited_s : float
        All the time that it wanted nodes and had none: to the first start, after each stop, and to the end of the
        replay where it still waits [s].
    npreemptions, nfailures : int
    spread : int
        Minipods that its last run touched; 0 if it never ran.
    dp_spread, pp_spread : int
        The largest over its columns and over its rows in its last run; 0 for a job without a grid.
    retention, short : float or None
        Of an announced job, just before the queue saw it arrive: share of its planned nodes that others held, None
        without a plan; share of its nodes that were not free anywhere.
    was_refused : bool
    """

    job_id: str
    nnodes: int
    is_announced: bool
    submitted_s: float
    wanted_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float
    npreemptions: int = 0
    nfailures: int = 0
    spread: int = 0
    dp_spread: int = 0
    pp_spread: int = 0
    retention: float | None = None
    short: float | None = None
    was_refused: bool = False

    @property
    def delay_s(self) -> float | None:
        """From when it wanted nodes to its first start [s]; None if it never started."""
        return None if self.started_s is None else self.started_s - self.wanted_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Levels over time, all of one length; a level holds from its time to the next.

    Attributes
    ----------
    times_s : tuple of float
        Unix time [s].
    allocated, up, held, waiting : tuple of int
        Nodes with a job, nodes in service, free nodes inside reservations, and jobs that wait.
    fragmented : tuple of float
        Free nodes that lie in minipods too small for a job drawn by its nodes; over free nodes it is fragmentation.
    retention : mapping of str to tuple of (float, float)
        For each announced job with a plan: times [s], and the share of its planned nodes that others held.
    """

    times_s: tuple[float, ...]
    allocated: tuple[int, ...]
    up: tuple[int, ...]
    held: tuple[int, ...]
    waiting: tuple[int, ...]
    fragmented: tuple[float, ...]
    retention: Mapping[str, tuple[tuple[float, float], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Integrals over a replay, in node-seconds unless named otherwise.

    Attributes
    ----------
    span_s : float
        From the first submission to the end of the replay [s].
    allocated, free, idle, held, fragmented : float
        Of nodes with a job; of free nodes in service; of those while a job waited; of those inside reservations while a
        job waited; of those in minipods too small for a job drawn by its nodes.
    preempted, failed : float
        Of work that was done again since its run was stopped.
    npreemptions, nfailures : int
        Runs that were stopped.
    """

    span_s: float
    allocated: float
    free: float
    idle: float
    held: float
    fragmented: float
    preempted: float
    failed: float
    npreemptions: int
    nfailures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSpan:
    """Nodes of an announced job over a time: reserved, or taken by it.

    Attributes
    ----------
    job_id : str
    nodes : int
        A NodeSet.
    from_s, to_s : float
        Unix time [s].
    is_running : bool
    """

    job_id: str
    nodes: int
    from_s: float
    to_s: float
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """All that a replay measured.

    Attributes
    ----------
    nnodes, ngpus_per_node : int
        Of the cluster.
    jobs : tuple of JobOutcome
        In the order in which they were given.
    series : Series
    totals : Totals
    calendar : tuple of ReservationSpan
        What was held for announced jobs and what they took, in the order of time.
    """

    nnodes: int
    ngpus_per_node: int
    jobs: tuple[JobOutcome, ...]
    series: Series
    totals: Totals
    calendar: tuple[ReservationSpan, ...]

"""What a measurement is: one row per case, group and repetition, and what was true of the whole run."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

SCHEMA_VERSION = 2


class Status(StrEnum):
    """How a case ended; a failed case is a row, never a gap."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One repetition of one group of a case.

    Attributes
    ----------
    launch : int
        Which launch of the campaign: the unit of replication, with ``comm_id``.
    comm_id : str
        Names the communicators, which are made anew in each launch and attempt.
    position : int
        Place of the case in the launch's random order, to test for drift.
    kind : str
        ``collective``, ``pairs``, ``startup``, ``overlap`` or ``step``.
    operation : str
        The collective, or the name of the job whose step was run (``JOB/communication``: the seconds in which a rank
        waited for bytes), or the part of a start-up (``process_group``,
        ``communicator``, ``first_all_reduce``, ``second_all_reduce``) or of an overlap (``matmul_alone``,
        ``all_reduce_alone``, ``matmul_beside_all_reduce`` [all the products], ``all_reduce_beside_matmul``).
    size_bytes : int
        S of nccl-tests (the whole buffer where ranks share it); the gradient bytes of a step.
    in_place : bool
        Whether the result overwrites the input.
    tier, span : str, int
        The tier whose switches are counted, and how many of them the group touches.
    rank_order, concurrency, draw, arm : str, str, int, str
        How the ranks are ordered, whether all groups ran at once, which draw of nodes, which arm ("" for collectives).
    rail : int
        The local rank whose GPUs and links alone took part, one of each node; -1: all of them.
    group : int
        Which of the case's groups.
    nodes : str
        The group's node ranks in rank order, separated by commas; a node with several ranks is named once.
    time_s : float
        Time of the slowest rank [s]; NaN unless status is ok.
    time_min_s : float
        Time of the fastest rank [s]; NaN unless status is ok.
    time_resolution_s : float
        Half of the last digit that a program printed of ``time_s`` [s]; 0 where a clock was read.
    slowest_rank, fastest_rank : int
        World ranks; -1 unless status is ok, or where a program prints only the slowest time.
    reason : str
        Why the status is not ok.
    """

    run_id: str
    launch: int
    comm_id: str
    position: int
    case_id: str
    kind: str
    operation: str
    size_bytes: int
    dtype: str
    redop: str
    in_place: bool
    nranks: int
    nnodes: int
    tier: str
    span: int
    rank_order: str
    concurrency: str
    draw: int
    arm: str
    compute: str
    rail: int
    group: int
    nodes: str
    repetition: int
    time_s: float
    time_min_s: float
    time_resolution_s: float
    slowest_rank: int
    fastest_rank: int
    status: Status
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What was true of a whole run.

    Attributes
    ----------
    started_at, ended_at : str
        ISO 8601, UTC.
    engine : str
        What timed the operations: ``spanfit``, or the program such as ``nccl-tests``; "" where an imported log does
        not say.
    backend : str
        gloo, nccl, rccl or mpi.
    transport : str
        What the traffic went over, such as ``testbed demo (network namespaces)``.
    node_names : tuple of str
        In node-rank order; rank i * ngpus_per_node + local_rank runs on node_names[i].
    minipods : tuple of str
        Minipod of each of ``node_names``.
    tiers : tuple of str
        Closest first.
    switches : dict
        Of each tier the switch above each of ``node_names``.
    truth : dict
        Known link rates [bits/s] where the fabric is emulated, else empty.
    environment : dict
        Allow-listed variables (NCCL_*, GLOO_*, OMP_NUM_THREADS) as the ranks saw them.
    versions : dict
        Versions of spanfit, torch, Python, the kernel; GPU and driver where there are any.
    spec : dict
        The campaign as it was read; empty for an imported run.
    origin : dict
        Of an imported run the SHA-256 of each file's content, by name as it was given; else empty.
    """

    schema_version: int
    run_id: str
    campaign: str
    cluster: str
    cluster_hash: str
    started_at: str
    ended_at: str
    engine: str
    backend: str
    transport: str
    node_names: tuple[str, ...]
    minipods: tuple[str, ...]
    tiers: tuple[str, ...]
    switches: dict[str, tuple[str, ...]]
    ngpus_per_node: int
    gpu_model: str
    launches: int
    truth: dict[str, float]
    environment: dict[str, str]
    versions: dict[str, str]
    git_commit: str
    spec: dict[str, object]
    origin: dict[str, str]

    @property
    def period(self) -> tuple[datetime, datetime] | None:
        """Start and end of the run; None where the stored times are no dates."""
        try:
            return datetime.fromisoformat(self.started_at), datetime.fromisoformat(self.ended_at)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95% interval; one unit of replication gives no interval, and both bounds are None."""

    value: float
    ci_low: float | None
    ci_high: float | None

    def __post_init__(self) -> None:
        """Refuse half an interval and one that is upside down."""
        if (self.ci_low is None) != (self.ci_high is None):
            raise ValueError(f"ci_low is {self.ci_low}, ci_high is {self.ci_high}; expected both or neither")
        if self.ci_low is not None and self.ci_high is not None and self.ci_low > self.ci_high:
            raise ValueError(f"ci_low is {self.ci_low}; expected at most ci_high = {self.ci_high}")


_NUMBER_AND_UNIT = re.compile(r"([−-]?[\d.]+(?:e[+-]?\d+)?)(%| ?[A-Za-z/]+)?")


def format_estimate(estimate: Estimate, form: Callable[[float], str]) -> str:
    """Return an estimate for people; the bounds drop their unit where it is that of the value.

    Examples
    --------
    >>> format_estimate(Estimate(value=0.746, ci_low=0.74, ci_high=0.752), lambda share: f"{100 * share:.1f}%")
    '74.6% [74.0, 75.2]'
    """
    value = form(estimate.value)
    if estimate.ci_low is None or estimate.ci_high is None:
        return f"{value} (one unit: no interval)"
    texts = [form(estimate.ci_low), form(estimate.ci_high)]
    parts = [_NUMBER_AND_UNIT.fullmatch(text) for text in (value, *texts)]
    if all(parts) and len({part[2] for part in parts if part}) == 1:
        texts = [part[1] for part in parts[1:] if part]
    return f"{value} [{', '.join(texts)}]"

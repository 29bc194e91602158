"""What happens to the queue, and what is decided. Standard library."""

from dataclasses import dataclass
from enum import StrEnum

from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import NodeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job was submitted or, where it has an expected start, announced."""

    at_s: float
    job: QueueJob
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An announced job is there, early, on time or late, and wants its nodes."""

    at_s: float
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A job was withdrawn, waiting, announced or running."""

    at_s: float
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A running job ended by itself."""

    at_s: float
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDown:
    """Nodes left service; what ran on them ends."""

    at_s: float
    nodes: NodeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesUp:
    """Nodes came back into service."""

    at_s: float
    nodes: NodeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time went on."""

    at_s: float


Event = Submitted | Arrived | Cancelled | Finished | NodesDown | NodesUp | Ticked


class DecisionKind(StrEnum):
    """What the queue can decide about a job."""

    START = "start"
    WAIT = "wait"
    RESERVE = "reserve"
    RELEASE = "release"
    PREEMPT = "preempt"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing that is to be done, and why.

    A job that is stopped, for another or because its node left service, is a PREEMPT: it waits again.

    Attributes
    ----------
    kind : DecisionKind
    job_id : str
    at_s : float
        Unix time [s].
    reason : str
        In words for the job's owner.
    order : tuple of int
        The nodes concerned, in node-rank order.
    until_s : float or None
        Until when it waits or holds, where that can be told, Unix time [s].
    """

    kind: DecisionKind
    job_id: str
    at_s: float
    reason: str
    order: tuple[int, ...] = ()
    until_s: float | None = None

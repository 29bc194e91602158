"""Where a job may start now: the branches of the paper's Algorithm 1, over any number of zones."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.model.nodes import NodeSet


class Branch(StrEnum):
    """Which branch of Algorithm 1 a job takes, in the order in which they are tried."""

    PREEMPTABLE = "preemptable"
    OUTSIDE = "outside"
    IN_TIME = "in time"
    DELAY = "delay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """Nodes that are spoken for from some time on.

    Attributes
    ----------
    job_id : str
        For whom.
    nodes : int
        A NodeSet.
    start_s, end_s : float
        Unix time [s].
    is_open : bool
        Whether preemptable jobs may use it meanwhile, since they will be evicted.
    """

    job_id: str
    nodes: NodeSet
    start_s: float
    end_s: float
    is_open: bool


def admit(job: QueueJob, end_s: float, free: NodeSet, zones: Iterable[Zone]) -> tuple[Branch, NodeSet]:
    """Return the branch that a job takes, and the nodes that it may choose from; none where it is delayed.

    Parameters
    ----------
    job : QueueJob
    end_s : float
        When it would be predicted to end, Unix time [s].
    free : int
        Free nodes that suit it.
    zones : iterable of Zone

    Notes
    -----
    1. A preemptable job starts wherever there are nodes, outside zones if they suffice there. 2. Others start where
    the free nodes outside suffice; 3. else, if they are predicted to end before a zone is needed, inside it too.
    4. Else they are delayed.
    """
    outside, inside, anywhere = free, free, free
    for zone in zones:
        outside &= ~zone.nodes
        if end_s >= zone.start_s:
            inside &= ~zone.nodes
            if not zone.is_open:
                anywhere &= ~zone.nodes
    if job.is_preemptable and anywhere.bit_count() >= job.nnodes:
        return Branch.PREEMPTABLE, outside if outside.bit_count() >= job.nnodes else anywhere
    if outside.bit_count() >= job.nnodes:
        return Branch.OUTSIDE, outside
    if inside.bit_count() >= job.nnodes:
        return Branch.IN_TIME, inside
    return Branch.DELAY, 0

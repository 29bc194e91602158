"""What a site decides about its queue. Standard library."""

from dataclasses import dataclass
from enum import StrEnum


class PolicyName(StrEnum):
    """How the queue decides.

    ``packing`` is best effort: what fits starts, in order of priority; nothing is reserved and nothing evicted.
    """

    SPANFIT = "spanfit"
    PAPER = "paper"
    CONSERVATIVE = "conservative"
    EASY = "easy"
    PACKING = "packing"


class Overrun(StrEnum):
    """What happens to a job that outran its forecast and sits on nodes whose reservation begins."""

    PREEMPT = "preempt"
    WAIT = "wait"
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What a site decides about its queue.

    Attributes
    ----------
    policy : PolicyName
    interval_s : float
        Between two looks at the queue [s].
    quantile : float
        Of the predicted runtime that must end before a reservation begins.
    ageing_s : float
        A job that has waited this long goes before all that have not [s].
    overrun : Overrun
    reserve_ahead_s : float
        An announced job's nodes are chosen this long before its arrival at the earliest [s].
    max_late_s : float
        A reservation whose job has not come is released after this long [s].
    depth : int
        Waiting jobs looked at in one pass, in their order.
    """

    policy: PolicyName = PolicyName.SPANFIT
    interval_s: float = 60.0
    quantile: float = 0.9
    ageing_s: float = 24 * 3600.0
    overrun: Overrun = Overrun.PREEMPT
    reserve_ahead_s: float = 24 * 3600.0
    max_late_s: float = 2 * 3600.0
    depth: int = 500

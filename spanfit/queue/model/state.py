"""All that a decision depends on. Standard library."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanfit.queue.model.jobs import Reservation, Running, Waiting
from spanfit.queue.model.nodes import Ground, NodeSet
from spanfit.queue.model.rules import QueueRules

QueueKey = tuple[float, float, str, int, float, bool]
"""(-priority, submitted_s, job id, nodes, seconds that the policy counts on, whether it is preemptable) of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What follows from a state and the rules alone, kept beside the state to save time.

    Attributes
    ----------
    rules : QueueRules
        Under other rules it is worked out anew.
    taken : int
        Nodes that jobs run on, a NodeSet.
    queue : tuple of QueueKey
        Of each job that waits and is here, in order.
    ages : tuple of (float, QueueKey)
        Since when each of them waits, longest waiting first.
    ends : tuple of (float, str)
        (expected end, job id) of each running job, soonest first.
    announced : frozenset of str
        Announced jobs that wait, here or not.
    """

    rules: QueueRules
    taken: NodeSet
    queue: tuple[QueueKey, ...]
    ages: tuple[tuple[float, QueueKey], ...]
    ends: tuple[tuple[float, str], ...]
    announced: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """All that a decision depends on, but the rules.

    Attributes
    ----------
    ground : Ground
    now_s : float
        The time of the last event; it never goes back, Unix time [s].
    up : int
        Nodes in service, a NodeSet.
    waiting : mapping of str to Waiting
        By job id.
    running : mapping of str to Running
        By job id.
    reservations : mapping of str to Reservation
        By job id.
    standing : Standing or None
        What follows from the rest; None where it is still to be worked out. It never changes a decision.
    """

    ground: Ground
    now_s: float
    up: NodeSet
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    running: Mapping[str, Running] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    standing: Standing | None = field(default=None, compare=False, repr=False)

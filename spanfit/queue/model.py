"""The words of the queue: nodes, jobs, reservations, what happens, and what is decided. Standard library.

Sets of nodes are whole numbers: bit i stands for node i of the ground. They are immutable, small, and counted by
``int.bit_count``, which is what lets one decision function serve a live queue and a replay of 100,000 jobs.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

NodeSet = int
"""Bit i is set where node i of the ground belongs to the set."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The nodes that the queue may hand out; what never changes while it runs.

    Attributes
    ----------
    names : tuple of str
        In the order of the cluster; node i is ``names[i]``.
    minipods : tuple of int
        Index of the minipod of each node.
    labels : tuple of str
        What people call each minipod.
    gpu_models : tuple of str or None
        Of each node; empty where no node has one.
    """

    names: tuple[str, ...]
    minipods: tuple[int, ...]
    labels: tuple[str, ...]
    gpu_models: tuple[str | None, ...] = ()

    @cached_property
    def masks(self) -> tuple[NodeSet, ...]:
        """The nodes of each minipod."""
        masks = [0] * len(self.labels)
        for node, minipod in enumerate(self.minipods):
            masks[minipod] |= 1 << node
        return tuple(masks)

    @cached_property
    def everything(self) -> NodeSet:
        """All nodes."""
        return (1 << len(self.names)) - 1

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Index of each name."""
        return {name: node for node, name in enumerate(self.names)}

    @cached_property
    def models(self) -> Mapping[str, NodeSet]:
        """The nodes of each GPU model."""
        models: dict[str, NodeSet] = {}
        for node, model in enumerate(self.gpu_models):
            if model is not None:
                models[model] = models.get(model, 0) | 1 << node
        return models

    def of_model(self, gpu_model: str) -> NodeSet:
        """Return the nodes of a GPU model."""
        return self.models.get(gpu_model, 0)

    def members(self, nodes: NodeSet) -> tuple[str, ...]:
        """Return the names of a set's nodes, in the order of the ground."""
        return tuple(self.names[node] for node in indices(nodes))

    def node_set(self, names: Iterable[str]) -> NodeSet:
        """Return the set of the named nodes; KeyError where one is none of the ground's."""
        nodes = 0
        for name in names:
            nodes |= 1 << self.index[name]
        return nodes


def indices(nodes: NodeSet) -> tuple[int, ...]:
    """Return the indices of a set's nodes, smallest first.

    >>> indices(0b1101)
    (0, 2, 3)
    """
    bits = bin(nodes)[:1:-1]
    found, place = [], bits.find("1")
    while place >= 0:
        found.append(place)
        place = bits.find("1", place + 1)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How long a job is predicted to run.

    Attributes
    ----------
    mean_s : float
        [s]
    upper_s : float
        The upper quantile of the rules (90% unless they say otherwise) [s].
    """

    mean_s: float
    upper_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """A job that asks for whole nodes.

    Attributes
    ----------
    job_id : str
    nnodes : int
    submitted_s : float
        When it was submitted or announced, Unix time [s].
    priority : int
        Higher goes first.
    is_preemptable : bool
        May be stopped and queued again.
    time_limit_s : float or None
        The longest it may run [s].
    expected_start_s : float or None
        An announced job (LPJ): when it will arrive, Unix time [s]. None for an ordinary job.
    nrows, ncolumns : int or None
        Its grid of nodes, PP groups by stages, where the spread of its groups matters.
    alpha : float
        Weight of DP groups for its placement; PP groups get what is left.
    gpu_model : str or None
        Only nodes of this model, where given.
    owner, department : str
    ngpus, ncpus, ndrives : int
        What it asks for, as the runtime predictor knows it.
    """

    job_id: str
    nnodes: int
    submitted_s: float
    priority: int = 0
    is_preemptable: bool = False
    time_limit_s: float | None = None
    expected_start_s: float | None = None
    nrows: int | None = None
    ncolumns: int | None = None
    alpha: float = 0.5
    gpu_model: str | None = None
    owner: str = ""
    department: str = ""
    ngpus: int = 0
    ncpus: int = 0
    ndrives: int = 0

    @property
    def is_announced(self) -> bool:
        """Whether this is an announced job, for which nodes are reserved."""
        return self.expected_start_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that is not running: queued, or announced and not there yet.

    Attributes
    ----------
    job : QueueJob
    forecast : Forecast
    since_s : float
        From when its waiting counts: submission, arrival, or when it was last stopped, Unix time [s].
    reason : str
        Why it waited when it was first looked at, in words for its owner; ``explain.why`` says why it waits now.
    until_s : float or None
        When that is expected to end, Unix time [s]; None where it cannot be told.
    npreemptions : int
        How often it was stopped for others.
    is_here : bool
        False while an announced job has not arrived.
    """

    job: QueueJob
    forecast: Forecast
    since_s: float
    reason: str = ""
    until_s: float | None = None
    npreemptions: int = 0
    is_here: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job on its nodes.

    Attributes
    ----------
    job : QueueJob
    forecast : Forecast
    nodes : int
        Its nodes, a NodeSet.
    order : tuple of int
        Its nodes in node-rank order.
    started_s : float
        Unix time [s].
    npreemptions : int
    """

    job: QueueJob
    forecast: Forecast
    nodes: NodeSet
    order: tuple[int, ...]
    started_s: float
    npreemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes held for an announced job over a window.

    Attributes
    ----------
    job_id : str
    nodes : int
        A NodeSet.
    order : tuple of int
        The nodes in node-rank order.
    start_s, end_s : float
        The window: from the job's arrival to its predicted end, Unix time [s].
    """

    job_id: str
    nodes: NodeSet
    order: tuple[int, ...]
    start_s: float
    end_s: float


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
    sizes : mapping of int to int
        How many of them ask for each number of nodes.
    ends : tuple of (float, str)
        (expected end, job id) of each running job, soonest first.
    announced : frozenset of str
        Announced jobs that wait, here or not.
    quiet_until_s : float
        Until then time alone changes nothing, Unix time [s].
    is_guarded : bool
        Whether a job waits for which nodes are kept free.
    unsound : frozenset of str
        Announced jobs whose reservation lacked nodes when it was last checked.
    """

    rules: QueueRules
    taken: NodeSet
    queue: tuple[QueueKey, ...]
    ages: tuple[tuple[float, QueueKey], ...]
    sizes: Mapping[int, int]
    ends: tuple[tuple[float, str], ...]
    announced: frozenset[str]
    quiet_until_s: float = -math.inf
    is_guarded: bool = False
    unsound: frozenset[str] = frozenset()


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


Chooser = Callable[[QueueJob, Ground, NodeSet], tuple[int, ...]]
"""Nodes in node-rank order for a job out of the allowed ones; an empty tuple where there are too few. Pure."""

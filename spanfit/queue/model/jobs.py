"""Jobs of the queue, where they stand, and who chooses nodes for them. Standard library."""

from collections.abc import Callable
from dataclasses import dataclass

from spanfit.queue.model.nodes import Ground, NodeSet


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


Chooser = Callable[[QueueJob, Ground, NodeSet], tuple[int, ...]]
"""Nodes in node-rank order for a job out of the allowed ones; an empty tuple where there are too few. Pure."""

"""What has to be done in the world after a decision, so that it becomes as the state says; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from spanfit.queue.model.events import Cancelled, Decision, DecisionKind, Event
from spanfit.queue.model.state import QueueState


class TaskKind(StrEnum):
    """What can be done about a job; to admit it is to let it into the reservation that was made for it."""

    START = "start"
    PREEMPT = "preempt"
    CANCEL = "cancel"
    HOLD = "hold"
    RESERVE = "reserve"
    ADMIT = "admit"
    RELEASE = "release"


class Outcome(StrEnum):
    """How far a task has come.

    ``pending`` was not tried, or waits for something else first; ``failed`` is tried again; ``told`` was handed to a
    person to do; ``dropped`` was overtaken by a later decision before it was done.
    """

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    TOLD = "told"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do about a job.

    Attributes
    ----------
    kind : TaskKind
    job_id : str
    owner : str
        Whose job it is.
    order : tuple of int
        The nodes concerned, in node-rank order.
    reason : str
        In words, from the decision.
    outside_id : str or None
        What the cluster's own scheduler calls the job, where that was known.
    """

    kind: TaskKind
    job_id: str
    owner: str = ""
    order: tuple[int, ...] = ()
    reason: str = ""
    outside_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A task in the journal.

    Attributes
    ----------
    task_id : int
    task : Task
    outcome : Outcome
    attempts : int
    said : str
        What the last attempt said.
    """

    task_id: int
    task: Task
    outcome: Outcome
    attempts: int = 0
    said: str = ""


def tasks_of(
    before: QueueState, after: QueueState, event: Event, decisions: Iterable[Decision], *, is_seen: bool
) -> tuple[Task, ...]:
    """Return what a step asks of the world, in the order in which it is to be done.

    Parameters
    ----------
    before, after : QueueState
    event : Event
    decisions : iterable of Decision
    is_seen : bool
        The event was seen in the world, where nothing is left to do about it.
    """
    reasons = {(decision.kind, decision.job_id): decision.reason for decision in decisions}
    return (
        *_cancels(before, event, is_seen=is_seen),
        *_preempts(before, after, reasons),
        *_releases(before, after),
        *_reserves(before, after),
        *_starts(before, after, reasons),
    )


_Reasons = dict[tuple[DecisionKind, str], str]


def _cancels(before: QueueState, event: Event, *, is_seen: bool) -> Iterator[Task]:
    if not isinstance(event, Cancelled) or is_seen:
        return
    if entry := before.running.get(event.job_id) or before.waiting.get(event.job_id):
        yield Task(kind=TaskKind.CANCEL, job_id=event.job_id, owner=entry.job.owner, reason="cancelled in the queue")


def _preempts(before: QueueState, after: QueueState, reasons: _Reasons) -> Iterator[Task]:
    for job_id, run in before.running.items():
        is_moved = job_id in after.running and after.running[job_id].order != run.order
        if is_moved or job_id in after.waiting:
            reason = reasons.get((DecisionKind.PREEMPT, job_id), "")
            yield Task(kind=TaskKind.PREEMPT, job_id=job_id, owner=run.job.owner, order=run.order, reason=reason)


def _releases(before: QueueState, after: QueueState) -> Iterator[Task]:
    """Yield the reservations whose job has left its nodes."""
    for job_id, run in before.running.items():
        if run.job.is_announced and job_id not in after.running:
            reason = "its job is not on its nodes any more"
            yield Task(kind=TaskKind.RELEASE, job_id=job_id, owner=run.job.owner, reason=reason)


def _reserves(before: QueueState, after: QueueState) -> Iterator[Task]:
    """Yield the reservations that keep the nodes of announced jobs that start.

    Not before: until then jobs of the queue may use the nodes, and the cluster's own scheduler would start none there
    whose time limit reaches into the window, however short the queue expects it to be.
    """
    for job_id, run in after.running.items():
        old = before.running.get(job_id)
        if run.job.is_announced and (old is None or old.order != run.order):
            reason = "keeps its nodes while others leave them"
            yield Task(kind=TaskKind.RESERVE, job_id=job_id, owner=run.job.owner, order=run.order, reason=reason)


def _starts(before: QueueState, after: QueueState, reasons: _Reasons) -> Iterator[Task]:
    for job_id, run in after.running.items():
        old = before.running.get(job_id)
        if old is None or (old.order, old.started_s) != (run.order, run.started_s):
            reason = reasons.get((DecisionKind.START, job_id), "")
            yield Task(kind=TaskKind.START, job_id=job_id, owner=run.job.owner, order=run.order, reason=reason)


def is_current(task: Task, state: QueueState) -> bool:
    """Return whether a task still leads to the state; what was decided later may have overtaken it."""
    run, is_waiting = state.running.get(task.job_id), task.job_id in state.waiting
    match task.kind:
        case TaskKind.START | TaskKind.RESERVE:
            return run is not None and run.order == task.order
        case TaskKind.PREEMPT:
            return is_waiting or (run is not None and run.order != task.order)
        case TaskKind.ADMIT:
            return run is not None
        case TaskKind.HOLD:
            return is_waiting
        case TaskKind.CANCEL:
            return not is_waiting and run is None
        case TaskKind.RELEASE:
            return run is None

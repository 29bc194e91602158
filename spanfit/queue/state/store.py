"""The queue's state in one SQLite file; an event and all that it led to are one transaction [edge: files].

A crash at any instant leaves the state before the event or after it. Writers come one after the other. Time never goes
back: an event is dated by the clock, or by the last event where the clock has jumped back.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from spanfit.errors import StoreError
from spanfit.queue.model.events import Decision, Event
from spanfit.queue.model.jobs import Chooser
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.state import journal, tables
from spanfit.queue.state.database import WAIT_S, acting_lock, check_empty, connect, explained, make, reading, writing
from spanfit.queue.state.invariants import faults
from spanfit.queue.state.tasks import Entry, Outcome, Task, TaskKind, tasks_of

Decide = Callable[[QueueState, Event, QueueRules, Chooser], tuple[QueueState, tuple[Decision, ...]]]
"""The decision function of the queue."""

CLOCK_SLACK_S = 60.0
"""By this much an event may be dated before the last one without a word: its writer waited for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event and all that it led to.

    Attributes
    ----------
    event : Event
        As it was dated.
    before, after : QueueState
    decisions : tuple of Decision
    tasks : tuple of Task
    clock_back_s : float or None
        By how much the clock is behind the queue, the first time that this is seen [s].
    """

    event: Event
    before: QueueState
    after: QueueState
    decisions: tuple[Decision, ...]
    tasks: tuple[Task, ...]
    clock_back_s: float | None = None


class QueueStore:
    """A queue that is kept in a file.

    Parameters
    ----------
    path : pathlib.Path
    decide : callable
        The decision function.
    choose : callable
        The chooser of nodes.
    wait_s : float
        How long to wait for another writer [s].

    Raises
    ------
    StoreError
        If there is no queue, or one of another version.
    """

    def __init__(self, path: Path, decide: Decide, choose: Chooser, wait_s: float = WAIT_S) -> None:
        self.path, self._decide, self._choose = path, decide, choose
        self._connection = connect(path, wait_s)
        self._kept: tuple[int, QueueState] | None = None
        with explained(path):
            self.ground = tables.read_ground(self._connection)

    @classmethod
    def create(cls, path: Path, opening: QueueState, rules: QueueRules, decide: Decide, choose: Chooser) -> Self:
        """Make a queue in which nothing waits, as of its opening; StoreError where the file has something already."""
        connection = make(path)
        try:
            with writing(path, connection):
                check_empty(path, connection)
                tables.create(connection, opening)
                journal.write_rules(connection, rules, opening.ground)
        finally:
            connection.close()
        return cls(path, decide, choose)

    def __enter__(self) -> Self:
        """Give the store for the time of a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def state(self) -> QueueState:
        """Return the state as it is now."""
        with reading(self.path, self._connection):
            return self._state()

    def opening(self) -> QueueState:
        """Return the state before the first event."""
        with explained(self.path):
            return tables.read_opening(self._connection, self.ground)

    def rules(self) -> QueueRules:
        """Return the rules that hold now."""
        with explained(self.path):
            return journal.read_rules(self._connection, self.ground)[1]

    def set_rules(self, rules: QueueRules) -> None:
        """Let other rules hold from now on."""
        with writing(self.path, self._connection):
            journal.write_rules(self._connection, rules, self.ground)

    def step(self, event: Event, *, is_seen: bool = False, link: tuple[str, str] | None = None) -> Step:
        """Decide about an event and keep all of it, whole or not at all.

        Parameters
        ----------
        event : Event
            Dated by the clock.
        is_seen : bool
            It was seen in the world, so nothing is left to do about the event itself.
        link : (str, str) or None
            A job, and what the cluster's own scheduler calls it from now on.

        Raises
        ------
        StoreError
            If it cannot be kept, or what was decided would book a node twice; nothing has changed then.
        """
        with writing(self.path, self._connection):
            before = self._state()
            rules_id, rules = journal.read_rules(self._connection, self.ground)
            step = self._step(before, event, rules, is_seen=is_seen)
            if found := faults(step.after):
                raise StoreError(f"{self.path}: {'; '.join(found)}; nothing was changed; report this with the file")
            behind_s = self._newly_behind_s(step.event.at_s - event.at_s)
            step = replace(step, tasks=self._named(step.tasks), clock_back_s=behind_s)
            self._write(step, event.at_s, rules_id)
            if link is not None and (link[0] in step.after.waiting or link[0] in step.after.running):
                journal.write_link(self._connection, *link)
            version = self._version()
        self._kept = (version, step.after)
        return step

    def foresee(self, events: Iterable[Event]) -> tuple[Step, ...]:
        """Return what events seen in the world would lead to, one after the other; nothing is kept."""
        state, rules, steps = self.state(), self.rules(), []
        for event in events:
            steps.append(self._step(state, event, rules, is_seen=True))
            state = steps[-1].after
        return tuple(steps)

    def _step(self, before: QueueState, event: Event, rules: QueueRules, *, is_seen: bool) -> Step:
        dated = replace(event, at_s=max(event.at_s, before.now_s))
        after, decisions = self._decide(before, dated, rules, self._choose)
        tasks = tasks_of(before, after, dated, decisions, is_seen=is_seen)
        return Step(event=dated, before=before, after=after, decisions=decisions, tasks=tasks)

    def _write(self, step: Step, clock_s: float, rules_id: int) -> None:
        connection, ground = self._connection, self.ground
        event_id = journal.write_event(connection, step.event, clock_s, rules_id, ground)
        news = [decision for decision in step.decisions if journal.is_news(decision, step.before)]
        journal.write_decisions(connection, event_id, news, ground)
        journal.write_tasks(connection, event_id, step.tasks, ground)
        tables.write_changes(connection, step.before, step.after)

    def _named(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """Return tasks of which those that outlast their job keep its name outside."""
        if all(task.kind is not TaskKind.CANCEL for task in tasks):
            return tasks
        links = journal.read_links(self._connection)
        return tuple(replace(task, outside_id=links.get(task.job_id)) for task in tasks)

    def _newly_behind_s(self, behind_s: float) -> float | None:
        if behind_s <= CLOCK_SLACK_S or journal.read_last_behind_s(self._connection) > CLOCK_SLACK_S:
            return None
        return behind_s

    def links(self) -> dict[str, str]:
        """Return what the cluster's own scheduler calls each job that it knows; it is forgotten with the job."""
        with explained(self.path):
            return journal.read_links(self._connection)

    def link(self, job_id: str, outside_id: str) -> None:
        """Keep what the cluster's own scheduler calls a job."""
        with writing(self.path, self._connection):
            journal.write_link(self._connection, job_id, outside_id)

    def add_task(self, task: Task) -> None:
        """Add something to do that no decision led to."""
        with writing(self.path, self._connection):
            journal.write_tasks(self._connection, None, [task], self.ground)

    def last_deeds(self) -> dict[str, tuple[TaskKind, Outcome]]:
        """Return for each job of the queue the last task that put it on nodes or took it off, and its outcome."""
        with explained(self.path):
            return journal.read_last_deeds(self._connection)

    def cancelled(self) -> frozenset[str]:
        """Return what the cluster's own scheduler calls the jobs that were cancelled in the queue."""
        with explained(self.path):
            return journal.read_cancelled(self._connection)

    def open_tasks(self, *, with_told: bool = False) -> tuple[Entry, ...]:
        """Return what is still to be done, oldest first, with or without what a person was told to do."""
        with explained(self.path):
            return journal.read_open_tasks(self._connection, self.ground, with_told=with_told)

    def tasks_of_job(self, job_id: str) -> tuple[Entry, ...]:
        """Return all that was to be done about a job, oldest first."""
        with explained(self.path):
            return journal.read_tasks_of(self._connection, self.ground, job_id)

    def settle(self, task_id: int, outcome: Outcome, said: str = "") -> None:
        """Note how an attempt at a task ended."""
        with writing(self.path, self._connection):
            journal.write_outcome(self._connection, task_id, outcome, said)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Let nobody else act for the time of a block; StoreError where somebody does."""
        with acting_lock(self.path):
            yield

    def reserved(self) -> frozenset[str]:
        """Return the jobs whose reservation was made in the world, or told to a person, and not released since."""
        with explained(self.path):
            return journal.read_reserved(self._connection)

    def ever_reserved(self) -> frozenset[str]:
        """Return the jobs for which a reservation was ever made in the world, or told to a person."""
        with explained(self.path):
            return journal.read_ever_reserved(self._connection)

    def decisions(self, job_id: str, limit: int) -> tuple[Decision, ...]:
        """Return the last decisions about a job, oldest first."""
        with explained(self.path):
            return journal.read_decisions(self._connection, self.ground, job_id, limit)

    def records(self) -> tuple[journal.Record, ...]:
        """Return every event with the rules that held and what was decided, oldest first."""
        with reading(self.path, self._connection):
            return tuple(journal.read_records(self._connection, self.ground))

    def _state(self) -> QueueState:
        """Return the state inside a transaction: the kept one, unless another process has written since."""
        version = self._version()
        if self._kept is None or self._kept[0] != version:
            self._kept = (version, tables.read_state(self._connection, self.ground))
        return self._kept[1]

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

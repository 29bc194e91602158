"""What is kept for good: events, decisions and tasks, written and read inside the transaction of a caller."""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spanfit.queue.model.events import Decision, DecisionKind, Event
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.state import records
from spanfit.queue.state.tasks import Entry, Outcome, Task, TaskKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event as the journal keeps it, with the rules that held and what was decided."""

    event_id: int
    event: Event
    rules: QueueRules
    decisions: tuple[Decision, ...]


def is_news(decision: Decision, before: QueueState) -> bool:
    """Return whether a decision says more than that a job goes on waiting for the reason that it has."""
    known = before.waiting.get(decision.job_id)
    return decision.kind is not DecisionKind.WAIT or known is None or known.reason != decision.reason


def write_rules(connection: sqlite3.Connection, rules: QueueRules, ground: Ground) -> None:
    """Let rules hold for the events to come."""
    connection.execute("INSERT INTO rules (document) VALUES (?)", (records.render(rules, ground),))


def read_rules(connection: sqlite3.Connection, ground: Ground) -> tuple[int, QueueRules]:
    """Return the rules that hold, with their number."""
    row = connection.execute("SELECT rules_id, document FROM rules ORDER BY rules_id DESC LIMIT 1").fetchone()
    return row[0], records.parse(QueueRules, row[1], ground)


def write_event(connection: sqlite3.Connection, event: Event, clock_s: float, rules_id: int, ground: Ground) -> int:
    """Write an event, with what the clock said, and return its number."""
    row = (event.at_s, clock_s, records.event_kind(event), rules_id, records.render(event, ground))
    query = "INSERT INTO events (at_s, clock_s, kind, rules_id, document) VALUES (?, ?, ?, ?, ?)"
    number = connection.execute(query, row).lastrowid
    assert number is not None
    return number


def read_last_behind_s(connection: sqlite3.Connection) -> float:
    """Return by how much the clock was behind the queue at the last event [s]."""
    row = connection.execute("SELECT at_s - clock_s FROM events ORDER BY event_id DESC LIMIT 1").fetchone()
    return float(row[0]) if row else 0.0


def write_decisions(
    connection: sqlite3.Connection, event_id: int, decisions: Iterable[Decision], ground: Ground
) -> None:
    """Write what an event led to."""
    rows = [(event_id, each.kind, each.job_id, records.render(each, ground)) for each in decisions]
    connection.executemany("INSERT INTO decisions (event_id, kind, job_id, document) VALUES (?, ?, ?, ?)", rows)


def write_tasks(connection: sqlite3.Connection, event_id: int | None, tasks: Iterable[Task], ground: Ground) -> None:
    """Write what is to be done; none of it is done yet."""
    query = "INSERT INTO tasks (event_id, kind, job_id, document, outcome) VALUES (?, ?, ?, ?, ?)"
    rows = [(event_id, each.kind, each.job_id, records.render(each, ground), Outcome.PENDING) for each in tasks]
    connection.executemany(query, rows)


def write_outcome(connection: sqlite3.Connection, task_id: int, outcome: Outcome, said: str) -> None:
    """Write how an attempt at a task ended."""
    query = "UPDATE tasks SET outcome = ?, said = ?, attempts = attempts + 1 WHERE task_id = ?"
    connection.execute(query, (outcome, said, task_id))


_OPEN = """
SELECT task_id, document, outcome, attempts, said FROM tasks WHERE outcome IN ('pending', 'failed') ORDER BY task_id
"""
_TOLD = """
SELECT task_id, document, outcome, attempts, said FROM tasks WHERE outcome IN ('pending', 'failed', 'told')
ORDER BY task_id
"""
_OF_JOB = "SELECT task_id, document, outcome, attempts, said FROM tasks WHERE job_id = ? ORDER BY task_id"


def read_open_tasks(connection: sqlite3.Connection, ground: Ground, *, with_told: bool) -> tuple[Entry, ...]:
    """Return what is still to be done, oldest first, with or without what a person was told to do."""
    return _entries(connection.execute(_TOLD if with_told else _OPEN), ground)


def read_tasks_of(connection: sqlite3.Connection, ground: Ground, job_id: str) -> tuple[Entry, ...]:
    """Return all that was to be done about a job, oldest first."""
    return _entries(connection.execute(_OF_JOB, (job_id,)), ground)


def _entries(rows: sqlite3.Cursor, ground: Ground) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            task_id=task_id,
            task=records.parse(Task, text, ground),
            outcome=Outcome(outcome),
            attempts=attempts,
            said=said,
        )
        for task_id, text, outcome, attempts, said in rows
    )


def read_last_deeds(connection: sqlite3.Connection) -> dict[str, tuple[TaskKind, Outcome]]:
    """Return for each job of the queue the last task that put it on nodes or took it off, and its outcome."""
    query = """
        SELECT job_id, kind, outcome FROM jobs CROSS JOIN tasks USING (job_id)
        WHERE kind IN ('start', 'preempt') AND outcome != 'dropped' ORDER BY task_id"""
    rows = connection.execute(query)
    return {job_id: (TaskKind(kind), Outcome(outcome)) for job_id, kind, outcome in rows}


def read_cancelled(connection: sqlite3.Connection) -> frozenset[str]:
    """Return what the cluster's own scheduler calls the jobs that were cancelled in the queue."""
    query = "SELECT json_extract(document, '$.outside_id') FROM tasks WHERE kind = 'cancel'"
    return frozenset(outside_id for (outside_id,) in connection.execute(query) if outside_id is not None)


def read_links(connection: sqlite3.Connection) -> dict[str, str]:
    """Return what the cluster's own scheduler calls each job that it knows."""
    return dict(connection.execute("SELECT job_id, outside_id FROM links ORDER BY job_id").fetchall())


def write_link(connection: sqlite3.Connection, job_id: str, outside_id: str) -> None:
    """Keep what the cluster's own scheduler calls a job."""
    connection.execute("REPLACE INTO links VALUES (?, ?)", (job_id, outside_id))


def read_reserved(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the jobs whose reservation was made in the world, or told to a person, and not released since."""
    query = """
        SELECT job_id, kind FROM tasks
        WHERE kind IN ('reserve', 'release') AND outcome IN ('done', 'told') ORDER BY task_id"""
    last = dict(connection.execute(query).fetchall())
    return frozenset(job_id for job_id, kind in last.items() if kind == TaskKind.RESERVE)


def read_ever_reserved(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the jobs for which a reservation was ever made in the world, or told to a person."""
    query = "SELECT DISTINCT job_id FROM tasks WHERE kind = 'reserve' AND outcome IN ('done', 'told', 'dropped')"
    return frozenset(job_id for (job_id,) in connection.execute(query))


def read_decisions(connection: sqlite3.Connection, ground: Ground, job_id: str, limit: int) -> tuple[Decision, ...]:
    """Return the last decisions about a job, oldest first."""
    query = "SELECT document FROM decisions WHERE job_id = ? ORDER BY decision_id DESC LIMIT ?"
    rows = connection.execute(query, (job_id, limit)).fetchall()
    return tuple(records.parse(Decision, text, ground) for (text,) in reversed(rows))


def read_records(connection: sqlite3.Connection, ground: Ground) -> Iterator[Record]:
    """Yield every event with its rules and decisions, oldest first."""
    query = """
        SELECT event_id, kind, events.document, rules.document FROM events JOIN rules USING (rules_id)
        ORDER BY event_id"""
    decided = "SELECT document FROM decisions WHERE event_id = ? ORDER BY decision_id"
    for event_id, kind, text, rules in connection.execute(query):
        rows = connection.execute(decided, (event_id,)).fetchall()
        yield Record(
            event_id=event_id,
            event=records.parse(records.EVENT_KINDS[kind], text, ground),
            rules=records.parse(QueueRules, rules, ground),
            decisions=tuple(records.parse(Decision, text, ground) for (text,) in rows),
        )

"""The tables of a queue's state: what they are, and how a state is read from them and its changes are written.

Everything here runs on a connection that is given, inside the transaction of its caller.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from spanfit.queue.model.jobs import Reservation, Running, Waiting
from spanfit.queue.model.nodes import Ground, NodeSet, indices
from spanfit.queue.model.state import QueueState
from spanfit.queue.state import records

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5350414E
"""Marks a file as a queue of spanfit."""

SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE minipods (minipod INTEGER PRIMARY KEY, label TEXT NOT NULL);
CREATE TABLE nodes (
    node INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, minipod INTEGER NOT NULL REFERENCES minipods,
    gpu_model TEXT, was_up INTEGER NOT NULL, is_up INTEGER NOT NULL CHECK (is_up IN (0, 1)));
CREATE TABLE jobs (
    place INTEGER PRIMARY KEY, job_id TEXT NOT NULL UNIQUE,
    phase TEXT NOT NULL CHECK (phase IN ('waiting', 'running')), document TEXT NOT NULL);
CREATE TABLE held (
    node INTEGER PRIMARY KEY REFERENCES nodes, job_id TEXT NOT NULL, node_rank INTEGER NOT NULL);
CREATE INDEX held_by_job ON held (job_id);
CREATE TABLE reservations (place INTEGER PRIMARY KEY, job_id TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
CREATE TABLE links (job_id TEXT PRIMARY KEY, outside_id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rules (rules_id INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY, at_s REAL NOT NULL, clock_s REAL NOT NULL, kind TEXT NOT NULL,
    rules_id INTEGER NOT NULL REFERENCES rules, document TEXT NOT NULL);
CREATE TABLE decisions (
    decision_id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL REFERENCES events, kind TEXT NOT NULL,
    job_id TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX decisions_by_job ON decisions (job_id);
CREATE TABLE tasks (
    task_id INTEGER PRIMARY KEY, event_id INTEGER REFERENCES events, kind TEXT NOT NULL,
    job_id TEXT NOT NULL, document TEXT NOT NULL, outcome TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    said TEXT NOT NULL DEFAULT '');
CREATE INDEX open_tasks ON tasks (outcome) WHERE outcome IN ('pending', 'failed', 'told');
CREATE INDEX tasks_by_job ON tasks (job_id);
CREATE INDEX cancelled ON tasks (task_id) WHERE kind = 'cancel';
CREATE INDEX reserved ON tasks (task_id) WHERE kind IN ('reserve', 'release');
CREATE INDEX ever_reserved ON tasks (job_id) WHERE kind = 'reserve';
"""
"""``held`` gives a node to one job at most: the database itself refuses a second. ``place`` keeps the order of jobs.
``was_up`` says which nodes were in service when the queue was made.

Times are Unix times in seconds; a document is JSON with the fields of a class of ``model``.
"""

T = TypeVar("T")


def create(connection: sqlite3.Connection, opening: QueueState) -> None:
    """Make the tables of a queue in which nothing waits."""
    ground, now_s = opening.ground, opening.now_s
    for statement in filter(str.strip, SCHEMA.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.executemany("INSERT INTO facts VALUES (?, ?)", [("opened_s", now_s), ("now_s", now_s)])
    connection.executemany("INSERT INTO minipods VALUES (?, ?)", enumerate(ground.labels))
    models = ground.gpu_models or (None,) * len(ground.names)
    are_up = [opening.up >> node & 1 for node in range(len(ground.names))]
    rows = zip(range(len(ground.names)), ground.names, ground.minipods, models, are_up, are_up, strict=True)
    connection.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_ground(connection: sqlite3.Connection) -> Ground:
    """Return what never changes."""
    rows = connection.execute("SELECT name, minipod, gpu_model FROM nodes ORDER BY node").fetchall()
    labels = connection.execute("SELECT label FROM minipods ORDER BY minipod").fetchall()
    models = tuple(model for _, _, model in rows)
    return Ground(
        names=tuple(name for name, _, _ in rows),
        minipods=tuple(minipod for _, minipod, _ in rows),
        labels=tuple(label for (label,) in labels),
        gpu_models=models if any(models) else (),
    )


def _read_fact(connection: sqlite3.Connection, name: str) -> float:
    return float(connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])


def read_opening(connection: sqlite3.Connection, ground: Ground) -> QueueState:
    """Return the state before the first event."""
    up = _node_set(node for (node,) in connection.execute("SELECT node FROM nodes WHERE was_up"))
    return QueueState(ground=ground, now_s=_read_fact(connection, "opened_s"), up=up)


def read_state(connection: sqlite3.Connection, ground: Ground) -> QueueState:
    """Return the whole state."""
    rows = connection.execute("SELECT job_id, phase, document FROM jobs ORDER BY place").fetchall()
    reserved = connection.execute("SELECT job_id, document FROM reservations ORDER BY place").fetchall()
    orders = _read_orders(connection)
    return QueueState(
        ground=ground,
        now_s=_read_fact(connection, "now_s"),
        up=_node_set(node for (node,) in connection.execute("SELECT node FROM nodes WHERE is_up")),
        waiting={job_id: records.parse(Waiting, text, ground) for job_id, phase, text in rows if phase == "waiting"},
        running={
            job_id: _running(text, orders.get(job_id, ()), ground) for job_id, phase, text in rows if phase == "running"
        },
        reservations={job_id: _reservation(text, ground) for job_id, text in reserved},
    )


def _read_orders(connection: sqlite3.Connection) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for job_id, node in connection.execute("SELECT job_id, node FROM held ORDER BY job_id, node_rank"):
        found.setdefault(job_id, []).append(node)
    return {job_id: tuple(order) for job_id, order in found.items()}


def _running(text: str, order: tuple[int, ...], ground: Ground) -> Running:
    return records.parse(Running, text, ground, nodes=_node_set(order), order=order)


def _reservation(text: str, ground: Ground) -> Reservation:
    order = tuple(ground.index[name] for name in json.loads(text)["order"])
    return records.parse(Reservation, text, ground, nodes=_node_set(order))


def _node_set(nodes: Iterable[int]) -> NodeSet:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found


def write_changes(connection: sqlite3.Connection, before: QueueState, after: QueueState) -> None:
    """Write what differs between two states of one ground.

    Raises
    ------
    sqlite3.IntegrityError
        If a node would be held by two jobs.
    """
    connection.execute("UPDATE facts SET value = ? WHERE name = 'now_s'", (after.now_s,))
    for is_up, changed in ((0, before.up & ~after.up), (1, after.up & ~before.up)):
        connection.executemany("UPDATE nodes SET is_up = ? WHERE node = ?", [(is_up, n) for n in indices(changed)])
    gone = (before.waiting.keys() | before.running.keys()) - after.waiting.keys() - after.running.keys()
    connection.executemany("DELETE FROM links WHERE job_id = ?", [(job_id,) for job_id in gone])
    waiting = _difference(before.waiting, after.waiting)
    running = _difference(before.running, after.running)
    reserved = _difference(before.reservations, after.reservations)
    connection.executemany("DELETE FROM jobs WHERE job_id = ?", [(key,) for key in (*waiting.left, *running.left)])
    connection.executemany("DELETE FROM held WHERE job_id = ?", [(key,) for key in (*running.left, *running.written)])
    connection.executemany("DELETE FROM reservations WHERE job_id = ?", [(key,) for key in reserved.left])
    texts = {key: records.render(value, after.ground) for key, value in waiting.written.items()}
    connection.executemany(_WRITE_JOB, [(key, "waiting", text) for key, text in texts.items()])
    texts = {key: records.render(value, after.ground, ("nodes", "order")) for key, value in running.written.items()}
    connection.executemany(_WRITE_JOB, [(key, "running", text) for key, text in texts.items()])
    connection.executemany("INSERT INTO held VALUES (?, ?, ?)", _held_rows(running.written))
    texts = {key: records.render(value, after.ground, ("nodes",)) for key, value in reserved.written.items()}
    connection.executemany(_WRITE_RESERVATION, list(texts.items()))


_WRITE_JOB = """
INSERT INTO jobs (job_id, phase, document) VALUES (?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET document = excluded.document
"""
_WRITE_RESERVATION = """
INSERT INTO reservations (job_id, document) VALUES (?, ?)
ON CONFLICT (job_id) DO UPDATE SET document = excluded.document
"""


class _Difference(NamedTuple, Generic[T]):
    left: list[str]
    written: dict[str, T]


def _difference(old: Mapping[str, T], new: Mapping[str, T]) -> _Difference[T]:
    """Return which rows go and which are written; a new row comes last, so a mapping in another order is all new."""
    if old is new:
        return _Difference([], {})
    kept = [key for key in old if key in new]
    if kept != list(new)[: len(kept)]:
        return _Difference(list(old), dict(new))
    changed = {key: value for key, value in new.items() if old.get(key) is not value and old.get(key) != value}
    return _Difference([key for key in old if key not in new], changed)


def _held_rows(running: Mapping[str, Running]) -> Iterator[tuple[int, str, int]]:
    for job_id, job in running.items():
        yield from ((node, job_id, node_rank) for node_rank, node in enumerate(job.order))

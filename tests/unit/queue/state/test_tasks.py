from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.queue.model.events import Arrived, Cancelled, Event, Finished, Ticked
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Task, TaskKind, is_current
from tests.unit.queue.stores import OPENED_S, new_store, submitted

HOUR_S = 3600.0


def tasks_after(store: QueueStore, events: Sequence[Event]) -> list[tuple[TaskKind, str]]:
    """Return the tasks of the last of some events."""
    for event in events:
        step = store.step(event)
    return [(task.kind, task.job_id) for task in step.tasks]


@pytest.fixture
def store(tmp_path: Path) -> QueueStore:
    return new_store(tmp_path / "q.sqlite")


def test_a_start_names_nodes_owner_and_reason(store: QueueStore) -> None:
    step = store.step(submitted("a", 3))
    (task,) = step.tasks
    assert (task.kind, task.owner, task.order) == (TaskKind.START, "ann", step.after.running["a"].order)
    assert task.reason


def test_waiting_asks_nothing_of_the_world(store: QueueStore) -> None:
    assert tasks_after(store, [submitted("a", 12), submitted("b", 1)]) == []


def test_an_announcement_asks_nothing_until_its_job_starts(store: QueueStore) -> None:
    at_s = OPENED_S + HOUR_S
    assert tasks_after(store, [submitted("llm", 8, expected_start_s=at_s)]) == []
    assert tasks_after(store, [Arrived(at_s=at_s, job_id="llm")]) == [
        (TaskKind.RESERVE, "llm"),
        (TaskKind.START, "llm"),
    ]
    assert tasks_after(store, [Finished(at_s=at_s + 60, job_id="llm")]) == [(TaskKind.RELEASE, "llm")]


def test_a_cancelled_announcement_is_only_withdrawn(store: QueueStore) -> None:
    events = [submitted("llm", 8, expected_start_s=OPENED_S + HOUR_S), Cancelled(at_s=OPENED_S + 1, job_id="llm")]
    assert tasks_after(store, events) == [(TaskKind.CANCEL, "llm")]


def test_a_preempted_job_is_stopped_before_another_starts_on_its_nodes(store: QueueStore) -> None:
    at_s = OPENED_S + HOUR_S
    filler = submitted("filler", 12, hours=9, is_preemptable=True)
    llm = submitted("llm", 8, expected_start_s=at_s)
    found = tasks_after(store, [filler, llm, Arrived(at_s=at_s, job_id="llm")])
    assert found == [(TaskKind.PREEMPT, "filler"), (TaskKind.RESERVE, "llm"), (TaskKind.START, "llm")]


def test_what_was_cancelled_in_the_world_is_not_cancelled_again(store: QueueStore) -> None:
    store.step(submitted("a", 3))
    store.link("a", "77")
    assert store.step(Cancelled(at_s=OPENED_S + 1, job_id="a"), is_seen=True).tasks == ()


def test_a_job_cancelled_in_the_queue_keeps_its_name_outside(store: QueueStore) -> None:
    store.link("a", "77")
    store.step(submitted("a", 3))
    (task,) = store.step(Cancelled(at_s=OPENED_S + 1, job_id="a")).tasks
    assert (task.kind, task.outside_id) == (TaskKind.CANCEL, "77")
    assert store.open_tasks()[-1].task.outside_id == "77"


def test_a_job_that_was_moved_is_stopped_on_its_old_nodes(store: QueueStore) -> None:
    step = store.step(submitted("a", 3))
    task = Task(kind=TaskKind.PREEMPT, job_id="a", order=step.after.running["a"].order)
    assert not is_current(task, step.after)
    assert is_current(replace(task, order=(9, 10, 11)), step.after)


def test_time_alone_leaves_nothing_to_do(store: QueueStore) -> None:
    assert tasks_after(store, [submitted("a", 3), Ticked(at_s=OPENED_S + 60)]) == []

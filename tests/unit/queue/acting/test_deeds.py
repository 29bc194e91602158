from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import Deed, act
from spanfit.queue.acting.simulate_actuator import Simulate
from spanfit.queue.model.events import Arrived, Finished
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, Task, TaskKind
from tests.unit.queue.stores import OPENED_S, new_store, submitted

HOUR_S = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> QueueStore:
    return new_store(tmp_path / "q.sqlite")


class Failing:
    """Fails, or ends in another way, for a while, and keeps what it was asked."""

    def __init__(self, failures: int, outcome: Outcome = Outcome.FAILED) -> None:
        self.failures, self.outcome = failures, outcome
        self.asked: list[tuple[TaskKind, str]] = []

    def carry_out(self, task: Task) -> Deed:
        """Fail, or succeed once the failures are used up."""
        self.asked.append((task.kind, task.job_id))
        self.failures -= 1
        deed = Simulate().carry_out(task)
        return replace(deed, outcome=self.outcome, text="no route") if self.failures >= 0 else deed


def test_what_fails_is_tried_again_and_what_is_done_is_not(store: QueueStore) -> None:
    store.step(submitted("a", 3))
    actuator = Failing(2)
    outcomes = [[deed.outcome for deed in act(store, actuator)] for _ in range(4)]
    assert outcomes == [[Outcome.FAILED], [Outcome.FAILED], [Outcome.DONE], []]
    assert actuator.asked == [(TaskKind.START, "a")] * 3


def test_a_start_that_failed_is_dropped_when_its_job_is_gone(store: QueueStore) -> None:
    store.step(submitted("a", 3))
    list(act(store, Failing(1)))
    store.step(Finished(at_s=OPENED_S + 1, job_id="a"))
    actuator = Failing(0)
    assert [deed.outcome for deed in act(store, actuator)] == [Outcome.DROPPED]
    assert actuator.asked == []


def test_what_is_not_ready_stays_open_and_is_no_failure(store: QueueStore) -> None:
    store.step(submitted("a", 3))
    actuator = Failing(2, Outcome.PENDING)
    deeds = [deed for _ in range(3) for deed in act(store, actuator)]
    assert [deed.outcome for deed in deeds] == [Outcome.PENDING, Outcome.PENDING, Outcome.DONE]
    assert [deed.is_news for deed in deeds] == [True, False, True]


def test_a_telling_that_was_cut_short_is_repeated(store: QueueStore) -> None:
    store.step(submitted("a", 3))
    assert next(act(store, Failing(9, Outcome.TOLD))).outcome is Outcome.TOLD
    (deed,) = act(store, Failing(9, Outcome.TOLD))
    assert (deed.outcome, deed.is_news) == (Outcome.TOLD, True)
    assert list(act(store, Failing(9, Outcome.TOLD))) == []


def test_a_reservation_is_known_until_it_is_released(store: QueueStore) -> None:
    store.step(submitted("llm", 4, expected_start_s=OPENED_S + HOUR_S))
    store.step(Arrived(at_s=OPENED_S + 1, job_id="llm"))
    assert store.reserved() == frozenset()
    assert {deed.outcome for deed in act(store, Simulate())} == {Outcome.DONE}
    assert store.reserved() == {"llm"}
    store.step(Finished(at_s=OPENED_S + 2, job_id="llm"))
    list(act(store, Simulate()))
    assert store.reserved() == frozenset()

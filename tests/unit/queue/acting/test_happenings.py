from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import act
from spanfit.queue.acting.happenings import Difference, Memory, events_of
from spanfit.queue.acting.seen import Seen
from spanfit.queue.acting.simulate_actuator import Simulate
from spanfit.queue.model.events import Arrived, Cancelled, Finished, NodesDown, Submitted, Ticked
from spanfit.queue.model.jobs import Forecast
from spanfit.queue.state.tasks import Outcome, TaskKind
from spanfit.topology.model import NodeState
from spanfit.topology.reading import Reservation
from tests.unit.queue.acting.live import IDLE, NOW_S, TICK, Live, on_nodes
from tests.unit.queue.stores import GROUND, OPENED_S, submitted


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path / "q.sqlite")


def test_nothing_new_is_time_that_went_on(live: Live) -> None:
    assert live.difference() == Difference(happenings=live.difference().happenings)
    assert live.difference().events == (TICK,)


def test_a_held_job_with_the_mark_is_submitted_and_linked(live: Live) -> None:
    live.queue("12", wishes={"is_preemptable": True, "mean_s": 1800.0})
    event = live.look().events[0]
    assert isinstance(event, Submitted)
    assert (event.job.job_id, event.job.nnodes, event.job.owner, event.job.department) == ("12", 3, "ann", "physics")
    assert (event.job.time_limit_s, event.job.is_preemptable) == (7200.0, True)
    assert event.forecast == Forecast(mean_s=1800, upper_s=7200)
    assert live.store.links() == {"12": "12"}
    assert live.difference().events == (TICK,)


def test_a_job_without_a_runtime_of_its_own_is_predicted(live: Live) -> None:
    live.queue("12")
    live.queue("13", wishes={"mean_s": 60.0})
    seen = Seen(nodes=live.nodes, jobs=tuple(live.jobs.values()), reservations={})
    found = events_of(seen, live.state, Memory(), NOW_S, predict=lambda job: Forecast(mean_s=job.ngpus, upper_s=99))
    forecasts = [event.forecast for event in found.events if isinstance(event, Submitted)]
    assert forecasts == [Forecast(mean_s=24, upper_s=99), Forecast(mean_s=60, upper_s=7200)]


def test_jobs_without_the_mark_are_left_alone(live: Live) -> None:
    live.queue("12", is_marked=False)
    assert live.difference().events == (TICK,)


def test_a_job_that_is_not_held_is_held(live: Live) -> None:
    live.queue("12", is_held=False)
    live.store.step(submitted("filler", 12))
    (task,) = live.look().tasks
    assert (task.kind, task.job_id, task.outside_id) == (TaskKind.HOLD, "12", "12")


def test_a_job_that_is_to_start_is_not_held_again(live: Live) -> None:
    live.queue("12")
    live.look()
    live.jobs["12"] = replace(live.jobs["12"], is_held=False)
    found = live.look()
    assert (found.events, found.tasks) == ((TICK,), ())


def test_a_job_too_large_is_said_once_a_look_and_not_submitted(live: Live) -> None:
    live.queue("12", nnodes=13)
    found = live.look()
    assert found.events == (TICK,)
    assert found.remarks == ("job 12 asks for 13 nodes, the queue has 12; left out",)


def test_a_job_too_large_is_not_held(live: Live) -> None:
    live.queue("12", nnodes=13, is_held=False)
    assert live.look().tasks == ()


def test_a_job_that_depends_on_others_comes_when_they_have_ended(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S + 3600))
    live.queue("12", is_dependent=True, is_held=False)
    live.queue("13", name="llm", is_dependent=True, is_held=False)
    found = live.look()
    assert (found.events, [task.job_id for task in found.tasks], found.links) == ((TICK,), ["llm"], {})
    assert found.remarks == (
        "job 12 depends on other jobs; the queue takes it up when they have ended; hold it until then: "
        "scontrol uhold 12",
        "job llm depends on other jobs; the queue takes it up when they have ended",
    )
    live.queue("12")
    live.queue("13", name="llm")
    assert [type(event) for event in live.look().events] == [Submitted, Arrived, Ticked]


def test_a_job_that_its_own_reservation_shuts_out_is_let_in(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S))
    live.queue("12", name="llm")
    live.look()
    names = GROUND.members(live.state.running["llm"].nodes)
    live.reservations["spanfit-llm"] = Reservation(name="spanfit-llm", nodes=names, start="", end="", is_active=True)
    assert live.difference().tasks == ()
    live.jobs["12"] = replace(live.jobs["12"], is_held=False)
    (task,) = live.difference().tasks
    assert (task.kind, task.job_id, task.outside_id) == (TaskKind.ADMIT, "llm", "12")
    live.jobs["12"] = replace(live.jobs["12"], reservation="spanfit-llm")
    assert live.difference().tasks == ()


def test_a_reservation_made_when_its_job_had_gone_is_deleted(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S))
    live.store.step(Arrived(at_s=OPENED_S, job_id="llm"))
    list(act(live.store, Simulate()))
    live.store.step(Finished(at_s=OPENED_S, job_id="llm"))
    list(act(live.store, Simulate()))
    for name in ("spanfit-llm", "spanfit-of-somebody", "maintenance"):
        live.reservations[name] = Reservation(name=name, nodes=("n01",), start="", end="", is_active=True)
    assert [(task.kind, task.job_id) for task in live.look().tasks] == [(TaskKind.RELEASE, "llm")]


def test_a_job_that_runs_and_ends(live: Live) -> None:
    live.queue("12")
    live.look()
    live.run("12")
    assert live.difference().events == (TICK,)
    del live.jobs["12"]
    live.nodes = dict(IDLE)
    assert live.look().events == (Finished(at_s=NOW_S, job_id="12"), TICK)
    assert live.store.links() == {}


def test_a_waiting_job_that_is_gone_was_cancelled(live: Live) -> None:
    live.store.step(submitted("filler", 12))
    live.queue("12")
    live.look()
    del live.jobs["12"]
    assert live.look().events == (Cancelled(at_s=NOW_S, job_id="12"), TICK)
    assert "12" not in live.state.waiting


def test_a_job_cancelled_in_the_queue_is_not_taken_up_again(live: Live) -> None:
    live.queue("12")
    live.look()
    live.store.step(Cancelled(at_s=NOW_S, job_id="12"))
    assert live.difference().events == (TICK,)


def test_a_job_that_only_the_queue_knows_stays(live: Live) -> None:
    live.store.step(submitted("by-hand", 3))
    assert live.difference().events == (TICK,)


def test_an_announced_job_arrives_under_its_name(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S + 3600))
    live.queue("12", name="llm")
    found = live.look()
    assert found.events == (Arrived(at_s=NOW_S, job_id="llm"), TICK)
    assert live.store.links() == {"llm": "12"}
    assert live.difference().events == (TICK,)


def test_another_owner_does_not_take_an_announced_name(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S + 3600))
    live.queue("12", name="llm", user="bob")
    live.look()
    assert not live.state.waiting["llm"].is_here
    assert "12" in live.store.links()


def test_a_second_job_of_the_name_is_a_job_of_its_own(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S + 3600))
    live.queue("12", name="llm")
    live.queue("13", name="llm")
    live.look()
    assert live.store.links() == {"llm": "12", "13": "13"}


def test_a_job_submitted_by_hand_before_is_linked_by_its_name(live: Live) -> None:
    live.store.step(submitted("train", 3))
    live.queue("12", name="train")
    found = live.look()
    assert (found.events, found.links) == ((TICK,), {"train": "12"})


def test_a_job_announced_with_other_nodes_is_said(live: Live) -> None:
    live.store.step(submitted("llm", 5, expected_start_s=OPENED_S + 3600))
    live.queue("12", name="llm")
    assert live.look().remarks == ("job llm was announced with 5 nodes and asks Slurm for 3; correct one",)


def test_a_job_that_another_hand_requeued_waits_again(live: Live) -> None:
    live.queue("12")
    live.look()
    live.run("12")
    live.look()
    live.store.step(submitted("next", 12, priority=9))
    live.queue("12")
    live.nodes = dict(IDLE)
    cancelled, submitted_again, _ = live.look().events
    assert cancelled == Cancelled(at_s=NOW_S, job_id="12")
    assert isinstance(submitted_again, Submitted)
    assert list(live.state.running) == ["next"]
    assert live.state.waiting["12"].is_here
    assert live.store.links() == {"12": "12"}


@pytest.mark.parametrize("outcome", [Outcome.PENDING, Outcome.FAILED, Outcome.TOLD])
def test_a_job_whose_start_is_under_way_is_held_still(live: Live, outcome: Outcome) -> None:
    live.queue("12")
    live.look()
    assert live.difference({"12": (TaskKind.START, outcome)}).events == (TICK,)


def test_a_job_started_by_another_hand_is_let_go_with_its_nodes(live: Live) -> None:
    live.store.step(submitted("filler", 9))
    live.queue("12", nnodes=4)
    live.look()
    assert "12" in live.state.waiting
    free = [name for name in GROUND.names if not GROUND.node_set([name]) & live.state.running["filler"].nodes]
    live.jobs["12"] = on_nodes(live.jobs["12"], free)
    live.mark(free, NodeState.ALLOCATED, "ALLOCATED")
    found = live.look()
    assert "was started on" in found.remarks[-1]
    assert "by another hand; the queue lets go of it" in found.remarks[-1]
    assert "12" not in live.state.waiting
    assert live.state.up == live.state.running["filler"].nodes
    assert live.difference().events == (TICK,)


def test_a_job_on_other_nodes_than_it_was_given_is_let_go(live: Live) -> None:
    live.queue("12")
    live.look()
    mine = live.state.running["12"].nodes
    names = [name for name in GROUND.names if not GROUND.node_set([name]) & mine][:3]
    live.jobs["12"] = on_nodes(live.jobs["12"], names)
    live.mark(names, NodeState.ALLOCATED, "ALLOCATED")
    found = live.look()
    assert Cancelled(at_s=NOW_S, job_id="12") in found.events
    assert live.state.running == {}
    assert live.state.up == GROUND.everything & ~GROUND.node_set(names)


@pytest.mark.parametrize("outcome", [Outcome.PENDING, Outcome.FAILED, Outcome.TOLD])
def test_a_job_that_is_still_to_be_stopped_is_no_stray(live: Live, outcome: Outcome) -> None:
    at_s = OPENED_S + 30
    live.store.step(submitted("llm", 8, expected_start_s=at_s))
    live.queue("12", nnodes=12, wishes={"is_preemptable": True})
    live.look()
    live.run("12")
    live.store.step(Arrived(at_s=NOW_S, job_id="llm"))
    assert "12" in live.state.waiting
    deeds = {"12": (TaskKind.PREEMPT, outcome), "llm": (TaskKind.START, Outcome.PENDING)}
    found = live.difference(deeds)
    assert [event for event in found.events if isinstance(event, Cancelled)] == []
    assert [event for event in found.events if isinstance(event, NodesDown)] in (
        [],
        [NodesDown(at_s=NOW_S, nodes=GROUND.everything & ~live.state.running["llm"].nodes)],
    )

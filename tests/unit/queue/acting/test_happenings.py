from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import act
from spanfit.queue.acting.happenings import Difference, Memory, events_of
from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.simulate_actuator import Simulate
from spanfit.queue.model.events import Arrived, Cancelled, Finished, NodesDown, NodesUp, Submitted, Ticked
from spanfit.queue.model.jobs import Forecast
from spanfit.queue.model.state import QueueState
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, TaskKind
from spanfit.topology.model import NodeState
from spanfit.topology.reading import NodeFacts, Reservation
from tests.unit.queue.stores import GROUND, OPENED_S, new_store, submitted

NOW_S = OPENED_S + 60
TICK = Ticked(at_s=NOW_S)
IDLE = {name: NodeFacts(name=name, state=NodeState.IDLE, words=("IDLE",)) for name in GROUND.names}


def a_seen(slurm_id: str, **more: object) -> SeenJob:
    fields: dict[str, object] = {
        "slurm_id": slurm_id,
        "name": "sh",
        "user": "ann",
        "account": "physics",
        "is_pending": True,
        "is_ending": False,
        "is_held": True,
        "nnodes": 3,
        "ncpus": 24,
        "ngpus": 24,
        "time_limit_s": 7200.0,
        "submitted_s": OPENED_S,
        "nodes": (),
        "is_marked": True,
    } | more
    return SeenJob(**fields)  # type: ignore[arg-type]


def on_nodes(job: SeenJob, nodes: Sequence[str]) -> SeenJob:
    return replace(job, is_pending=False, is_held=False, nodes=tuple(nodes))


def facts(state: NodeState, *words: str) -> NodeFacts:
    return NodeFacts(name="", state=state, words=words)


class Live:
    """A queue and a Slurm beside it."""

    def __init__(self, path: Path) -> None:
        self.store: QueueStore = new_store(path)
        self.nodes = dict(IDLE)
        self.jobs: dict[str, SeenJob] = {}
        self.reservations: dict[str, Reservation] = {}

    @property
    def state(self) -> QueueState:
        return self.store.state()

    def difference(self, deeds: dict[str, tuple[TaskKind, Outcome]] | None = None) -> Difference:
        seen = Seen(nodes=self.nodes, jobs=tuple(self.jobs.values()), reservations=self.reservations)
        store = self.store
        memory = Memory(
            links=store.links(),
            deeds=store.last_deeds() if deeds is None else deeds,
            cancelled=store.cancelled(),
            reserved=store.ever_reserved(),
        )
        return events_of(seen, self.state, memory, NOW_S)

    def look(self, deeds: dict[str, tuple[TaskKind, Outcome]] | None = None) -> Difference:
        """Return the difference and keep it."""
        found = self.difference(deeds)
        for job_id, slurm_id in found.links.items():
            self.store.link(job_id, slurm_id)
        for happening in found.happenings:
            self.store.step(happening.event, is_seen=True, link=happening.link)
        return found

    def queue(self, slurm_id: str, **more: object) -> None:
        """Let a held job wait in Slurm."""
        self.jobs[slurm_id] = a_seen(slurm_id, **more)

    def run(self, slurm_id: str, job_id: str | None = None) -> None:
        """Let Slurm run a job where the queue put it, as it was told to."""
        list(act(self.store, Simulate()))
        names = GROUND.members(self.state.running[job_id or slurm_id].nodes)
        self.jobs[slurm_id] = on_nodes(self.jobs[slurm_id], names)
        self.mark(names, NodeState.ALLOCATED, "ALLOCATED")

    def mark(self, names: Sequence[str], state: NodeState, *words: str) -> None:
        """Let nodes be in a state."""
        self.nodes |= {name: facts(state, *words) for name in names}


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


@pytest.mark.parametrize(("is_active", "nevents"), [(True, 2), (None, 2), (False, 1)])
def test_a_job_that_a_foreign_reservation_shuts_out_is_planned_anew(
    live: Live, is_active: bool | None, nevents: int
) -> None:
    live.queue("12")
    live.look()
    names = GROUND.members(live.state.running["12"].nodes)
    live.reservations["m"] = Reservation(name="m", nodes=names[:1], start="", end="", is_active=is_active)
    if is_active is not False:
        live.mark(names[:1], NodeState.RESERVED, "IDLE", "RESERVED")
    events = live.look().events
    assert len(events) == nevents
    assert (names == GROUND.members(live.state.running["12"].nodes)) == (nevents == 1)


def test_a_started_job_that_slurm_has_not_started_yet_keeps_its_nodes(live: Live) -> None:
    live.queue("12")
    live.look()
    list(act(live.store, Simulate()))
    live.jobs["12"] = replace(live.jobs["12"], is_held=False)
    live.mark(GROUND.members(live.state.running["12"].nodes), NodeState.RESERVED, "IDLE", "PLANNED")
    assert live.difference().events == (TICK,)


def test_a_job_that_runs_and_ends(live: Live) -> None:
    live.queue("12")
    live.look()
    live.run("12")
    assert live.difference().events == (TICK,)
    del live.jobs["12"]
    live.nodes = dict(IDLE)
    assert live.look().events == (Finished(at_s=NOW_S, job_id="12"), TICK)
    assert live.store.links() == {}


def test_nodes_that_are_tidied_up_after_a_job_are_in_service(live: Live) -> None:
    live.queue("12")
    live.look()
    names = GROUND.members(live.state.running["12"].nodes)
    live.jobs["12"] = replace(on_nodes(live.jobs["12"], names), is_ending=True)
    live.mark(names, NodeState.ALLOCATED, "IDLE", "COMPLETING")
    assert live.difference().events == (TICK,)
    del live.jobs["12"]
    assert live.difference().events == (Finished(at_s=NOW_S, job_id="12"), TICK)


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


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (NodeState.DOWN, ("DOWN",)),
        (NodeState.DRAINED, ("IDLE", "DRAIN")),
        (NodeState.ALLOCATED, ("ALLOCATED",)),
        (NodeState.RESERVED, ("IDLE", "RESERVED")),
        (NodeState.RESERVED, ("IDLE", "PLANNED")),
    ],
)
def test_nodes_that_are_not_free_leave_service_and_come_back(live: Live, state: NodeState, words: list[str]) -> None:
    live.mark(["n05"], state, *words)
    assert live.look().events == (NodesDown(at_s=NOW_S, nodes=1 << 5), TICK)
    assert live.difference().events == (TICK,)
    live.nodes = dict(IDLE)
    assert live.difference().events == (NodesUp(at_s=NOW_S, nodes=1 << 5), TICK)


def test_a_node_that_slurm_does_not_know_is_out_of_service_and_said(live: Live) -> None:
    del live.nodes["n05"]
    found = live.look()
    assert found.events == (NodesDown(at_s=NOW_S, nodes=1 << 5), TICK)
    assert found.remarks == ("Slurm does not know n05; they are out of service",)


def test_nodes_reserved_for_the_queues_own_jobs_are_in_service(live: Live) -> None:
    live.store.step(submitted("llm", 3, expected_start_s=OPENED_S + 3600))
    names = GROUND.members(live.state.reservations["llm"].nodes)
    live.mark(names, NodeState.RESERVED, "IDLE", "RESERVED")
    name = "spanfit-llm"
    live.reservations[name] = Reservation(name=name, nodes=names, start="", end="", is_active=True)
    assert live.difference().events == (TICK,)
    live.mark(names[:1], NodeState.RESERVED, "IDLE", "RESERVED", "MAINTENANCE")
    assert live.difference().events[0] == NodesDown(at_s=NOW_S, nodes=GROUND.node_set(names[:1]))


def test_a_node_that_drains_under_a_job_leaves_when_the_job_ends(live: Live) -> None:
    live.queue("12")
    live.look()
    live.run("12")
    names = GROUND.members(live.state.running["12"].nodes)
    live.mark(names[:1], NodeState.DRAINED, "ALLOCATED", "DRAIN")
    assert live.difference().events == (TICK,)
    del live.jobs["12"]
    live.nodes = dict(IDLE)
    live.mark(names[:1], NodeState.DRAINED, "IDLE", "DRAIN")
    live.look()
    assert live.state.up == GROUND.everything & ~GROUND.node_set(names[:1])
    assert (live.state.running, live.state.waiting) == ({}, {})


def test_a_node_that_dies_before_its_job_started_frees_the_job(live: Live) -> None:
    live.queue("12")
    live.look()
    first = live.state.running["12"].nodes
    live.mark(GROUND.members(first)[:1], NodeState.DOWN, "DOWN")
    live.look({"12": (TaskKind.START, Outcome.FAILED)})
    again = live.state.running["12"].nodes
    assert again != first
    assert again & ~live.state.up == 0


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


def test_a_node_taken_by_a_stranger_frees_the_job_that_was_to_start_on_it(live: Live) -> None:
    live.queue("12")
    live.look()
    names = GROUND.members(live.state.running["12"].nodes)
    live.jobs["99"] = on_nodes(a_seen("99", is_marked=False), names[:1])
    live.mark(names[:1], NodeState.ALLOCATED, "ALLOCATED")
    live.look({"12": (TaskKind.START, Outcome.FAILED)})
    assert not live.state.running["12"].nodes & GROUND.node_set(names[:1])

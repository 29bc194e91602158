from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import act
from spanfit.queue.acting.simulate_actuator import Simulate
from spanfit.queue.model.events import Finished, NodesDown, NodesUp
from spanfit.queue.state.tasks import Outcome, TaskKind
from spanfit.topology.model import NodeState
from spanfit.topology.reading import Reservation
from tests.unit.queue.acting.live import IDLE, NOW_S, TICK, Live, a_seen, on_nodes
from tests.unit.queue.stores import GROUND, OPENED_S, submitted


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path / "q.sqlite")


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


def test_nodes_that_are_tidied_up_after_a_job_are_in_service(live: Live) -> None:
    live.queue("12")
    live.look()
    names = GROUND.members(live.state.running["12"].nodes)
    live.jobs["12"] = replace(on_nodes(live.jobs["12"], names), is_ending=True)
    live.mark(names, NodeState.ALLOCATED, "IDLE", "COMPLETING")
    assert live.difference().events == (TICK,)
    del live.jobs["12"]
    assert live.difference().events == (Finished(at_s=NOW_S, job_id="12"), TICK)


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


def test_a_node_taken_by_a_stranger_frees_the_job_that_was_to_start_on_it(live: Live) -> None:
    live.queue("12")
    live.look()
    names = GROUND.members(live.state.running["12"].nodes)
    live.jobs["99"] = on_nodes(a_seen("99", is_marked=False), names[:1])
    live.mark(names[:1], NodeState.ALLOCATED, "ALLOCATED")
    live.look({"12": (TaskKind.START, Outcome.FAILED)})
    assert not live.state.running["12"].nodes & GROUND.node_set(names[:1])

"""A queue and a Slurm beside it, as tests change them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spanfit.queue.acting.deeds import act
from spanfit.queue.acting.happenings import Difference, Memory, events_of
from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.simulate_actuator import Simulate
from spanfit.queue.model.events import Ticked
from spanfit.queue.model.state import QueueState
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, TaskKind
from spanfit.topology.model import NodeState
from spanfit.topology.reading import NodeFacts, Reservation
from tests.unit.queue.stores import GROUND, OPENED_S, new_store

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

"""The queue over a modelled Slurm in which everything goes wrong: what it believes comes to be what is.

The model starts a released job on the nodes it requires once they are idle, as Slurm does, and refuses what Slurm
refuses. Commands fail at random, done or not; jobs end, are requeued, cancelled and started by other hands; nodes die
and drain.
"""

import random
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import Deed, act
from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.slurm_actuator import Slurm
from spanfit.queue.acting.slurm_commands import Site
from spanfit.queue.acting.tick import difference_of, note
from spanfit.queue.model.events import Submitted
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import Overrun, PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.state.invariants import faults
from spanfit.queue.state.replay import differences
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome
from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.model import NodeState
from spanfit.topology.probe_slurm import Answer
from spanfit.topology.reading import NodeFacts, Reservation

OPENED_S = 1_764_540_000.0
STEPS = 120
QUIET_TICKS = 40
GROUND = Ground(
    names=tuple(f"n{number:02d}" for number in range(16)),
    minipods=tuple(number // 4 for number in range(16)),
    labels=("a", "b", "c", "d"),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the model has it; it runs where it has nodes."""

    number: str
    name: str
    nnodes: int
    is_marked: bool
    is_held: bool
    wanted: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    reservation: str = ""


class RefusedError(Exception):
    """The model does not do what it was told."""


class ModelSlurm:
    """Slurm, as far as the queue sees and tells it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.failures = rng, 0.15
        self.jobs: dict[str, Job] = {}
        self.states = dict.fromkeys(GROUND.names, NodeState.IDLE)
        self.reservations: dict[str, tuple[str, ...]] = {}
        self.count = 0

    def submit(self, nnodes: int, name: str = "sh", *, is_marked: bool = True, is_held: bool = True) -> str:
        """Queue a job."""
        self.count += 1
        number = str(self.count)
        self.jobs[number] = Job(number=number, name=name, nnodes=nnodes, is_marked=is_marked, is_held=is_held)
        return number

    def busy(self) -> set[str]:
        """Return the nodes that jobs run on."""
        return {name for job in self.jobs.values() for name in job.nodes}

    def schedule(self) -> None:
        """Start what is released and can be."""
        for job in self.jobs.values():
            if job.nodes or job.is_held:
                continue
            closed = {name for held, names in self.reservations.items() if held != job.reservation for name in names}
            free = [n for n in GROUND.names if self.states[n] is NodeState.IDLE and n not in self.busy() | closed]
            chosen = tuple(job.wanted or free[: job.nnodes])
            if len(chosen) == job.nnodes and set(chosen) <= set(free):
                self.jobs[job.number] = replace(job, nodes=chosen)

    def tell(self, argv: tuple[str, ...]) -> Answer:
        """Do what a command says, or refuse; now and then the answer is lost, whether it was done or not."""
        is_lost, is_done = self.rng.random() < self.failures, self.rng.random() < 0.5
        try:
            if not is_lost or is_done:
                self._do(list(argv))
            if is_lost:
                raise RefusedError("Socket timed out")
        except RefusedError as error:
            return Answer(argv=argv, code=1, out="", err=str(error))
        return Answer(argv=argv, code=0, out="", err="")

    def _do(self, argv: list[str]) -> None:
        values = dict(word.split("=", 1) for word in argv if "=" in word)
        match argv[:2]:
            case ["scancel", number]:
                self.jobs.pop(number, None)
            case ["scontrol", "release"]:
                self._change(argv[2], lambda job: not job.nodes, is_held=False)
            case ["scontrol", "uhold"]:
                self._change(argv[2], lambda job: True, is_held=True)
            case ["scontrol", "requeuehold"]:
                self._change(argv[2], lambda job: bool(job.nodes), is_held=True, nodes=())
            case ["scontrol", "update"] if "JobId" in values:
                held = values.get("ReservationName", "")
                if held and held not in self.reservations:
                    raise RefusedError("Requested reservation is invalid")
                nodes = {"wanted": expand_hostlist(values["ReqNodeList"])} if "ReqNodeList" in values else {}
                self._change(values["JobId"], lambda job: not job.nodes, reservation=held, **nodes)
            case ["scontrol", "create" | "update"]:
                self._reserve(values["ReservationName"], expand_hostlist(values["Nodes"]), is_new=argv[1] == "create")
            case ["scontrol", "delete"]:
                self._delete(values["ReservationName"])
            case _:
                raise AssertionError(f"the model knows no {argv}")

    def _change(self, number: str, may: Callable[[Job], bool], **changes: object) -> None:
        if number not in self.jobs or not may(self.jobs[number]):
            raise RefusedError(f"Job/step of {number} is not in a state for this")
        self.jobs[number] = replace(self.jobs[number], **changes)  # type: ignore[arg-type]

    def _reserve(self, name: str, nodes: tuple[str, ...], *, is_new: bool) -> None:
        if is_new == (name in self.reservations):
            raise RefusedError("Requested reservation name exists, or does not")
        self.reservations[name] = nodes

    def _delete(self, name: str) -> None:
        if name not in self.reservations:
            raise RefusedError("Requested reservation is invalid")
        if any(job.nodes and job.reservation == name for job in self.jobs.values()):
            raise RefusedError("Requested reservation is in use")
        del self.reservations[name]

    def seen(self, now_s: float) -> Seen:
        """Return what the queue would read."""
        busy = self.busy()
        held = {name for names in self.reservations.values() for name in names}
        return Seen(
            nodes={name: _facts(name, state, name in busy, name in held) for name, state in self.states.items()},
            jobs=tuple(_seen_job(job, now_s) for job in self.jobs.values()),
            reservations={
                name: Reservation(name=name, nodes=nodes, start="", end="", is_active=True)
                for name, nodes in self.reservations.items()
            },
        )


def _facts(name: str, state: NodeState, is_busy: bool, is_held: bool) -> NodeFacts:
    if state is not NodeState.IDLE:
        return NodeFacts(name=name, state=state, words=(state.name,))
    if is_busy:
        return NodeFacts(name=name, state=NodeState.ALLOCATED, words=("ALLOCATED",))
    found = NodeState.RESERVED if is_held else state
    return NodeFacts(name=name, state=found, words=("IDLE", "RESERVED") if is_held else ("IDLE",))


def _seen_job(job: Job, now_s: float) -> SeenJob:
    return SeenJob(
        slurm_id=job.number,
        name=job.name,
        user="ann",
        account="",
        is_pending=not job.nodes,
        is_ending=False,
        is_held=job.is_held,
        nnodes=job.nnodes,
        ncpus=job.nnodes,
        ngpus=0,
        time_limit_s=7200.0,
        submitted_s=now_s,
        nodes=job.nodes,
        reservation=job.reservation,
        is_marked=job.is_marked,
        wishes={"is_preemptable": True, "mean_s": 1800.0} if int(job.number) % 3 == 0 else {"mean_s": 3600.0},
    )


class World:
    """A queue, a Slurm, what happens to both, and an administrator who does what he is told some time later."""

    def __init__(self, path: Path, seed: int, rules: QueueRules, *, may_operate: bool) -> None:
        self.rng, self.now_s = random.Random(seed), OPENED_S
        self.may_operate = may_operate
        self.told: list[str] = []
        self.slurm = ModelSlurm(self.rng)
        opening = QueueState(ground=GROUND, now_s=OPENED_S, up=GROUND.everything)
        self.store = QueueStore.create(path, opening, rules, decide, choose)
        self.announced = 0

    def tick(self) -> list[Deed]:
        """Let the queue look, decide and act, and Slurm schedule."""
        self.now_s += self.rng.choice([20.0, 60.0, 600.0])
        seen = self.slurm.seen(self.now_s)
        difference = difference_of(self.store, seen, self.now_s)
        site = Site(ground=GROUND, user="ann")
        actuator = Slurm(site, seen, self.store.links, may_operate=self.may_operate, tell=self.slurm.tell)
        note(self.store, difference)
        done = list(act(self.store, actuator, with_told=True))
        self.told = [deed.text for deed in done if deed.outcome is Outcome.TOLD]
        self.slurm.schedule()
        assert faults(self.store.state()) == ()
        return done

    def administer(self) -> None:
        """Let the administrator run what he was told at the last tick, whatever Slurm says to it."""
        failures, self.slurm.failures = self.slurm.failures, 0.0
        for line in "\n".join(self.told).splitlines():
            if not line.startswith("#"):
                self.slurm.tell(tuple(shlex.split(line)))
        self.told, self.slurm.failures = [], failures
        self.slurm.schedule()

    def happen(self) -> None:
        """Let one thing happen."""
        rng, slurm = self.rng, self.slurm
        numbers = [*slurm.jobs]
        running = [number for number, job in slurm.jobs.items() if job.nodes]
        name = rng.choice(GROUND.names)
        match rng.choices(_THINGS, _SHARES)[0]:
            case "submit":
                slurm.submit(rng.randint(1, 10))
            case "unheld":
                slurm.submit(rng.randint(1, 4), is_held=False)
            case "stranger":
                slurm.submit(rng.randint(1, 3), is_marked=False, is_held=False)
            case "announce":
                self._announce()
            case "end" if running:
                del slurm.jobs[rng.choice(running)]
            case "cancel" if numbers:
                del slurm.jobs[rng.choice(numbers)]
            case "requeue" if running:
                number = rng.choice(running)
                slurm.jobs[number] = replace(slurm.jobs[number], nodes=(), is_held=rng.random() < 0.5)
            case "release" if numbers:
                number = rng.choice(numbers)
                slurm.jobs[number] = replace(slurm.jobs[number], is_held=False)
            case "die":
                slurm.states[name] = NodeState.DOWN
                for number, job in list(slurm.jobs.items()):
                    if name in job.nodes:
                        slurm.jobs[number] = replace(job, nodes=(), is_held=False)
            case "drain":
                slurm.states[name] = NodeState.DRAINED
            case "return":
                slurm.states[name] = NodeState.IDLE
        slurm.schedule()

    def _announce(self) -> None:
        """Announce a job, and let it come sooner or later."""
        self.announced += 1
        name, nnodes = f"llm-{self.announced}", self.rng.randint(4, 10)
        start_s = self.now_s + self.rng.uniform(0, 3000)
        job = QueueJob(job_id=name, nnodes=nnodes, submitted_s=self.now_s, expected_start_s=start_s, owner="ann")
        self.store.step(Submitted(at_s=self.now_s, job=job, forecast=Forecast(mean_s=1800, upper_s=3600)))
        if self.rng.random() < 0.8:
            self.slurm.submit(nnodes, name)


_THINGS = ("submit", "unheld", "stranger", "announce", "end", "cancel", "requeue", "release", "die", "drain", "return")
_SHARES = (8, 1, 1, 3, 6, 1, 1, 1, 1, 1, 3)


@pytest.mark.parametrize("seed", range(24))
def test_the_queue_and_the_world_come_to_agree(tmp_path: Path, seed: int) -> None:
    policies = (PolicyName.SPANFIT, PolicyName.SPANFIT, PolicyName.PAPER, PolicyName.EASY)
    rules = QueueRules(policy=policies[seed % 4], overrun=list(Overrun)[seed % 3])
    world = World(tmp_path / "q.sqlite", seed, rules, may_operate=seed % 5 < 3)
    for _ in range(STEPS):
        world.happen()
        if world.rng.random() < 0.7:
            world.tick()
        if world.rng.random() < 0.2:
            world.administer()
    world.slurm.failures = 0.0
    world.slurm.states = dict.fromkeys(GROUND.names, NodeState.IDLE)
    for nticks in range(3 * QUIET_TICKS):
        last = world.tick()
        world.administer()
        if nticks >= QUIET_TICKS and not any(deed.is_news for deed in last):
            break
    state, there = world.store.state(), world.slurm.jobs
    links = world.store.links()
    assert [deed.text for deed in last if deed.outcome is Outcome.FAILED] == []
    for job_id, run in state.running.items():
        assert job_id in links, f"{job_id} is no job of Slurm"
        assert sorted(there[links[job_id]].nodes) == sorted(GROUND.members(run.nodes)), job_id
    ours = {links[job_id] for job_id in state.running}
    strays = {number for number, job in there.items() if job.nodes and number not in ours}
    for number in strays:
        assert set(there[number].nodes).isdisjoint(GROUND.members(state.up)), f"{number} is on nodes of the queue"
    for number, job in there.items():
        if job.is_marked and not job.nodes:
            assert number in links.values(), f"{number} waits in Slurm and not in the queue"
            assert job.is_held, f"{number} waits, and Slurm may start it"
    reserved = {re.sub("^spanfit-", "", name) for name in world.slurm.reservations}
    assert reserved <= state.reservations.keys() | state.running.keys()
    records = world.store.records()
    assert list(differences(world.store.opening(), records, state, decide, choose)) == []

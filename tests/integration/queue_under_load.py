"""A queue under load for tests that kill it: jobs come, run and end, nodes die and return, and all of it is acted on.

The world is a file to which the actuator appends a line for each deed, so that what was done can be told from what the
queue believes.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

from spanfit.queue.acting.deeds import Deed, act
from spanfit.queue.model.events import Arrived, Cancelled, Event, Finished, NodesDown, NodesUp, Submitted, Ticked
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, Task, TaskKind

OPENED_S = 1_764_540_000.0
GROUND = Ground(
    names=tuple(f"n{number:02d}" for number in range(48)),
    minipods=tuple(number // 12 for number in range(48)),
    labels=("a", "b", "c", "d"),
)


def open_store(path: Path) -> QueueStore:
    """Return the queue of a file."""
    return QueueStore(path, decide, choose)


def new_store(path: Path) -> QueueStore:
    """Return a queue of 48 nodes in a new file."""
    opening = QueueState(ground=GROUND, now_s=OPENED_S, up=GROUND.everything)
    return QueueStore.create(path, opening, QueueRules(), decide, choose)


class World:
    """Where jobs really run: a file with a line for each deed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def carry_out(self, task: Task) -> Deed:
        """Append a deed; it reaches the file whole."""
        line = f"{task.kind} {task.job_id} {','.join(map(str, task.order))}\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        return Deed(task=task, outcome=Outcome.DONE, text=line)

    def running(self) -> dict[str, tuple[int, ...]]:
        """Return what runs where, as far as deeds have come; jobs that ended by themselves are among it."""
        found: dict[str, tuple[int, ...]] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            kind, job_id, order = line.split(" ")
            if kind == TaskKind.START:
                found[job_id] = tuple(map(int, order.split(",")))
            elif kind in (TaskKind.PREEMPT, TaskKind.CANCEL):
                found.pop(job_id, None)
        return found


def next_event(state: QueueState, rng: random.Random, number: int) -> Event:
    """Return something that may happen now."""
    at_s = state.now_s + rng.uniform(-120, 900)
    job_id, ids = f"j{number}", sorted(state.waiting.keys() | state.running.keys())
    match rng.choices(["submit", "announce", "arrive", "finish", "cancel", "down", "up", "tick"], _SHARES)[0]:
        case "submit" if len(state.waiting) < 40:
            return _submitted(job_id, rng.randint(1, 16), at_s, rng)
        case "announce" if len(state.waiting) < 40:
            return _submitted(job_id, rng.randint(8, 30), at_s, rng, expected_start_s=at_s + rng.uniform(600, 7200))
        case "arrive" if ids:
            return Arrived(at_s=at_s, job_id=rng.choice(ids))
        case "finish" if state.running:
            return Finished(at_s=at_s, job_id=rng.choice(sorted(state.running)))
        case "cancel" if ids:
            return Cancelled(at_s=at_s, job_id=rng.choice(ids))
        case "down":
            return NodesDown(at_s=at_s, nodes=1 << rng.randrange(48))
        case "up":
            return NodesUp(at_s=at_s, nodes=GROUND.everything)
    return Ticked(at_s=at_s)


_SHARES = (8, 2, 3, 6, 1, 1, 1, 2)


def _submitted(job_id: str, nnodes: int, at_s: float, rng: random.Random, **more: float) -> Event:
    job = QueueJob(job_id=job_id, nnodes=nnodes, submitted_s=at_s, is_preemptable=rng.random() < 0.4, **more)  # type: ignore[arg-type]
    mean_s = rng.uniform(300, 7200)
    return Submitted(at_s=at_s, job=job, forecast=Forecast(mean_s=mean_s, upper_s=mean_s * 1.5))


def drive(path: Path, world: World, seed: int, *, steps: int, ready: Callable[[QueueStore], None]) -> None:
    """Let things happen to a queue, and act on them now and then."""
    rng = random.Random(seed)
    with open_store(path) as store:
        ready(store)
        for number in range(steps):
            store.step(next_event(store.state(), rng, seed * steps + number))
            if number % 3 == 2:
                for _ in act(store, world):
                    pass

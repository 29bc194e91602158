"""Queues in files for tests: a small cluster, jobs that are quick to write down."""

from pathlib import Path

from spanfit.queue.model.events import Event, Submitted
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.state.store import QueueStore

OPENED_S = 1_764_540_000.0
GROUND = Ground(
    names=tuple(f"n{number:02d}" for number in range(12)),
    minipods=(0,) * 4 + (1,) * 4 + (2,) * 4,
    labels=("east", "mid", "west"),
)


def new_store(path: Path, rules: QueueRules | None = None, ground: Ground = GROUND) -> QueueStore:
    """Return a queue of twelve nodes in a new file."""
    opening = QueueState(ground=ground, now_s=OPENED_S, up=ground.everything)
    return QueueStore.create(path, opening, rules or QueueRules(), decide, choose)


def open_store(path: Path, wait_s: float = 1.0) -> QueueStore:
    """Return the queue of a file."""
    return QueueStore(path, decide, choose, wait_s)


def a_job(job_id: str, nnodes: int, at_s: float = OPENED_S, **more: object) -> QueueJob:
    """Return a job of ann's."""
    fields: dict[str, object] = {"owner": "ann"} | more
    return QueueJob(job_id=job_id, nnodes=nnodes, submitted_s=at_s, **fields)  # type: ignore[arg-type]


def submitted(job_id: str, nnodes: int, at_s: float = OPENED_S, hours: float = 1.0, **more: object) -> Event:
    """Return the submission of a job that is predicted to run some hours, at most half as long again."""
    forecast = Forecast(mean_s=hours * 3600, upper_s=hours * 5400)
    return Submitted(at_s=at_s, job=a_job(job_id, nnodes, at_s, **more), forecast=forecast)

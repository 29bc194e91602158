"""A small queue: grounds, jobs, and a desk on which events follow each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from spanfit.queue.model.events import (
    Arrived,
    Cancelled,
    Decision,
    DecisionKind,
    Event,
    Finished,
    NodesDown,
    NodesUp,
    Submitted,
    Ticked,
)
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide

HOUR_S = 3600.0


def ground(*sizes: int) -> Ground:
    """Return a ground whose minipods have these numbers of nodes: a0, a1, ..., b0, ..."""
    labels = tuple("abcdefghijklmnopqrstuvwxyz"[: len(sizes)])
    places = [
        (minipod, node) for minipod, size in enumerate(sizes) for minipod, node in product((minipod,), range(size))
    ]
    return Ground(
        names=tuple(f"{labels[minipod]}{node}" for minipod, node in places),
        minipods=tuple(minipod for minipod, _ in places),
        labels=labels,
    )


def job(job_id: str, nnodes: int, **values: Any) -> QueueJob:
    """Return a job submitted at time 0 unless said otherwise."""
    return QueueJob(**{"job_id": job_id, "nnodes": nnodes, "submitted_s": 0.0, **values})


@dataclass
class Bench:
    """A queue to which things happen, one after the other."""

    ground: Ground
    rules: QueueRules = field(default_factory=QueueRules)
    state: QueueState = field(init=False)
    events: list[Event] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = QueueState(ground=self.ground, now_s=0.0, up=self.ground.everything)

    def happen(self, event: Event) -> tuple[Decision, ...]:
        self.events.append(event)
        self.state, decided = decide(self.state, event, self.rules, choose)
        self.decisions += decided
        return decided

    def submit(
        self, job_id: str, nnodes: int, lasts_s: float, *, at_s: float = 0.0, **values: Any
    ) -> Mapping[str, str]:
        """Submit a job whose mean forecast is ``lasts_s`` and whose upper one is too unless given."""
        upper_s = values.pop("upper_s", lasts_s)
        given = job(job_id, nnodes, **{"submitted_s": at_s, **values})
        forecast = Forecast(mean_s=lasts_s, upper_s=upper_s)
        return kinds(self.happen(Submitted(at_s=at_s, job=given, forecast=forecast)))

    def announce(
        self, job_id: str, nnodes: int, lasts_s: float, *, arrives_s: float, **values: Any
    ) -> Mapping[str, str]:
        return self.submit(job_id, nnodes, lasts_s, expected_start_s=arrives_s, **values)

    def arrive(self, job_id: str, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(Arrived(at_s=at_s, job_id=job_id)))

    def finish(self, job_id: str, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(Finished(at_s=at_s, job_id=job_id)))

    def cancel(self, job_id: str, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(Cancelled(at_s=at_s, job_id=job_id)))

    def down(self, *names: str, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(NodesDown(at_s=at_s, nodes=self.ground.node_set(names))))

    def back(self, *names: str, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(NodesUp(at_s=at_s, nodes=self.ground.node_set(names))))

    def tick(self, at_s: float) -> Mapping[str, str]:
        return kinds(self.happen(Ticked(at_s=at_s)))

    def names(self, job_id: str) -> tuple[str, ...]:
        """Return the nodes of a running job or, where it waits, of its reservation."""
        held = self.state.running.get(job_id) or self.state.reservations[job_id]
        return self.ground.members(held.nodes)

    def last(self, job_id: str) -> Decision:
        """Return the last decision about a job."""
        return next(each for each in reversed(self.decisions) if each.job_id == job_id)


def kinds(decisions: tuple[Decision, ...]) -> dict[str, str]:
    """Return what was decided of each job last."""
    return {each.job_id: str(each.kind) for each in decisions}


def started(decisions: tuple[Decision, ...]) -> list[str]:
    """Return the jobs that started, in order."""
    return [each.job_id for each in decisions if each.kind is DecisionKind.START]

"""A replay of jobs over a cluster: the live queue's own decisions, on a clock that jumps from event to event.

The policy sees what a queue sees: forecasts and time limits, never how long a job really runs. Whoever replays hands
in the decision function, the chooser and the faults, so that the same jobs can be replayed under any policy.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from spanfit.queue.model.events import (
    Arrived,
    Decision,
    DecisionKind,
    Event,
    Finished,
    NodesDown,
    NodesUp,
    Submitted,
    Ticked,
)
from spanfit.queue.model.jobs import Chooser, Forecast, QueueJob
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.simulate.ledger import Ledger
from spanfit.queue.simulate.outcome import Lost, ReplayOutcome

Decide = Callable[[QueueState, Event, QueueRules, Chooser], tuple[QueueState, tuple[Decision, ...]]]
"""The decision function of the queue."""

Entry = tuple[float, int, int, Event, int]
"""Time [s], rank among events of one time, number, event, and the run that a Finished ends (0 for other events)."""

_RANKS: dict[type, int] = {Finished: 0, NodesUp: 1, NodesDown: 2, Submitted: 3, Arrived: 4, Ticked: 5}
"""What goes first of events at one time: what frees nodes, then what wants them."""

_COMING = {_RANKS[kind] for kind in (Finished, Submitted, Arrived)}
"""Without any of these to come, only time and faults can change the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A job as the queue knows it, and what the queue does not know of it.

    Attributes
    ----------
    job : QueueJob
        ``submitted_s`` is when it is submitted, or announced where it has an expected start.
    forecast : Forecast
        What the policy is told.
    runtime_s : float
        How long it really runs; a time limit cuts it [s].
    arrives_s : float or None
        When an announced job is really there, Unix time [s]; None for a job that is not announced.

    Raises
    ------
    ValueError
        If an announced job never arrives, or another does.
    """

    job: QueueJob
    forecast: Forecast
    runtime_s: float
    arrives_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse an announced job that never comes and an ordinary one that comes twice."""
        if self.job.is_announced != (self.arrives_s is not None):
            raise ValueError(
                f"job {self.job.job_id}: expected_start_s is {self.job.expected_start_s} and arrives_s is "
                f"{self.arrives_s}; expected both for an announced job, neither for another"
            )

    @property
    def limited_s(self) -> float:
        """How long it runs if nothing stops it [s]."""
        return self.runtime_s if self.job.time_limit_s is None else min(self.runtime_s, self.job.time_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """How a replay treats what it measures; the policy's own rules are QueueRules.

    Attributes
    ----------
    ngpus_per_node : int
    checkpoint_s : float
        A job that is stopped keeps what it did up to its last checkpoint, one each so many seconds of its run;
        infinite where it starts from nothing.
    sample_s : float
        Between two points of the series [s].
    until_s : float
        The replay ends there at the latest, Unix time [s].
    """

    ngpus_per_node: int = 8
    checkpoint_s: float = math.inf
    sample_s: float = 60.0
    until_s: float = math.inf


class Replay:
    """One run of jobs through the queue.

    Parameters
    ----------
    jobs : sequence of ReplayJob
    ground : Ground
    decide : Decide
    choose : Chooser
    rules : QueueRules
    replay : ReplayRules
    faults : iterable of NodesDown or NodesUp
        In the order of time; may have no end.

    Raises
    ------
    ValueError
        If two jobs have one id.
    """

    def __init__(
        self,
        jobs: Sequence[ReplayJob],
        ground: Ground,
        *,
        decide: Decide,
        choose: Chooser,
        rules: QueueRules,
        replay: ReplayRules,
        faults: Iterable[NodesDown | NodesUp] = (),
    ) -> None:
        self._jobs = {each.job.job_id: each for each in jobs}
        if len(self._jobs) != len(jobs):
            raise ValueError(f"{len(jobs)} jobs have {len(self._jobs)} ids; expected an id for each")
        self._decide, self._choose, self._rules, self._replay = decide, choose, rules, replay
        self._start_s = min((each.job.submitted_s for each in jobs), default=0.0)
        self._state = QueueState(ground=ground, now_s=self._start_s, up=ground.everything)
        self._ledger = Ledger(
            ground,
            (each.job for each in jobs),
            start_s=self._start_s,
            sample_s=replay.sample_s,
            ngpus_per_node=replay.ngpus_per_node,
        )
        self._left_s = {job_id: each.limited_s for job_id, each in self._jobs.items()}
        self._unfinished = set(self._jobs)
        self._runs = dict.fromkeys(self._jobs, 0)
        self._started_s: dict[str, float] = {}
        self._numbers = count()
        self._heap = [self._entry(event) for each in jobs for event in _coming(each)]
        heapify(self._heap)
        self._ncoming = len(self._heap)
        self._faults = iter(faults)
        self._is_tick_due = False
        self._changed_s = self._start_s
        self._patience_s = rules.ageing_s + rules.max_late_s + rules.reserve_ahead_s + 2 * rules.interval_s
        self._push_fault()

    def run(self) -> ReplayOutcome:
        """Return what happened once every job has ended, nothing can change any more, or the time is up."""
        while self._heap and self._unfinished:
            at_s, _, _, event, run = heappop(self._heap)
            if at_s > self._replay.until_s:
                return self._ledger.close(self._replay.until_s)
            if not self._ncoming and at_s > self._changed_s + self._patience_s:
                break
            if isinstance(event, Finished):
                self._ncoming -= 1
                if self._runs[event.job_id] != run:
                    continue
            self._step(at_s, event)
        return self._ledger.close(self._state.now_s)

    def _step(self, at_s: float, event: Event) -> None:
        """Apply an event and what the policy decides on it."""
        self._ledger.advance(at_s)
        self._note(event)
        before = self._state
        self._state, decisions = self._decide(before, event, self._rules, self._choose)
        for decision in decisions:
            if decision.kind is not DecisionKind.WAIT:
                self._follow(at_s, decision)
        if self._state.reservations != before.reservations:
            self._ledger.reserve(self._state.reservations)
        self._ledger.settle()
        if self._state.waiting and not self._is_tick_due:
            self._push_tick(at_s)

    def _note(self, event: Event) -> None:
        """Keep the books of an event before the policy sees it."""
        match event:
            case Finished(job_id=job_id):
                del self._started_s[job_id]
                self._ledger.finish(job_id)
                self._unfinished.discard(job_id)
            case Submitted(job=job):
                self._ncoming -= 1
                if not job.is_announced:
                    self._ledger.wants(job.job_id)
            case Arrived(job_id=job_id):
                self._ncoming -= 1
                self._ledger.wants(job_id)
            case NodesDown(at_s=at_s, nodes=nodes):
                for job_id, running in self._state.running.items():
                    if running.nodes & nodes:
                        self._stop(at_s, job_id, Lost.FAILED)
                self._ledger.service(self._state.up & ~nodes)
                self._push_fault()
            case NodesUp(nodes=nodes):
                self._ledger.service(self._state.up | nodes)
                self._push_fault()
            case Ticked():
                self._is_tick_due = False

    def _follow(self, at_s: float, decision: Decision) -> None:
        """Do what was decided about a job."""
        job_id = decision.job_id
        self._changed_s = at_s
        match decision.kind:
            case DecisionKind.START:
                self._runs[job_id] += 1
                self._started_s[job_id] = at_s
                self._ledger.start(job_id, decision.order)
                self._push(Finished(at_s=at_s + self._left_s[job_id], job_id=job_id), self._runs[job_id])
            case DecisionKind.PREEMPT if job_id in self._started_s:
                self._stop(at_s, job_id, Lost.PREEMPTED)
            case DecisionKind.REFUSE:
                self._ledger.refuse(job_id)
                self._unfinished.discard(job_id)

    def _stop(self, at_s: float, job_id: str, why: Lost) -> None:
        """End a run of a job that has more to do; what it did after its last checkpoint is lost."""
        self._runs[job_id] += 1
        ran_s = at_s - self._started_s.pop(job_id)
        lost_s = math.fmod(ran_s, self._replay.checkpoint_s)
        self._left_s[job_id] -= ran_s - lost_s
        self._ledger.stop(job_id, why, lost_s)

    def _push(self, event: Event, run: int = 0) -> None:
        """Put an event among those to come."""
        self._ncoming += _RANKS[type(event)] in _COMING
        heappush(self._heap, self._entry(event, run))

    def _entry(self, event: Event, run: int = 0) -> Entry:
        return event.at_s, _RANKS[type(event)], next(self._numbers), event, run

    def _push_fault(self) -> None:
        if fault := next(self._faults, None):
            self._push(fault)

    def _push_tick(self, now_s: float) -> None:
        """Let the queue be looked at again at the next whole interval, which rounding must not make this one."""
        interval_s = self._rules.interval_s
        tick_s = self._start_s + interval_s * (math.floor((now_s - self._start_s) / interval_s) + 1)
        self._is_tick_due = True
        self._push(Ticked(at_s=tick_s if tick_s > now_s else tick_s + interval_s))


def _coming(each: ReplayJob) -> Iterator[Submitted | Arrived]:
    """Yield what the queue will hear of a job from outside."""
    yield Submitted(at_s=each.job.submitted_s, job=each.job, forecast=each.forecast)
    if each.arrives_s is not None:
        yield Arrived(at_s=each.arrives_s, job_id=each.job.job_id)

"""Queues to which anything may happen: what must hold after every event, under every policy."""

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from spanfit.queue.model.rules import Overrun, PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.occupancy import counted_s, expected_end_s, has_outrun, predicted_end_s, queue_key, suitable
from spanfit.queue.policy.passes import RESERVING
from spanfit.queue.state.invariants import faults
from tests.unit.queue.factory import HOUR_S

GROUND = Ground(
    names=tuple(f"n{node}" for node in range(24)),
    minipods=tuple(node // 6 for node in range(24)),
    labels=("a", "b", "c", "d"),
    gpu_models=tuple("AAB"[node % 3] for node in range(24)),
)
RULES = QueueRules(ageing_s=2 * HOUR_S, reserve_ahead_s=8 * HOUR_S, max_late_s=HOUR_S)

minutes = st.integers(0, 480).map(lambda count: count * 60.0)
nodes = st.integers(0, 23)
sizes = st.one_of(st.integers(1, 4), st.integers(6, 18), st.integers(12, 25))


class Queue(RuleBasedStateMachine):
    """A queue of 24 nodes; jobs keep to their forecasts where ``is_truthful``, and have some where ``is_predicted``."""

    @initialize(
        policy=st.sampled_from([PolicyName.SPANFIT, *PolicyName]),
        overrun=st.sampled_from(Overrun),
        depth=st.sampled_from((2, 500)),
        is_truthful=st.sampled_from((True, True, False)),
        is_predicted=st.sampled_from((True, True, True, False)),
    )
    def open(self, policy: PolicyName, overrun: Overrun, depth: int, is_truthful: bool, is_predicted: bool) -> None:
        self.site = replace(RULES, policy=policy, overrun=overrun, depth=depth)
        self.is_truthful, self.is_predicted = is_truthful, is_predicted
        self.first = self.state = QueueState(ground=GROUND, now_s=0.0, up=GROUND.everything)
        self.events: list[Event] = []
        self.decisions: list[Decision] = []
        self.left_s: dict[str, float] = {}
        self.ends_s: dict[str, float] = {}
        self.head, self.deadline_s = "", 0.0
        self.burst(0)

    def happen(self, event: Event) -> None:
        before, rules = self.state, self.site
        self.state, decided = decide(before, event, rules, choose)
        afresh = decide(loaded(before), event, rules, choose)
        assert afresh == (self.state, decided), (
            "what is kept beside a state, or the order of its jobs, changed a decision"
        )
        self.events.append(event)
        self.decisions += decided
        begun = [each.job_id for each in decided if each.kind is DecisionKind.START]
        assert len(set(begun)) == len(begun)
        assert all(job_id in self.state.running for job_id in begun), "a job starts only to be stopped"
        for each in decided:
            self.follow(before, event, each)
        self.watch_the_head(event, decided)

    def follow(self, before: QueueState, event: Event, each: Decision) -> None:
        if each.kind is DecisionKind.START:
            self.ends_s[each.job_id] = self.state.now_s + self.left_s[each.job_id]
            self.check_start(each)
        if each.kind is DecisionKind.PREEMPT:
            self.ends_s.pop(each.job_id, None)
            self.check_stop(before, event, each)

    def check_start(self, each: Decision) -> None:
        """Only jobs that end before it, or may be stopped, start inside the zone of another."""
        run = self.state.running[each.job_id]
        if self.site.policy not in RESERVING or run.job.is_preemptable or run.job.is_announced:
            return
        for held in self.state.reservations.values():
            assert not held.nodes & run.nodes or predicted_end_s(run, self.site) < held.start_s

    def check_stop(self, before: QueueState, event: Event, each: Decision) -> None:
        """Nobody is stopped but by a fault, for being preemptable, or after outrunning, where the rules say so."""
        if isinstance(event, NodesDown) or each.job_id not in before.running:
            return
        run = before.running[each.job_id]
        outran = self.site.overrun is Overrun.PREEMPT and has_outrun(run, self.state.now_s, self.site)
        assert self.site.policy in RESERVING
        assert run.job.is_preemptable or outran

    def watch_the_head(self, event: Event, decided: tuple[Decision, ...]) -> None:
        """Note by when the longest waiting aged job must start: when all that runs or is reserved now has ended.

        Faults and what announced jobs do set a new limit.
        """
        limit_s = self.state.now_s - self.site.ageing_s
        aged = [
            each
            for each in self.state.waiting.values()
            if each.is_here and not each.job.is_announced and each.since_s <= limit_s
        ]
        head = min(aged, key=lambda each: (each.since_s, queue_key(each, self.site)), default=None)
        if head is None:
            self.head = ""
            return
        is_new = isinstance(event, NodesDown | NodesUp) or any(
            each.kind in (DecisionKind.RESERVE, DecisionKind.RELEASE, DecisionKind.PREEMPT) for each in decided
        )
        is_new = is_new or any(each.kind is DecisionKind.START and self.is_announced(each) for each in decided)
        if head.job.job_id != self.head or is_new:
            self.head = head.job.job_id
            ends = [self.told_or_true_end_s(job_id) for job_id in self.state.running]
            held = [each.end_s for each in self.state.reservations.values()]
            self.deadline_s = max([self.state.now_s, *ends, *held])
        is_feasible = (self.state.up & suitable(head.job, GROUND)).bit_count() >= head.job.nnodes
        if self.site.policy is PolicyName.SPANFIT and self.is_truthful and is_feasible:
            assert self.state.now_s <= self.deadline_s, f"{self.head} is aged and late"

    def told_or_true_end_s(self, job_id: str) -> float:
        end_s = expected_end_s(self.state.running[job_id], self.state.now_s, self.site)
        return end_s if end_s < math.inf else self.ends_s[job_id]

    def is_announced(self, each: Decision) -> bool:
        return each.job_id in self.state.running and self.state.running[each.job_id].job.is_announced

    def new(self, job: QueueJob, lasts_s: float, spread: float, truth: float) -> None:
        forecast = Forecast(mean_s=lasts_s, upper_s=lasts_s * spread)
        counted = counted_s(job, forecast, self.site)
        share = min(truth, 1.0) if self.is_truthful else truth
        limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
        self.left_s[job.job_id] = max(1.0, min(counted * share, limit_s))
        if not self.is_predicted and not job.is_announced:
            forecast = Forecast(mean_s=math.inf, upper_s=math.inf)
        self.happen(Submitted(at_s=self.state.now_s, job=job, forecast=forecast))

    @rule(
        nnodes=sizes,
        lasts_s=minutes,
        spread=st.sampled_from((1.0, 1.5, 3.0)),
        truth=st.sampled_from((0.3, 1.0, 1.7)),
        priority=st.sampled_from((0, 0, 0, 1)),
        is_preemptable=st.sampled_from((False, False, True)),
        is_limited=st.booleans(),
        gpu_model=st.sampled_from((None, None, None, None, "A", "B", "C")),
    )
    def submit(
        self,
        nnodes: int,
        lasts_s: float,
        spread: float,
        truth: float,
        priority: int,
        is_preemptable: bool,
        is_limited: bool,
        gpu_model: str | None,
    ) -> None:
        job = QueueJob(
            job_id=f"j{len(self.left_s)}",
            nnodes=nnodes,
            submitted_s=self.state.now_s,
            priority=priority,
            is_preemptable=is_preemptable,
            time_limit_s=2 * lasts_s + 60 if is_limited else None,
            gpu_model=gpu_model,
        )
        self.new(job, lasts_s + 60, spread, truth)

    @rule(seed=st.integers(0, 10**6))
    def burst(self, seed: int) -> None:
        """Submit more jobs than there is room for."""
        source = random.Random(seed)
        for _ in range(12):
            self.submit(
                nnodes=source.choice((1, 2, 4, 8, 12, 16, 20, 24)),
                lasts_s=source.choice((300.0, 3600.0, 4 * HOUR_S, 12 * HOUR_S)),
                spread=source.choice((1.0, 2.0)),
                truth=source.choice((0.2, 0.8, 1.0, 1.5)),
                priority=source.choice((0, 0, 0, 1)),
                is_preemptable=source.random() < 0.2,
                is_limited=source.random() < 0.3,
                gpu_model=source.choice((None, None, None, None, "A")),
            )

    @rule(
        nrows=st.integers(1, 5),
        ncolumns=st.integers(1, 4),
        ahead_s=st.integers(-60, 12 * 60).map(lambda count: count * 60.0),
        lasts_s=minutes,
        truth=st.sampled_from((0.5, 1.0, 1.5)),
        priority=st.sampled_from((0, 1)),
        is_preemptable=st.sampled_from((False, False, False, True)),
    )
    def announce(
        self,
        nrows: int,
        ncolumns: int,
        ahead_s: float,
        lasts_s: float,
        truth: float,
        priority: int,
        is_preemptable: bool,
    ) -> None:
        job = QueueJob(
            job_id=f"llm{len(self.left_s)}",
            nnodes=nrows * ncolumns,
            submitted_s=self.state.now_s,
            priority=priority,
            is_preemptable=is_preemptable,
            expected_start_s=self.state.now_s + ahead_s,
            nrows=nrows,
            ncolumns=ncolumns,
            alpha=0.3,
        )
        self.new(job, lasts_s + 1800, 1.2, truth)

    @precondition(lambda self: any(not each.is_here for each in self.state.waiting.values()))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        coming = [job_id for job_id, each in self.state.waiting.items() if not each.is_here]
        self.happen(Arrived(at_s=self.state.now_s, job_id=data.draw(st.sampled_from(coming))))

    @rule(data=st.data(), is_known=st.booleans())
    def cancel(self, data: st.DataObject, is_known: bool) -> None:
        known = [*self.state.waiting, *self.state.running]
        job_id = data.draw(st.sampled_from(known)) if known and is_known else "nobody"
        self.ends_s.pop(job_id, None)
        self.happen(Cancelled(at_s=self.state.now_s, job_id=job_id))

    @rule(found=st.sets(nodes, min_size=1, max_size=2))
    def break_nodes(self, found: set[int]) -> None:
        self.happen(NodesDown(at_s=self.state.now_s, nodes=sum(1 << node for node in found)))

    @rule()
    def mend_nodes(self) -> None:
        self.happen(NodesUp(at_s=self.state.now_s, nodes=GROUND.everything & ~self.state.up))

    @rule(by_s=st.one_of(st.just(60.0), st.integers(1, 90).map(lambda count: count * 60.0), minutes))
    def pass_time(self, by_s: float) -> None:
        now_s = self.state.now_s
        if by_s > 900:
            self.run_to(now_s + by_s / 2)
        self.run_to(now_s + by_s)

    def run_to(self, until_s: float) -> None:
        """Let jobs end that do so up to a time, then let the queue look."""
        while due := sorted((end_s, job_id) for job_id, end_s in self.ends_s.items() if end_s <= until_s):
            end_s, job_id = due[0]
            del self.ends_s[job_id]
            self.happen(Finished(at_s=end_s, job_id=job_id))
        self.happen(Ticked(at_s=until_s))

    @rule()
    def an_old_event(self) -> None:
        now_s = self.state.now_s
        self.happen(Finished(at_s=now_s - 100, job_id="nobody"))
        assert self.state.now_s == now_s

    @invariant()
    def is_sound(self) -> None:
        if not hasattr(self, "state"):
            return
        assert not faults(self.state)
        kept, anew = (
            Desk(state, state.now_s, self.site, choose) for state in (self.state, replace(self.state, standing=None))
        )
        for name in ("taken", "queue", "ages", "ends", "announced"):
            assert getattr(kept, name) == getattr(anew, name), name
        assert self.state.reservations.keys() <= self.state.waiting.keys()

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        state = self.first
        again: list[Decision] = []
        for event in self.events:
            state, decided = decide(state, event, self.site, choose)
            again += decided
        assert (state, again) == (self.state, self.decisions)


def loaded(state: QueueState) -> QueueState:
    """Return a state as it might come out of a store: nothing kept beside it, its jobs in another order."""
    return replace(
        state,
        standing=None,
        waiting=dict(reversed(list(state.waiting.items()))),
        running=dict(reversed(list(state.running.items()))),
        reservations=dict(reversed(list(state.reservations.items()))),
    )


Queue.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueue = Queue.TestCase


@pytest.mark.parametrize("seed", range(16))
def test_long_queues_drawn_at_random(seed: int) -> None:
    """Longer and fuller than those above, which start small so that what fails can be shortened."""
    drawn(seed).teardown()


@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_the_same_in_processes_that_hash_otherwise(seed: int) -> None:
    call = f"from tests.slow.queue.test_policy_machine import drawn; print(drawn({seed}).decisions)"
    said = [
        subprocess.run(
            [sys.executable, "-c", call],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "Decision(" in said[0]
    assert said[0] == said[1]


def drawn(seed: int) -> Queue:
    """Return a queue to which a hundred things drawn from a seed have happened."""
    source = random.Random(seed)
    queue = Queue()
    queue.open(
        policy=source.choice((*PolicyName, PolicyName.SPANFIT, PolicyName.SPANFIT, PolicyName.SPANFIT)),
        overrun=source.choice(list(Overrun)),
        depth=source.choice((2, 500, 500)),
        is_truthful=source.random() < 0.6,
        is_predicted=source.random() < 0.8,
    )
    for _ in range(100):
        source.choice(_STEPS)(queue, source)
        queue.is_sound()
    return queue


def _announce(queue: Queue, source: random.Random) -> None:
    queue.announce(
        nrows=source.randint(1, 5),
        ncolumns=source.randint(1, 4),
        ahead_s=60.0 * source.randint(-60, 720),
        lasts_s=60.0 * source.randint(0, 480),
        truth=source.choice((0.5, 1.0, 1.5)),
        priority=source.choice((0, 1)),
        is_preemptable=source.random() < 0.25,
    )


def _arrive(queue: Queue, source: random.Random) -> None:
    if coming := [job_id for job_id, each in queue.state.waiting.items() if not each.is_here]:
        queue.happen(Arrived(at_s=queue.state.now_s, job_id=source.choice(coming)))


def _cancel(queue: Queue, source: random.Random) -> None:
    if known := [*queue.state.waiting, *queue.state.running]:
        job_id = source.choice(known)
        queue.ends_s.pop(job_id, None)
        queue.happen(Cancelled(at_s=queue.state.now_s, job_id=job_id))


def _pass_time(queue: Queue, source: random.Random) -> None:
    queue.pass_time(by_s=60.0 * source.choice((1, 10, 60, source.randint(1, 480))))


_STEPS: Sequence[Callable[[Queue, random.Random], None]] = (
    lambda queue, source: queue.burst(seed=source.randrange(10**6)),
    lambda queue, source: queue.burst(seed=source.randrange(10**6)),
    lambda queue, source: queue.break_nodes(found={source.randrange(24)}),
    lambda queue, source: queue.mend_nodes(),
    _announce,
    _announce,
    _arrive,
    _arrive,
    _cancel,
    *([_pass_time] * 8),
)

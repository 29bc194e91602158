"""Replays of random jobs under every policy: what is counted adds up, and nothing that must not happens."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.queue.model.events import Decision, Event
from spanfit.queue.model.jobs import Chooser, Forecast
from spanfit.queue.model.rules import Overrun, PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.simulate.faults import FaultRates, faults
from spanfit.queue.simulate.outcome import ReplayOutcome
from spanfit.queue.simulate.replay import Replay, ReplayJob, ReplayRules
from tests.unit.queue.factory import ground, job

NNODES = 12
SIZES = (5, 4, 3)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[ReplayJob, ...]:
    """Return some jobs, a few of them announced, whose forecasts may be wrong either way."""
    found = []
    for index in range(draw(st.integers(1, 25))):
        at_s, runtime_s = draw(st.integers(0, 6000)), draw(st.integers(1, 4000))
        mean_s = runtime_s * draw(st.sampled_from([0.3, 1.0, 3.0]))
        is_announced = draw(st.integers(0, 5)) == 0
        expected_s = at_s + draw(st.integers(0, 3000)) if is_announced else None
        found.append(
            ReplayJob(
                job=job(
                    f"j{index}",
                    draw(st.integers(1, NNODES)),
                    submitted_s=float(at_s),
                    expected_start_s=expected_s,
                    is_preemptable=draw(st.booleans()),
                    time_limit_s=draw(st.sampled_from([None, 1.5 * runtime_s])),
                ),
                forecast=Forecast(mean_s=mean_s, upper_s=1.5 * mean_s),
                runtime_s=float(runtime_s),
                arrives_s=None if expected_s is None else expected_s + draw(st.sampled_from([0.0, 500.0])),
            )
        )
    return tuple(found)


def replayed(
    given_jobs: tuple[ReplayJob, ...], policy: PolicyName, overrun: Overrun, checkpoint_s: float, seed: int | None
) -> tuple[ReplayOutcome, list[Event]]:
    seen: list[Event] = []

    def spy(
        state: QueueState, event: Event, rules: QueueRules, chooser: Chooser
    ) -> tuple[QueueState, tuple[Decision, ...]]:
        seen.append(event)
        return decide(state, event, rules, chooser)

    rates = FaultRates(between_s=40_000.0, repair_s=600.0)
    outcome = Replay(
        given_jobs,
        ground(*SIZES),
        decide=spy,
        choose=choose,
        rules=QueueRules(policy=policy, overrun=overrun),
        replay=ReplayRules(sample_s=60.0, checkpoint_s=checkpoint_s),
        faults=() if seed is None else faults(NNODES, rates, start_s=0.0, seed=seed),
    ).run()
    return outcome, seen


@pytest.mark.parametrize("policy", list(PolicyName))
@settings(max_examples=40)
@given(
    given_jobs=jobs(),
    overrun=st.sampled_from(Overrun),
    checkpoint_s=st.sampled_from([200.0, float("inf")]),
    seed=st.sampled_from([None, 1, 2]),
)
def test_what_a_replay_counts_adds_up(
    policy: PolicyName, given_jobs: tuple[ReplayJob, ...], overrun: Overrun, checkpoint_s: float, seed: int | None
) -> None:
    outcome, seen = replayed(given_jobs, policy, overrun, checkpoint_s, seed)
    totals, truth = outcome.totals, {each.job.job_id: each for each in given_jobs}
    assert all(before.at_s <= after.at_s for before, after in pairwise(seen))
    assert all(each.ended_s is not None for each in outcome.jobs)
    # Every node-second with a job is either useful work or was lost to a stop.
    work = sum(each.job.nnodes * each.limited_s for each in given_jobs)
    assert totals.allocated == pytest.approx(work + totals.preempted + totals.failed)
    assert totals.allocated + totals.free <= NNODES * totals.span_s + 1e-6
    if seed is None:
        assert totals.allocated + totals.free == pytest.approx(NNODES * totals.span_s)
        assert totals.failed == totals.nfailures == 0
    assert 0 <= totals.held <= totals.idle + 1e-6
    assert totals.idle <= totals.free + 1e-6
    assert 0 <= totals.fragmented <= totals.free + 1e-6
    for each in outcome.jobs:
        own = truth[each.job_id]
        assert each.started_s is not None and each.ended_s is not None
        assert each.wanted_s == (own.job.submitted_s if own.arrives_s is None else own.arrives_s)
        assert each.ended_s - each.wanted_s >= each.waited_s + own.limited_s - 1e-6
        if not (each.npreemptions or each.nfailures):
            assert each.waited_s == pytest.approx(each.started_s - each.wanted_s)
            assert each.ended_s - each.started_s == pytest.approx(own.limited_s)
        assert 1 <= each.spread <= len(SIZES)


@pytest.mark.parametrize("policy", [PolicyName.SPANFIT, PolicyName.PAPER, PolicyName.EASY])
@settings(max_examples=15)
@given(given_jobs=jobs(), seed=st.sampled_from([None, 1]))
def test_the_truth_of_what_is_still_running_changes_nothing_before_it_shows(
    policy: PolicyName, given_jobs: tuple[ReplayJob, ...], seed: int | None
) -> None:
    """Let the longest job run longer still: until its old end, all that was decided stays the same."""
    without_limits = tuple(replace(each, job=replace(each.job, time_limit_s=None)) for each in given_jobs)
    first, _ = replayed(without_limits, policy, Overrun.PREEMPT, float("inf"), seed)
    longest = max(without_limits, key=lambda each: each.runtime_s)
    longer = tuple(
        replace(each, runtime_s=each.runtime_s + 777.0) if each is longest else each for each in without_limits
    )
    second, _ = replayed(longer, policy, Overrun.PREEMPT, float("inf"), seed)
    (own,) = (each for each in first.jobs if each.job_id == longest.job.job_id)
    assert own.ended_s is not None
    for before, after in zip(first.jobs, second.jobs, strict=True):
        if before.started_s is not None and before.started_s < own.ended_s:
            assert after.started_s == before.started_s

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from spanfit.queue.model.events import Decision, Event, NodesDown, NodesUp, Submitted, Ticked
from spanfit.queue.model.jobs import Chooser, Forecast
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.simulate.metrics import figures_of, flat_figures
from spanfit.queue.simulate.outcome import JobOutcome, ReplayOutcome
from spanfit.queue.simulate.replay import Replay, ReplayJob, ReplayRules
from tests.unit.queue.factory import ground, job

RULES = QueueRules(policy=PolicyName.PACKING)


def coming(job_id: str, nnodes: int, runtime_s: float, at_s: float = 0.0, **values: Any) -> ReplayJob:
    """Return a job whose forecast is the truth unless ``told_s`` is given."""
    told_s, arrives_s = values.pop("told_s", runtime_s), values.pop("arrives_s", None)
    return ReplayJob(
        job=job(job_id, nnodes, submitted_s=at_s, **values),
        forecast=Forecast(mean_s=told_s, upper_s=told_s),
        runtime_s=runtime_s,
        arrives_s=arrives_s,
    )


def replayed(
    jobs: Sequence[ReplayJob],
    sizes: tuple[int, ...] = (4, 4),
    *,
    rules: QueueRules = RULES,
    faults: Sequence[NodesDown | NodesUp] = (),
    **replay: Any,
) -> ReplayOutcome:
    how = ReplayRules(**{"ngpus_per_node": 1, "sample_s": 10.0, **replay})
    return Replay(jobs, ground(*sizes), decide=decide, choose=choose, rules=rules, replay=how, faults=faults).run()


def by_id(outcome: ReplayOutcome) -> dict[str, JobOutcome]:
    return {each.job_id: each for each in outcome.jobs}


def test_a_job_that_finds_no_nodes_waits_for_the_end_of_the_one_before() -> None:
    jobs = by_id(replayed([coming("a", 8, 100), coming("b", 6, 50, at_s=30), coming("c", 2, 10, at_s=40)]))
    assert [(each.started_s, each.ended_s, each.waited_s) for each in jobs.values()] == [
        (0.0, 100.0, 0.0),
        (100.0, 150.0, 70.0),
        (100.0, 110.0, 60.0),
    ]
    assert (jobs["a"].spread, jobs["b"].spread, jobs["c"].spread) == (2, 2, 1)


def test_totals_are_integrals_by_hand() -> None:
    # 8 nodes: a has 4 for 100 s; b wants 6 at 20 s and has them from 100 to 150 s.
    outcome = replayed([coming("a", 4, 100), coming("b", 6, 50, at_s=20)])
    totals = outcome.totals
    assert totals.span_s == 150
    assert totals.allocated == 4 * 100 + 6 * 50
    assert totals.free == 4 * 100 + 2 * 50
    assert totals.idle == 4 * 80
    # Sizes by nodes: 4 of 4 nodes fits a minipod, 6 does not and says nothing; a free minipod of 4 strands none,
    # and 2 of 4 free nodes strand both.
    assert totals.fragmented == 2 * 50
    figures = figures_of(outcome, largest_minipod=4)
    assert figures.allocation == pytest.approx(700 / (8 * 150))
    assert figures.fragmentation == pytest.approx(100 / 500)
    assert figures.idle_gpu_h == pytest.approx(320 / 3600)


def test_the_policy_never_sees_how_long_a_job_runs() -> None:
    seen: list[Event] = []

    def spy(
        state: QueueState, event: Event, rules: QueueRules, chooser: Chooser
    ) -> tuple[QueueState, tuple[Decision, ...]]:
        seen.append(event)
        return decide(state, event, rules, chooser)

    jobs = [coming("a", 8, 1234.5, told_s=60.0), coming("b", 8, 777.25, told_s=60.0)]
    how = ReplayRules(sample_s=60.0)
    outcome = Replay(jobs, ground(4, 4), decide=spy, choose=choose, rules=RULES, replay=how).run()
    assert outcome.totals.span_s == 1234.5 + 777.25
    told = [event.forecast.mean_s for event in seen if isinstance(event, Submitted)]
    assert told == [60.0, 60.0]
    before_first_end = [event for event in seen if event.at_s < 1234.5]
    assert all(isinstance(event, Submitted | Ticked) for event in before_first_end)


def test_the_queue_ticks_only_while_something_waits() -> None:
    ticks: list[float] = []

    def spy(
        state: QueueState, event: Event, rules: QueueRules, chooser: Chooser
    ) -> tuple[QueueState, tuple[Decision, ...]]:
        if isinstance(event, Ticked):
            ticks.append(event.at_s)
        return decide(state, event, rules, chooser)

    jobs = [coming("a", 8, 200), coming("b", 8, 1000, at_s=70)]
    Replay(jobs, ground(4, 4), decide=spy, choose=choose, rules=RULES, replay=ReplayRules()).run()
    assert ticks == [120.0, 180.0, 240.0]


def test_time_goes_on_wherever_it_begins() -> None:
    # From here 60 s later is, rounded, less than 60 s later: the next whole interval must not be the present one.
    start_s = 4.221509388633
    assert (start_s + 60.0 - start_s) / 60.0 < 1
    a, b = replayed([coming("a", 8, 200, at_s=start_s), coming("b", 8, 1, at_s=start_s)]).jobs
    assert a.ended_s is not None and b.started_s == a.ended_s


def test_a_failed_node_ends_its_job_which_starts_again_from_its_last_checkpoint() -> None:
    # One job on all 8 nodes fails after 70 s, when 60 s are kept; the node is back at 100 s.
    down, up = NodesDown(at_s=70.0, nodes=1), NodesUp(at_s=100.0, nodes=1)
    outcome = replayed([coming("a", 8, 90)], faults=[down, up], checkpoint_s=30.0)
    (a,) = outcome.jobs
    assert (a.nfailures, a.npreemptions, a.ended_s, a.waited_s) == (1, 0, 130.0, 30.0)
    assert outcome.totals.failed == 8 * 10
    assert replayed([coming("a", 8, 90)], faults=[down, up]).totals.failed == 8 * 70


def test_a_job_moves_to_other_nodes_at_once_when_its_own_fails() -> None:
    (a,) = replayed([coming("a", 4, 90)], faults=[NodesDown(at_s=70.0, nodes=0b1)]).jobs
    assert (a.ended_s, a.waited_s, a.nfailures) == (160.0, 0.0, 1)


def test_a_preemptable_job_is_stopped_for_an_announced_one_and_runs_later() -> None:
    lpj = coming("lpj", 8, 100, at_s=0, expected_start_s=600.0, arrives_s=600.0)
    outcome = replayed(
        [coming("a", 3, 10_000, is_preemptable=True), lpj], rules=QueueRules(policy=PolicyName.SPANFIT), until_s=3000.0
    )
    jobs = by_id(outcome)
    assert (jobs["lpj"].delay_s, jobs["lpj"].retention, jobs["lpj"].short) == (0.0, 3 / 8, 3 / 8)
    assert (jobs["a"].npreemptions, jobs["a"].waited_s, jobs["a"].ended_s) == (1, 100.0, None)
    assert outcome.totals.preempted == 3 * 600
    reserved, running = outcome.calendar
    assert (reserved.from_s, reserved.to_s, reserved.is_running) == (0.0, 600.0, False)
    assert (running.from_s, running.to_s, running.is_running) == (600.0, 700.0, True)


def test_retention_falls_as_jobs_leave_the_planned_nodes() -> None:
    lpj = coming("lpj", 8, 100, at_s=5, expected_start_s=100.0, arrives_s=100.0)
    outcome = replayed([coming("a", 4, 32), coming("b", 2, 58), lpj], rules=QueueRules(policy=PolicyName.SPANFIT))
    shares = dict(outcome.series.retention["lpj"])
    assert [shares[at_s] for at_s in (10.0, 30.0, 40.0, 50.0, 60.0, 90.0)] == [0.75, 0.75, 0.25, 0.25, 0.0, 0.0]
    assert by_id(outcome)["lpj"].retention == 0.0


def test_nodes_held_free_while_a_job_waits_are_counted() -> None:
    # All 8 nodes are held from 0 s; b is told to run too long to use them, and waits from 10 to 200 s.
    lpj = coming("lpj", 8, 50, at_s=0, expected_start_s=150.0, arrives_s=150.0)
    outcome = replayed([lpj, coming("b", 2, 10, at_s=10, told_s=1e6)], rules=QueueRules(policy=PolicyName.SPANFIT))
    assert by_id(outcome)["b"].waited_s == 190.0
    assert outcome.totals.held == outcome.totals.idle == 8 * 140


def test_a_time_limit_cuts_a_runtime() -> None:
    (a,) = replayed([coming("a", 1, 500, time_limit_s=120.0)]).jobs
    assert a.ended_s == 120.0


def test_a_job_that_never_fits_ends_the_replay_and_is_told() -> None:
    # A node that never comes back: the job waits for ever, so the replay gives up once nothing can change.
    outcome = replayed([coming("a", 8, 50, at_s=10), coming("b", 1, 5)], faults=[NodesDown(at_s=1.0, nodes=1)])
    a = by_id(outcome)["a"]
    assert (a.started_s, a.ended_s) == (None, None)
    assert a.waited_s == outcome.totals.span_s - 10
    assert figures_of(outcome, 4).nunfinished == 1
    assert math.isfinite(outcome.totals.span_s)


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    outcome = replayed([coming("a", 9, 50), coming("b", 1, 5)])
    assert by_id(outcome)["a"].was_refused
    assert figures_of(outcome, 4).nrefused == 1


def test_the_replay_stops_when_its_time_is_up() -> None:
    outcome = replayed([coming("a", 8, 100), coming("b", 8, 100)], until_s=130.0)
    b = by_id(outcome)["b"]
    assert (outcome.totals.span_s, b.started_s, b.ended_s) == (130.0, 100.0, None)
    assert outcome.totals.allocated == 8 * 130


def test_series_hold_the_levels_between_events() -> None:
    outcome = replayed([coming("a", 6, 25), coming("b", 4, 10, at_s=5)])
    series = outcome.series
    assert series.times_s == (0.0, 10.0, 20.0, 30.0)
    assert series.allocated == (6, 6, 6, 4)
    assert series.waiting == (0, 1, 1, 0)


def test_a_grid_has_spreads_of_its_groups() -> None:
    grid = coming("g", 8, 10, nrows=4, ncolumns=2, alpha=0.9, at_s=0)
    (g,) = replayed([grid]).jobs
    # Columns (DP groups) weigh most: each is in one minipod, and every row crosses.
    assert (g.spread, g.dp_spread, g.pp_spread) == (2, 1, 2)
    (g,) = replayed([replace(grid, job=replace(grid.job, alpha=0.1))]).jobs
    assert (g.dp_spread, g.pp_spread) == (2, 1)


def test_a_policy_that_books_a_node_twice_is_found_out() -> None:
    def careless(
        state: QueueState, event: Event, rules: QueueRules, chooser: Chooser
    ) -> tuple[QueueState, tuple[Decision, ...]]:
        after, decisions = decide(replace(state, running={}, standing=None), event, rules, chooser)
        return replace(after, running={**state.running, **after.running}, standing=None), decisions

    jobs = [coming("a", 8, 100), coming("b", 8, 100, at_s=10)]
    replay = Replay(jobs, ground(4, 4), decide=careless, choose=choose, rules=RULES, replay=ReplayRules())
    with pytest.raises(RuntimeError, match="job b starts on nodes that it cannot have: a0, a1"):
        replay.run()


def test_jobs_need_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="2 jobs have 1 ids"):
        replayed([coming("a", 1, 1), coming("a", 1, 1)])


def test_an_announced_job_needs_an_arrival_and_another_has_none() -> None:
    with pytest.raises(ValueError, match="expected both for an announced job"):
        coming("a", 1, 1, expected_start_s=5.0)
    with pytest.raises(ValueError, match="expected both for an announced job"):
        coming("a", 1, 1, arrives_s=5.0)


def test_flat_figures_name_classes_and_announced_jobs() -> None:
    lpj = coming("lpj", 8, 100, at_s=0, expected_start_s=60.0, arrives_s=60.0)
    flat = flat_figures(
        figures_of(replayed([coming("a", 2, 20), lpj], rules=QueueRules(policy=PolicyName.PAPER)), largest_minipod=4)
    )
    assert flat["delay_njobs:2-7"] == 1
    assert flat["start_delay_s:lpj"] == 0.0
    assert flat["retention:lpj"] == 0.0


def test_an_announced_job_that_was_refused_does_not_wait_when_it_arrives() -> None:
    # 9 nodes of 8 are refused at 0 s; the arrival at 50 s must not count as waiting while 4 nodes are free.
    lpj = coming("lpj", 9, 100, at_s=0, expected_start_s=50.0, arrives_s=50.0)
    outcome = replayed([lpj, coming("a", 4, 100)], rules=QueueRules(policy=PolicyName.SPANFIT))
    refused = by_id(outcome)["lpj"]
    assert (refused.was_refused, refused.waited_s, outcome.totals.idle) == (True, 0.0, 0.0)


def test_a_spread_of_no_job_is_no_figure() -> None:
    figures = figures_of(replayed([coming("a", 1, 10)]), largest_minipod=4)
    assert (figures.mean_spread, figures.whole_share) == (None, None)
    wide = figures_of(replayed([coming("a", 4, 10), coming("b", 6, 10, at_s=20)]), largest_minipod=4)
    assert (wide.mean_spread, wide.whole_share) == (1.5, 1.0)

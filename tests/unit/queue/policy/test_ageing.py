"""Aged jobs go first and have nodes kept for them, and the queue explains itself."""

import math

import pytest

from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.policy.explain import predicted_starts, why
from spanfit.queue.policy.occupancy import expected_end_s
from tests.unit.queue.factory import HOUR_S, Bench, ground

DAY_S = 24 * HOUR_S


def bench(*sizes: int, **values: float) -> Bench:
    return Bench(ground(*sizes), QueueRules(**values))  # type: ignore[arg-type]


def stream(queue: Bench, hours: int) -> float | None:
    """Let jobs of half the cluster come so that it is never empty; return when the large one starts."""
    queue.submit("s0", 2, HOUR_S)
    queue.submit("large", 4, HOUR_S)
    for number in range(1, 2 * hours):
        at_s = number * HOUR_S / 2
        queue.submit(f"s{number}", 2, HOUR_S, at_s=at_s, priority=1)
        for job_id, run in list(queue.state.running.items()):
            if run.started_s + HOUR_S <= at_s + 60:
                queue.finish(job_id, at_s + 60)
        if "large" in queue.state.running:
            return queue.state.running["large"].started_s
        queue.tick(at_s + 120)
    return None


def test_an_aged_job_starts_although_others_of_higher_priority_keep_coming() -> None:
    queue = bench(4, ageing_s=DAY_S)
    started_s = stream(queue, 48)
    assert started_s is not None
    # At the end of the day one job had just started; nothing may start that would end after it.
    assert DAY_S <= started_s <= DAY_S + HOUR_S + 120


def test_without_ageing_it_would_starve() -> None:
    assert stream(bench(4, ageing_s=1000 * DAY_S), 48) is None


def test_jobs_that_end_in_time_still_pass_an_aged_one() -> None:
    queue = bench(4, 4, ageing_s=HOUR_S)
    queue.submit("r", 4, 10 * HOUR_S)
    queue.submit("large", 8, HOUR_S)
    queue.tick(2 * HOUR_S)
    assert queue.submit("late", 4, 9 * HOUR_S, at_s=2 * HOUR_S) == {"late": "wait"}
    assert queue.submit("preemptable", 4, 9 * HOUR_S, at_s=2 * HOUR_S, is_preemptable=True) == {"preemptable": "wait"}
    assert queue.submit("short", 4, 7 * HOUR_S, at_s=2 * HOUR_S) == {"short": "start"}


def test_the_longest_waiting_aged_job_is_protected_not_the_one_of_highest_priority() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    queue.submit("r", 2, 5 * HOUR_S)
    queue.submit("first", 4, HOUR_S, at_s=10)
    queue.submit("second", 3, HOUR_S, at_s=20, priority=5)
    queue.tick(2 * HOUR_S)
    assert queue.finish("r", 5 * HOUR_S) == {"first": "start"}


def test_an_aged_job_waits_for_reservations_but_not_for_jobs_that_come_later() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    queue.submit("r", 4, 3 * HOUR_S)
    queue.submit("aged", 4, 2 * HOUR_S, at_s=1)
    queue.announce("llm", 4, 2 * HOUR_S, arrives_s=4 * HOUR_S, at_s=2)
    queue.tick(2 * HOUR_S)
    assert queue.finish("r", 3 * HOUR_S) == {}
    assert queue.submit("x", 1, 9 * HOUR_S, at_s=3 * HOUR_S) == {"x": "wait"}
    assert queue.arrive("llm", 4 * HOUR_S) == {"llm": "start"}
    assert queue.finish("llm", 6 * HOUR_S) == {"aged": "start"}


def test_an_aged_job_whose_start_nobody_can_tell_gathers_what_becomes_free() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    for number in range(4):
        queue.submit(f"r{number}", 1, math.inf)
    queue.submit("aged", 3, math.inf)
    queue.submit("early", 1, math.inf)
    assert queue.finish("r0", 600) == {"early": "start"}
    queue.tick(HOUR_S)
    assert queue.submit("late", 1, 60, at_s=HOUR_S) == {"late": "wait"}
    assert queue.finish("r3", 2 * HOUR_S) == {}
    assert queue.finish("r1", 3 * HOUR_S) == {}
    assert queue.finish("r2", 4 * HOUR_S) == {"aged": "start"}


def test_nodes_are_gathered_only_for_a_job_for_which_enough_are_in_service() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    queue.submit("r", 2, math.inf)
    queue.submit("aged", 4, math.inf)
    queue.down("a3", at_s=60)
    queue.tick(HOUR_S)
    assert queue.submit("late", 1, 60, at_s=HOUR_S) == {"late": "start"}


def test_nobody_is_protected_that_is_not_aged() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    queue.submit("r", 2, 9 * HOUR_S)
    queue.submit("r2", 2, 2 * HOUR_S)
    queue.submit("aged", 1, 9 * HOUR_S)
    queue.submit("young", 4, HOUR_S, at_s=1.5 * HOUR_S, priority=1)
    queue.submit("small", 1, 20 * HOUR_S, at_s=1.6 * HOUR_S)
    assert queue.finish("r2", 2 * HOUR_S) == {"aged": "start", "small": "start"}


def test_a_job_that_was_stopped_counts_its_waiting_anew() -> None:
    queue = bench(4, ageing_s=HOUR_S)
    queue.submit("p", 4, 9 * HOUR_S, is_preemptable=True)
    queue.announce("llm", 4, HOUR_S, arrives_s=3 * HOUR_S)
    queue.arrive("llm", 3 * HOUR_S)
    assert queue.state.waiting["p"].since_s == 3 * HOUR_S
    assert queue.state.waiting["p"].npreemptions == 1


def test_a_job_that_outruns_is_expected_ever_later_but_by_its_limit() -> None:
    queue = bench(4)
    queue.submit("r", 2, 1000, time_limit_s=1500)
    run = queue.state.running["r"]
    ends = [expected_end_s(run, now_s, queue.rules) for now_s in (0, 999, 1000, 1060, 1179, 1420, 1499, 1500, 3000)]
    assert ends == [1000, 1000, 1060, 1120, 1240, 1480, 1500, 1960, 4840]


@pytest.mark.parametrize("policy", PolicyName)
def test_why_says_what_is_free_who_goes_before_and_until_when(policy: PolicyName) -> None:
    queue = Bench(ground(4, 4), QueueRules(policy=policy))
    queue.submit("r", 6, 2 * HOUR_S)
    queue.submit("a", 4, HOUR_S, at_s=1)
    queue.submit("b", 8, HOUR_S, at_s=2)
    first, second = (why(queue.state, job_id, queue.rules) for job_id in ("a", "b"))
    assert (first.reason, first.until_s) == ("needs 4 nodes: 2 free", 2 * HOUR_S)
    assert (second.reason, second.until_s) == ("needs 8 nodes: 2 free; 1 goes before it", 3 * HOUR_S)
    running = why(queue.state, "r", queue.rules)
    assert (running.reason, running.until_s) == ("runs on 6 nodes since 1970-01-01 00:00 UTC", 2 * HOUR_S)
    with pytest.raises(KeyError):
        why(queue.state, "nobody", queue.rules)


def test_why_tells_of_zones_in_numbers() -> None:
    queue = bench(4, 4, 4)
    queue.announce("llm", 8, 9 * HOUR_S, arrives_s=4 * HOUR_S)
    queue.submit("x", 3, 9 * HOUR_S, at_s=60)
    queue.submit("y", 5, 4 * HOUR_S, at_s=60)
    found = why(queue.state, "y", queue.rules)
    assert found.reason == (
        "needs 5 nodes: 1 free outside the zone of llm; 8 more inside until 1970-01-01 04:00 UTC, predicted end "
        "1970-01-01 04:01 UTC"
    )
    assert found.until_s == 13 * HOUR_S
    held = why(queue.state, "llm", queue.rules)
    assert held.until_s == 4 * HOUR_S
    assert held.reason == "holds 8 nodes from 1970-01-01 04:00 UTC on: 8 free now"


def test_predicted_starts_follow_each_other() -> None:
    queue = bench(4)
    queue.submit("r", 4, HOUR_S)
    for number in range(3):
        queue.submit(f"j{number}", 4, HOUR_S, at_s=1 + number)
    assert predicted_starts(queue.state, queue.rules) == {
        "j0": HOUR_S,
        "j1": pytest.approx(2 * HOUR_S),
        "j2": pytest.approx(3 * HOUR_S),
    }


def test_a_preemptable_job_is_planned_inside_the_zone_of_one_that_may_stop_it_only() -> None:
    for is_soft, starts_s in ((False, 3 * HOUR_S), (True, 6 * HOUR_S)):
        queue = bench(4)
        queue.submit("r", 4, 3 * HOUR_S)
        queue.announce("llm", 4, 2 * HOUR_S, arrives_s=4 * HOUR_S, is_preemptable=is_soft)
        queue.submit("p", 4, 2 * HOUR_S, is_preemptable=True)
        assert predicted_starts(queue.state, queue.rules)["p"] == starts_s

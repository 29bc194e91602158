"""Algorithm 1 of arXiv 2509.15940 as read in the notes on the paper: the order of its branches, and its holes."""

import pytest

from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.policy.admission import Branch, Zone, admit
from tests.unit.queue.factory import HOUR_S, Bench, ground, job

FREE = (1 << 12) - 1
ZONE = Zone(job_id="llm", nodes=0b1111_1111, start_s=100.0, end_s=900.0, is_open=True)
OUTSIDE = FREE & ~ZONE.nodes


@pytest.mark.parametrize(
    ("nnodes", "is_preemptable", "end_s", "branch", "allowed"),
    [
        (12, True, 999.0, Branch.PREEMPTABLE, FREE),
        (3, True, 999.0, Branch.PREEMPTABLE, OUTSIDE),
        (4, False, 999.0, Branch.OUTSIDE, OUTSIDE),
        (4, False, 10.0, Branch.OUTSIDE, OUTSIDE),
        (5, False, 99.0, Branch.IN_TIME, FREE),
        (5, False, 100.0, Branch.DELAY, 0),
        (13, False, 10.0, Branch.DELAY, 0),
        (13, True, 10.0, Branch.DELAY, 0),
    ],
)
def test_branches_are_tried_in_the_order_preemptable_outside_in_time_delay(
    nnodes: int, is_preemptable: bool, end_s: float, branch: Branch, allowed: int
) -> None:
    assert admit(job("j", nnodes, is_preemptable=is_preemptable), end_s, FREE, [ZONE]) == (branch, allowed)


def test_a_closed_zone_is_for_nobody_who_ends_too_late() -> None:
    closed = Zone(job_id="aged", nodes=0b1111, start_s=100.0, end_s=900.0, is_open=False)
    assert admit(job("j", 12, is_preemptable=True), 500.0, FREE, [closed]) == (Branch.DELAY, 0)
    assert admit(job("j", 12, is_preemptable=True), 50.0, FREE, [closed]) == (Branch.PREEMPTABLE, FREE)


def paper() -> Bench:
    """Return a queue of 12 nodes that has been told at 0:00 of a job of 8 nodes at 4:00."""
    queue = Bench(ground(4, 4, 4), QueueRules(policy=PolicyName.PAPER))
    assert queue.announce("llm", 8, 10 * HOUR_S, arrives_s=4 * HOUR_S) == {"llm": "reserve"}
    return queue


def test_each_branch_of_algorithm_1_on_a_queue() -> None:
    queue = paper()
    zone = set(queue.names("llm"))
    queue.submit("preemptable", 6, 9 * HOUR_S, is_preemptable=True)
    assert set(queue.names("preemptable")) & zone
    assert queue.submit("delayed", 5, 5 * HOUR_S) == {"delayed": "wait"}
    assert queue.last("delayed").reason == (
        "needs 5 nodes: 4 free outside the zone of llm; 2 more inside until 1970-01-01 04:00 UTC, predicted end "
        "1970-01-01 05:00 UTC"
    )
    assert queue.submit("in time", 5, 3 * HOUR_S) == {"in time": "start"}
    assert set(queue.names("in time")) & zone
    assert (
        "predicted end 1970-01-01 03:00 UTC, before it begins at 1970-01-01 04:00 UTC" in queue.last("in time").reason
    )


def test_outside_goes_before_inside() -> None:
    queue = paper()
    queue.submit("a", 4, 1 * HOUR_S)
    assert not set(queue.names("a")) & set(queue.names("llm"))


def test_the_paper_goes_by_the_mean_and_our_rule_by_the_upper_quantile() -> None:
    started = {}
    for policy in (PolicyName.PAPER, PolicyName.SPANFIT):
        queue = Bench(ground(4, 4, 4), QueueRules(policy=policy))
        queue.announce("llm", 12, 10 * HOUR_S, arrives_s=4 * HOUR_S)
        queue.submit("a", 4, 3 * HOUR_S, upper_s=5 * HOUR_S)
        started[policy] = "a" in queue.state.running
    assert started == {PolicyName.PAPER: True, PolicyName.SPANFIT: False}


def test_delayed_jobs_wait_for_the_next_interval_and_later_ones_may_pass() -> None:
    queue = paper()
    queue.submit("a", 4, 9 * HOUR_S)
    queue.submit("b", 4, 9 * HOUR_S, at_s=10)
    assert queue.submit("c", 4, 1 * HOUR_S, at_s=20) == {"c": "start"}
    assert queue.finish("a", 30) == {}
    assert queue.tick(60) == {"b": "start"}


def test_a_preemptable_job_in_the_zone_is_evicted_when_the_announced_job_comes() -> None:
    queue = paper()
    queue.submit("a", 4, 9 * HOUR_S)
    queue.submit("p", 8, 9 * HOUR_S, is_preemptable=True)
    assert queue.arrive("llm", 4 * HOUR_S) == {"p": "preempt", "llm": "start"}
    assert queue.last("p").reason == "it is preemptable and llm starts on its nodes"


def test_the_paper_has_no_ageing() -> None:
    queue = Bench(ground(4), QueueRules(policy=PolicyName.PAPER, ageing_s=HOUR_S))
    queue.submit("s0", 2, HOUR_S)
    queue.submit("large", 4, HOUR_S)
    for number in range(1, 50):
        queue.submit(f"s{number}", 2, HOUR_S, at_s=number * HOUR_S / 2)
        queue.finish(f"s{number - 1}", number * HOUR_S / 2 + 60)
        queue.tick(number * HOUR_S / 2 + 120)
    assert "large" in queue.state.waiting


def test_the_paper_holds_nodes_for_a_job_that_never_comes() -> None:
    queue = paper()
    queue.tick(400 * HOUR_S)
    assert "llm" in queue.state.reservations
    assert queue.cancel("llm", 401 * HOUR_S) == {"llm": "release"}


def test_the_paper_looks_at_all_that_wait_whatever_the_depth() -> None:
    queue = Bench(ground(4), QueueRules(policy=PolicyName.PAPER, depth=1))
    queue.submit("r", 3, HOUR_S)
    queue.submit("large", 4, HOUR_S)
    queue.submit("second", 2, HOUR_S)
    queue.cancel("r", 30)
    queue.submit("s", 3, HOUR_S, at_s=40)
    assert "second" in queue.state.waiting
    queue.finish("s", 50)
    queue.submit("t", 1, HOUR_S, at_s=55)
    assert queue.tick(60) == {"second": "start"}


def test_the_paper_keeps_nodes_that_will_be_missing_where_our_rule_mends() -> None:
    held = {}
    for policy in (PolicyName.PAPER, PolicyName.SPANFIT):
        queue = Bench(ground(4, 4), QueueRules(policy=policy))
        queue.announce("llm", 4, HOUR_S, arrives_s=4 * HOUR_S)
        queue.down("a0", at_s=60)
        held[policy] = queue.names("llm")
    assert held[PolicyName.PAPER] == ("a0", "a1", "a2", "a3")
    assert held[PolicyName.SPANFIT] == ("b0", "b1", "b2", "b3")


def test_the_time_limit_cuts_the_mean() -> None:
    queue = paper()
    assert queue.submit("x", 5, 9 * HOUR_S) == {"x": "wait"}
    assert queue.submit("y", 5, 9 * HOUR_S, time_limit_s=HOUR_S) == {"y": "start"}

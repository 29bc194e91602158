"""What holds under every policy, and the policies that reserve nothing ahead."""

from dataclasses import replace

import pytest

from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import PolicyName, QueueRules
from tests.unit.queue.factory import HOUR_S, Bench, ground

EVERY_POLICY = pytest.mark.parametrize("policy", PolicyName)


def bench(policy: PolicyName = PolicyName.SPANFIT, *sizes: int, **values: float) -> Bench:
    return Bench(ground(*(sizes or (4, 4, 4))), QueueRules(policy=policy, **values))  # type: ignore[arg-type]


@EVERY_POLICY
def test_a_job_starts_where_there_is_room_and_waits_where_there_is_none(policy: PolicyName) -> None:
    queue = bench(policy)
    assert queue.submit("a", 8, HOUR_S) == {"a": "start"}
    assert queue.submit("b", 8, HOUR_S, at_s=10) == {"b": "wait"}
    assert queue.last("b").reason == "needs 8 nodes: 4 free"
    queue.finish("a", 20)
    queue.tick(60)
    assert set(queue.state.running) == {"b"}


@EVERY_POLICY
def test_higher_priority_goes_first_then_earlier_submission(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("a", 12, HOUR_S)
    queue.submit("late", 12, HOUR_S, at_s=2)
    queue.submit("early", 12, HOUR_S, at_s=2, submitted_s=1.0)
    queue.submit("urgent", 12, HOUR_S, at_s=3, priority=1)
    now_s, order = 100.0, []
    for _ in range(4):
        order += list(queue.state.running)
        queue.finish(order[-1], now_s)
        queue.tick(now_s + 60)
        now_s += 100
    assert order == ["a", "urgent", "early", "late"]


@EVERY_POLICY
def test_a_job_that_no_cluster_of_this_size_can_run_is_refused(policy: PolicyName) -> None:
    queue = bench(policy)
    assert queue.submit("a", 13, HOUR_S) == {"a": "refuse"}
    assert queue.last("a").reason == "asks for 13 nodes; expected between 1 and 12"
    assert queue.submit("b", 1, HOUR_S, gpu_model="H200") == {"b": "refuse"}
    assert queue.last("b").reason == "asks for 1 node of H200; expected between 1 and 0"
    assert not queue.state.waiting


@EVERY_POLICY
def test_what_says_nothing_new_changes_nothing_but_the_time(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("a", 8, HOUR_S)
    queue.submit("b", 8, HOUR_S)
    before = queue.state
    queue.submit("a", 2, HOUR_S, at_s=5)
    queue.submit("b", 2, HOUR_S, at_s=6)
    queue.finish("b", 7)
    queue.finish("nobody", 8)
    queue.arrive("b", 9)
    queue.cancel("nobody", 9)
    queue.back("a0", at_s=4)
    assert queue.state == replace(before, now_s=9)


@EVERY_POLICY
def test_what_runs_on_a_node_that_breaks_waits_again_and_avoids_it(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("a", 3, HOUR_S)
    assert queue.names("a") == ("a0", "a1", "a2")
    queue.down("a1", at_s=60)
    assert [each.kind for each in queue.decisions if each.job_id == "a"][:2] == ["start", "preempt"]
    queue.tick(120)
    assert "a1" not in queue.names("a")
    assert queue.state.running["a"].npreemptions == 1
    queue.back("a1", at_s=130)
    assert queue.state.up == queue.ground.everything


@EVERY_POLICY
def test_nodes_of_a_cancelled_job_go_to_others(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("a", 12, HOUR_S)
    queue.submit("b", 12, HOUR_S)
    queue.submit("c", 12, HOUR_S)
    queue.cancel("b", 10)
    queue.cancel("a", 20)
    queue.tick(60)
    assert set(queue.state.running) == {"c"}
    assert not queue.state.waiting


@EVERY_POLICY
def test_a_job_gets_nodes_of_its_model_only(policy: PolicyName) -> None:
    mixed = Ground(names=tuple("uvwx"), minipods=(0, 0, 1, 1), labels=("a", "b"), gpu_models=("A", "B", "A", "B"))
    queue = Bench(mixed, QueueRules(policy=policy))
    queue.submit("a", 2, HOUR_S, gpu_model="B")
    assert queue.names("a") == ("v", "x")
    assert queue.submit("b", 1, HOUR_S, gpu_model="B") == {"b": "wait"}
    assert queue.last("b").reason == "needs 1 node: 0 free"


def test_only_as_many_jobs_are_looked_at_as_the_rules_say() -> None:
    queue = bench(depth=2)
    queue.submit("a", 8, HOUR_S)
    for name in ("b", "c"):
        queue.submit(name, 8, HOUR_S)
    assert queue.submit("d", 4, HOUR_S) == {"d": "wait"}
    queue.cancel("b", 5)
    assert "d" in queue.state.running


@pytest.mark.parametrize("policy", [PolicyName.EASY, PolicyName.CONSERVATIVE, PolicyName.PACKING])
def test_backfills_and_packing_queue_an_announced_job_when_it_comes(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("a", 8, 2 * HOUR_S)
    assert queue.announce("llm", 12, HOUR_S, arrives_s=HOUR_S) == {"llm": "wait"}
    assert queue.last("llm").reason == (
        f"is expected at 1970-01-01 01:00 UTC; the policy {policy} reserves nothing and queues it when it comes"
    )
    assert queue.submit("b", 4, 9 * HOUR_S, at_s=60) == {"b": "start"}
    assert queue.arrive("llm", HOUR_S) == {}
    assert not queue.state.reservations
    queue.finish("b", 1.5 * HOUR_S)
    queue.finish("a", 2 * HOUR_S)
    assert "llm" in queue.state.running


def test_packing_lets_small_jobs_pass_a_large_one_for_ever() -> None:
    queue = bench(PolicyName.PACKING)
    queue.submit("s0", 4, HOUR_S)
    queue.submit("s1", 4, HOUR_S)
    queue.submit("large", 12, HOUR_S, priority=9)
    for number in range(2, 200):
        queue.submit(f"s{number}", 4, HOUR_S, at_s=number * HOUR_S / 2)
        queue.finish(f"s{number - 2}", number * HOUR_S / 2 + 1)
        assert "large" in queue.state.waiting


def backfill(policy: PolicyName) -> Bench:
    """Return a queue in which 3 nodes are free, 6 at 5 hours and all at 10; a head of 10, then one of 6 wait."""
    queue = bench(policy)
    queue.submit("r1", 6, 10 * HOUR_S)
    queue.submit("r2", 3, 5 * HOUR_S)
    queue.submit("head", 10, 100 * HOUR_S, at_s=1)
    queue.submit("second", 6, 4 * HOUR_S, at_s=2)
    return queue


def test_easy_protects_the_head_and_nobody_else() -> None:
    queue = backfill(PolicyName.EASY)
    assert queue.submit("c", 3, 9 * HOUR_S, at_s=3) == {"c": "start"}


def test_conservative_protects_all_that_wait() -> None:
    queue = backfill(PolicyName.CONSERVATIVE)
    assert queue.submit("c", 3, 9 * HOUR_S, at_s=3) == {"c": "wait"}
    assert queue.submit("d", 3, 4 * HOUR_S, at_s=4) == {"d": "start"}
    queue.finish("d", 4 * HOUR_S)
    assert queue.finish("r2", 5 * HOUR_S) == {"second": "start"}


@pytest.mark.parametrize("policy", [PolicyName.EASY, PolicyName.CONSERVATIVE])
def test_a_backfill_neither_delays_the_head_nor_wastes_nodes_that_it_will_not_need(policy: PolicyName) -> None:
    queue = backfill(policy)
    queue.cancel("second", 3)
    assert queue.submit("c", 3, 20 * HOUR_S, at_s=4) == {"c": "wait"}
    assert queue.submit("d", 2, 20 * HOUR_S, at_s=5) == {"d": "start"}
    queue.finish("r2", 5 * HOUR_S)
    assert queue.finish("r1", 10 * HOUR_S) == {"head": "start"}


def test_backfills_go_by_the_time_limit_where_there_is_one() -> None:
    queue = bench(PolicyName.EASY)
    queue.submit("r", 10, HOUR_S, time_limit_s=10 * HOUR_S)
    queue.submit("head", 12, HOUR_S, at_s=1)
    assert queue.submit("c", 2, HOUR_S, at_s=2, time_limit_s=11 * HOUR_S) == {"c": "wait"}
    assert queue.submit("d", 2, HOUR_S, at_s=3, upper_s=9 * HOUR_S) == {"d": "start"}


@pytest.mark.parametrize("policy", [PolicyName.EASY, PolicyName.CONSERVATIVE])
def test_a_job_that_outran_its_forecast_is_expected_soon(policy: PolicyName) -> None:
    queue = bench(policy)
    queue.submit("r", 10, HOUR_S)
    queue.submit("head", 12, HOUR_S, at_s=1)
    queue.tick(HOUR_S)
    assert queue.submit("c", 2, 600, at_s=HOUR_S + 1) == {"c": "wait"}
    assert queue.finish("r", HOUR_S + 30) == {"head": "start"}


def test_conservative_plans_around_what_started_in_the_same_look() -> None:
    queue = bench(PolicyName.CONSERVATIVE)
    queue.submit("r1", 6, 10 * HOUR_S)
    queue.submit("r2", 6, 5 * HOUR_S)
    queue.submit("head", 10, HOUR_S, at_s=1)
    queue.submit("c", 3, 7 * HOUR_S, at_s=2)
    queue.submit("d", 6, 4 * HOUR_S, at_s=3)
    queue.submit("e", 3, HOUR_S, at_s=4)
    assert queue.finish("r2", HOUR_S) == {"c": "start", "e": "start"}

"""Announced jobs under our own policy: which nodes are held, when, and what happens when plans change."""

import math

import pytest

from spanfit.queue.model.rules import Overrun, QueueRules
from tests.unit.queue.factory import HOUR_S, Bench, ground


def bench(*sizes: int, **values: float | Overrun) -> Bench:
    return Bench(ground(*(sizes or (4, 4, 4))), QueueRules(**values))  # type: ignore[arg-type]


def letters(names: tuple[str, ...]) -> str:
    """Return the minipod of each node."""
    return "".join(name[0] for name in names)


def test_nodes_are_held_from_the_announcement_on_or_a_day_ahead() -> None:
    queue = bench()
    assert queue.announce("soon", 4, HOUR_S, arrives_s=20 * HOUR_S) == {"soon": "reserve"}
    assert queue.announce("later", 4, HOUR_S, arrives_s=30 * HOUR_S) == {"later": "wait"}
    assert queue.last("later").reason == (
        "is expected at 1970-01-02 06:00 UTC; its nodes are chosen at 1970-01-01 06:00 UTC"
    )
    assert queue.tick(6 * HOUR_S - 60) == {}
    assert queue.tick(6 * HOUR_S) == {"later": "reserve"}


def test_an_announced_job_starts_on_its_nodes_when_it_comes_on_time() -> None:
    queue = bench()
    queue.announce("llm", 8, 9 * HOUR_S, arrives_s=4 * HOUR_S)
    held = queue.names("llm")
    assert queue.arrive("llm", 4 * HOUR_S) == {"llm": "start"}
    assert queue.names("llm") == held
    assert queue.last("llm").reason == "its reservation of 8 nodes began at 1970-01-01 04:00 UTC"
    assert not queue.state.reservations


def test_nodes_that_are_predicted_to_be_free_by_then_are_held() -> None:
    queue = bench()
    queue.submit("long", 4, 10 * HOUR_S)
    queue.submit("short", 4, HOUR_S)
    assert letters(queue.names("long")) == "aaaa"
    queue.announce("llm", 8, HOUR_S, arrives_s=2 * HOUR_S)
    assert letters(queue.names("llm")) == "bbbbcccc"
    assert queue.last("llm").reason == (
        "holds 8 nodes from 1970-01-01 02:00 UTC on: 4 free now, 4 predicted free by then"
    )


def test_the_upper_forecast_counts_not_the_mean() -> None:
    queue = bench(4, 4)
    queue.submit("a", 4, HOUR_S, upper_s=3 * HOUR_S)
    queue.submit("b", 4, 2 * HOUR_S, upper_s=2 * HOUR_S)
    queue.announce("llm", 4, HOUR_S, arrives_s=2.5 * HOUR_S)
    assert letters(queue.names("llm")) == "bbbb"


def test_as_few_nodes_as_can_be_are_taken_from_preemptable_jobs() -> None:
    queue = bench(2, 4, 4)
    queue.submit("two", 2, 10 * HOUR_S, is_preemptable=True, priority=1)
    queue.submit("four", 4, 10 * HOUR_S, is_preemptable=True)
    queue.announce("llm", 6, HOUR_S, arrives_s=HOUR_S)
    assert letters(queue.names("llm")) == "aacccc"
    assert queue.arrive("llm", HOUR_S) == {"two": "preempt", "llm": "start"}


def test_one_job_that_gives_enough_is_stopped_rather_than_two_that_give_less() -> None:
    queue = bench(2, 3, 4)
    queue.submit("two", 2, 10 * HOUR_S, is_preemptable=True)
    queue.submit("three", 3, 10 * HOUR_S, is_preemptable=True)
    queue.submit("four", 4, 10 * HOUR_S, is_preemptable=True)
    queue.announce("llm", 4, HOUR_S, arrives_s=HOUR_S)
    assert queue.arrive("llm", HOUR_S) == {"four": "preempt", "llm": "start"}


@pytest.mark.parametrize(("first", "second"), [({"priority": 1}, {}), ({}, {"at_s": 60.0})])
def test_of_equal_jobs_that_of_low_priority_is_stopped_then_the_last_started(
    first: dict[str, float], second: dict[str, float]
) -> None:
    queue = bench(4, 4)
    queue.submit("a", 4, 10 * HOUR_S, is_preemptable=True, **first)
    queue.submit("b", 4, 10 * HOUR_S, is_preemptable=True, **second)
    queue.announce("llm", 4, HOUR_S, arrives_s=HOUR_S)
    assert queue.arrive("llm", HOUR_S) == {"b": "preempt", "llm": "start"}


def test_preemptable_jobs_are_stopped_before_one_that_outran_its_forecast() -> None:
    queue = bench(4, 4)
    queue.submit("outran", 2, HOUR_S)
    queue.submit("p", 6, 10 * HOUR_S, is_preemptable=True)
    queue.announce("llm", 2, HOUR_S, arrives_s=2 * HOUR_S, at_s=1.9 * HOUR_S)
    assert queue.arrive("llm", 2 * HOUR_S) == {"p": "preempt", "llm": "start"}


def test_nodes_of_jobs_that_stay_are_held_only_for_want_of_others_and_the_soonest_first() -> None:
    queue = bench(4, 4, 4)
    queue.submit("last", 4, 9 * HOUR_S)
    queue.submit("soon", 4, 3 * HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=2 * HOUR_S)
    assert letters(queue.names("llm")) == "bbbbcccc"
    assert queue.last("llm").reason.endswith("4 free now, 4 predicted free only at 1970-01-01 03:00 UTC")


def test_a_job_that_finds_its_nodes_rightly_held_waits_until_they_are_expected_while_short_jobs_use_the_rest() -> None:
    queue = bench(4, 4)
    queue.submit("r", 4, 5 * HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=2 * HOUR_S)
    assert queue.submit("x", 4, 2 * HOUR_S, at_s=HOUR_S) == {"x": "wait"}
    assert queue.arrive("llm", 2 * HOUR_S) == {"llm": "reserve", "x": "start"}
    assert queue.state.reservations["llm"].start_s == 5 * HOUR_S
    queue.finish("r", 3 * HOUR_S)
    assert queue.finish("x", 3.5 * HOUR_S) == {"llm": "start"}


def test_several_announced_jobs_hold_different_nodes_unless_one_is_over_before_the_other() -> None:
    queue = bench(4, 4)
    queue.announce("one", 4, 2 * HOUR_S, arrives_s=4 * HOUR_S)
    queue.announce("two", 4, 2 * HOUR_S, arrives_s=5 * HOUR_S)
    queue.announce("three", 8, 2 * HOUR_S, arrives_s=5 * HOUR_S)
    assert not set(queue.names("one")) & set(queue.names("two"))
    assert queue.state.reservations["three"].start_s == 7 * HOUR_S


def test_the_higher_priority_chooses_first_when_nodes_are_chosen_together() -> None:
    queue = bench(4, 4, reserve_ahead_s=HOUR_S)
    queue.announce("a", 8, HOUR_S, arrives_s=5 * HOUR_S)
    queue.announce("urgent", 8, HOUR_S, arrives_s=5 * HOUR_S, priority=1)
    queue.tick(4 * HOUR_S)
    assert queue.state.reservations["urgent"].start_s == 5 * HOUR_S
    assert queue.state.reservations["a"].start_s == 6 * HOUR_S


def test_an_early_job_starts_if_nothing_has_to_be_stopped_for_it_else_waits_for_its_time() -> None:
    queue = bench(4, 4)
    queue.announce("llm", 8, HOUR_S, arrives_s=4 * HOUR_S)
    queue.submit("p", 2, 9 * HOUR_S, is_preemptable=True)
    assert queue.arrive("llm", 2 * HOUR_S) == {}
    assert queue.state.waiting["llm"].since_s == 2 * HOUR_S
    assert queue.tick(4 * HOUR_S) == {"p": "preempt", "llm": "start"}

    queue = bench(4, 4)
    queue.announce("llm", 8, HOUR_S, arrives_s=4 * HOUR_S)
    assert queue.arrive("llm", 2 * HOUR_S) == {"llm": "start"}
    assert queue.last("llm").reason == "its 8 nodes are free before its reservation at 1970-01-01 04:00 UTC"


def test_an_early_job_takes_other_nodes_where_its_own_are_busy() -> None:
    queue = bench(4, 4, 4)
    queue.announce("llm", 4, HOUR_S, arrives_s=4 * HOUR_S)
    assert letters(queue.names("llm")) == "aaaa"
    queue.submit("x", 8, 9 * HOUR_S)
    queue.submit("y", 2, HOUR_S)
    queue.finish("x", 1800)
    assert queue.arrive("llm", 2000) == {"llm": "start"}
    assert "a" not in letters(queue.names("llm"))


def test_a_late_job_loses_its_nodes_after_a_time_and_gets_new_ones_when_it_comes() -> None:
    queue = bench(4, 4, max_late_s=HOUR_S)
    queue.announce("llm", 8, 9 * HOUR_S, arrives_s=4 * HOUR_S)
    assert queue.submit("x", 4, 9 * HOUR_S, at_s=4.5 * HOUR_S) == {"x": "wait"}
    assert queue.tick(5 * HOUR_S - 1) == {}
    assert queue.tick(5 * HOUR_S) == {"llm": "release", "x": "start"}
    assert queue.last("llm").reason == (
        "it was expected at 1970-01-01 04:00 UTC and is 60 minutes late; nodes are chosen anew when it comes"
    )
    assert queue.tick(6 * HOUR_S) == {}
    assert queue.arrive("llm", 7 * HOUR_S) == {"llm": "reserve"}
    assert queue.state.reservations["llm"].start_s == 14 * HOUR_S
    assert queue.finish("x", 8 * HOUR_S) == {"llm": "start"}


def test_nodes_are_released_when_the_window_of_a_job_that_did_not_come_is_over() -> None:
    queue = bench(4, 4, max_late_s=5 * HOUR_S)
    queue.announce("llm", 8, 2 * HOUR_S, arrives_s=4 * HOUR_S)
    assert queue.tick(6 * HOUR_S - 1) == {}
    assert queue.tick(6 * HOUR_S) == {"llm": "release"}


def test_a_late_job_has_its_nodes_if_it_comes_before_they_are_given_up() -> None:
    queue = bench(4, 4, max_late_s=HOUR_S)
    queue.announce("llm", 8, 9 * HOUR_S, arrives_s=4 * HOUR_S)
    assert queue.arrive("llm", 4.9 * HOUR_S) == {"llm": "start"}


def test_a_cancelled_job_gives_its_nodes_back_at_once() -> None:
    queue = bench(4, 4)
    queue.announce("llm", 8, 9 * HOUR_S, arrives_s=4 * HOUR_S)
    queue.submit("x", 8, 9 * HOUR_S)
    assert queue.cancel("llm", 60) == {"llm": "release", "x": "start"}
    assert queue.arrive("llm", 70) == {}


def test_a_reservation_moves_when_a_node_dies_and_not_when_one_comes_back() -> None:
    queue = bench(4, 4)
    queue.announce("llm", 4, HOUR_S, arrives_s=4 * HOUR_S)
    assert queue.down("a0", at_s=60) == {"llm": "reserve"}
    assert letters(queue.names("llm")) == "bbbb"
    assert queue.last("llm").reason.startswith("1 node of its reservation would be missing: holds 4 nodes from")
    assert queue.back("a0", at_s=90) == {}


def test_a_reservation_that_lacks_nodes_is_mended_when_one_comes_back() -> None:
    queue = bench(4, 4)
    queue.announce("llm", 8, HOUR_S, arrives_s=4 * HOUR_S)
    queue.submit("p", 1, HOUR_S, is_preemptable=True)
    assert queue.down("b3", at_s=60) == {}
    assert queue.arrive("llm", 4 * HOUR_S) == {"llm": "release"}
    assert queue.back("b3", at_s=5 * HOUR_S) == {"p": "preempt", "llm": "start"}


def test_a_reservation_moves_when_a_job_on_its_nodes_outruns_its_forecast() -> None:
    queue = bench(4, 4, 4, overrun=Overrun.MOVE)
    queue.submit("keep", 4, 3 * HOUR_S)
    queue.submit("r", 4, HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=1.001 * HOUR_S)
    assert letters(queue.names("llm")) == "bbbbcccc"
    queue.finish("keep", 0.5 * HOUR_S)
    assert queue.tick(HOUR_S) == {"llm": "reserve"}
    assert letters(queue.names("llm")) == "aaaacccc"


def outrun(overrun: Overrun, long_s: float = 9 * HOUR_S) -> Bench:
    """Return a queue whose announced job finds 4 of its 8 nodes held by a job that outran its forecast by an hour."""
    queue = bench(4, 4, 4, overrun=overrun)
    queue.submit("long", 4, long_s)
    queue.submit("r", 4, 4 * HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=5 * HOUR_S)
    assert letters(queue.names("llm")) == "bbbbcccc"
    return queue


def test_preempt_stops_a_job_that_outran_its_forecast_and_expects_more_of_it_next_time() -> None:
    queue = outrun(Overrun.PREEMPT)
    assert queue.arrive("llm", 5 * HOUR_S) == {"r": "preempt", "llm": "start"}
    assert queue.last("r").reason == (
        "it ran for 300 minutes, longer than the 240 predicted, and llm starts on its nodes"
    )
    assert queue.state.waiting["r"].forecast.upper_s == 10 * HOUR_S


def test_move_takes_other_nodes_and_stops_nobody() -> None:
    queue = outrun(Overrun.MOVE)
    assert queue.arrive("llm", 5 * HOUR_S) == {"llm": "reserve"}
    queue.finish("long", 5 * HOUR_S + 10)
    assert letters(queue.names("llm")) == "aaaacccc"
    assert set(queue.state.running) == {"llm", "r"}


def test_wait_keeps_the_nodes_and_waits_for_them_though_others_are_free() -> None:
    queue = outrun(Overrun.WAIT)
    queue.finish("long", 4.5 * HOUR_S)
    assert queue.arrive("llm", 5 * HOUR_S) == {"llm": "reserve"}
    assert letters(queue.names("llm")) == "bbbbcccc"
    assert queue.finish("r", 5 * HOUR_S + 10) == {"llm": "start"}


@pytest.mark.parametrize(
    ("overrun", "after_s", "minipods"), [(Overrun.MOVE, 100, "aaaacccc"), (Overrun.WAIT, 240, "bbbbcccc")]
)
def test_the_window_moves_to_when_nodes_are_expected_any_or_its_own(
    overrun: Overrun, after_s: float, minipods: str
) -> None:
    queue = outrun(overrun, long_s=5 * HOUR_S + 100)
    assert queue.arrive("llm", 5 * HOUR_S) == {"llm": "reserve"}
    assert queue.state.reservations["llm"].start_s == 5 * HOUR_S + after_s
    assert letters(queue.names("llm")) == minipods


def test_a_preemptable_announced_job_stops_nobody_and_may_be_stopped() -> None:
    queue = bench(4, 4)
    queue.submit("p", 4, 3 * HOUR_S, is_preemptable=True)
    queue.announce("soft", 8, 2 * HOUR_S, arrives_s=2 * HOUR_S, priority=9, is_preemptable=True)
    assert queue.arrive("soft", 2 * HOUR_S) == {"soft": "reserve"}
    assert queue.state.reservations["soft"].start_s == 3 * HOUR_S
    assert queue.finish("p", 3 * HOUR_S) == {"soft": "start"}
    queue.announce("hard", 8, 2 * HOUR_S, arrives_s=4 * HOUR_S, at_s=3.5 * HOUR_S)
    assert queue.arrive("hard", 4 * HOUR_S) == {"soft": "preempt", "hard": "start"}


@pytest.mark.parametrize("overrun", Overrun)
def test_nobody_within_its_forecast_is_stopped(overrun: Overrun) -> None:
    queue = bench(4, 4, overrun=overrun)
    queue.submit("r", 4, 9 * HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=5 * HOUR_S)
    queue.arrive("llm", 5 * HOUR_S)
    queue.tick(8.9 * HOUR_S)
    assert set(queue.state.running) == {"r"}


def test_without_prediction_nobody_enters_the_zone_and_it_drains() -> None:
    queue = bench(4, 4)
    queue.submit("r", 4, math.inf)
    queue.announce("llm", 8, HOUR_S, arrives_s=5 * HOUR_S)
    assert queue.submit("x", 2, math.inf, at_s=60) == {"x": "wait"}
    assert queue.arrive("llm", 5 * HOUR_S) == {}
    assert queue.tick(6 * HOUR_S) == {}
    assert queue.finish("r", 7 * HOUR_S) == {"llm": "start"}


def test_the_grid_of_an_announced_job_counts_in_the_choice_of_its_nodes() -> None:
    queue = bench(6, 6)
    queue.announce("llm", 8, HOUR_S, arrives_s=HOUR_S, nrows=4, ncolumns=2, alpha=0.2)
    order = queue.state.reservations["llm"].order
    rows = [{queue.ground.minipods[order[row]], queue.ground.minipods[order[4 + row]]} for row in range(4)]
    assert all(len(row) == 1 for row in rows)


def test_the_zone_of_a_preemptable_announced_job_is_closed_to_those_whom_it_could_not_stop() -> None:
    queue = bench(4, 4)
    queue.announce("soft", 6, HOUR_S, arrives_s=2 * HOUR_S, is_preemptable=True)
    assert queue.submit("p", 4, 9 * HOUR_S, is_preemptable=True) == {"p": "wait"}
    assert queue.submit("q", 4, HOUR_S, is_preemptable=True) == {"q": "start"}


def test_the_time_limit_cuts_the_forecast() -> None:
    queue = bench(4)
    queue.announce("llm", 4, HOUR_S, arrives_s=2 * HOUR_S)
    assert queue.submit("x", 2, 9 * HOUR_S) == {"x": "wait"}
    assert queue.submit("y", 2, 9 * HOUR_S, time_limit_s=HOUR_S) == {"y": "start"}


def test_a_window_does_not_move_to_the_end_of_jobs_that_may_be_stopped() -> None:
    queue = bench(4, 4)
    queue.submit("p", 4, 9 * HOUR_S, is_preemptable=True)
    queue.submit("r", 4, 5 * HOUR_S)
    queue.announce("llm", 8, HOUR_S, arrives_s=2 * HOUR_S)
    assert queue.arrive("llm", 2 * HOUR_S) == {"llm": "reserve"}
    assert queue.state.reservations["llm"].start_s == 5 * HOUR_S
    assert queue.finish("r", 5 * HOUR_S) == {"p": "preempt", "llm": "start"}

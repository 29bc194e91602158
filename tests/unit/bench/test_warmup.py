import math
from collections.abc import Callable
from itertools import accumulate
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.warmup import is_stable, warm_up


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [
        ([1.0] * 5, False),
        ([1.0] * 6, True),
        ([9.0] * 4 + [1.0] * 6, True),
        ([1.0, 1.0, 1.0, 1.09, 1.09, 1.09], True),
        ([1.0, 1.0, 1.0, 1.11, 1.11, 1.11], False),
        ([1.0, 1.0, 1.0, 0.89, 0.89, 0.89], False),
        # One stall in three is no change.
        ([1.0, 1.0, 1.0, 1.0, 50.0, 1.0], True),
        ([], False),
    ],
)
def test_a_time_is_stable_when_the_last_three_are_like_the_three_before(times_s: list[float], expected: bool) -> None:
    assert is_stable(times_s) is expected


def ranks(histories: list[list[float]], between_s: float = 0.0) -> Callable[[list[float]], list[float]]:
    """Return what gives the slowest rank's time, and the warm-up's so far, where ranks' clocks read these histories."""
    merged = [max(values) for values in zip(*histories, strict=True)]
    lasted = accumulate(time_s + between_s for time_s in merged)
    answers = zip(merged, lasted, strict=True)
    return lambda own: list(next(answers))


@given(st.lists(st.lists(st.floats(5e-4, 2e-3), min_size=20, max_size=20), min_size=1, max_size=3))
def test_all_ranks_stop_when_the_slowest_is_stable(histories: list[list[float]]) -> None:
    merged = [max(values) for values in zip(*histories, strict=True)]
    expected = next((n for n in range(6, 21) if is_stable(merged[:n])), 20)
    warmed = warm_up([lambda: None], lambda: None, ranks(histories), 20)
    assert warmed.iterations == expected
    assert warmed.is_stable is is_stable(merged[:expected])
    assert warmed.time_s == median(merged[expected - 3 : expected])


@pytest.mark.parametrize(("time_s", "iterations"), [(0.5, 1), (0.15, 2), (0.06, 4)])
def test_slow_operations_are_warm_after_a_fifth_of_a_second(time_s: float, iterations: int) -> None:
    warmed = warm_up([lambda: None], lambda: None, ranks([[time_s] * 20]), 20)
    assert (warmed.iterations, warmed.is_stable, warmed.time_s) == (iterations, False, time_s)


def test_time_between_operations_counts_for_a_warm_up() -> None:
    warmed = warm_up([lambda: None], lambda: None, ranks([[0.01] * 20], between_s=0.04), 20)
    assert (warmed.iterations, warmed.is_stable) == (4, False)


def test_buffers_are_taken_in_turn_each_after_a_barrier() -> None:
    events: list[str] = []
    runs = [lambda: events.append("0"), lambda: events.append("1")]
    warmed = warm_up(runs, lambda: events.append("barrier"), lambda own: own, 3)
    assert events == ["barrier", "0", "barrier", "1", "barrier", "0"]
    assert (warmed.iterations, warmed.is_stable) == (3, False)
    assert warmed.time_s >= 0


def test_no_warm_up_leaves_the_time_unknown() -> None:
    warmed = warm_up([lambda: None], lambda: None, lambda own: own, 0)
    assert warmed.iterations == 0
    assert math.isnan(warmed.time_s)

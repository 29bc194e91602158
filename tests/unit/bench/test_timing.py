import time

import pytest
import torch

from spanfit.bench import timing


def test_every_repetition_is_timed_after_a_barrier_of_its_own_on_the_next_buffers() -> None:
    events: list[str] = []
    runs = [lambda: events.append("run 0"), lambda: events.append("run 1")]
    times_s = timing.time_on_cpu(runs, lambda: events.append("barrier"), 3)
    assert events == ["barrier", "run 0", "barrier", "run 1", "barrier", "run 0"]
    assert len(times_s) == 3
    assert all(time_s >= 0 for time_s in times_s)


def test_the_barrier_is_outside_the_clock_and_the_operation_inside() -> None:
    waits = iter([0.01, 0.03])
    times_s = timing.time_on_cpu([lambda: time.sleep(next(waits))], lambda: time.sleep(0.3), 2)
    assert 0.01 <= times_s[0] < 0.3
    assert 0.03 <= times_s[1] < 0.3


@pytest.mark.parametrize(
    ("time_s", "batch"),
    [(1.0, 1), (100e-6, 1), (99e-6, 2), (25e-6, 4), (20e-6, 5), (1e-9, 100), (0.0, 1), (float("nan"), 1)],
)
def test_quick_operations_are_timed_in_batches_of_at_least_100_us(time_s: float, batch: int) -> None:
    assert timing.batch_size(time_s) == batch


def test_a_cpu_operation_has_ended_when_it_returns() -> None:
    def run() -> None:
        return None

    assert timing.ended(run, torch.device("cpu")) is run
    assert timing.ended(run, torch.device("cuda", 0)) is not run

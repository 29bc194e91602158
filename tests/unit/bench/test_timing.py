import time

import torch

from spanfit.bench import timing


def test_every_repetition_is_timed_after_a_barrier_of_its_own() -> None:
    events: list[str] = []
    times_s = timing.time_on_cpu(lambda: events.append("run"), lambda: events.append("barrier"), 3)
    assert events == ["barrier", "run"] * 3
    assert len(times_s) == 3
    assert all(time_s >= 0 for time_s in times_s)


def test_the_barrier_is_outside_the_clock_and_the_operation_inside() -> None:
    waits = iter([0.01, 0.03])
    times_s = timing.time_on_cpu(lambda: time.sleep(next(waits)), lambda: time.sleep(0.3), 2)
    assert 0.01 <= times_s[0] < 0.3
    assert 0.03 <= times_s[1] < 0.3


def test_the_device_chooses_the_clock() -> None:
    assert timing.timer(torch.device("cpu")) is timing.time_on_cpu
    assert timing.timer(torch.device("cuda", 0)) is timing.time_on_gpu

from pathlib import Path

import pytest

from spanfit.profiler.clock import RunClock


def test_a_clock_goes_on_where_it_stood_and_keeps_when_launches_began(tmp_path: Path) -> None:
    first = RunClock(tmp_path / "clock.json", 60.0)
    first.spent_s = 20.0
    first.begin(3)
    again = RunClock(tmp_path / "clock.json", 60.0)
    assert (again.spent_s, again.begun_s(3), again.begun_s(4)) == (20.0, 20.0, 20.0)
    again.spent_s = 45.0
    again.begin(3)
    assert (again.begun_s(3), again.left_s, again.is_over) == (20.0, 15.0, False)


def test_time_that_passes_is_counted_from_the_start(tmp_path: Path) -> None:
    clock = RunClock(tmp_path / "clock.json", None)
    clock.start()
    clock.tick()
    first = clock.spent_s
    clock.tick()
    assert 0 <= first <= clock.spent_s < 10
    assert clock.left_s is None and not clock.is_over


@pytest.mark.parametrize(("spent_s", "is_over"), [(59.9, False), (60.0, True)])
def test_a_clock_knows_when_the_time_is_over(tmp_path: Path, spent_s: float, is_over: bool) -> None:
    clock = RunClock(tmp_path / "clock.json", 60.0)
    clock.spent_s = spent_s
    assert clock.is_over is is_over

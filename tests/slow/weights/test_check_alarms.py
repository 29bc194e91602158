from dataclasses import replace

from spanfit.results.schema import Measurement
from spanfit.weights.check import State, check_against_run
from spanfit.weights.fit import fit_weights
from tests.unit.profiler.factory import RUN, Noise, framed
from tests.unit.weights.test_check import ARMS, LATER, NOW, rows

NOISY = Noise(launch=0.05, unit=0.02, row=0.02)
"""So much that the tests decide, not the smallest changes that count."""


def alarms(npairs: int, arms: dict[str, float]) -> int:
    """Return of how many pairs of runs the later one is called drifted."""
    found = 0
    for seed in range(npairs):
        before = fit_weights(RUN, framed(rows(seed, noise=NOISY)), created_at="2026-01-03T00:00:00+00:00")
        after: list[Measurement] = rows(1000 + seed, arms, noise=NOISY)
        findings = check_against_run(before, replace(LATER, run_id=f"later-{seed}"), framed(after), now=NOW)
        found += any(finding.state is State.DRIFTED for finding in findings)
    return found


def test_equal_runs_are_seldom_called_drifted() -> None:
    # Two families at 5% each; more than 17 of 100 would come by chance once in a hundred times.
    assert alarms(100, ARMS) <= 17


def test_an_arm_that_lost_a_tenth_of_its_speed_is_nearly_always_told() -> None:
    assert alarms(20, {**ARMS, "pp-aligned": 0.43}) >= 19

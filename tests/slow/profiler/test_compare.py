"""How often comparing two runs of the same thing alarms, and how often it finds a regression, in whole simulated runs.

A run is 24 cases of some launches of 5 repetitions. Noise is on the log scale: what a launch adds to all its cases, to
each of them, and to each repetition.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from spanfit.profiler.cases import CaseKey, CaseTimes
from spanfit.profiler.compare import compare_runs
from spanfit.profiler.statistics import FloatArray, Verdict
from tests.unit.profiler.test_cases import KEY

NCASES, REPETITIONS = 24, 5
KEYS = [replace(KEY, size_bytes=1 << 10 + case % 12, span=1 + case // 12) for case in range(NCASES)]
Draw = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def normal(sd: float) -> Draw:
    return lambda rng, shape: rng.normal(0, sd, shape)


def heavy(sd: float) -> Draw:
    """Return a draw of Student's t with 3 degrees of freedom, scaled to a standard deviation."""
    return lambda rng, shape: rng.standard_t(3, shape) * sd / math.sqrt(3)


def stalled(sd: float) -> Draw:
    """Return a draw of normal effects of which a tenth takes twice as long."""
    return lambda rng, shape: rng.normal(0, sd, shape) + math.log(2) * (rng.random(shape) < 0.1)


NOISES = {
    "quiet": (normal(0.01), normal(0.015), normal(0.03)),
    "normal": (normal(0.05), normal(0.03), normal(0.05)),
    "heavy tails": (heavy(0.05), heavy(0.04), heavy(0.1)),
    "stalls": (normal(0.05), stalled(0.02), stalled(0.05)),
}


def run(rng: np.random.Generator, noise: str, nlaunches: int, regression: float = 0.0) -> dict[CaseKey, CaseTimes]:
    """Return a run whose first case takes longer by a share."""
    launch, case, repetition = NOISES[noise]
    rows = launch(rng, (nlaunches, 1, 1)) + case(rng, (nlaunches, NCASES, 1))
    medians = np.median(rows + repetition(rng, (nlaunches, NCASES, REPETITIONS)), axis=2)
    medians[:, 0] += math.log1p(regression)
    return {
        key: CaseTimes(
            unit_logs=medians[:, case], launches=tuple(range(nlaunches)), nfailed=0, reason="", resolution=0.0
        )
        for case, key in enumerate(KEYS)
    }


def upper_limit(count: int, total: int) -> float:
    """Return the 95% upper confidence limit of a share (Clopper and Pearson, one-sided)."""
    return float(stats.beta.ppf(0.95, count + 1, total - count))


@pytest.mark.parametrize("noise", NOISES)
def test_two_runs_of_the_same_thing_alarm_in_at_most_one_of_twenty(noise: str) -> None:
    rng = np.random.default_rng([*map(ord, noise)])
    total, told, alarms = 0, 0, 0
    for launches_a, launches_b in ((6, 6), (3, 3), (3, 12), (6, 15)):
        for _ in range(250):
            compared = compare_runs(run(rng, noise, launches_a), run(rng, noise, launches_b))
            total += 1
            alarms += compared.has_findings
            told += any(case.verdict in (Verdict.SLOWER, Verdict.FASTER) for case in compared.cases)
    assert upper_limit(alarms, total) < 0.05, f"{alarms} alarms in {total}"
    assert upper_limit(told, total) < 0.05, f"some difference told in {told} of {total}"


@pytest.mark.parametrize(("nlaunches", "least"), [(6, 0.8), (12, 0.99)])
def test_a_case_that_takes_a_tenth_longer_is_mostly_found_and_no_other_is_blamed(nlaunches: int, least: float) -> None:
    rng = np.random.default_rng(nlaunches)
    total, found, blamed = 300, 0, 0
    for _ in range(total):
        compared = compare_runs(run(rng, "quiet", nlaunches), run(rng, "quiet", nlaunches, regression=0.1))
        slower = [case.case for case in compared.cases if case.verdict is Verdict.SLOWER]
        found += KEYS[0] in slower
        blamed += any(key != KEYS[0] for key in slower)
    assert found / total >= least, f"found in {found} of {total}"
    assert blamed / total < 0.05, f"blamed another in {blamed} of {total}"

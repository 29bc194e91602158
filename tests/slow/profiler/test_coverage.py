"""Whether intervals hold the truth as often as they say, over simulated units, stopped campaigns and gains."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from spanfit.profiler import statistics
from spanfit.profiler.gains import fit_gains
from spanfit.profiler.statistics import Verdict
from spanfit.profiler.stopping import Rule, Units
from tests.unit.profiler.factory import framed, measured, step_cases
from tests.unit.profiler.test_gains import ARMS, holds


def coverage(counts: Sequence[int], launch_sd: float, runs: int = 1000) -> float:
    """Return how often intervals over units nested in launches hold the truth of 0."""
    rng = np.random.default_rng(20261130)
    launches = np.repeat(np.arange(len(counts)), counts)
    hits = 0
    for _ in range(runs):
        values = rng.normal(0, launch_sd, len(counts))[launches] + rng.normal(0, 1, len(launches))
        found = statistics.unit_interval(values, launches)
        assert found.ci_low is not None and found.ci_high is not None
        hits += found.ci_low <= 0 <= found.ci_high
    return hits / runs


@pytest.mark.parametrize("counts", [(2,) * 6, (4, 4, 4), (1, 1, 2, 2, 4, 4), (2, 3, 3)])
@pytest.mark.parametrize("launch_sd", [0.0, 0.5, 2.0])
def test_unit_intervals_hold_the_truth_whatever_part_of_the_scatter_is_the_launch(
    counts: tuple[int, ...], launch_sd: float
) -> None:
    assert 0.925 <= coverage(counts, launch_sd) <= 0.98


def test_taking_communicators_for_launches_would_claim_too_much() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(500):
        values = np.repeat(rng.normal(0, 1, 6), 4) + rng.normal(0, 0.2, 24)
        naive = statistics.interval(values)
        assert naive.ci_low is not None and naive.ci_high is not None
        hits += naive.ci_low <= 0 <= naive.ci_high
    assert hits / 500 < 0.8


@pytest.mark.parametrize("sd", [0.03, 0.08])
def test_intervals_cover_though_the_campaign_stops_when_they_look_narrow(sd: float) -> None:
    rule = Rule(least=6, most=60, precision=0.05)
    rng = np.random.default_rng(11)
    hits, runs = 0, 400
    for values in rng.normal(0, sd, (runs, rule.most)).tolist():
        units: Units = ()
        while not rule.is_done(units):
            units = (*units, (values[len(units)],))
        found = statistics.unit_interval([value for (value,) in units], range(len(units)))
        assert found.ci_low is not None and found.ci_high is not None
        assert (found.ci_high - found.ci_low) / 2 <= math.log1p(0.05) or len(units) == rule.most
        hits += found.ci_low <= 0 <= found.ci_high
    assert 0.925 <= hits / runs <= 0.98


def test_intervals_of_gains_cover_and_an_arm_like_the_base_is_not_told_from_it() -> None:
    rng = np.random.default_rng(6)
    rows = [row for job in range(40) for row in measured(rng, step_cases(ARMS, f"job{job}"), repetitions=2)]
    jobs = fit_gains(framed(rows))
    gains = [gain for job in jobs for gain in job.gains]
    assert len(gains) == 120
    assert 0.90 <= np.mean([holds(gain.gain, 0.525 / ARMS[gain.arm] - 1) for gain in gains]) <= 0.99
    assert {gain.verdict for gain in gains if gain.arm == "packed"} == {Verdict.CANNOT_TELL}
    assert np.mean([holds(job.misaligned_ratio, 2.0) for job in jobs]) >= 0.93


def test_the_ratio_of_equal_misaligned_arms_allows_for_their_having_been_picked() -> None:
    rng = np.random.default_rng(13)
    same = dict.fromkeys([f"misaligned-{arm:02d}" for arm in range(6)], 0.5)
    rows = [row for job in range(25) for row in measured(rng, step_cases(same, f"job{job}"), repetitions=1)]
    ratios = [job.misaligned_ratio for job in fit_gains(framed(rows))]
    assert np.mean([holds(ratio, 1.0) for ratio in ratios]) >= 0.9

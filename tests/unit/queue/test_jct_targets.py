import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.queue.jct.targets import (
    LIMIT_GRACE_S,
    LONGEST_S,
    Target,
    bounded,
    decoded,
    encoded,
    smear_of,
    upper_offset,
    within_limits,
)


@pytest.mark.parametrize("target", [Target.LOG, Target.BINS])
def test_an_exact_estimator_gives_the_runtimes_back(target: Target) -> None:
    runtime_s = np.array([1.0, 59.0, 86400.0])
    assert decoded(target, encoded(target, runtime_s), 1.0) == pytest.approx(runtime_s)


def test_smearing_restores_the_mean_of_a_log_normal() -> None:
    runtime_s = np.random.default_rng(0).lognormal(7, 1.5, 200_000)
    raw = np.full(len(runtime_s), 7.0)
    smear = smear_of(Target.LOG, raw, runtime_s)
    assert smear == pytest.approx(math.exp(1.5**2 / 2), rel=0.05)
    assert decoded(Target.LOG, raw, smear)[0] == pytest.approx(runtime_s.mean(), rel=0.01)
    assert smear_of(Target.BINS, raw, runtime_s) == 1.0


@given(st.sampled_from(Target), st.floats(-1e6, 1e6), st.floats(0.1, 1e6))
def test_no_forecast_is_absurd(target: Target, raw: float, smear: float) -> None:
    (seconds,) = decoded(target, np.array([raw]), smear)
    assert 1.0 <= seconds <= LONGEST_S


def test_time_limits_hold_with_a_minute_of_grace() -> None:
    limits = np.array([60.0, np.nan])
    assert within_limits(np.array([1e5, 1e5]), limits).tolist() == [60.0 + LIMIT_GRACE_S, 1e5]
    assert bounded(np.array([5.0, 5.0]), np.array([9.0, 1.0]), limits).tolist() == [9.0, 5.0]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60), st.floats(0.05, 0.95))
def test_an_offset_holds_its_share_of_the_scores(scores: list[float], quantile: float) -> None:
    offset = upper_offset(np.array(scores), quantile)
    assert np.mean(np.array(scores) <= offset) >= quantile or offset == max(scores)


def test_offsets_cover_the_next_score() -> None:
    rng = np.random.default_rng(3)
    scores = rng.standard_t(3, (4000, 50))
    covered = [score[-1] <= upper_offset(score[:-1], 0.9) for score in scores]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.015)
    assert upper_offset(np.empty(0), 0.9) == 0.0

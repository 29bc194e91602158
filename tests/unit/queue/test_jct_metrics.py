from dataclasses import replace

import numpy as np
import pytest

from spanfit.queue.jct.metrics import Floats, Forecasts, calibrated, divide, ratio, score
from spanfit.queue.traces.reading import JobState, TraceJob


def job(number: int, submit_s: float, end_s: float) -> TraceJob:
    return TraceJob(
        job_id=str(number), submit_s=submit_s, start_s=submit_s, end_s=end_s, nnodes=1, state=JobState.COMPLETED
    )


def test_a_moment_divides_by_what_was_known_then() -> None:
    jobs = [job(n, 10.0 * n, 10.0 * n + (200 if n == 7 else 5)) for n in range(10)]
    division = divide(jobs, 0.2)
    assert division.cut_s == 80.0
    assert [each.job_id for each in division.before] == [str(n) for n in range(7)]
    assert [each.job_id for each in division.between] == ["7"]
    assert [each.job_id for each in division.after] == ["8", "9"]


def forecasts(errors_bins: float, seed: int) -> Forecasts:
    rng = np.random.default_rng(seed)
    runtime_s = np.full(600, 600_000.0)
    mean_s = runtime_s + 600 * errors_bins * rng.normal(size=600)
    return Forecasts(
        mean_s=mean_s, upper_s=mean_s + 600 * errors_bins, runtime_s=runtime_s, days=np.floor(np.arange(600) / 20)
    )


def test_scores_and_intervals_are_those_of_the_errors() -> None:
    found = score("x", "log", 1.0, forecasts(10.0, seed=1), 0.9, seed=0)
    assert found.rmse_bins.ci_low is not None
    assert found.rmse_bins.ci_high is not None
    assert found.rmse_bins.ci_low < 10 < found.rmse_bins.ci_high
    assert found.rmse_bins.ci_high - found.rmse_bins.ci_low < 2
    assert found.coverage.value == pytest.approx(0.84, abs=0.04)
    assert found.mae_bins == pytest.approx(8, abs=1)


def test_the_ratio_is_paired() -> None:
    found = ratio(forecasts(5.0, seed=2), forecasts(10.0, seed=2), seed=0)
    assert found.value == pytest.approx(0.5, abs=0.02)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_high - found.ci_low < 0.02


def test_a_bound_depends_on_what_had_ended_only() -> None:
    rng = np.random.default_rng(4)
    jobs = [job(n, 10.0 * n, 10.0 * n + float(rng.integers(1, 900))) for n in range(300)]
    now_s, base = 2000.0, np.full(300, 4.0)

    def bounds(runtime_s: Floats) -> Floats:
        changed = [replace(each, end_s=each.submit_s + time_s) for each, time_s in zip(jobs, runtime_s, strict=True)]
        found = calibrated(changed, 100, base=base, mean_s=np.ones(300), quantile=0.9)
        return found.upper_s[: int(now_s / 10) - 100]

    truth = np.array([each.runtime_s for each in jobs])
    later = np.array([each.end_s > now_s for each in jobs])
    np.testing.assert_array_equal(bounds(truth), bounds(np.where(later, truth * 50, truth)))
    assert (bounds(truth) != bounds(np.where(~later, truth * 50, truth))).any()


def test_days_are_the_blocks() -> None:
    """One bad day widens the interval more than the same errors spread over all days."""
    found = forecasts(1.0, seed=3)
    shock = np.zeros(600)
    shock[:20] = 100 * 600.0
    bad_day = Forecasts(mean_s=found.mean_s + shock, upper_s=found.upper_s, runtime_s=found.runtime_s, days=found.days)
    spread = Forecasts(
        mean_s=found.mean_s + np.random.default_rng(0).permutation(shock),
        upper_s=found.upper_s,
        runtime_s=found.runtime_s,
        days=found.days,
    )
    widths = []
    for each in (bad_day, spread):
        rmse = score("x", "log", 0.0, each, 0.9, seed=0).rmse_bins
        assert rmse.ci_low is not None
        assert rmse.ci_high is not None
        widths.append(rmse.ci_high - rmse.ci_low)
    assert widths[0] > 2 * widths[1]

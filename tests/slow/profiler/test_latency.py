from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.profiler.curves_file import LatencyFit, Shape
from spanfit.profiler.latency import fit_latency
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate

SIZES = [1 << exponent for exponent in range(10, 25)]
ALPHA_S, BETA = 1e-3, 1 / 5e7
KNEE = 131072.0
SLOW_BETA = 1 / 4.78e7


def line(sizes: list[int]) -> FloatArray:
    return ALPHA_S + BETA * np.array(sizes, dtype=float)


def bucket(sizes: list[int]) -> FloatArray:
    """Return times of a token bucket: fast up to a burst, then at the lasting rate, with a negative intercept."""
    array = np.array(sizes, dtype=float)
    return np.where(array < KNEE, 2e-4 + array / 5e8, 2e-4 + KNEE / 5e8 + (array - KNEE) * SLOW_BETA)


def noisy(rng: np.random.Generator, times: FloatArray, nunits: int = 6) -> FloatArray:
    noise: FloatArray = rng.normal(0, 0.1, (nunits, 1)) + rng.normal(0, 0.03, (nunits, len(times)))
    return np.log(times) + noise


def holds(estimate: Estimate | None, truth: float) -> bool:
    assert estimate is not None and estimate.ci_low is not None and estimate.ci_high is not None
    return estimate.ci_low <= truth <= estimate.ci_high


def test_a_line_is_recovered_with_the_sizes_of_half_and_90_percent() -> None:
    fit = fit_latency(SIZES, [np.log(line(SIZES))] * 2, 1.5)
    (segment,) = fit.segments
    assert fit.shape is Shape.LINE and fit.knee_bytes is None
    assert segment.alpha_s.value == pytest.approx(ALPHA_S)
    assert segment.beta_s_per_byte.value == pytest.approx(BETA)
    assert fit.busbw_bytes_per_s is not None and fit.busbw_bytes_per_s.value == pytest.approx(1.5 / BETA)
    assert fit.half_bytes is not None and fit.half_bytes.value == pytest.approx(ALPHA_S / BETA)
    assert fit.ninety_bytes is not None and fit.ninety_bytes.value == pytest.approx(9 * ALPHA_S / BETA)
    assert fit.misfit < 1e-9
    assert fit.time_s(12345) == pytest.approx(ALPHA_S + BETA * 12345)


def test_a_token_bucket_has_its_knee_found_and_its_negative_intercept_said() -> None:
    fit = fit_latency(SIZES, noisy(np.random.default_rng(1), bucket(SIZES)), 1.0)
    assert fit.shape is Shape.BROKEN_LINE
    assert holds(fit.knee_bytes, KNEE)
    assert fit.knee_bytes is not None and fit.knee_bytes.value == pytest.approx(KNEE, rel=0.05)
    assert fit.segments[1].alpha_s.value < 0
    assert "the intercept is negative" in fit.sentence and "two lines meet at 12" in fit.sentence
    assert fit.segments[0].to_bytes == fit.segments[1].from_bytes == fit.knee_bytes.value
    sizes = np.array(SIZES, dtype=float)
    found = np.array([fit.time_s(size) for size in sizes])
    assert np.max(np.abs(found / bucket(SIZES) - 1)) < 0.15


def test_half_of_the_busbw_agrees_with_a_scan_over_the_fit() -> None:
    fit = fit_latency(SIZES, noisy(np.random.default_rng(2), bucket(SIZES)), 1.0)
    grid = np.exp(np.linspace(np.log(SIZES[0]), np.log(SIZES[-1]), 20001))
    shares = np.array([fit.segments[-1].beta_s_per_byte.value * size / fit.time_s(size) for size in grid])
    for share, found in ((0.5, fit.half_bytes), (0.9, fit.ninety_bytes)):
        scanned = grid[np.flatnonzero(shares < share)[-1] + 1]
        assert found is not None and found.value == pytest.approx(scanned, rel=2e-3)


def test_intervals_cover_the_truth_and_a_line_gets_no_knee() -> None:
    rng = np.random.default_rng(3)
    fits = [fit_latency(SIZES, noisy(rng, line(SIZES)), 1.0) for _ in range(200)]
    assert sum(fit.shape is Shape.BROKEN_LINE for fit in fits) <= 3
    truths: list[tuple[Callable[[LatencyFit], Estimate | None], float]] = [
        (lambda fit: fit.segments[-1].alpha_s, ALPHA_S),
        (lambda fit: fit.segments[-1].beta_s_per_byte, BETA),
        (lambda fit: fit.half_bytes, ALPHA_S / BETA),
        (lambda fit: fit.ninety_bytes, 9 * ALPHA_S / BETA),
    ]
    lines = [fit for fit in fits if fit.shape is Shape.LINE]
    for of, truth in truths:
        assert 0.91 <= np.mean([holds(of(fit), truth) for fit in lines]) <= 0.99


def test_intervals_of_a_knee_cover_it() -> None:
    rng = np.random.default_rng(4)
    fits = [fit_latency(SIZES, noisy(rng, bucket(SIZES)), 1.0) for _ in range(60)]
    assert {fit.shape for fit in fits} == {Shape.BROKEN_LINE}
    assert 0.87 <= np.mean([holds(fit.knee_bytes, KNEE) for fit in fits]) <= 1


def test_saturated_sizes_say_that_there_is_no_knee_within() -> None:
    sizes = [1 << exponent for exponent in range(24, 30)]
    fit = fit_latency(sizes, noisy(np.random.default_rng(5), line(sizes)), 1.0)
    assert (fit.half_bytes, fit.ninety_bytes) == (None, None)
    assert fit.sentence == "no knee within the sizes measured: at least 90% at every size"


def test_small_sizes_say_that_the_lasting_busbw_is_extrapolated() -> None:
    sizes = [1 << exponent for exponent in range(10, 17)]
    fit = fit_latency(sizes, noisy(np.random.default_rng(6), line(sizes)), 1.0)
    assert fit.ninety_bytes is None and fit.half_bytes is not None
    assert "under 90% at the largest size, so the lasting busbw is extrapolated" in fit.sentence


def test_a_time_that_does_not_grow_has_no_busbw() -> None:
    fit = fit_latency(SIZES[:4], noisy(np.random.default_rng(7), np.array([3e-3, 2.8e-3, 2.5e-3, 2.2e-3])), 1.0)
    assert fit.busbw_bytes_per_s is None and fit.segments[0].beta_s_per_byte.value == 0
    assert "does not grow" in fit.sentence


def test_few_sizes_or_one_unit_claim_no_knee() -> None:
    few = fit_latency(SIZES[::5], noisy(np.random.default_rng(8), bucket(SIZES[::5])), 1.0)
    assert few.shape is Shape.LINE and few.sentence.startswith("3 sizes cannot tell a knee, 5 or more could")
    one = fit_latency(SIZES, np.log(bucket(SIZES))[None], 1.0)
    assert one.shape is Shape.LINE and one.is_provisional
    assert one.segments[0].alpha_s.ci_low is None
    assert one.sentence.startswith("1 unit cannot tell a knee")


@given(scale=st.floats(1e-3, 1e3), stretch=st.floats(0.1, 10))
def test_units_of_time_and_size_do_not_change_what_is_found(scale: float, stretch: float) -> None:
    logs = noisy(np.random.default_rng(9), bucket(SIZES), nunits=3)
    stretched = [round(size * stretch * 1000) for size in SIZES]

    def knee(fit: LatencyFit) -> float:
        assert fit.knee_bytes is not None
        return fit.knee_bytes.value

    base, other = fit_latency(SIZES, logs, 1.0), fit_latency(stretched, logs + np.log(scale), 1.0)
    assert knee(other) == pytest.approx(knee(base) * stretch * 1000, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "logs", "message"),
    [([1024], [[0.0]], "at least two"), ([2, 1], [[0.0, 0.0]], "rising"), ([1, 2], [0.0, 0.0], r"\(units, 2\)")],
)
def test_what_is_no_curve_is_refused(sizes: list[int], logs: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_latency(sizes, logs, 1.0)  # type: ignore[arg-type]

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spanfit.errors import ConfigError, FitError
from spanfit.results.schema import RunInfo
from spanfit.weights.fit import fit_alpha, fit_weights, run_jobs
from spanfit.weights.model import remarks
from spanfit.weights.shares import share_of
from spanfit.workload.program import ComputeMode
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, framed, measured, step_cases
from tests.unit.workload.factory import job

ARMS = {"dp-aligned": 0.486, "pp-aligned": 0.390, "misaligned-00": 0.500, "misaligned-01": 0.550}
CREATED = "2026-01-03T00:00:00+00:00"


@pytest.mark.parametrize(
    ("gain_dp", "gain_pp", "alpha"),
    [
        (0.0, 0.023, 0.0),
        (0.0077, 0.018, 0.30),
        (0.014, 0.0, 1.0),
        (-0.46, 0.39, 0.0),
        (0.0, 0.0, 0.5),
        (-0.1, -0.2, 0.5),
    ],
)
def test_worked_values_of_the_paper_and_gains_below_zero(gain_dp: float, gain_pp: float, alpha: float) -> None:
    assert share_of(gain_dp, gain_pp) == pytest.approx(alpha, abs=0.005)


def draws(rng: np.random.Generator, gain_dp: float, gain_pp: float, n: int = 6) -> list[tuple[float, float]]:
    """Return the log gains of n launches; both share the noise of the launch's base."""
    base = rng.normal(0, 0.02, n)
    dp = math.log1p(gain_dp) + base - rng.normal(0, 0.02, n)
    pp = math.log1p(gain_pp) + base - rng.normal(0, 0.03, n)
    return list(zip(dp.tolist(), pp.tolist(), strict=True))


@pytest.mark.parametrize(
    ("gain_dp", "gain_pp"),
    [(0.3, 0.3), (0.08, 0.35), (0.02, 0.4), (1.14, 0.27), (0.02, 0.02), (0.0, 0.3), (-0.3, 0.3), (0.3, 0.0), (0, 0.03)],
)
def test_intervals_of_alpha_cover_inside_and_at_the_border(gain_dp: float, gain_pp: float) -> None:
    rng = np.random.default_rng(1)
    truth = share_of(gain_dp, gain_pp)
    fits = [fit_alpha(draws(rng, gain_dp, gain_pp)).estimate for _ in range(400)]
    bounds = [(fit.ci_low, fit.ci_high) for fit in fits if fit.ci_low is not None and fit.ci_high is not None]
    assert len(bounds) == 400
    assert np.mean([low <= truth <= high for low, high in bounds]) >= 0.93


def test_intervals_of_alpha_are_no_wider_than_they_must_be() -> None:
    rng = np.random.default_rng(2)
    bounds = [fit_alpha(draws(rng, 0.3, 0.3)).estimate for _ in range(400)]
    held = [fit.ci_low is not None and fit.ci_high is not None and fit.ci_low <= 0.5 <= fit.ci_high for fit in bounds]
    assert np.mean(held) <= 0.97


GRID = np.linspace(0, 1, 401)


def not_refuted(pairs: list[tuple[float, float]]) -> list[float]:
    """Return the values of alpha on a grid that may stay, by the definition, with scipy's test."""
    logs = np.array(pairs)
    gains = np.expm1(logs.mean(axis=0))
    dp, pp = (gains + (1 + gains) * (logs - logs.mean(axis=0))).T
    tests = [stats.ttest_1samp(gain, 0).confidence_interval(0.95) for gain in (dp, pp)]
    contrasts = (1 - GRID) * dp[:, None] - GRID * pp[:, None]
    stays = np.asarray(stats.ttest_1samp(contrasts, 0).pvalue) >= 0.05
    stays &= all(test.high >= 0 for test in tests)
    stays[[0, -1]] = [test.low <= 0 for test in tests]
    return [float(ratio) for ratio in GRID[stays]]


@pytest.mark.parametrize("gains", [(0.3, 0.3), (0.02, 0.4), (0.03, 0.03), (-0.03, 0.1), (0.1, -0.2), (0.05, 0.0)])
def test_the_interval_is_the_hull_of_what_the_test_does_not_refute(gains: tuple[float, float]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        pairs = draws(rng, *gains)
        fit = fit_alpha(pairs)
        kept = not_refuted(pairs)
        if fit.is_flat:
            assert 0.0 in kept and 1.0 in kept
        else:
            assert fit.estimate.ci_low == pytest.approx(min(kept), abs=0.004)
            assert fit.estimate.ci_high == pytest.approx(max(kept), abs=0.004)


log_gains = st.floats(-0.5, 1.0)


@given(st.lists(st.tuples(log_gains, log_gains), min_size=2, max_size=8))
def test_exchanging_the_arms_exchanges_the_weights(pairs: list[tuple[float, float]]) -> None:
    fit, other = fit_alpha(pairs), fit_alpha([(pp, dp) for dp, pp in pairs])
    assert other.is_flat == fit.is_flat
    for mine, theirs in (("value", "value"), ("ci_low", "ci_high"), ("ci_high", "ci_low")):
        assert getattr(other.estimate, theirs) == pytest.approx(1 - getattr(fit.estimate, mine), abs=1e-6)
    assert fit.estimate.ci_low is not None and fit.estimate.ci_high is not None
    assert 0 <= fit.estimate.ci_low <= fit.estimate.value <= fit.estimate.ci_high <= 1


@pytest.mark.parametrize("pairs", [[], [(0.3, 0.1)], [(0.01, -0.02), (-0.03, 0.01), (0.02, 0.02)]])
def test_gains_that_are_not_told_from_zero_are_flat(pairs: list[tuple[float, float]]) -> None:
    fit = fit_alpha(pairs)
    assert fit.is_flat
    assert (fit.estimate.value, fit.estimate.ci_low, fit.estimate.ci_high) == (0.5, 0.0, 1.0)


def test_a_gain_well_below_zero_leaves_one_weight() -> None:
    fit = fit_alpha([(-0.6, 0.30), (-0.61, 0.31), (-0.59, 0.29), (-0.60, 0.30)])
    assert (fit.estimate.value, fit.estimate.ci_low, fit.estimate.ci_high, fit.is_flat) == (0.0, 0.0, 0.0, False)


def test_gains_without_any_noise_give_a_point() -> None:
    fit = fit_alpha([(math.log(1.1), math.log(1.3))] * 3)
    assert fit.estimate.value == pytest.approx(0.25)
    assert fit.estimate.ci_low == pytest.approx(0.25, abs=1e-6) and fit.estimate.ci_high == pytest.approx(
        0.25, abs=1e-6
    )


def test_weights_of_a_run_carry_their_origin() -> None:
    noise = Noise(launch=0.3, unit=0.005, row=0.005)
    frame = framed(measured(np.random.default_rng(4), step_cases(ARMS), noise=noise))
    found = fit_weights(RUN, frame, created_at=CREATED)
    (entry,) = found.entries
    base = math.sqrt(0.500 * 0.550)
    truth = share_of(base / 0.486 - 1, base / 0.390 - 1)
    assert entry.alpha.ci_low is not None and entry.alpha.ci_high is not None
    assert entry.alpha.ci_low <= truth <= entry.alpha.ci_high
    assert entry.alpha.ci_high - entry.alpha.ci_low < 0.1
    assert entry.beta.ci_low == pytest.approx(1 - entry.alpha.ci_high)
    assert (entry.job, entry.dp, entry.pp, entry.launches) == ("balanced", 2, 2, 6)
    assert entry.base_arms == ("misaligned-00", "misaligned-01")
    assert entry.volumes is not None and entry.volumes.r2 == 4194304 / (2 * 4 * 524288)
    assert (found.run_ids, found.cluster, found.created_at) == ((RUN.run_id,), "demo", CREATED)
    assert remarks(entry) == ()


def test_variants_of_a_job_are_no_jobs_of_their_own() -> None:
    jobs = RUN.spec["jobs"]
    assert isinstance(jobs, list)
    rng, names = np.random.default_rng(4), ("balanced", "balanced+busy", "balanced@cta-4")
    info = replace(RUN, spec={"jobs": [{**jobs[0], "name": name} for name in names]})
    plain = measured(rng, step_cases(ARMS))
    # Beside noise only one arm was run, and no base.
    beside = measured(rng, step_cases({"dp-aligned": 0.9}, "balanced+busy"))
    waiting = [replace(row, operation=f"{row.operation}/communication", time_s=0.1) for row in (*plain, *beside)]
    limited = measured(rng, step_cases(ARMS, "balanced@cta-4"))
    found = fit_weights(info, framed([*plain, *beside, *waiting, *limited]), created_at=CREATED)
    assert found.entries == fit_weights(RUN, framed(plain), created_at=CREATED).entries
    assert list(run_jobs(info)) == [("balanced", "wait")]


def test_what_limits_the_weights_is_said() -> None:
    rows = measured(np.random.default_rng(5), step_cases({**ARMS, "dp-aligned": 1.0}), launches=3)
    (entry,) = fit_weights(RUN, framed(rows), created_at=CREATED).entries
    assert entry.alpha.value == 0.0
    slower, provisional = remarks(entry)
    assert "DP-aligned arm gains −" in slower and "3 launches" in provisional
    rows = measured(np.random.default_rng(6), step_cases(dict.fromkeys(ARMS, 0.5)))
    (entry,) = fit_weights(RUN, framed(rows), created_at=CREATED).entries
    assert entry.is_flat and "neither gain can be told to be above 0" in " ".join(remarks(entry))


def with_jobs(**changes: object) -> RunInfo:
    jobs = RUN.spec["jobs"]
    assert isinstance(jobs, list)
    return replace(RUN, spec={"jobs": [{**jobs[0], **changes}]})


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (replace(RUN, spec={}), "spec.jobs does not describe them"),
        (with_jobs(name="other"), "spec.jobs does not describe them"),
        (with_jobs(compute="none"), "spec.jobs does not describe them"),
        (with_jobs(activation_bytes=0), "sends no activations"),
        (with_jobs(gradient_bytes=0), "reduces no gradients"),
    ],
)
def test_a_job_that_the_run_does_not_describe_is_named(info: RunInfo, message: str) -> None:
    frame = framed(measured(np.random.default_rng(7), step_cases(ARMS)))
    with pytest.raises(FitError, match=f"job balanced: .*{message}"):
        fit_weights(info, frame, created_at=CREATED)


def test_a_job_with_groups_of_one_kind_has_nothing_to_weigh() -> None:
    frame = framed(measured(np.random.default_rng(7), step_cases(ARMS)))
    with pytest.raises(FitError, match="no training steps of a job with both DP and PP groups"):
        fit_weights(with_jobs(pp=1), frame, created_at=CREATED)


def test_a_job_with_a_model_is_weighed_by_its_grid_of_nodes_and_the_volumes_of_its_shapes() -> None:
    described = replace(job(dp=4, pp=2, tp=2, microbatches=4), name="balanced", compute=ComputeMode.NONE)
    info = replace(RUN, ngpus_per_node=4, spec={"jobs": [json.loads(json.dumps(asdict(described)))]})
    rows = [replace(row, compute="none") for row in measured(np.random.default_rng(7), step_cases(ARMS))]
    (entry,) = fit_weights(info, framed(rows), created_at=CREATED).entries
    assert (entry.dp, entry.pp, entry.compute) == (2, 2, "none")
    # Half a stage's weights in float32, over a rank's half of 64 positions x 64 features in bfloat16, 2 x 4 times.
    stage = sum(each.non_expert for each in map(described.model.weights, described.layers(0)))
    assert entry.volumes is not None
    assert entry.volumes.r2 == pytest.approx(stage / 2 * 4 / (2 * 4 * 64 * 64 / 2 * 2), rel=0.05)


def test_a_broken_description_names_its_key() -> None:
    frame = framed(measured(np.random.default_rng(8), step_cases(ARMS)))
    with pytest.raises(ConfigError, match=r"spec\.jobs\[0\]: dp: found \"two\", expected a valid integer"):
        fit_weights(with_jobs(dp="two"), frame, created_at=CREATED)


def test_missing_arms_and_missing_steps_are_named() -> None:
    rows = measured(np.random.default_rng(9), step_cases(ARMS))
    rows = [failed(row) if row.arm == "pp-aligned" else row for row in rows]
    with pytest.raises(FitError, match=r"found arms dp-aligned beside the misaligned ones, expected .* pp-aligned"):
        fit_weights(RUN, framed(rows), created_at=CREATED)
    with pytest.raises(FitError, match="found no training steps"):
        fit_weights(RUN, framed([MEASUREMENT]), created_at=CREATED)

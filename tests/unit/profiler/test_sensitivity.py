import math
from typing import Any

import pytest

from spanfit.errors import FitError
from spanfit.profiler.sensitivity import ArmSensitivity, Sensitivity, fit_sensitivity, format_setting
from spanfit.profiler.sweep import swept_jobs
from tests.unit.profiler.factory import Noise
from tests.unit.profiler.test_sweep import ARMS, JOB, jobs_of, run_of

EXACT = Noise(launch=0.3, unit=0.0, row=0.0)
DOUBLINGS = 4


def volumes(noise: Noise | None = None, launches: int = 6, growth: float = 0.2) -> Sensitivity:
    """Return how gains move where each doubling of the activations is worth a share to the DP-aligned arm."""
    jobs = [JOB | {"name": f"job{n}", "activation_bytes": 1 << 18 + n} for n in range(DOUBLINGS)]
    times = {
        f"job{n}": {"dp-aligned": 0.5 / (1 + growth) ** n, "packed": 0.5, "misaligned-00": 0.5}
        for n in range(DOUBLINGS)
    }
    return fit_sensitivity(swept_jobs([run_of(jobs[::-1], times, noise=noise, launches=launches)]))


def by_arm(found: Sensitivity) -> dict[str, ArmSensitivity]:
    return {arm.arm: arm for arm in found.arms}


def test_slopes_are_exact_without_noise_and_values_rise() -> None:
    found = volumes(EXACT)
    assert (found.thing, found.per) == ("activation_bytes", "doubling")
    dp, packed = by_arm(found)["dp-aligned"], by_arm(found)["packed"]
    assert dp.slope is not None and packed.slope is not None
    assert dp.slope.value == pytest.approx(0.2) and dp.misfit == pytest.approx(0.0, abs=1e-9)
    assert packed.slope.value == pytest.approx(0.0, abs=1e-9)
    assert [point.value for point in dp.points] == [float(1 << 18 + n) for n in range(DOUBLINGS)]
    assert [point.gain.value for point in dp.points] == pytest.approx([1.2**n - 1 for n in range(DOUBLINGS)])


def test_slopes_are_claimed_only_beyond_their_interval() -> None:
    found = by_arm(volumes())
    assert found["dp-aligned"].sentence.startswith("rises: ") and found["dp-aligned"].sentence.endswith("doubling")
    assert found["packed"].sentence.startswith("not told from level: ")
    slope = found["dp-aligned"].slope
    assert slope is not None and slope.ci_low is not None and slope.ci_high is not None
    assert slope.ci_low < 0.2 < slope.ci_high
    assert by_arm(volumes(growth=-0.1))["dp-aligned"].sentence.startswith("falls: ")


def test_one_launch_claims_nothing() -> None:
    arm = by_arm(volumes(launches=1))["dp-aligned"]
    assert arm.sentence.startswith("cannot tell: ") and arm.is_provisional
    assert arm.slope is not None and arm.slope.ci_low is None


def test_runs_are_points_too_and_a_bend_is_told() -> None:
    runs = [
        run_of([JOB], {"job": ARMS | {"dp-aligned": time_s}}, name, truth={"uplink": rate}, noise=EXACT)
        for name, rate, time_s in (("a", 1e8, 0.3), ("b", 2e8, 0.5), ("c", 4e8, 0.5))
    ]
    found = fit_sensitivity(swept_jobs(runs))
    assert found.thing == "rate.uplink"
    (dp, _) = found.arms
    assert dp.slope is not None and dp.slope.value == pytest.approx(math.sqrt(0.3 / 0.5) - 1)
    assert dp.misfit is not None and dp.misfit > 0.15
    assert [point.run_id for point in dp.points] == ["a", "b", "c"]


@pytest.mark.parametrize("values", [(0, 1 << 19, 1 << 20), (0.0, 0.003, 0.006), (0.0, 0.5, 1.0)])
def test_a_slope_from_0_on_is_the_growth_over_the_range_whatever_the_unit(values: tuple[float, ...]) -> None:
    jobs = [JOB | {"name": f"job{n}", "forward_s": value} for n, value in enumerate(values)]
    times = {f"job{n}": ARMS | {"dp-aligned": 0.4 / math.sqrt(1.21) ** n} for n in range(3)}
    found = fit_sensitivity(swept_jobs([run_of(jobs, times, noise=EXACT)]))
    dp = by_arm(found)["dp-aligned"]
    assert found.per == "range"
    assert dp.slope is not None and dp.slope.value == pytest.approx(0.21)
    assert dp.misfit == pytest.approx(0.0, abs=1e-9)
    assert dp.sentence == "rises: 21.0% [21.0, 21.0] from the least to the largest"


def test_names_have_no_slope() -> None:
    schedules = [JOB, JOB | {"name": "other", "schedule": "1f1b"}]
    found = fit_sensitivity(jobs_of(*schedules))
    assert (found.thing, found.per) == ("schedule", "")
    assert {arm.slope for arm in found.arms} == {None}
    assert found.arms[0].sentence == "no numbers, so no slope"


def test_more_than_one_thing_is_refused_by_name() -> None:
    with pytest.raises(FitError) as caught:
        fit_sensitivity(jobs_of(JOB, JOB | {"name": "other", "pp": 4, "gradient_bytes": 1 << 22}))
    first, *lines = str(caught.value).splitlines()
    assert "found 2 things that differ, expected one" in first
    assert lines == ["  pp: 2, 4", "  gradient_bytes: 1 MiB, 4 MiB"]


def test_nothing_that_differs_and_gains_without_a_base_are_refused() -> None:
    with pytest.raises(FitError, match="found nothing that differs"):
        fit_sensitivity(jobs_of(JOB))
    times: dict[str, Any] = {"job": {"packed": 1.0}, "other": {"packed": 1.0}}
    jobs = swept_jobs([run_of([JOB, JOB | {"name": "other", "dp": 4}], times)])
    with pytest.raises(FitError, match="job of one, other of one: found no misaligned arms"):
        fit_sensitivity(jobs)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("gradient_bytes", float(1 << 20), "1 MiB"),
        ("forward_s", 0.006, "6 ms"),
        ("noise.gradient", float(1 << 20), "1 MiB"),
        ("noise.backward", 0.012, "12 ms"),
        ("noise.used", 0.5, "0.5"),
        ("rate.uplink", 4e8, "400 Mbit/s"),
        ("model.layers", 12.0, "12"),
        ("schedule", "gpipe", "gpipe"),
    ],
)
def test_settings_are_shown_in_their_units(name: str, value: str | float, text: str) -> None:
    assert format_setting(name, value) == text

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from spanfit.profiler.drift import Along, Drift, drifting, fit_drift
from tests.unit.profiler.factory import MEASUREMENT, failed, framed

LAUNCHES, CASES, REPETITIONS = 8, 6, 3


def campaign(
    seed: int,
    extra: Callable[[int, int, int], float] = lambda launch, place, case: 0.0,
    *,
    launches: int = LAUNCHES,
    launch_sd: float = 0.01,
) -> pd.DataFrame:
    """Return a run whose log times get what ``extra`` says of each launch, place in its order, and case."""
    rng = np.random.default_rng(seed)
    order = np.array([rng.permutation(CASES) for _ in range(launches)])
    launch, place = np.indices(order.shape)
    systematic = np.vectorize(extra)(launch, place, order) + rng.normal(0, launch_sd, (launches, 1))
    units = np.log(0.01 * (order + 1)) + systematic + rng.normal(0, 0.01, order.shape)
    times = np.exp(units[..., None] + rng.normal(0, 0.02, (*order.shape, REPETITIONS)))
    frame = pd.concat([framed([MEASUREMENT])] * times.size, ignore_index=True)
    frame["launch"] = launch.repeat(REPETITIONS)
    frame["comm_id"] = frame["launch"].astype(str) + ".0.0"
    frame["position"] = place.repeat(REPETITIONS)
    frame["case_id"] = [f"case{case}" for case in order.repeat(REPETITIONS)]
    frame["time_s"] = times.ravel()
    return frame


def told(frame: pd.DataFrame) -> tuple[Drift, ...]:
    return drifting(fit_drift(frame))


def test_speed_that_drifts_within_the_hour_is_told_once_for_all_cases() -> None:
    (drift,) = told(campaign(1, lambda launch, place, case: 0.15 * launch / (LAUNCHES - 1)))
    assert (drift.along, drift.case_id, drift.nlaunches) == (Along.RUN, "", LAUNCHES)
    assert drift.change.ci_low is not None and drift.change.ci_high is not None
    assert drift.change.ci_low < np.expm1(0.15) < drift.change.ci_high
    assert drift.sentence.startswith("all cases together: times grew by 1")


def test_a_drift_of_one_case_names_it() -> None:
    (drift,) = told(campaign(2, lambda launch, place, case: -0.05 * launch * (case == 4)))
    assert (drift.along, drift.case_id) == (Along.RUN, "case4")
    assert drift.change.value == pytest.approx(np.expm1(-0.35), abs=0.04)
    assert drift.sentence.startswith("all_reduce 1 MiB over 1 minipod: times fell by −")


def test_a_rail_that_drifts_is_told_though_its_case_runs_another_beside_it() -> None:
    steady = campaign(9).assign(rail=0)
    grown = campaign(9, lambda launch, place, case: 0.05 * launch * (case == 4)).assign(rail=1, group=1)
    (drift,) = told(pd.concat([steady, grown], ignore_index=True))
    assert (drift.case_id, drift.rail) == ("case4", 1)
    assert drift.change.value == pytest.approx(np.expm1(0.35), abs=0.06)
    assert drift.sentence.startswith("all_reduce 1 MiB over 1 minipod, rail 1: times grew by ")


def test_hosts_that_heat_up_within_each_launch_are_told_by_place_not_by_launch() -> None:
    (drift,) = told(campaign(3, lambda launch, place, case: 0.1 * place / (CASES - 1), launch_sd=0.1))
    assert (drift.along, drift.nlaunches) == (Along.LAUNCH, LAUNCHES)
    assert drift.change.value == pytest.approx(np.expm1(0.1), abs=0.03)


def test_a_change_too_small_to_matter_is_no_finding() -> None:
    drifts = fit_drift(campaign(4, lambda launch, place, case: 0.012 * launch / (LAUNCHES - 1), launch_sd=0.0))
    assert drifts[0].change.ci_low is not None and drifts[0].change.ci_low > 0
    assert not drifting(drifts)


def test_healthy_runs_raise_few_alarms_though_launches_differ() -> None:
    alarms = sum(bool(told(campaign(seed, launch_sd=0.08))) for seed in range(100, 160))
    assert alarms <= 7, "a family of tests at 5% should alarm in about 3 of 60 healthy runs"


def test_three_launches_show_no_trend_and_failed_rows_count_nowhere() -> None:
    assert fit_drift(campaign(5, launches=3)) == ()
    frame = campaign(6)
    with_failure = pd.concat([frame, framed([failed(replace(MEASUREMENT, case_id="case0", launch=3))])])
    assert fit_drift(with_failure) == fit_drift(frame)

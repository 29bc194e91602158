"""Whether a fit finds the parameters of a fabric that is the model itself, and what representing ranks costs."""

from dataclasses import replace
from random import Random

import pytest

from spanfit.profiler.predict import step
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.fit import fit_parameters
from spanfit.profiler.predict.parameters import Parameters
from spanfit.profiler.predict.step import StepPredictor
from spanfit.workload.job import StepJob
from spanfit.workload.schedules import Schedule
from tests.unit.profiler.predict.curves import simulated
from tests.unit.profiler.predict.factory import cluster, fabric, rank_map

TRUTH = Parameters(
    rates_bytes_per_s={"host": 4.78e7, "minipod": 6e7},
    burst_bytes=1.3e5,
    latency_s=2e-4,
    both_ways_efficiency=0.92,
    spread=0.3,
    reduction_s_per_byte=3e-10,
    call_s=2e-4,
    start_s=5e-4,
)


def test_a_fit_finds_the_rates_it_was_given() -> None:
    found = fit_parameters([simulated(cluster(), TRUTH, Library.GLOO)], cluster(), Library.GLOO)
    rates = found.parameters.rates_bytes_per_s
    assert rates["host"] == pytest.approx(4.78e7, rel=0.01)
    assert rates["minipod"] == pytest.approx(6e7, rel=0.04)
    assert found.parameters.burst_bytes == pytest.approx(1.3e5, rel=0.25)
    assert found.parameters.both_ways_efficiency == pytest.approx(0.92, abs=0.05)
    assert found.error < 0.04
    assert set(found.not_fitted) == {"peak_bytes_per_s", "redraw_s"}
    assert max(abs(each.fitted_s / each.measured_s - 1) for each in found.residuals) < 0.3


@pytest.mark.parametrize(("dp", "pp", "schedule"), [(8, 2, Schedule.GPIPE), (8, 4, Schedule.ONE_F_ONE_B)])
@pytest.mark.parametrize("kind", ["rows", "columns", "random"])
@pytest.mark.parametrize(("spread", "slack"), [(0.0, 0.03), (0.3, 0.1)])
def test_few_ranks_stand_for_all_at_16_and_32_nodes(
    dp: int, pp: int, schedule: Schedule, kind: str, spread: float, slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cluster(minipods=4, hosts=dp * pp // 4)
    order = list(range(dp * pp))
    if kind == "columns":
        order = [column * dp + row for row in range(dp) for column in range(pp)]
    elif kind == "random":
        Random(0).shuffle(order)
    told = StepJob(
        name="job",
        dp=dp,
        pp=pp,
        nmicrobatches=4,
        activation_bytes=1 << 20,
        gradient_bytes=4 << 20,
        forward_s=0.006,
        backward_s=0.012,
        schedule=schedule,
    )
    args, seats = (told, found, fabric(replace(TRUTH, spread=spread), Library.GLOO)), rank_map(found, order)
    everyone_s = StepPredictor(*args, ndraws=3).step_time_s(seats)
    monkeypatch.setattr(step, "EVERYONE_UP_TO", 1)
    assert StepPredictor(*args).step_time_s(seats) == pytest.approx(everyone_s, rel=slack)

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import FitError
from spanfit.profiler.steps import step_times
from spanfit.results.schema import Estimate
from spanfit.weights.spreads import PlacedSteps, check_kinds, fit_kinds, placed_steps
from spanfit.workload.job import StepJob
from tests.unit.profiler.factory import MEASUREMENT, RUN, framed

KINDS = ("dp", "pp", "ep")
DESIGN = {
    "p0": (1, 2, 1),
    "p1": (2, 1, 1),
    "p2": (2, 2, 1),
    "p3": (2, 1, 2),
    "p4": (3, 2, 2),
    "p5": (3, 3, 1),
    "p6": (1, 3, 1),
}


def steps(
    costs: tuple[float, ...],
    *,
    design: Mapping[str, tuple[int, ...]] = DESIGN,
    launches: int = 6,
    sd: float = 0.0,
    lack: float = 0.0,
    seed: int = 1,
) -> PlacedSteps:
    rng = np.random.default_rng(seed)
    launch = rng.normal(0, 0.1, launches)
    logs = {
        name: tuple(map(float, launch + np.dot(costs, spreads) + rng.normal(0, lack) + rng.normal(0, sd, launches)))
        for name, spreads in design.items()
    }
    return PlacedSteps(kinds=KINDS[: len(costs)], spreads=design, log_times=logs)


def test_without_noise_the_weights_are_the_costs_shared_out() -> None:
    fit = fit_kinds(steps((0.1, 0.3, 0.6)))
    found = fit.kinds
    assert fit.residual_sd == pytest.approx(0, abs=1e-9)
    assert [each.kind for each in found] == list(KINDS)
    assert [each.weight.value for each in found] == pytest.approx([0.1, 0.3, 0.6])
    assert [each.per_minipod.value for each in found] == pytest.approx([0.1, 0.3, 0.6])


@given(st.tuples(*[st.floats(-0.5, 0.5)] * 3), st.integers(0, 100))
def test_weights_are_shares_of_one_with_intervals_that_hold_them(costs: tuple[float, float, float], seed: int) -> None:
    found = fit_kinds(steps(costs, sd=0.02, seed=seed)).kinds
    assert sum(each.weight.value for each in found) == pytest.approx(1)
    for each in found:
        assert each.weight.ci_low is not None and each.weight.ci_high is not None
        assert 0 <= each.weight.ci_low <= each.weight.value <= each.weight.ci_high <= 1


def test_what_makes_steps_faster_counts_as_nothing() -> None:
    found = fit_kinds(steps((-0.2, 0.3, 0.1))).kinds
    assert [each.weight.value for each in found] == pytest.approx([0, 0.75, 0.25])
    assert found[0].per_minipod.value == pytest.approx(-0.2)


@pytest.mark.parametrize(("sd", "lack"), [(0.05, 0.0), (0.05, 0.05), (0.01, 0.05)])
def test_intervals_cover_noise_and_what_spreads_do_not_explain(sd: float, lack: float) -> None:
    costs, held, told = (0.1, 0.3, 0.2), [], []
    for seed in range(200):
        found = fit_kinds(steps(costs, sd=sd, lack=lack, seed=seed)).kinds
        held += [_holds(each.weight, cost / 0.6) for each, cost in zip(found, costs, strict=True)]
        told += [_holds(each.per_minipod, cost) for each, cost in zip(found, costs, strict=True)]
    assert np.mean(held) >= 0.94
    assert 0.94 <= np.mean(told) <= 0.995


def _holds(estimate: Estimate, truth: float) -> bool:
    return estimate.ci_low is not None and estimate.ci_high is not None and estimate.ci_low <= truth <= estimate.ci_high


def test_what_spreads_do_not_explain_is_told() -> None:
    fits = [fit_kinds(steps((0.1, 0.3, 0.2), lack=0.05, seed=seed)).residual_sd for seed in range(100)]
    assert np.sqrt(np.mean(np.square(fits))) == pytest.approx(0.05, rel=0.15)


def test_a_single_launch_tells_no_interval() -> None:
    found = fit_kinds(steps((0.1, 0.3, 0.6), launches=1)).kinds
    assert {(each.weight.ci_low, each.weight.ci_high, each.is_flat) for each in found} == {(0.0, 1.0, True)}


def test_all_that_is_wrong_with_a_design_is_said_at_once() -> None:
    design = {f"p{index}": (spread, 2, spread + 1) for index, spread in enumerate((1, 2, 3, 2, 1))}
    with pytest.raises(FitError) as caught:
        fit_kinds(steps((0.1, 0.2, 0.3), design=design))
    few, constant, together = str(caught.value).splitlines()
    assert few.startswith("placements: found 5, expected at least 6 for 3 kinds (dp, pp, ep)")
    assert constant.startswith("spreads of pp: found the same in all 5 placements")
    assert together.startswith("spreads of dp and ep: found them to vary together in all 5 placements")


def test_launches_that_all_lack_a_placement_tell_nothing() -> None:
    with pytest.raises(FitError, match="launches: found none that holds all placements"):
        fit_kinds(steps((0.1, 0.3, 0.6), launches=0))


def test_arms_of_a_run_become_placements_with_their_spreads() -> None:
    job = StepJob(
        name="balanced", dp=2, pp=2, nmicrobatches=1, activation_bytes=1, gradient_bytes=1, forward_s=0, backward_s=0
    )
    seats = {"dp-aligned": "0,2,1,3", "pp-aligned": "0,1,2,3", "misaligned-00": "0,2,3,1"}
    rows = [
        replace(
            MEASUREMENT,
            kind="step",
            operation="balanced",
            compute="wait",
            arm=arm,
            nodes=nodes,
            launch=launch,
            time_s=2.0,
        )
        for arm, nodes in seats.items()
        for launch in (0, 1)
    ]
    found = placed_steps(step_times(framed(rows))[0], RUN, job, ("dp", "pp", "pp@core"))
    assert found.spreads == {"dp-aligned": (1, 2, 1), "pp-aligned": (2, 1, 1), "misaligned-00": (2, 2, 1)}
    assert found.log_times["pp-aligned"] == pytest.approx((np.log(2), np.log(2)))


def test_a_rare_arm_costs_no_launches() -> None:
    seats = {"dp-aligned": "0,2,1,3", "pp-aligned": "0,1,2,3", "misaligned-00": "0,2,3,1"}
    step = replace(MEASUREMENT, kind="step", operation="balanced", compute="wait", time_s=2.0)
    rows = [
        replace(step, arm=arm, nodes=nodes, launch=launch) for arm, nodes in seats.items() for launch in range(4)
    ] + [replace(step, arm="rare", nodes="0,3,2,1", launch=0)]
    job = StepJob(
        name="balanced", dp=2, pp=2, nmicrobatches=1, activation_bytes=1, gradient_bytes=1, forward_s=0, backward_s=0
    )
    found = placed_steps(step_times(framed(rows))[0], RUN, job, ("dp", "pp"))
    assert found.left_out == ("rare",) and set(found.spreads) == set(seats)
    assert {len(times) for times in found.log_times.values()} == {4}


def test_unknown_kinds_and_tiers_are_refused_together() -> None:
    check_kinds(RUN, ["dp", "ep@leaf"])
    with pytest.raises(FitError, match=r"kind fsdp: .*\nkind pp@zone: found pp groups over zone switches"):
        check_kinds(RUN, ["fsdp", "pp@zone"])

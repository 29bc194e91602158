import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.crossings import crossing_costs, crossings, removed_crossings
from spanfit.weights.io import write_weights
from spanfit.weights.model import LaunchTimes, RemovedCrossings, Source, Volumes, WeightEntry
from spanfit.weights.scaling import (
    Scaling,
    Shape,
    alpha_for,
    fewest_minipods,
    scaled_alpha,
    shape_of,
    volume_alpha,
)
from spanfit.weights.shares import share_of
from spanfit.workload.job import StepJob
from spanfit.workload.schedules import Schedule
from tests.unit.weights.factory import WEIGHTS
from tests.unit.workload.factory import job as training_job

SIZES = st.floats(1, 1e12)
GRIDS = st.integers(2, 400)


def bare(value: float) -> Estimate:
    return Estimate(value=value, ci_low=None, ci_high=None)


def least_removed(dp: int, pp: int) -> tuple[RemovedCrossings, ...]:
    """Return what arms remove from a base over two minipods whose rings cross twice and whose chains cross once."""
    return (
        RemovedCrossings(arm="dp-aligned", dp=2.0 * pp, pp=0.0),
        RemovedCrossings(arm="pp-aligned", dp=0.0, pp=float(dp)),
    )


def entry(
    gain_dp: float = 0.0077,
    gain_pp: float = 0.018,
    *,
    dp: int = 6,
    pp: int = 2,
    dp_bytes: float = 1e9,
    pp_bytes: float = 1e8,
) -> WeightEntry:
    alpha = share_of(gain_dp, gain_pp)
    return WeightEntry(
        job="moe",
        gpu_model="H800",
        dp=dp,
        pp=pp,
        alpha=Estimate(value=alpha, ci_low=max(0.0, alpha - 0.1), ci_high=min(1.0, alpha + 0.1)),
        beta=Estimate(value=1 - alpha, ci_low=max(0.0, 0.9 - alpha), ci_high=min(1.0, 1.1 - alpha)),
        source=Source.MEASURED,
        gain_dp=bare(gain_dp),
        gain_pp=bare(gain_pp),
        volumes=Volumes(dp_bytes=dp_bytes, pp_bytes=pp_bytes, r1=1.0, r2=dp_bytes / pp_bytes),
        removed=least_removed(dp, pp),
    )


MEASURED = Shape(dp=6, pp=2, dp_bytes=1e9, pp_bytes=1e8)


def test_scaled_alpha_weighs_a_minipod_where_the_paper_s_weighs_an_arm() -> None:
    # The DP-aligned arm removes the two crossings of a ring over two minipods, the PP-aligned one the single one of a
    # chain; another minipod in every column costs half the former.
    saved_dp, saved_pp = 0.0077 / 1.0077, 0.018 / 1.018
    assert alpha_for(entry(), MEASURED, Scaling.PAPER).value == pytest.approx(0.30, abs=0.005)
    assert alpha_for(entry(), MEASURED, Scaling.VOLUMES).value == pytest.approx(share_of(saved_dp / 2, saved_pp))
    assert alpha_for(entry(0.0, 0.023), MEASURED, Scaling.VOLUMES).value == 0.0
    assert alpha_for(entry(0.014, 0.0), MEASURED, Scaling.VOLUMES).value == 1.0


def test_over_two_minipods_scaled_alpha_is_the_paper_s_again() -> None:
    # Between the two aligned placements all that counts is which arm's crossings are left.
    assert alpha_for(entry(), MEASURED, Scaling.VOLUMES, 2).value == pytest.approx(0.30, abs=0.005)
    unknown, three = (alpha_for(entry(), MEASURED, Scaling.VOLUMES, count) for count in (None, 3))
    assert unknown == three


def test_placing_scales_alpha_without_what_analyses(tmp_path: Path) -> None:
    measured = replace(WEIGHTS, entries=(entry(0.1, 0.2),))
    write_weights(tmp_path / "weights.json", measured)
    code = (
        "import sys; from pathlib import Path; from spanfit.weights import io, scaling as s; "
        f"known, = io.read_weights(Path({str(tmp_path / 'weights.json')!r})).entries; "
        "s.scaled_alpha(known, s.Shape(dp=8, pp=4, dp_bytes=1.0, pp_bytes=1.0), s.Scaling.VOLUMES, 3); "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "numpy" in loaded
    assert not {"pandas", "scipy", "pyarrow", "sklearn"} & set(loaded)


def test_the_fewest_minipods_are_the_fullest() -> None:
    assert [fewest_minipods([4, 10, 6], nodes) for nodes in (1, 10, 11, 16, 17, 20, 21)] == [1, 1, 2, 2, 3, 3, None]


def test_the_paper_s_alpha_stays_available_whatever_the_shape() -> None:
    other = replace(MEASURED, dp=150, pp=8, dp_bytes=5.0)
    assert alpha_for(entry(), other, Scaling.PAPER) == entry().alpha
    assert scaled_alpha(entry(), other, Scaling.PAPER) == entry().alpha.value


@given(GRIDS, GRIDS, SIZES, SIZES)
def test_equal_prices_of_a_byte_give_the_prior(dp: int, pp: int, dp_bytes: float, pp_bytes: float) -> None:
    # Seconds saved in the ratio of the bytes that are saved: the traffic of both kinds costs alike.
    measured = Shape(dp=4, pp=2, dp_bytes=3.0, pp_bytes=2.0)
    assert (measured.column_bytes, measured.row_bytes) == (9.0, 8.0)
    gains = 0.18 / (1 - 0.18), 0.08 / (1 - 0.08)
    known = entry(*gains, dp=4, pp=2, dp_bytes=3.0, pp_bytes=2.0)
    wanted = Shape(dp=dp, pp=pp, dp_bytes=dp_bytes, pp_bytes=pp_bytes)
    assert alpha_for(known, wanted, Scaling.VOLUMES).value == pytest.approx(volume_alpha(wanted), rel=1e-9)


def test_alpha_is_that_of_seconds_saved_not_of_gains() -> None:
    # The DP-aligned arm halves the step, the PP-aligned one takes a fifth off it.
    assert alpha_for(entry(1.0, 0.25), MEASURED, Scaling.VOLUMES).value == pytest.approx(share_of(0.5 / 2, 0.2))
    assert alpha_for(entry(1.0, 0.25), MEASURED, Scaling.PAPER).value == pytest.approx(0.8)


GRIDS_OF_ARMS = {
    "dp-aligned": ((0, 1), (0, 1), (0, 1), (0, 1)),
    "pp-aligned": ((0, 0), (0, 0), (1, 1), (1, 1)),
    "misaligned-00": ((0, 1), (1, 0), (0, 1), (1, 0)),
    "misaligned-01": ((0, 1), (0, 1), (1, 0), (1, 0)),
}


def test_crossings_of_arms_are_counted_edge_by_edge() -> None:
    assert [crossings(grid) for grid in GRIDS_OF_ARMS.values()] == [(0, 4), (4, 0), (8, 4), (4, 4)]
    dp, pp = removed_crossings(GRIDS_OF_ARMS)
    assert (dp.arm, dp.dp, dp.pp) == ("dp-aligned", 6.0, 0.0)
    assert (pp.arm, pp.dp, pp.pp) == ("pp-aligned", 2.0, 4.0)


def test_arms_that_sit_alike_tell_no_crossings() -> None:
    same = dict.fromkeys(GRIDS_OF_ARMS, ((0, 1), (1, 0)))
    assert removed_crossings(same) == ()
    assert crossing_costs([LaunchTimes(launch=0, base_s=1, dp_aligned_s=1, pp_aligned_s=1)], ()) == ()


@given(st.floats(0.001, 0.05), st.floats(0.001, 0.05), GRIDS, GRIDS)
def test_launches_give_back_the_prices_that_they_were_made_of(ring_s: float, chain_s: float, dp: int, pp: int) -> None:
    # A step of 1 s takes so much longer for each crossing; the base's rings run to and fro, and confound both arms.
    times_s = {
        arm: 1 + rings * ring_s + chains * chain_s
        for arm, (rings, chains) in ((arm, crossings(grid)) for arm, grid in GRIDS_OF_ARMS.items())
    }
    base_s = (times_s["misaligned-00"] + times_s["misaligned-01"]) / 2
    times = tuple(
        LaunchTimes(
            launch=launch,
            base_s=base_s * scale,
            dp_aligned_s=times_s["dp-aligned"] * scale,
            pp_aligned_s=times_s["pp-aligned"] * scale,
        )
        for launch, scale in enumerate((1.0, 1.1, 0.9))
    )
    removed = removed_crossings(GRIDS_OF_ARMS)
    assert [cost.time_s.value for cost in crossing_costs(times, removed)] == pytest.approx([ring_s, chain_s])
    measured = replace(entry(dp=4, pp=2, dp_bytes=3.0, pp_bytes=2.0), times=times, removed=removed)
    # Rings of 4 send 2 * 3/4 * 3 bytes over an edge; those of the job at hand 2 (D - 1) / D times as many as chains.
    wanted = Shape(dp=dp, pp=pp, dp_bytes=2.0, pp_bytes=2.0)
    of_columns = pp * 2 * (dp - 1) / dp * 2.0 * ring_s / 4.5
    found = alpha_for(measured, wanted, Scaling.VOLUMES)
    assert found.value == pytest.approx(share_of(of_columns, dp * chain_s))
    assert (found.ci_low, found.ci_high) == pytest.approx((found.value, found.value), abs=1e-4)


@given(GRIDS, GRIDS)
def test_more_stages_raise_alpha_and_more_replicas_lower_it(dp: int, pp: int) -> None:
    here = alpha_for(entry(), replace(MEASURED, dp=dp, pp=pp), Scaling.VOLUMES)
    wider = alpha_for(entry(), replace(MEASURED, dp=dp, pp=pp + 1), Scaling.VOLUMES)
    taller = alpha_for(entry(), replace(MEASURED, dp=2 * dp, pp=pp), Scaling.VOLUMES)
    # Twice the rows send at most 4/3 as much around a ring.
    assert taller.value < here.value < wider.value


def test_errors_of_gains_are_carried_and_without_them_nothing_is_claimed() -> None:
    unsure = replace(entry(0.1, 0.2), gain_dp=Estimate(value=0.1, ci_low=0.08, ci_high=0.12))
    sure = replace(unsure, gain_pp=Estimate(value=0.2, ci_low=0.17, ci_high=0.23))
    found = alpha_for(sure, replace(MEASURED, pp=8), Scaling.VOLUMES)
    assert found.ci_low is not None and found.ci_high is not None
    assert found.ci_low < found.value < found.ci_high
    assert alpha_for(unsure, MEASURED, Scaling.VOLUMES).ci_low is None
    by_hand = replace(entry(), source=Source.HAND, gain_dp=None, gain_pp=None, removed=())
    assert alpha_for(by_hand, MEASURED, Scaling.VOLUMES).ci_high is None


def test_measured_alpha_without_crossings_is_not_scaled() -> None:
    alike = replace(entry(), removed=())
    with pytest.raises(ConfigError, match=r"job moe: removed: found none, .* --scaling paper"):
        scaled_alpha(alike, MEASURED, Scaling.VOLUMES)
    assert scaled_alpha(alike, MEASURED, Scaling.PAPER) == alike.alpha.value


def test_flat_gains_leave_the_prior_with_nothing_known() -> None:
    flat = replace(
        entry(0.0, 0.0),
        alpha=Estimate(value=0.5, ci_low=0.0, ci_high=1.0),
        beta=Estimate(value=0.5, ci_low=0.0, ci_high=1.0),
        is_flat=True,
    )
    found = alpha_for(flat, MEASURED, Scaling.VOLUMES)
    assert found == Estimate(value=volume_alpha(MEASURED), ci_low=0.0, ci_high=1.0)


def test_a_job_of_one_kind_has_the_weight_of_that_kind() -> None:
    assert alpha_for(entry(), Shape(dp=8, pp=1, dp_bytes=1e9, pp_bytes=0.0), Scaling.VOLUMES).value == 1.0
    assert alpha_for(entry(), Shape(dp=1, pp=8, dp_bytes=0.0, pp_bytes=1e9), Scaling.VOLUMES).value == 0.0


def test_weights_by_hand_without_volumes_are_refused_with_the_cure() -> None:
    by_hand = replace(entry(), source=Source.HAND, volumes=None, gain_dp=None, gain_pp=None)
    with pytest.raises(ConfigError, match=r"job moe: volumes: found none.*--scaling paper"):
        alpha_for(by_hand, MEASURED, Scaling.VOLUMES)
    assert alpha_for(by_hand, MEASURED, Scaling.PAPER) == by_hand.alpha


def test_alpha_by_hand_is_what_it_says_on_the_shape_that_it_is_for() -> None:
    by_hand = replace(entry(), source=Source.HAND, gain_dp=None, gain_pp=None, removed=())
    assert alpha_for(by_hand, MEASURED, Scaling.VOLUMES).value == pytest.approx(by_hand.alpha.value)
    assert alpha_for(by_hand, replace(MEASURED, pp=8), Scaling.VOLUMES).value > by_hand.alpha.value


def test_the_prior_is_a_share_of_the_traffic_counted_edge_by_edge() -> None:
    # 4 x 2 nodes over two minipods. All four rows whole: two columns cross twice each, every edge with 2 * 3/4 of 8
    # bytes: 48. Both columns whole: four rows cross once each, with 6 bytes: 24. A minipod costs half the former.
    shape = Shape(dp=4, pp=2, dp_bytes=8.0, pp_bytes=6.0)
    assert volume_alpha(shape) == pytest.approx((48 / 2) / (48 / 2 + 24))


def test_costs_of_a_crossing_have_intervals_over_launches() -> None:
    removed = RemovedCrossings(arm="dp-aligned", dp=4, pp=0), RemovedCrossings(arm="pp-aligned", dp=0, pp=4)
    times = [
        LaunchTimes(launch=launch, base_s=1.0, dp_aligned_s=0.8 + shift, pp_aligned_s=1.2)
        for launch, shift in enumerate((0.0, 0.04, -0.04))
    ]
    dp, pp = crossing_costs(times, removed)
    assert (dp.kind, pp.kind) == ("dp", "pp")
    assert dp.time_s.value == pytest.approx(0.05)
    assert dp.time_s.ci_high == pytest.approx(0.05 + 4.3027 * 0.01 / 3**0.5, rel=1e-3)
    assert pp.time_s.value == pytest.approx(-0.05) == pp.time_s.ci_low


def test_a_shape_counts_the_bytes_of_a_node() -> None:
    volumes = StepJob(
        name="v", dp=4, pp=2, nmicrobatches=4, activation_bytes=10, gradient_bytes=100, forward_s=0, backward_s=0
    )
    assert shape_of(volumes, 2) == Shape(dp=4, pp=2, dp_bytes=200.0, pp_bytes=160.0)
    assert volume_alpha(shape_of(replace(volumes, pp=1), 2)) == 1.0
    trained = training_job(dp=4, pp=2, tp=2, microbatches=2, schedule=Schedule.GPIPE)
    one, two = shape_of(trained, 2), shape_of(trained, 4)
    assert (one.dp, two.dp) == (4, 2)
    assert two.pp_bytes == 2 * one.pp_bytes

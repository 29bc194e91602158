import math

import pytest

from spanfit.errors import FitError
from spanfit.results.schema import Estimate
from spanfit.weights.model import Source
from spanfit.weights.predicted import predict_entry, predicted_set
from spanfit.workload.job import StepJob
from tests.unit.profiler.predict.factory import fabric
from tests.unit.weights.test_scaling import GRIDS_OF_ARMS

JOB = StepJob(
    name="balanced",
    dp=4,
    pp=2,
    nmicrobatches=4,
    activation_bytes=1 << 19,
    gradient_bytes=1 << 22,
    forward_s=0,
    backward_s=0,
)
TIMES = {
    "dp-aligned": 0.8,
    "pp-aligned": 0.5,
    "packed": 0.9,
    "misaligned-00": 0.9,
    "misaligned-01": 1.0,
    "misaligned-02": 1.3,
}


GRIDS = GRIDS_OF_ARMS | {"misaligned-02": ((1, 0), (0, 1), (0, 1), (1, 0))}


def predicted(error: float = 0.02, times: dict[str, float] = TIMES) -> dict[str, Estimate]:
    factor = math.exp(1.96 * error)
    return {
        arm: Estimate(value=time_s, ci_low=time_s / factor, ci_high=time_s * factor) for arm, time_s in times.items()
    }


def test_gains_are_against_the_median_misaligned_arm_with_the_errors_of_both() -> None:
    found = predict_entry(JOB, gpu_model="H100", ngpus_per_node=8, times=predicted(), grids=GRIDS)
    assert found.source is Source.PREDICTED
    assert found.gain_dp is not None and found.gain_pp is not None
    assert (found.gain_dp.value, found.gain_pp.value) == pytest.approx((0.25, 1.0))
    assert found.gain_dp.ci_high == pytest.approx(1.25 * math.exp(1.96 * 0.02 * math.sqrt(2)) - 1)
    assert found.alpha.value == pytest.approx(0.2)
    assert (found.dp, found.pp, found.launches, found.is_provisional) == (4, 2, 0, False)
    assert [(each.dp, each.pp) for each in found.removed] == [
        pytest.approx((16 / 3, 0)),
        pytest.approx((4 / 3, 4)),
    ]
    assert found.base_arms == ("misaligned-00", "misaligned-01", "misaligned-02")


def test_a_larger_error_widens_alpha_until_nothing_is_told() -> None:
    widths = []
    for error in (0.01, 0.05, 0.5):
        alpha = predict_entry(JOB, gpu_model="H100", ngpus_per_node=8, times=predicted(error), grids=GRIDS).alpha
        assert alpha.ci_low is not None and alpha.ci_high is not None
        widths.append(alpha.ci_high - alpha.ci_low)
    assert widths[0] < widths[1] < widths[2] == 1.0


def test_arms_that_are_missing_are_refused() -> None:
    with pytest.raises(FitError, match="job balanced: found arms dp-aligned, packed, expected dp-aligned, pp-aligned"):
        predict_entry(
            JOB,
            gpu_model="",
            ngpus_per_node=1,
            times=predicted(times={"dp-aligned": 1.0, "packed": 1.0}),
            grids=GRIDS,
        )


def test_a_predicted_set_names_its_fabric_and_its_end() -> None:
    one = predict_entry(JOB, gpu_model="H100", ngpus_per_node=8, times=predicted(), grids=GRIDS)
    found = predicted_set([one], fabric(), created_at="2026-01-02T00:00:00+00:00")
    assert found.fabric is not None
    assert (found.fabric.backend, found.fabric.library, found.fabric.gpu_model) == ("nccl", "nccl", "H100")
    assert found.run_ids == ("flows", "rings")
    assert found.valid_until is not None and found.valid_until > "2026-03"

import json
from dataclasses import asdict, replace

import pytest

from spanfit.weights.model import Volumes
from spanfit.weights.volumes import volumes_of
from spanfit.workload.job import StepJob, load_job
from spanfit.workload.program import ComputeMode
from tests.unit.workload.factory import job

STEP = StepJob(
    name="j",
    dp=4,
    pp=2,
    nmicrobatches=4,
    activation_bytes=1000,
    gradient_bytes=6000,
    forward_s=0.01,
    backward_s=0.02,
)


def test_a_job_known_by_its_volumes_counts_both_directions_and_every_local_rank() -> None:
    found = volumes_of(STEP, 2)
    assert (found.dp_bytes, found.pp_bytes) == (2 * 6000.0, 2 * 2 * 4 * 1000.0)
    assert (found.r1, found.r2) == (6000 / 14000, 6000 / 8000)


def test_without_activations_there_is_no_ratio() -> None:
    with pytest.raises(ValueError, match="job j sends no activations"):
        volumes_of(replace(STEP, activation_bytes=0), 1)
    with pytest.raises(ValueError, match="job j reduces no gradients"):
        volumes_of(replace(STEP, gradient_bytes=0), 1)


def test_volumes_have_logarithms() -> None:
    with pytest.raises(ValueError, match="pp_bytes is inf; expected a number above 0\nr2 is 0"):
        Volumes(dp_bytes=1.0, pp_bytes=float("inf"), r1=1.0, r2=0.0)


def test_ranks_of_one_dp_group_on_a_node_reduce_once() -> None:
    described = job(dp=4, pp=2, tp=2, microbatches=4)
    on_two, on_four = volumes_of(described, 2), volumes_of(described, 4)
    assert on_two.dp_bytes == on_four.dp_bytes
    assert on_four.pp_bytes == 2 * on_two.pp_bytes
    assert (on_two.r1, on_two.r2) == (on_four.r1, on_four.r2)


def test_r1_is_the_models_own_whatever_divides_its_messages() -> None:
    described = replace(job(dp=4, pp=2, microbatches=4), compute=ComputeMode.NONE)
    document = json.loads(json.dumps(asdict(described)))
    whole, divided = (volumes_of(load_job({**document, "message_divisor": by}), 1) for by in (1, 4))
    assert divided.r1 == pytest.approx(whole.r1, rel=0.02)
    assert divided.dp_bytes == pytest.approx(whole.dp_bytes / 4, rel=0.02)


def test_r1_grows_with_the_microbatch_where_gradients_are_most_of_what_is_sent() -> None:
    described = volumes_of(job(dp=4, pp=2, microbatches=4), 1)
    # Weights in bfloat16 and gradients in float32: v_w is half of v_d.
    assert described.r1 == pytest.approx(described.r2 / 2 / (1 + described.r2), rel=0.1)

from dataclasses import replace

import pytest

from spanfit.bench.job_file import read_models
from spanfit.workload.volumes import dp_volume_bytes, microbatches_per_step, pp_volume_bytes

SEVEN_B = read_models()["gpt-7b"]


def test_the_7b_model_of_the_paper_has_the_volumes_that_it_prints() -> None:
    assert dp_volume_bytes(SEVEN_B, pp=8, tp=1, gradient_itemsize=2) == pytest.approx(2.06e9, rel=0.005)
    # The paper's 2 x mb x s x h; without its unexplained 2 these are the bytes of two-byte elements.
    sent_bytes = pp_volume_bytes(SEVEN_B, microbatch=1, tp=1, activation_itemsize=2)
    assert sent_bytes == 2 * 4096 * 4096
    assert sent_bytes == pytest.approx(33.6e6, rel=0.002)


def test_dp_volume_is_the_parameters_of_a_stage_in_bytes() -> None:
    model = replace(SEVEN_B, vocabulary=10, hidden=2, layers=4, sequence=3)
    # 2 x (10 + 3) and, for each of two layers, 4 x 4 + 2 x 2 + 8 x 4 + 7 x 2.
    assert dp_volume_bytes(model, pp=2, tp=1, gradient_itemsize=4) == (26 + 2 * 66) * 4
    assert dp_volume_bytes(model, pp=2, tp=2, gradient_itemsize=4) == (26 + 2 * 66) * 2


def test_more_stages_lessen_the_dp_volume_and_not_the_pp_volume() -> None:
    volumes = [dp_volume_bytes(SEVEN_B, pp=pp, tp=8, gradient_itemsize=4) for pp in (1, 2, 4, 8)]
    assert volumes == sorted(volumes, reverse=True)
    assert pp_volume_bytes(SEVEN_B, microbatch=4, tp=8, activation_itemsize=2) == 4 * 2 * 4096 * 4096 // 8
    assert pp_volume_bytes(SEVEN_B, microbatch=4, tp=2, cp=4, activation_itemsize=2) == 4 * 2 * 4096 * 4096 // 8


def test_microbatches_are_what_is_left_to_each_replica() -> None:
    assert microbatches_per_step(1024, 2, 64) == 8
    for global_batch, microbatch, dp in ((100, 3, 8), (8, 16, 1), (0, 1, 1)):
        with pytest.raises(
            ValueError, match=f"global batch {global_batch} is no multiple of microbatch {microbatch} x dp {dp}"
        ):
            microbatches_per_step(global_batch, microbatch, dp)

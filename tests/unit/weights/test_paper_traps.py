"""What section 5.2 and appendix C of arXiv 2509.15940 leave open, one test a trap; more stand beside the code."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.weights.matching import Known, Method, match
from spanfit.weights.model import Source
from spanfit.weights.scaling import Shape, shape_of, volume_alpha
from spanfit.weights.shares import share_of
from spanfit.weights.volumes import volumes_of
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from tests.unit.weights.test_scaling import bare
from tests.unit.workload.factory import job


def trained(**changes: object) -> TrainingJob:
    return job(**{"dp": 4, "pp": 2, "microbatches": 2, "gradient_dtype": Dtype.FLOAT32} | changes)  # type: ignore[arg-type]


def test_alpha_may_exceed_a_half_although_the_authors_never_set_it_there() -> None:
    # L20, dense 7B: DP-aligned is best by 1.4%; the gain of the PP-aligned placement is not stated.
    assert share_of(0.014, 0.0) == 1.0
    assert share_of(0.014, 0.005) > 0.5


def test_smaller_activations_beside_wide_gradients_make_alpha_larger() -> None:
    # App. E's reason for L20: 8-bit training halves the PP volume, while DP still sends 32 bits.
    wide, narrow = (shape_of(trained(dtype=dtype), 1) for dtype in (Dtype.FLOAT32, Dtype.BFLOAT16))
    assert narrow.pp_bytes == wide.pp_bytes / 2
    assert narrow.dp_bytes == wide.dp_bytes
    assert volume_alpha(narrow) > volume_alpha(wide)


def test_pp_volume_counts_every_microbatch_of_a_step() -> None:
    # Eq. 11 defines m, and no other formula of the paper uses it.
    few, many = (volumes_of(trained(microbatches=count), 1) for count in (2, 6))
    assert many.pp_bytes == 3 * few.pp_bytes
    assert many.dp_bytes == few.dp_bytes
    assert many.r2 == pytest.approx(few.r2 / 3)


def test_volumes_are_of_a_rank_so_tp_divides_both() -> None:
    one, two = (volumes_of(trained(tp=tp), 8) for tp in (1, 2))
    assert two.r2 == pytest.approx(one.r2, rel=0.1)


def test_a_reduction_sends_more_the_more_replicas_there_are() -> None:
    # Eq. 12 has neither a factor for reduce-scatter and all-gather nor (dp - 1) / dp.
    pair, many = (Shape(dp=dp, pp=2, dp_bytes=1.0, pp_bytes=1.0) for dp in (2, 1000))
    assert pair.column_bytes == 2 * 1.0
    assert many.column_bytes == pytest.approx(2 * 2.0, rel=0.01)


@given(st.floats(0.1, 10), st.floats(1, 100), st.floats(0.01, 100), st.sampled_from([Method.PAPER, Method.LOGS]))
def test_the_unit_of_volumes_does_not_matter_if_entries_and_queries_share_it(
    r1: float, r2: float, unit: float, method: Method
) -> None:
    # Bytes or elements scale r1 of all jobs alike, and r2 of none.
    entries = [
        Known(job="near", source=Source.HAND, r1=1.1 * r1, r2=r2, alpha=bare(0.3)),
        Known(job="off", source=Source.HAND, r1=1.6 * r1, r2=r2, alpha=bare(0.3)),
    ]
    scaled = [replace(each, r1=unit * each.r1) for each in entries]
    assert match(entries, r1, r2, method).nearest is entries[0]
    assert match(scaled, unit * r1, r2, method).nearest is scaled[0]

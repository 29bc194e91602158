"""Jobs that the torch engine refuses, the communicators of its mesh, and models for given volumes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.training.shapes import (
    activation_bytes,
    faults,
    gradient_bytes,
    mesh_groups,
    mesh_sizes,
    model_for,
    small,
)
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.models import Model
from spanfit.workload.schedules import Schedule

MODEL = model_for("volumes", nstages=4, activation_bytes=1 << 16, gradient_bytes=1 << 18, dtype=Dtype.FLOAT32)


def job(*, dp: int = 1, pp: int = 1, model: Model = MODEL, fsdp: int = 1, microbatches: int = 4) -> TrainingJob:
    return TrainingJob(
        name="job",
        model=model,
        layout=ParallelLayout(dp=dp, pp=pp),
        global_batch=microbatches * dp,
        fsdp=fsdp,
        dtype=Dtype.FLOAT32,
        gradient_dtype=Dtype.FLOAT32,
        schedule=Schedule.GPIPE,
    )


def test_a_dense_job_of_copies_and_stages_is_trained() -> None:
    assert [*faults(job(dp=2, pp=2))] == []


def test_what_cannot_be_trained_is_named_all_at_once() -> None:
    wrong = replace(job(model=replace(MODEL, tied=True)), gradient_dtype=Dtype.BFLOAT16, dtype=Dtype.INT8)
    assert [fault.partition(":")[0] for fault in faults(wrong)] == ["dp", "model", "dtype", "gradient_dtype"]
    tensor = replace(job(dp=2), layout=ParallelLayout(dp=2, pp=1, cp=2))
    assert [*faults(tensor)] == ["cp: found 2, expected 1: the torch engine has DP, FSDP and PP only"]
    short = replace(job(dp=1, pp=4, microbatches=3), schedule=Schedule.ONE_F_ONE_B)
    assert [*faults(short)] == ["global_batch: gives 3 microbatches, expected at least pp = 4 with 1f1b"]


def test_communicators_are_the_columns_and_rows_of_the_grid_in_the_order_of_its_cells() -> None:
    cells = (7, 3, 5, 1, 0, 2)
    columns, rows = mesh_groups(job(dp=3, pp=2), cells)
    assert columns == ((7, 5, 0), (3, 1, 2))
    assert rows == ((7, 3), (5, 1), (0, 2))
    assert mesh_groups(job(pp=4), (3, 0, 2, 1)) == (((3, 0, 2, 1),),)


def test_shares_are_between_neighbours_and_replicas_of_them_further_apart() -> None:
    sharded = job(dp=4, fsdp=2)
    assert mesh_sizes(sharded) == {"replica": 2, "shard": 2}
    assert mesh_groups(sharded, (3, 1, 0, 2)) == (((3, 0), (1, 2)), ((3, 1), (0, 2)))
    assert mesh_sizes(job(dp=4, fsdp=4)) == {"shard": 4}


@given(
    st.integers(1, 8),
    st.integers(8, 22),
    st.integers(1, 40),
    st.sampled_from([Dtype.FLOAT32, Dtype.BFLOAT16, Dtype.FLOAT64]),
)
def test_a_model_for_volumes_has_them(nstages: int, power: int, ratio: int, dtype: Dtype) -> None:
    activation, gradient = 1 << power, (1 << power) * ratio
    model = model_for("m", nstages=nstages, activation_bytes=activation, gradient_bytes=gradient, dtype=dtype)
    found = replace(
        job(dp=2, model=replace(model, layers=nstages)),
        layout=ParallelLayout(dp=2, pp=nstages),
        dtype=dtype,
        gradient_dtype=dtype,
    )
    assert activation_bytes(found) == activation
    assert sum(gradient_bytes(found)) / nstages == pytest.approx(gradient, rel=0.02)


@pytest.mark.parametrize(("activation", "gradient"), [(1000, 10**6), (1 << 20, 100)])
def test_volumes_that_no_model_has_are_refused(activation: int, gradient: int) -> None:
    with pytest.raises(ValueError, match="expected a multiple of"):
        model_for("m", nstages=2, activation_bytes=activation, gradient_bytes=gradient, dtype=Dtype.FLOAT32)


def test_a_small_job_is_the_same_but_for_its_widths() -> None:
    large = replace(job(dp=2, pp=2), microbatch=2)
    found = small(large)
    assert (found.model.layers, found.nmicrobatches, found.layout) == (4, large.nmicrobatches, large.layout)
    assert found.model.nparameters < 50_000

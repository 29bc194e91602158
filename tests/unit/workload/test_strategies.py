from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.collectives import Collective
from spanfit.workload.checks import faults
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import StepJob, TrainingJob
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.program import (
    Axis,
    Collect,
    Compute,
    ComputeMode,
    Direction,
    Operation,
    Program,
    Receive,
    Send,
    Wait,
)
from spanfit.workload.schedules import Schedule
from spanfit.workload.strategies import plan_job, plan_step, plan_volumes
from spanfit.workload.traffic import counted, counted_by_stage, modelled
from tests.unit.workload.factory import JOBS, MODELS, job, programs


def told(operation: Operation) -> str:
    if isinstance(operation, Collect):
        return f"{operation.axis} {operation.collective}"
    return f"wait {operation.handle}" if isinstance(operation, Wait) else type(operation).__name__.lower()


def collects(program: Program, axis: Axis) -> list[Collect]:
    return [operation for operation in program if isinstance(operation, Collect) and operation.axis is axis]


@given(JOBS)
def test_every_send_has_its_receive_every_group_agrees_and_the_step_ends(job: TrainingJob) -> None:
    assert faults(programs(job)) == ()


@given(JOBS)
def test_what_programs_move_is_what_the_volume_model_says(job: TrainingJob) -> None:
    found, expected = counted(programs(job)), modelled(job)
    assert found.keys() == expected.keys()
    for axis, traffic in found.items():
        # Each collective pads to whole elements of its ranks, of each layer's share at most one for TP and one for EP.
        padding = traffic.calls * 8 * (job.layout.nranks + 2 * job.model.layers)
        assert expected[axis] <= traffic.size_bytes <= expected[axis] + padding
    assert counted_by_stage(job) == found


@given(JOBS)
def test_all_compute_of_a_step_is_the_models_three_times_forward(job: TrainingJob) -> None:
    """Forward once, backward twice; keys and values are not made anew on CP ranks, and TP splits all but routers."""
    model, layout = job.model, job.layout
    computes = [each for program in programs(job) for each in program if isinstance(each, Compute)]
    per_layer = [model.forward_flops(layer, job.microbatch) for layer in range(model.layers)]
    expected = 3 * sum(per_layer) * job.nmicrobatches * layout.dp
    total = sum(compute.flops for compute in computes)
    if layout.tp == 1:
        assert total == expected
    else:
        assert expected <= total <= 1.1 * expected


def test_dp_reduces_each_bucket_when_its_backward_ends_and_waits_for_all() -> None:
    program = plan_step(job(dp=2, buckets=2), 0)
    assert [told(operation) for operation in program] == [
        "compute",
        *("compute", "dp all_reduce", "compute", "dp all_reduce"),
        *("wait dp of stage 0, bucket 1", "wait dp of stage 0, bucket 0"),
    ]
    assert sum(each.count for each in collects(program, Axis.DP)) == MODELS["tiny"].nparameters


def test_dp_overlaps_in_hybrids_with_the_last_backward_of_each_chunk_only() -> None:
    program = plan_step(job(dp=2, pp=2, microbatches=3, buckets=2), 1)
    reduced = [index for index, each in enumerate(program) if isinstance(each, Collect)]
    assert len(reduced) == 2
    following = program[reduced[0] + 1]
    assert isinstance(following, Compute)
    assert (following.timer.microbatch, following.timer.direction) == (2, Direction.BACKWARD)


def test_fsdp_gathers_the_next_unit_beside_compute_and_scatters_beside_the_next_backward() -> None:
    program = plan_step(job(dp=4, fsdp=2, buckets=2), 0)
    forward, backward = "forward of unit", "backward of unit"
    assert [told(operation) for operation in program] == [
        *("fsdp-shard all_gather", f"wait all_gather {forward} 0, microbatch 0"),
        *("fsdp-shard all_gather", "compute", f"wait all_gather {forward} 1, microbatch 0", "compute"),
        *("fsdp-shard all_gather", "compute", "fsdp-shard reduce_scatter"),
        f"wait all_gather {backward} 0, microbatch 0",
        *("compute", f"wait reduce_scatter {backward} 1, microbatch 0", "fsdp-replica all_reduce"),
        *("fsdp-shard reduce_scatter", f"wait reduce_scatter {backward} 0, microbatch 0", "fsdp-replica all_reduce"),
        *(f"wait all_reduce {backward} 1, microbatch 0", f"wait all_reduce {backward} 0, microbatch 0"),
    ]
    assert {each.group for each in collects(program, Axis.SHARD)} == {(0, 1)}
    assert {each.group for each in collects(program, Axis.REPLICA)} == {(0, 2)}


def test_fsdp_agrees_over_replicas_once_a_step() -> None:
    program = plan_step(job(dp=4, fsdp=2, buckets=2, microbatches=3), 0)
    assert len(collects(program, Axis.REPLICA)) == 2
    assert Counter(each.collective for each in collects(program, Axis.SHARD)) == {
        Collective.ALL_GATHER: 3 * (2 + 1),
        Collective.REDUCE_SCATTER: 3 * 2,
    }


def test_tp_reduces_twice_a_layer_in_each_direction() -> None:
    program = plan_step(job(pp=2, tp=2, microbatches=3), 0)
    reduced = collects(program, Axis.TP)
    assert len(reduced) == 3 * 4 * (2 + 2)
    assert {(each.collective, each.count, each.handle) for each in reduced} == {(Collective.ALL_REDUCE, 64 * 64, None)}
    assert Counter(each.timer.direction for each in reduced) == {Direction.FORWARD: 24, Direction.BACKWARD: 24}


def test_experts_are_reached_and_left_by_two_all_to_alls_a_mixture_layer_and_reduced_over_their_own_group() -> None:
    described = job(model="tiny-moe", dp=4, ep=2)
    program = plan_step(described, 0)
    exchanged = collects(program, Axis.EP)
    assert len(exchanged) == 3 * (2 + 2)
    assert {(each.collective, each.group, each.count) for each in exchanged} == {
        (Collective.ALL_TO_ALL, (0, 1), 64 * 2 * 64)
    }
    shared, experts = collects(program, Axis.DP), collects(program, Axis.EXPERT_DP)
    assert [each.group for each in shared + experts] == [(0, 1, 2, 3), (0, 2)]
    model = described.model
    assert shared[0].count + 2 * experts[0].count == model.nparameters
    assert experts[0].count == 3 * 4 * 3 * 64 * 128 // 2


def test_cp_gathers_keys_and_values_of_each_layer_and_scatters_their_gradients() -> None:
    program = plan_step(job(model="tiny-moe", cp=2), 1)
    moved = collects(program, Axis.CP)
    assert Counter(each.collective for each in moved) == {Collective.ALL_GATHER: 4, Collective.REDUCE_SCATTER: 4}
    assert {(each.count, each.group) for each in moved} == {(2 * 2 * 16 * 64, (0, 1))}
    # Ranks of CP hold the same weights, so gradients are reduced over them.
    assert [each.group for each in collects(program, Axis.DP)] == [(0, 1)]


def test_defect_1_timers_of_every_stage_have_an_entry_for_each_microbatch_and_direction() -> None:
    runs = job(pp=4, microbatches=8)
    for stage, program in enumerate(programs(runs)):
        neighbours = (stage > 0) + (stage < 3)
        entries = Counter(each.timer for each in program if isinstance(each, Send | Receive))
        assert entries.total() == 8 * 2 * neighbours
        for direction in (Direction.FORWARD, Direction.BACKWARD):
            microbatches = Counter(timer.microbatch for timer in entries.elements() if timer.direction is direction)
            assert microbatches == dict.fromkeys(range(8), neighbours)
        assert {timer.stage for timer in entries} == {stage}


def test_defect_2_counts_beyond_32_bits_are_planned_whole() -> None:
    described = replace(job(), model=MODELS["llama-3-70b"], layout=ParallelLayout(dp=2, pp=8, tp=4), global_batch=2)
    largest = max(each.count for each in collects(plan_step(described, 0), Axis.DP))
    # Ten layers' matrices and norms, and the embedding, a quarter each.
    layer = 8192 * (8192 + 2 * 1024) + 8192**2 + 3 * 8192 * 28672 + 2 * 8192
    assert largest == (10 * layer + 128256 * 8192) // 4
    assert largest > 2**31 - 1


@pytest.mark.parametrize("dtype", Dtype)
def test_defect_3_bytes_are_those_of_the_dtype_that_is_sent(dtype: Dtype) -> None:
    sizes = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
    program = plan_step(job(dp=2, pp=2, tp=2, dtype=dtype, gradient_dtype=dtype), 0)
    messages = [each for each in program if isinstance(each, Send | Receive | Collect)]
    assert {type(each) for each in messages} == {Send, Receive, Collect}
    assert all(each.size_bytes == each.count * sizes[dtype] and each.dtype is dtype for each in messages)


def test_defect_3_an_unknown_dtype_is_an_error() -> None:
    with pytest.raises(ValueError, match="'float'"):
        Dtype("float")


def test_defect_7_schedules_differ_and_the_mode_of_compute_is_stored() -> None:
    described = job(pp=2, dp=2, microbatches=4)
    plans = {
        plan_step(replace(described, schedule=schedule, virtual_stages=1 + (schedule == "interleaved")), 0)
        for schedule in Schedule
    }
    assert len(plans) == 3
    assert described.compute is ComputeMode.PRODUCTS
    assert all(each.products for program in plans for each in program if isinstance(each, Compute))


STEPS = st.builds(
    lambda pp, nmicrobatches, dp, schedule: StepJob(
        name="step",
        dp=dp,
        pp=pp,
        nmicrobatches=nmicrobatches,
        activation_bytes=1024,
        gradient_bytes=4096,
        forward_s=0.006,
        backward_s=0.012,
        schedule=schedule,
    ),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([Schedule.GPIPE, Schedule.ONE_F_ONE_B]),
)


@given(STEPS)
def test_a_job_of_volumes_is_passes_with_their_messages_then_one_reduction(step: StepJob) -> None:
    plans = [plan_volumes(step, rank) for rank in range(step.dp * step.pp)]
    assert faults(plans) == ()
    for rank, plan in enumerate(plans):
        row, stage = divmod(rank, step.pp)
        near = [stage + way for way in (-1, 1) if 0 <= stage + way < step.pp]
        peers = Counter(each.peer for each in plan if isinstance(each, Send | Receive))
        assert peers == {row * step.pp + stage: 2 * step.nmicrobatches for stage in near}
        assert {each.size_bytes for each in plan if isinstance(each, Send | Receive)} <= {1024}
        times = Counter(each.time_s for each in plan if isinstance(each, Compute))
        assert times == {0.006: step.nmicrobatches, 0.012: step.nmicrobatches}
        reduced = [(each.group, each.size_bytes) for each in plan if isinstance(each, Collect)]
        assert reduced == [(tuple(range(stage, step.dp * step.pp, step.pp)), 4096)] * (step.dp > 1)
        last = [each for each in plan if not isinstance(each, Wait)][-1]
        assert isinstance(last, Collect) or step.dp == 1


@given(JOBS, st.integers(1, 5000))
def test_a_divisor_of_messages_leaves_compute_and_what_ranks_agree_on(job: TrainingJob, divisor: int) -> None:
    divided = replace(job, compute=ComputeMode.NONE, message_divisor=divisor)
    plans, whole = programs(divided), programs(job)
    assert faults(plans) == ()
    for plan, program in zip(plans, whole, strict=True):
        assert [each for each in plan if isinstance(each, Compute)] == [
            each for each in program if isinstance(each, Compute)
        ]
        for each, larger in zip(plan, program, strict=True):
            if isinstance(each, Collect) and isinstance(larger, Collect):
                nranks = len(each.group)
                assert larger.count / divisor <= each.count < larger.count / divisor + nranks
                assert each.collective is Collective.ALL_REDUCE or each.count % nranks == 0
            elif isinstance(each, Send | Receive) and isinstance(larger, Send | Receive):
                assert each.count == -(-larger.count // divisor)
    assert modelled(divided).keys() == counted(plans).keys()


def test_a_rate_gives_compute_its_time() -> None:
    program = plan_step(replace(job(), flops_per_s=1e9), 0)
    for each in program:
        assert isinstance(each, Compute)
        assert each.time_s == pytest.approx(each.flops / 1e9)


@given(STEPS)
def test_compute_that_is_not_run_takes_no_time(step: StepJob) -> None:
    described = replace(job(), flops_per_s=1e9, compute=ComputeMode.NONE)
    for each in (*plan_job(replace(step, compute=ComputeMode.NONE), 0), *plan_job(described, 0)):
        assert not isinstance(each, Compute) or each.time_s == 0


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"microbatch": 0}, ["microbatch: found 0, expected at least 1"]),
        ({"global_batch": 3}, ["global_batch: found 3, expected a multiple of microbatch x dp = 1 x 2 = 2"]),
        ({"compute": "wait"}, ["flops_per_s: missing; a calibrated wait needs the rate"]),
        ({"message_divisor": 0}, ["message_divisor: found 0, expected at least 1"]),
        ({"message_divisor": 8}, ["message_divisor: found 8 with whole products", "or compute wait or none"]),
        ({"flops_per_s": -1.0}, ["flops_per_s: found -1.0, expected a finite number more than 0"]),
        ({"flops_per_s": float("nan")}, ["flops_per_s: found nan, expected a finite number"]),
        ({"fsdp": 3, "buckets": 0}, ["buckets: found 0, expected at least 1", "fsdp: found 3, expected a divisor of"]),
        ({"virtual_stages": 2}, ["virtual_stages: found 2 with 1f1b", "expected 2 or more where interleaved"]),
        ({"layout": ParallelLayout(dp=2, pp=9)}, ["pp: found 9 x 1 stages, expected at most the 8 layers of tiny"]),
        ({"layout": ParallelLayout(dp=2, pp=1, tp=3)}, ["tp: found 3, expected a divisor of the 4 heads of tiny"]),
        ({"layout": ParallelLayout(dp=2, pp=1, cp=3)}, ["cp: found 3, expected a divisor of the 64 positions"]),
        ({"layout": ParallelLayout(dp=2, pp=1, ep=2)}, ["ep: found 2, expected 1, since tiny has no experts"]),
        ({"layout": ParallelLayout(dp=2, pp=2), "fsdp": 2}, ["fsdp: found 2 with pp = 2 and ep = 1; expected both 1"]),
        (
            {"layout": ParallelLayout(dp=2, pp=3), "virtual_stages": 2, "schedule": "interleaved", "global_batch": 4},
            ["global_batch: gives 2 microbatches, expected a multiple of pp = 3"],
        ),
    ],
)
def test_a_job_that_contradicts_itself_is_refused_with_every_reason(
    changes: dict[str, object], lines: list[str]
) -> None:
    kinds = {"compute": ComputeMode, "schedule": Schedule}
    changes = {key: kinds[key](value) if key in kinds else value for key, value in changes.items()}  # type: ignore[arg-type]
    with pytest.raises(ValueError) as refused:
        replace(job(dp=2), **changes)  # type: ignore[arg-type]
    for line in lines:
        assert line in str(refused.value)

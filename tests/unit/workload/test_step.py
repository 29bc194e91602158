from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.workload.step import Operation, OperationKind, Schedule, StepJob, plan_step, schedule_order

JOB = StepJob(
    name="job",
    dp=2,
    pp=4,
    nmicrobatches=4,
    activation_bytes=1,
    gradient_bytes=1,
    forward_s=0.0,
    backward_s=0.0,
)
JOBS = st.builds(
    lambda pp, nmicrobatches, dp, schedule: replace(JOB, pp=pp, nmicrobatches=nmicrobatches, dp=dp, schedule=schedule),
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(1, 2),
    st.sampled_from(list(Schedule)),
)
F, B = OperationKind.FORWARD, OperationKind.BACKWARD


def messages(job: StepJob, stage: int, kind: OperationKind) -> list[int]:
    return [operation.microbatch for operation in plan_step(job, stage) if operation.kind is kind]


@given(JOBS)
def test_every_send_has_its_receive_in_the_same_order(job: StepJob) -> None:
    for stage in range(job.pp - 1):
        down = messages(job, stage, OperationKind.SEND_ACTIVATION)
        up = messages(job, stage + 1, OperationKind.SEND_GRADIENT)
        assert down == messages(job, stage + 1, OperationKind.RECEIVE_ACTIVATION) == list(range(job.nmicrobatches))
        assert up == messages(job, stage, OperationKind.RECEIVE_GRADIENT) == list(range(job.nmicrobatches))
    assert not messages(job, 0, OperationKind.RECEIVE_ACTIVATION)
    assert not messages(job, 0, OperationKind.SEND_GRADIENT)
    assert not messages(job, job.pp - 1, OperationKind.SEND_ACTIVATION)
    assert not messages(job, job.pp - 1, OperationKind.RECEIVE_GRADIENT)


@given(JOBS)
def test_stages_that_wait_for_what_they_receive_reach_the_end(job: StepJob) -> None:
    """Run all stages with sends that never block; each receive waits for its send."""
    left = {stage: list(plan_step(job, stage)) for stage in range(job.pp)}
    arrived: set[tuple[int, OperationKind, int]] = set()
    moved = True
    while moved:
        moved = False
        for stage, plan in left.items():
            while plan and (
                not plan[0].kind.startswith("receive") or (stage, plan[0].kind, plan[0].microbatch) in arrived
            ):
                operation = plan.pop(0)
                moved = True
                if operation.kind is OperationKind.SEND_ACTIVATION:
                    arrived.add((stage + 1, OperationKind.RECEIVE_ACTIVATION, operation.microbatch))
                elif operation.kind is OperationKind.SEND_GRADIENT:
                    arrived.add((stage - 1, OperationKind.RECEIVE_GRADIENT, operation.microbatch))
    assert not any(left.values())


@given(JOBS)
def test_a_microbatch_goes_forward_once_then_backward_once(job: StepJob) -> None:
    for stage in range(job.pp):
        order = schedule_order(job.schedule, stage, job.pp, job.nmicrobatches)
        assert Counter(order) == Counter((kind, m) for kind in (F, B) for m in range(job.nmicrobatches))
        for microbatch in range(job.nmicrobatches):
            assert order.index((F, microbatch)) < order.index((B, microbatch))


def most_in_flight(order: tuple[tuple[OperationKind, int], ...]) -> int:
    most = now = 0
    for kind, _ in order:
        now += 1 if kind is F else -1
        most = max(most, now)
    return most


@given(st.integers(1, 9), st.integers(1, 20))
def test_1f1b_holds_as_many_microbatches_as_stages_follow_and_gpipe_all(pp: int, nmicrobatches: int) -> None:
    for stage in range(pp):
        order = schedule_order(Schedule.ONE_F_ONE_B, stage, pp, nmicrobatches)
        assert most_in_flight(order) == min(nmicrobatches, pp - stage)
        order = schedule_order(Schedule.GPIPE, stage, pp, nmicrobatches)
        assert [kind for kind, _ in order] == [F] * nmicrobatches + [B] * nmicrobatches


def test_1f1b_of_two_stages_is_that_of_the_books() -> None:
    first = [(F, 0), (F, 1), (B, 0), (F, 2), (B, 1), (B, 2)]
    last = [(F, 0), (B, 0), (F, 1), (B, 1), (F, 2), (B, 2)]
    assert list(schedule_order(Schedule.ONE_F_ONE_B, 0, 2, 3)) == first
    assert list(schedule_order(Schedule.ONE_F_ONE_B, 1, 2, 3)) == last


@given(JOBS)
def test_the_entries_of_a_rank_are_counted(job: StepJob) -> None:
    for stage in range(job.pp):
        neighbours = (stage > 0) + (stage < job.pp - 1)
        plan = plan_step(job, stage)
        assert len(plan) == 2 * job.nmicrobatches * (1 + neighbours) + (job.dp > 1)
        reduces = [operation for operation in plan if operation.kind is OperationKind.REDUCE_GRADIENTS]
        assert reduces == [Operation(OperationKind.REDUCE_GRADIENTS)] * (job.dp > 1)
        assert not reduces or plan[-1] == reduces[0]


@pytest.mark.parametrize("schedule", Schedule)
def test_a_middle_stage_receives_before_it_computes_and_sends_after(schedule: Schedule) -> None:
    plan = plan_step(replace(JOB, schedule=schedule, nmicrobatches=1), 1)
    assert [operation.kind for operation in plan] == [
        OperationKind.RECEIVE_ACTIVATION,
        F,
        OperationKind.SEND_ACTIVATION,
        OperationKind.RECEIVE_GRADIENT,
        B,
        OperationKind.SEND_GRADIENT,
        OperationKind.REDUCE_GRADIENTS,
    ]

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.workload.job import StepJob, TrainingJob
from spanfit.workload.program import Axis, Collect, Operation, Program, Receive, Send
from spanfit.workload.schedules import Schedule
from spanfit.workload.script import write_script
from spanfit.workload.strategies import plan_step, plan_volumes
from tests.unit.workload.factory import JOBS, program_of

STEP = StepJob(
    name="step", dp=3, pp=2, nmicrobatches=2, activation_bytes=64, gradient_bytes=96, forward_s=0.1, backward_s=0.2
)


@settings(max_examples=8, deadline=None)
@given(JOBS)
def test_the_program_of_a_stage_is_that_of_each_rank_in_its_own_names(job: TrainingJob) -> None:
    script = write_script(job)
    assert script.nranks == job.layout.nranks
    for rank in range(script.nranks):
        assert program_of(script, rank) == plan_step(job, rank)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([Schedule.GPIPE, Schedule.ONE_F_ONE_B]))
def test_so_it_is_for_jobs_known_by_their_volumes(dp: int, pp: int, schedule: Schedule) -> None:
    job = replace(STEP, dp=dp, pp=pp, schedule=schedule)
    script = write_script(job)
    assert [program_of(script, rank) for rank in range(dp * pp)] == [plan_volumes(job, rank) for rank in range(dp * pp)]


@pytest.mark.parametrize("ngpus", [2, 3])
def test_each_local_rank_does_with_its_like_what_one_is_told_to(ngpus: int) -> None:
    script = write_script(STEP, ngpus)
    assert script.nranks == ngpus * STEP.layout.nranks
    for rank in range(script.nranks):
        node, local = divmod(rank, ngpus)
        assert program_of(script, rank) == widened(plan_volumes(STEP, node), ngpus, local)


def widened(program: Program, ngpus: int, local: int) -> Program:
    def moved(operation: Operation) -> Operation:
        if isinstance(operation, Send | Receive):
            return replace(operation, peer=operation.peer * ngpus + local)
        if isinstance(operation, Collect):
            return replace(operation, group=tuple(rank * ngpus + local for rank in operation.group))
        return operation

    return tuple(map(moved, program))


@settings(max_examples=8, deadline=None)
@given(JOBS)
def test_all_groups_of_an_axis_are_those_of_its_ranks(job: TrainingJob) -> None:
    axes = [axis for axis in Axis if axis not in (Axis.SHARD, Axis.REPLICA) or job.fsdp > 1]
    for axis in axes:
        found = {job.group(axis, rank) for rank in range(job.layout.nranks)}
        assert set(job.groups(axis)) == found and len(job.groups(axis)) == len(found)

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.workload.program import Direction
from spanfit.workload.schedules import Pass, Schedule, pass_order

F, B = Direction.FORWARD, Direction.BACKWARD


def words(passes: tuple[Pass, ...]) -> str:
    return " ".join(f"{step.direction[0]}{step.chunk}.{step.microbatch}" for step in passes)


def test_schedules_of_two_stages_are_those_of_the_books() -> None:
    def order(schedule: Schedule, stage: int, nchunks: int = 1, nmicrobatches: int = 3) -> str:
        return words(pass_order(schedule, stage=stage, nstages=2, nmicrobatches=nmicrobatches, nchunks=nchunks))

    assert order(Schedule.GPIPE, 0) == order(Schedule.GPIPE, 1) == "f0.0 f0.1 f0.2 b0.0 b0.1 b0.2"
    assert order(Schedule.ONE_F_ONE_B, 0) == "f0.0 f0.1 b0.0 f0.2 b0.1 b0.2"
    assert order(Schedule.ONE_F_ONE_B, 1) == "f0.0 b0.0 f0.1 b0.1 f0.2 b0.2"
    # Two chunks: the last stage is one round of the first chunk ahead, the first stage two passes more.
    assert order(Schedule.INTERLEAVED, 1, 2, 2) == "f0.0 f0.1 f1.0 b1.0 f1.1 b1.1 b0.0 b0.1"
    assert order(Schedule.INTERLEAVED, 0, 2, 4).startswith("f0.0 f0.1 f1.0 f1.1 f0.2 b1.0 f0.3 b1.1")


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 3), st.sampled_from(Schedule))
def test_each_microbatch_goes_once_forward_and_back_through_each_chunk(
    nstages: int, rounds: int, nchunks: int, schedule: Schedule
) -> None:
    nchunks = nchunks if schedule is Schedule.INTERLEAVED else 1
    for stage in range(nstages):
        order = pass_order(schedule, stage=stage, nstages=nstages, nmicrobatches=rounds * nstages, nchunks=nchunks)
        assert Counter(order) == Counter(
            Pass(direction, chunk, microbatch)
            for direction in (F, B)
            for chunk in range(nchunks)
            for microbatch in range(rounds * nstages)
        )
        for step in order:
            if step.direction is F:
                assert order.index(step) < order.index(step._replace(direction=B))


@pytest.mark.parametrize("stage", range(4))
def test_1f1b_holds_as_many_microbatches_as_stages_follow(stage: int) -> None:
    order = pass_order(Schedule.ONE_F_ONE_B, stage=stage, nstages=4, nmicrobatches=8)
    held = [sum(1 if step.direction is F else -1 for step in order[:end]) for end in range(len(order) + 1)]
    assert max(held) == 4 - stage

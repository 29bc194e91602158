from dataclasses import replace

import pytest

from spanfit.workload.checks import collective_faults, faults, handle_faults, message_faults, stuck
from spanfit.workload.program import Collect, Program, Send, Wait
from tests.unit.workload.factory import job, programs

PIPELINE = programs(job(pp=2, microbatches=3))
REPLICAS = programs(job(dp=2, buckets=2))


def without(program: Program, index: int) -> Program:
    return program[:index] + program[index + 1 :]


def first(program: Program, kind: type) -> int:
    return next(index for index, operation in enumerate(program) if isinstance(operation, kind))


def test_a_message_that_nobody_receives_is_found() -> None:
    broken = [PIPELINE[0], without(PIPELINE[1], 0)]
    assert next(message_faults(broken)).startswith("forward messages from rank 0 to 1: 3 sent and 2 received")


def test_a_message_of_another_size_is_found() -> None:
    index = first(PIPELINE[0], Send)
    send = PIPELINE[0][index]
    assert isinstance(send, Send)
    changed = (*PIPELINE[0][:index], replace(send, count=send.count + 1), *PIPELINE[0][index + 1 :])
    assert len([*message_faults([changed, PIPELINE[1]])]) == 1


def test_collectives_in_another_order_or_without_a_member_are_found() -> None:
    at = [index for index, operation in enumerate(REPLICAS[0]) if isinstance(operation, Collect)]
    swapped = list(REPLICAS[0])
    swapped[at[0]], swapped[at[1]] = swapped[at[1]], swapped[at[0]]
    assert "members do not call the same" in next(collective_faults([tuple(swapped), REPLICAS[1]]))
    assert "ranks [0] call and are no members, or" in next(collective_faults([(), REPLICAS[1]]))


def test_handles_that_are_left_twice_or_never_waited_for_are_found() -> None:
    program = REPLICAS[0]
    wait = first(program, Wait)
    assert "never waits for" in next(handle_faults([without(program, wait)]))
    assert "has not started" in next(handle_faults([without(program, first(program, Collect))]))
    assert "twice" in next(handle_faults([(program[first(program, Collect)], *program)]))


def test_1f1b_with_sends_that_block_gets_stuck() -> None:
    blocking = []
    for program in PIPELINE:
        operations: list[object] = []
        for operation in program:
            if isinstance(operation, Send):
                operations += [operation, Wait(timer=operation.timer, handle=operation.handle)]
            elif not (isinstance(operation, Wait) and operation.handle.startswith("send")):
                operations.append(operation)
        blocking.append(tuple(operations))
    assert not [*message_faults(blocking)]  # type: ignore[arg-type]
    assert not [*handle_faults(blocking)]  # type: ignore[arg-type]
    assert [line.split(" at ")[0] for line in stuck(blocking)] == [  # type: ignore[arg-type]
        "rank 0 waits for ever",
        "rank 1 waits for ever",
    ]


@pytest.mark.parametrize("plans", [PIPELINE, REPLICAS])
def test_whole_programs_have_no_faults(plans: list[Program]) -> None:
    assert faults(plans) == ()

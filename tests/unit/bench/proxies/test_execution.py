"""Parts of an execution that need no other rank; whole steps run in the integration tests."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given

from spanfit.bench.lines import world_ranks
from spanfit.bench.proxies.channels import axis_groups, ways
from spanfit.bench.proxies.compute import Computer
from spanfit.bench.proxies.execution import Pool, miniature, whole_step
from spanfit.bench.proxies.timers import Timers, seconds
from spanfit.bench.warmup import warm_up
from spanfit.collectives import Collective
from spanfit.workload.checks import faults
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob, seat_ranks
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.program import (
    Axis,
    Collect,
    Compute,
    ComputeMode,
    Direction,
    Product,
    Program,
    Receive,
    Send,
    Timer,
    Wait,
)
from spanfit.workload.schedules import Schedule
from spanfit.workload.strategies import plan_step
from tests.unit.bench.test_case import CASE
from tests.unit.workload.factory import JOBS, MODELS, job, programs

CPU = torch.device("cpu")
TIMER = Timer("compute", 0, 0, Direction.FORWARD)


@given(JOBS)
def test_every_collective_of_every_rank_has_its_communicator_and_every_message_its_way(job: TrainingJob) -> None:
    known, open_ways = set(axis_groups(job)), set(ways(job))
    used = set()
    for rank, program in enumerate(programs(job)):
        for each in program:
            if isinstance(each, Collect):
                used.add((each.axis, each.group))
            elif isinstance(each, Send):
                assert (each.timer.direction, each.peer > rank) in open_ways
    assert known == used


@given(JOBS)
def test_a_miniature_is_the_same_step_with_a_few_elements(job: TrainingJob) -> None:
    small = [miniature(program) for program in programs(job)]
    assert faults(small) == ()
    for program, whole in zip(small, programs(job), strict=True):
        for each, original in zip(program, whole, strict=True):
            assert (type(each), each.timer) == (type(original), original.timer)
            if isinstance(each, Send | Receive | Collect):
                assert 1 <= each.count <= 4 * (len(each.group) if isinstance(each, Collect) else 1)


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "cp-tp-ep-pp-dp"])
def test_ranks_of_a_node_are_neighbours_and_a_cell_is_on_its_node(order: str) -> None:
    described = job(dp=4, pp=2, tp=2, order=order, microbatches=2)
    nodes = (3, 1, 0, 2, 7, 6, 5, 4)
    (ranks,) = seat_ranks(described, nodes, 2)
    assert sorted(ranks) == list(range(16))
    for rank, world_rank in enumerate(ranks):
        place = described.layout.coordinate(rank)
        assert nodes[place["dp"] * 2 + place["pp"]] == world_rank // 2
        assert place["tp"] == world_rank % 2
    assert world_ranks(replace(CASE, step=described, groups=(nodes,)), 2) == (ranks,)


def test_defect_1_timers_are_appended_run_after_run() -> None:
    program: Program = (
        Compute(timer=TIMER, time_s=1.0),
        Compute(timer=TIMER, time_s=1.0),
        Wait(timer=Timer("wait", 0), handle="x"),
    )
    timers = Timers(program)
    timers.add((0, 1_000_000_000, 3_000_000_000, 3_500_000_000))
    timers.add((10, 10, 10, 1_000_000_010))
    assert timers.entries() == {TIMER: [1.0, 2.0, 0.0, 0.0], Timer("wait", 0): [0.5, 1.0]}
    assert timers.communication_s(2) == [0.5, 1.0]
    assert timers.communication_s(1) == [1.0]


def test_only_what_holds_a_rank_up_is_communication() -> None:
    content: dict[str, Any] = {"timer": TIMER, "count": 2, "dtype": Dtype.FLOAT32}
    collect = Collect(**content, collective=Collective.ALL_REDUCE, axis=Axis.DP, group=(0, 1))
    program: Program = (
        Compute(timer=TIMER, time_s=1.0),
        Send(**content, peer=1, handle="s"),
        Receive(**content, peer=1),
        collect,
        replace(collect, handle="c"),
        Wait(timer=TIMER, handle="c"),
    )
    timers = Timers(program)
    timers.add(tuple(round(1e9) * mark for mark in (0, 1, 3, 7, 15, 31, 63)))
    assert timers.communication_s(1) == [4.0 + 8.0 + 32.0]


@pytest.mark.parametrize("dtype", Dtype)
def test_defect_3_buffers_are_of_the_dtype_whose_bytes_are_counted(dtype: Dtype) -> None:
    buffer = Pool(CPU, is_kept=False).take(7, dtype)
    assert buffer.nbytes == 7 * dtype.itemsize
    assert str(buffer.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("nwarm", [6, 17])
def test_defect_4_what_one_iteration_takes_does_not_depend_on_how_many_warmed_up(nwarm: int) -> None:
    warmed = warm_up([lambda: time.sleep(0.002)], lambda: None, lambda values: values, nwarm)
    assert 0.002 <= warmed.time_s < 0.02


def test_defect_5_clock_values_keep_their_nanoseconds() -> None:
    start = 1_700_000_000_123_456_789
    assert seconds(start, start + 500) == 5e-7
    assert seconds(start, start + 1) == 1e-9


def test_buffers_given_back_are_taken_again_and_those_of_a_check_are_not() -> None:
    reused, kept = Pool(CPU, is_kept=False), Pool(CPU, is_kept=True)
    for pool in (reused, kept):
        first = pool.take(3, Dtype.FLOAT32)
        pool.give([first])
        assert (pool.take(3, Dtype.FLOAT32) is first) is (pool is reused)
        assert pool.take(3, Dtype.INT8) is not first


def test_products_are_those_of_the_program_and_are_done() -> None:
    compute = Compute(timer=TIMER, products=(Product(3, 4, 5, 2), Product(1, 2, 1)))
    computer = Computer(ComputeMode.PRODUCTS, (compute,), torch.float32, CPU)
    assert (computer.left.numel(), computer.right.numel(), computer.result.numel()) == (12, 20, 15)
    computer.act(Compute(timer=TIMER, products=(Product(3, 4, 5),)))()
    expected = computer.left.view(3, 4) @ computer.right.view(4, 5)
    assert torch.allclose(computer.result.view(3, 5), expected)
    whole = Computer(ComputeMode.PRODUCTS, (compute,), torch.int8, CPU)
    assert whole.left.dtype is torch.float32
    whole.act(compute)()


def test_a_wait_lasts_its_time_and_none_no_time() -> None:
    compute = Compute(timer=TIMER, time_s=0.02)
    for mode, least_s, most_s in ((ComputeMode.WAIT, 0.02, 0.2), (ComputeMode.NONE, 0.0, 0.01)):
        act = Computer(mode, (compute,), torch.float32, CPU).act(compute)
        start = time.perf_counter()
        act()
        assert least_s <= time.perf_counter() - start < most_s


@pytest.mark.parametrize("mode", [ComputeMode.WAIT, ComputeMode.PRODUCTS])
def test_compute_that_cannot_be_spent_is_an_error(mode: ComputeMode) -> None:
    nothing = Compute(timer=TIMER)
    with pytest.raises(ValueError, match="found no"):
        Computer(mode, (nothing,), torch.float32, CPU).act(nothing)


def test_interleaved_messages_have_ways_of_their_own_back_to_the_first_stage() -> None:
    assert len(ways(job(pp=2))) == 2
    assert len(ways(job(pp=2, microbatches=2, virtual_stages=2, schedule=Schedule.INTERLEAVED))) == 4
    assert ways(job(dp=2)) == ()


def test_a_huge_job_is_known_without_running_it() -> None:
    described = TrainingJob(
        name="huge",
        model=MODELS["llama-3-70b"],
        layout=ParallelLayout(dp=4, pp=8, tp=8),
        global_batch=64,
        compute=ComputeMode.NONE,
        message_divisor=4096,
    )
    assert {axis for axis, _ in axis_groups(described)} == {Axis.DP, Axis.TP}
    assert max(each.count for each in plan_step(described, 0) if isinstance(each, Collect)) < 2**20


def test_an_execution_of_one_rank_runs_and_counts() -> None:
    described = replace(job(microbatches=2), compute=ComputeMode.NONE)
    program = plan_step(described, 0)
    channels: Any = None
    for timers in (Timers(program), None):
        execution = whole_step(described, program, 0, channels, CPU, timers)
        execution.run()
        execution.run()
        if timers is not None:
            assert {len(times) for times in timers.entries().values()} == {2}
            assert timers.communication_s(2) == [0, 0]

"""Ranks under a real torchrun agent: every collective gives right results, and a wrong world is refused."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.campaign_file import Redop
from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch
from spanfit.collectives import HAS_BOTH_PLACES, REDUCES, Collective, misfit
from spanfit.launch.worlds import AgentWorlds, Failure, WorldRequest
from spanfit.results.shards import measurements, read_shard
from spanfit.topology.model import RankMap
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import StepJob
from spanfit.workload.schedules import Schedule

NRANKS = 3


def case(operation: str, size_bytes: int, dtype: str = "float32", step: StepJob | None = None) -> BenchCase:
    return BenchCase(
        kind=CaseKind.STEP if step else CaseKind.COLLECTIVE,
        operation=operation,
        size_bytes=size_bytes,
        dtype=dtype,
        redop="sum",
        in_place=False,
        tier="minipod",
        groups=((0,),),
        span=1,
        rank_order=RankOrder.SORTED,
        concurrency=Concurrency.ALONE,
        draw=0,
        arm="",
        warmup=1,
        repetitions=2,
        step=step,
    )


def run_here(
    folder: Path, cases: list[BenchCase], host: str, nranks: int = NRANKS, ngpus_per_node: int | None = None
) -> tuple[Failure | None, list[dict[str, object]]]:
    """Run a world on this machine's loopback as one node of several ranks, or as nodes of so many."""
    per_node = ngpus_per_node or nranks
    shard = folder / "shard.jsonl"
    visits = tuple(Visit(position=position, block=0, case=case) for position, case in enumerate(cases))
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(host,) * (nranks // per_node),
        ngpus_per_node=per_node,
        timeout_s=30.0,
        shard=str(shard),
        visits=visits,
    )
    (folder / "plan.json").write_text(dump_launch(plan))
    request = WorldRequest(
        rank_map=RankMap(node_names=(host,), ngpus_per_node=nranks),
        module="spanfit.bench.worker",
        argv=(str(folder / "plan.json"),),
        environment={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        port=free_port(),
        logs=folder,
    )
    with AgentWorlds(lambda _, command: list(command), lambda _: "127.0.0.1") as worlds:
        failure = worlds.run(request, lambda: None)
    lines = [json.loads(line) for line in shard.read_text().splitlines()] if shard.exists() else []
    return failure, [line for line in lines if line["type"] == "case"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def everything(nranks: int) -> list[BenchCase]:
    """Return cases of every collective that fits, of every dtype, of every reduction and in both places."""
    fitting = [collective for collective in Collective if not misfit(collective, nranks)]
    cases = [case(one, size, dtype) for one in fitting for size, dtype in ((4096, "float32"), (400, "float64"))]
    cases += [case(one, 4096, dtype) for one in (Collective.ALL_REDUCE, Collective.ALL_TO_ALL_V) for dtype in Dtype]
    cases += [replace(case(one, 4096), redop=redop) for one in sorted(REDUCES) for redop in Redop if redop != "avg"]
    cases += [replace(case(one, 4096), in_place=True) for one in sorted(HAS_BOTH_PLACES & set(fitting))]
    cases += [replace(case(Collective.ALL_TO_ALL_V, 4096), skew=skew) for skew in (1.0, 2.0)]
    # Two groups at once, the second in another order.
    half = nranks // 2
    pairs = (tuple(range(half)), tuple(reversed(range(half, 2 * half))))
    cases += [replace(case(Collective.ALL_REDUCE, 4096), groups=pairs)] if half > 1 else []
    return list(dict.fromkeys(cases))


@pytest.mark.parametrize("nranks", [3, 4])
def test_every_collective_gives_the_right_result(tmp_path: Path, nranks: int) -> None:
    cases = [as_nodes(one, nranks) for one in everything(nranks)]
    failure, lines = run_here(tmp_path, cases, socket.gethostname(), nranks, ngpus_per_node=1)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert {str(line["reason"]) for line in lines} == {""}
    assert len(lines) == len(cases)
    for line in lines:
        times_s = line["times_s"]
        assert isinstance(times_s, list)
        assert all(len(rank) == 2 and min(rank) > 0 for group in times_s for rank in group)


def as_nodes(one: BenchCase, nranks: int) -> BenchCase:
    return one if len(one.groups) > 1 else replace(one, groups=(tuple(range(nranks)),))


def test_the_warm_up_ends_when_the_time_is_stable_and_is_noted(tmp_path: Path) -> None:
    long = replace(case(Collective.ALL_REDUCE, 64), warmup=40)
    failure, (line,) = run_here(tmp_path, [long], socket.gethostname(), nranks=2)
    assert failure is None
    iterations = line["warmup"]
    assert isinstance(iterations, int)
    assert 6 <= iterations <= 40
    assert line["is_warm"] is (iterations < 40) or iterations == 40
    assert line["batch"] == 1


def test_the_world_says_where_each_rank_is_and_how_long_it_took_to_meet(tmp_path: Path) -> None:
    run_here(tmp_path, [case(Collective.BARRIER, 0)], socket.gethostname(), nranks=2)
    world = json.loads((tmp_path / "shard.jsonl").read_text().splitlines()[0])
    assert world["hosts"] == [socket.gethostname()] * 2
    assert len(set(world["pids"])) == 2
    assert all(0 < seconds < 60 for seconds in world["init_s"])
    assert world["rotation_bytes"] > 1 << 20


def test_a_start_up_times_the_communicator_and_its_first_operations(tmp_path: Path) -> None:
    start = replace(case(Collective.ALL_REDUCE, 4096), kind=CaseKind.STARTUP, groups=((0, 2),))
    failure, (line,) = run_here(tmp_path, [start], socket.gethostname(), ngpus_per_node=1)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    parts = line["parts"]
    assert isinstance(parts, dict)
    assert list(parts) == ["communicator", "first_all_reduce", "second_all_reduce"]
    for whole, first in zip(parts["communicator"][0], parts["first_all_reduce"][0], strict=True):
        assert len(whole) == 2
        assert all(a > b > 0 for a, b in zip(whole, first, strict=True))
    rows = list(measurements("r", [read_shard(tmp_path / "shard.jsonl")], 1, {"minipod": ["m"] * 3}))
    expected = [("process_group", 0), *((part, turn) for part in parts for turn in (0, 1))]
    assert [(row.operation, row.repetition) for row in rows] == expected
    assert [(row.kind, row.status, row.nranks) for row in rows] == [("startup", "ok", 3)] + [("startup", "ok", 2)] * 6


def test_products_beside_a_collective_are_timed_where_there_is_a_core_a_rank(tmp_path: Path) -> None:
    nranks = len(os.sched_getaffinity(0))
    beside = replace(
        case(Collective.ALL_REDUCE, 1 << 20), kind=CaseKind.OVERLAP, matrix=128, products=4, groups=((0,),)
    )
    failure, (line,) = run_here(tmp_path, [beside], socket.gethostname(), nranks)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert (line["status"], line["reason"]) == ("ok", "")
    parts = line["parts"]
    assert isinstance(parts, dict)
    assert list(parts) == ["matmul_alone", "all_reduce_alone", "matmul_beside_all_reduce", "all_reduce_beside_matmul"]
    assert all(time_s > 0 for part in parts.values() for rank in part[0] for time_s in rank)


def test_products_on_too_few_cores_are_a_row_that_says_so(tmp_path: Path) -> None:
    nranks = len(os.sched_getaffinity(0)) + 1
    beside = replace(case(Collective.ALL_REDUCE, 4096), kind=CaseKind.OVERLAP, matrix=8, products=1)
    failure, (line,) = run_here(tmp_path, [beside], socket.gethostname(), nranks)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert line["status"] == "failed"
    assert f"{nranks} ranks share {nranks - 1} cores" in str(line["reason"])
    (row,) = measurements("r", [read_shard(tmp_path / "shard.jsonl")], nranks, {"minipod": ["m"]})
    assert (row.operation, row.status) == ("all_reduce", "failed")


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B])
def test_a_step_ends_on_every_rank_and_takes_at_least_its_compute(tmp_path: Path, schedule: Schedule) -> None:
    job = StepJob(
        name="job",
        dp=2,
        pp=2,
        nmicrobatches=3,
        activation_bytes=1024,
        gradient_bytes=4096,
        forward_s=0.01,
        backward_s=0.02,
        schedule=schedule,
    )
    # The four ranks of one node stand for four nodes here, so the lanes of a node are the cells of the grid.
    step = replace(case("job", job.gradient_bytes, step=job), groups=((0, 1, 2, 3),))
    with_ranks_as_nodes = run_as_nodes(tmp_path, step)
    times_s = with_ranks_as_nodes["times_s"]
    assert isinstance(times_s, list)
    # Three microbatches on two stages: the last stage starts one forward late, then computes without a gap.
    shortest = (3 + 1) * (0.01 + 0.02)
    assert all(shortest * 0.99 < max(by_rank) < shortest * 4 for by_rank in zip(*times_s[0], strict=True))


def run_as_nodes(folder: Path, step: BenchCase) -> dict[str, object]:
    """Run a world of four nodes of one rank each, all of them this machine."""
    host, shard = socket.gethostname(), folder / "shard.jsonl"
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(host,) * 4,
        ngpus_per_node=1,
        timeout_s=30.0,
        shard=str(shard),
        visits=(Visit(position=0, block=0, case=step),),
    )
    (folder / "plan.json").write_text(dump_launch(plan))
    request = WorldRequest(
        rank_map=RankMap(node_names=(host,), ngpus_per_node=4),
        module="spanfit.bench.worker",
        argv=(str(folder / "plan.json"),),
        environment={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        port=free_port(),
        logs=folder,
    )
    with AgentWorlds(lambda _, command: list(command), lambda _: "127.0.0.1") as worlds:
        failure = worlds.run(request, lambda: None)
    assert failure is None, failure.log.read_text() if failure else ""
    (line,) = [json.loads(line) for line in shard.read_text().splitlines() if '"type": "case"' in line]
    return dict(line)


def test_a_world_on_other_hosts_than_planned_is_refused(tmp_path: Path) -> None:
    failure, lines = run_here(tmp_path, [case(Collective.ALL_REDUCE, 4096)], "elsewhere", nranks=2)
    assert failure is not None
    assert f"rank 0 runs on {socket.gethostname()}, expected elsewhere" in failure.log.read_text()
    assert lines == []

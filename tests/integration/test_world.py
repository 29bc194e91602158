"""Ranks under a real torchrun agent: every collective gives right results, and a wrong world is refused."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch
from spanfit.collectives import Collective
from spanfit.launch.worlds import AgentWorlds, Failure, WorldRequest
from spanfit.topology.model import RankMap
from spanfit.workload.step import Schedule, StepJob

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
    folder: Path, cases: list[BenchCase], host: str, nranks: int = NRANKS
) -> tuple[Failure | None, list[dict[str, object]]]:
    """Run a world on this machine's loopback as one node of several ranks."""
    shard = folder / "shard.jsonl"
    visits = tuple(Visit(position=position, block=0, case=case) for position, case in enumerate(cases))
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(host,),
        ngpus_per_node=nranks,
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


def test_every_collective_gives_the_right_result(tmp_path: Path) -> None:
    cases = [
        case(collective, size, dtype)
        for collective in Collective
        for size, dtype in ((4096, "float32"), (40, "float64"))
    ]
    cases.append(case(Collective.ALL_REDUCE, 4096, "bfloat16"))
    failure, lines = run_here(tmp_path, cases, socket.gethostname())
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert [line["status"] for line in lines] == ["ok"] * len(cases)
    for line in lines:
        times_s = line["times_s"]
        assert isinstance(times_s, list)
        assert [len(rank) for rank in times_s[0]] == [2] * NRANKS


@pytest.mark.parametrize("schedule", Schedule)
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

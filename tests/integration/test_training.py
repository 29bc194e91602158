"""Training steps by DDP, FSDP2 and pipelines in a real world: right by one process, and moving what programs say."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from spanfit.bench.case import LaunchPlan, dump_launch
from spanfit.bench.training.shapes import activation_bytes, gradient_bytes
from spanfit.launch.worlds import AgentWorlds, WorldRequest
from spanfit.topology.model import RankMap
from spanfit.workload.program import Collect, Send
from spanfit.workload.strategies import plan_step
from tests.integration.test_world import free_port
from tests.integration.training_rank import CELLS, JOBS

NRANKS = 4


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run a world of ranks that train each job once; return what each rank of it found."""
    folder, host = tmp_path_factory.mktemp("training"), socket.gethostname()
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(host,) * NRANKS,
        ngpus_per_node=1,
        timeout_s=60.0,
        shard="",
        visits=(),
    )
    (folder / "plan.json").write_text(dump_launch(plan))
    request = WorldRequest(
        rank_map=RankMap(node_names=(host,), ngpus_per_node=NRANKS),
        module="tests.integration.training_rank",
        argv=(str(folder / "plan.json"), str(folder)),
        environment={
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        port=free_port(),
        logs=folder,
    )
    with AgentWorlds(lambda _, command: list(command), lambda _: "127.0.0.1") as worlds:
        failure = worlds.run(request, lambda: None)
    assert failure is None, failure.log.read_text() if failure else ""
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(NRANKS)]


@pytest.mark.parametrize("name", JOBS)
def test_losses_and_gradients_are_those_of_one_process(found: list[dict[str, Any]], name: str) -> None:
    members = CELLS[: JOBS[name].layout.nranks]
    assert [by_job[name].get("is_right") for by_job in found] == [
        True if rank in members else None for rank in range(NRANKS)
    ]


@pytest.mark.parametrize("name", JOBS)
def test_ranks_move_what_their_programs_say(found: list[dict[str, Any]], name: str) -> None:
    for place, rank in enumerate(CELLS[: JOBS[name].layout.nranks]):
        planned = sorted(
            ("send" if isinstance(operation, Send) else operation.collective.value, operation.size_bytes)
            for operation in plan_step(JOBS[name], place)
            if isinstance(operation, Send | Collect)
        )
        assert [*map(tuple, found[rank][name]["calls"])] == planned


@pytest.mark.parametrize("name", [name for name in JOBS if JOBS[name].fsdp == 1])
def test_the_volumes_of_a_job_are_what_is_sent(found: list[dict[str, Any]], name: str) -> None:
    job, activations = JOBS[name], activation_bytes(JOBS[name])
    for place, rank in enumerate(CELLS[: job.layout.nranks]):
        calls = [tuple(call) for call in found[rank][name]["calls"]]
        assert {size_bytes for operation, size_bytes in calls if operation == "send"} <= {activations}
        reduced = sum(size_bytes for operation, size_bytes in calls if operation == "all_reduce")
        stages = gradient_bytes(job)[place % job.layout.pp :: job.layout.pp]
        assert reduced == (sum(stages) if job.layout.dp > 1 else 0)

"""Worlds under mpirun and srun: the same cases, both engines, the same store."""

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch
from spanfit.collectives import Collective
from spanfit.errors import LaunchError
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import MpirunWorlds, find_mpirun
from spanfit.launch.slurm import SrunWorlds
from spanfit.launch.testbed import Testbed
from spanfit.launch.worlds import WorldRequest
from spanfit.profiler.campaign import Campaign
from spanfit.results.shards import read_shard
from spanfit.topology.model import RankMap
from tests.conftest import make_fabric
from tests.integration.factory import wait_for_end, write_campaign

TINY = """backend = "{backend}"
launches = 1
blocks = 2
[collectives]
operations = ["all_reduce", "reduce_scatter", "send_recv"]
sizes = ["64K"]
nodes_per_group = 2
spans = [1, 2]
concurrency = ["all"]
repetitions = 3
[startup]
nodes_per_group = [2, 4]
size = "64K"
repetitions = 2
"""
CASE = BenchCase(
    kind=CaseKind.COLLECTIVE,
    operation="all_reduce",
    size_bytes=65536,
    dtype="float32",
    redop="sum",
    in_place=False,
    tier="minipod",
    groups=((0, 2, 1, 3),),
    span=2,
    rank_order=RankOrder.ALTERNATING,
    concurrency=Concurrency.ALONE,
    draw=0,
    arm="",
    warmup=1,
    repetitions=2,
)


@pytest.fixture(scope="module")
def mpirun() -> str:
    """Give the path of mpirun; skip where there is none, or no mpi4py."""
    pytest.importorskip("mpi4py", reason="mpi4py is missing; install the extra 'mpi'")
    try:
        return find_mpirun()[0]
    except LaunchError as error:
        pytest.skip(str(error))


def write_plan(folder: Path, names: tuple[str, ...], cases: list[BenchCase], ranks_per_node: int = 1) -> LaunchPlan:
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=names,
        ngpus_per_node=ranks_per_node,
        timeout_s=60.0,
        shard=str(folder / "shard.jsonl"),
        visits=tuple(Visit(position=index, block=index // 4, case=case) for index, case in enumerate(cases)),
    )
    (folder / "plan.json").write_text(dump_launch(plan))
    return plan


def request_of(folder: Path, names: tuple[str, ...], module: str, ranks_per_node: int = 1) -> WorldRequest:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return WorldRequest(
        rank_map=RankMap(node_names=names, ngpus_per_node=ranks_per_node),
        module=f"spanfit.bench.{module}",
        argv=(str(folder / "plan.json"),),
        environment={"OMP_NUM_THREADS": "1"},
        port=port,
        logs=folder,
    )


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_both_engines_fill_the_same_store_under_mpirun(
    namespaces: None, mpirun: str, tmp_path: Path, backend: str
) -> None:
    fabric = make_fabric(f"mpi-{backend}", hosts_per_leaf=2, host=1e9, uplink=1e9)
    path = write_campaign(tmp_path, fabric, TINY.format(backend=backend), launcher="testbed-mpirun")
    campaign = Campaign(path, tmp_path / "runs")
    campaign.run(lambda _: None)
    info, frame = campaign.store.read(campaign.run_id)
    assert (frame["status"] == "ok").all()
    starts = frame["kind"] == "startup"
    # 3 operations x 2 groups over 1 minipod and 2 over 2 x 2 blocks x 3 repetitions
    assert (~starts).sum() == 3 * (2 + 2) * 2 * 3
    # 2 scales x 3 parts x 2 blocks x 2 repetitions, and how long the ranks took to meet
    assert starts.sum() == 2 * 3 * 2 * 2 + 1
    assert (frame["time_s"] >= frame["time_min_s"]).all()
    assert (frame["time_min_s"] > 0).all()
    assert info.backend == backend
    assert info.versions.get("engine", "torch") == ("mpi" if backend == "mpi" else "torch")
    assert fabric.name not in beds.names()


def test_every_collective_is_right_over_mpi_in_place_or_not_with_every_redop(
    bring_up: Callable[[Fabric], Testbed], mpirun: str, tmp_path: Path
) -> None:
    bed = bring_up(make_fabric("mpi-all", hosts_per_leaf=2, host=1e9, uplink=1e9))
    cases = [replace(CASE, operation=collective) for collective in Collective]
    cases += [replace(case, dtype="float64", in_place=True, size_bytes=4096) for case in cases]
    cases += [replace(CASE, redop=redop) for redop in ("product", "min", "max")]
    cases += [replace(CASE, dtype=dtype) for dtype in ("int8", "uint8", "int32", "int64")]
    cases += [replace(CASE, operation="all_to_all_v", skew=2.0)]
    names = tuple(bed.hosts)
    write_plan(tmp_path, names, cases, ranks_per_node=2)
    with MpirunWorlds(bed) as worlds:
        failure = worlds.run(request_of(tmp_path, names, "mpi_worker", ranks_per_node=2), lambda: None)
    assert failure is None, failure.log.read_text() if failure else ""
    shard = read_shard(tmp_path / "shard.jsonl")
    assert {line["case"]["operation"]: line["reason"] for line in shard.cases if line["status"] != "ok"} == {}
    assert len(shard.cases) == len(cases)
    assert shard.worlds[0]["versions"]["mpi"]
    for line in shard.cases:
        assert line["ranks"] == [[0, 1, 4, 5, 2, 3, 6, 7]]
        assert [len(rank) for rank in line["times_s"][0]] == [CASE.repetitions] * 8


@pytest.mark.parametrize("module", ["worker", "mpi_worker"])
def test_a_world_in_another_order_than_planned_is_refused(
    bring_up: Callable[[Fabric], Testbed], mpirun: str, tmp_path: Path, module: str
) -> None:
    bed = bring_up(make_fabric("mpi-order", minipods=1, hosts_per_leaf=2))
    names = tuple(bed.hosts)
    # As torchrun's c10d rendezvous would number n10 before n2: the plan has one order, the world another.
    write_plan(tmp_path, names, [replace(CASE, groups=((0, 1),))])
    with MpirunWorlds(bed) as worlds:
        failure = worlds.run(request_of(tmp_path, names[::-1], module), lambda: None)
    assert failure is not None and failure.code
    assert f"rank 0 runs on {names[1]}, expected {names[0]}" in failure.log.read_text()
    assert not (tmp_path / "shard.jsonl").exists()


def test_a_stuck_world_and_an_interrupted_one_leave_no_rank_and_no_folder(
    bring_up: Callable[[Fabric], Testbed], mpirun: str, tmp_path: Path
) -> None:
    bed = bring_up(make_fabric("mpi-stuck", minipods=1, hosts_per_leaf=2))
    names = tuple(bed.hosts)
    up = tmp_path / "up"
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    request = request_of(tmp_path, names, "worker")
    request = replace(
        request, module="sleeper", argv=(str(up),), environment={**request.environment, "PYTHONPATH": str(tmp_path)}
    )

    def both_run() -> bool:
        return up.exists() and len(up.read_text()) == len(names)

    def ranks() -> list[int]:
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _runs(path, "sleeper")]

    with MpirunWorlds(bed) as worlds:
        failure = worlds.run(request, both_run)
    assert failure is not None and failure.is_stuck
    wait_for_end(ranks())
    up.unlink()

    def interrupt() -> None:
        if both_run():
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt), MpirunWorlds(bed) as worlds:
        words = shlex.split(worlds.describe(request).splitlines()[0])
        scratch = Path(words[words.index("prte_tmpdir_base") + 1]) if "prte_tmpdir_base" in words else None
        worlds.run(request, interrupt)
        pytest.fail("the world ended by itself")
    assert scratch is None or not scratch.exists()
    wait_for_end(ranks())


def _runs(cmdline: Path, module: str) -> bool:
    """Return whether a process is Python running a module."""
    with contextlib.suppress(OSError):
        return f"-m\0{module}\0".encode() in cmdline.read_bytes()
    return False


SLEEPER = """import sys, time
from spanfit.bench.environ import die_with_parent

die_with_parent()
open(sys.argv[1], "a").write(".")
time.sleep(100)
"""


FAKE_SRUN = f"""#!{sys.executable}
import json, os, subprocess, sys
options = [word for word in sys.argv[1:] if word.startswith("--") and word < "--z"]
command = sys.argv[1 + len(options):]
hosts = open(os.environ["SLURM_HOSTFILE"]).read().split()
json.dump({{"options": options, "hosts": hosts}}, open(os.environ["RECORD"], "w"))
ranks = []
for rank, host in enumerate(hosts):
    who = {{"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": len(hosts), "SLURM_LOCALID": hosts[:rank].count(host)}}
    environment = os.environ | {{name: str(value) for name, value in who.items()}}
    ranks.append(subprocess.Popen(command, env=environment))
sys.exit(max(rank.wait() for rank in ranks))
"""


def test_the_worker_runs_under_srun_by_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").write_text(FAKE_SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path / "record.json"))
    # The variables of a batch script, which name another world.
    monkeypatch.setenv("SLURM_NTASKS", "7")
    names = (socket.gethostname(),)
    write_plan(tmp_path, names, [replace(CASE, groups=((0,),))], ranks_per_node=3)
    request = request_of(tmp_path, names, "worker", ranks_per_node=3)
    with SrunWorlds({"SLURM_JOB_ID": "1"}) as worlds:
        described = worlds.describe(request)
        failure = worlds.run(request, lambda: None)
    assert failure is None, failure.log.read_text() if failure else ""
    (line,) = read_shard(tmp_path / "shard.jsonl").cases
    assert (line["status"], line["ranks"]) == ("ok", [[0, 1, 2]])
    record = json.loads((tmp_path / "record.json").read_text())
    assert record == {
        "options": ["--ntasks=3", "--distribution=arbitrary", "--kill-on-bad-exit=1", "--cpu-bind=none"],
        "hosts": [names[0]] * 3,
    }
    assert described.startswith(f"env SLURM_HOSTFILE={tmp_path}/hosts.txt srun {' '.join(record['options'])} env ")


def test_a_rank_that_fails_under_srun_is_a_failure_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\necho 'srun: error: n2: task 1: Exited with exit code 3' >&2\nexit 3\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with SrunWorlds({"SLURM_JOB_ID": "1"}) as worlds:
        failure = worlds.run(request_of(tmp_path, ("n1", "n2"), "worker"), lambda: None)
    assert failure is not None
    assert (failure.who, failure.how()) == ("srun", "ended with exit code 3")
    assert "task 1" in failure.log.read_text()
    assert (tmp_path / "hosts.txt").read_text() == "n1\nn2\n"


def test_srun_outside_an_allocation_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"no Slurm allocation .* run the same command inside salloc or sbatch"):
        SrunWorlds({})

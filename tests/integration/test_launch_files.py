"""Launch files run by the programs that they are for: torchrun, a real Slurm, and mpirun over a real ssh."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanfit.launch.fabric import Fabric
from spanfit.launch.profile import KubernetesSettings, LaunchProfile, NodeSettings, SlurmSettings
from spanfit.launch.render.kubernetes import Workload
from spanfit.launch.render.mpi import Mpi, parse_version, render_hostfile, render_hydra, render_rankfile, render_seqfile
from spanfit.launch.render.pinner import render_pinner
from spanfit.launch.render.slurm import render_slurm
from spanfit.launch.render.torchrun import render_torchrun
from spanfit.launch.testbed import Testbed
from spanfit.topology.model import RankMap
from tests.conftest import make_fabric
from tests.fakes.pods_api import Pods, serving
from tests.integration.daemons import slurm, sshd
from tests.integration.test_real_launchers import need

PROGRAMS = Path(sys.executable).parent
TRAIN = """import os, socket, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
name = os.environ.get("SPANFIT_NODE_NAME") or socket.gethostname()
print(f"trained {dist.get_rank()} {name} {int(total.item())} {sys.argv[1:]}", flush=True)
dist.destroy_process_group()
"""
CHECKED = 'from spanfit.launch.order import check_order\ncheck_order("placement.json")\n' + TRAIN


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ordered(folder: Path) -> tuple[str, ...]:
    """Return a command of torchrun's that checks the order first; hosts have another working folder."""
    return ("-m", "spanfit.launch.order", str(folder / "placement.json"), str(folder / "train.py"), "--lr", "1")


def write_job(folder: Path, rank_map: RankMap) -> None:
    placed = {"node_names": rank_map.node_names, "ngpus_per_node": rank_map.ngpus_per_node}
    (folder / "placement.json").write_text(json.dumps({"rank_map": placed}))
    (folder / "train.py").write_text(TRAIN)
    (folder / "checked.py").write_text(CHECKED)


def run_all(
    folder: Path, commands: list[list[str]], environments: list[dict[str, str]]
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands side by side and return how each ended."""
    started = [
        subprocess.Popen(
            argv,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for argv, environment in zip(commands, environments, strict=True)
    ]
    ended = [process.communicate(timeout=200) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, out, err)
        for process, (out, err) in zip(started, ended, strict=True)
    ]


def trained(texts: Iterator[str]) -> list[tuple[int, str]]:
    """Return rank and host of each line that a trained rank printed, by rank."""
    found = [re.findall(r"^trained (\d+) (\S+) (\d+) ", text, re.MULTILINE) for text in texts]
    lines = [line for part in found for line in part]
    assert {int(total) for _, _, total in lines} <= {len(lines)}
    return sorted((int(rank), host) for rank, host, _ in lines)


HOSTS = ("n2", "n10")


def start_world(folder: Path, hosts: tuple[str, ...], port: int) -> list[subprocess.CompletedProcess[str]]:
    """Run torchrun for each host of a world of loopback, the host of node rank i being called ``hosts[i]``."""
    options = [f"--nnodes={len(hosts)}", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    commands = [
        [str(PROGRAMS / "torchrun"), *options, f"--node-rank={node_rank}", *ordered(folder)]
        for node_rank in range(len(hosts))
    ]
    return run_all(folder, commands, [{"SPANFIT_NODE_NAME": host} for host in hosts])


def test_a_world_in_the_placed_order_trains_and_another_is_refused_by_name(tmp_path: Path) -> None:
    write_job(tmp_path, RankMap(node_names=HOSTS, ngpus_per_node=2))
    right = start_world(tmp_path, HOSTS, free_port())
    assert [done.returncode for done in right] == [0, 0], right[0].stderr
    assert trained(done.stdout for done in right) == [(0, "n2"), (1, "n2"), (2, "n10"), (3, "n10")]
    assert "['--lr', '1']" in right[0].stdout
    swapped = start_world(tmp_path, HOSTS[::-1], free_port())
    assert all(done.returncode for done in swapped)
    assert trained(done.stdout for done in swapped) == []
    assert (
        "spanfit: ranks are not where the placement put them: ranks 0-1 on n10, expected on n2; ranks 2-3 on n2, "
        "expected on n10; start them in the placed order"
    ) in swapped[0].stderr
    assert "spanfit:" not in swapped[1].stderr


def test_a_script_checks_its_order_where_rank_0_keeps_the_store(tmp_path: Path) -> None:
    write_job(tmp_path, RankMap(node_names=HOSTS, ngpus_per_node=1))
    for hosts, code in ((HOSTS, 0), (HOSTS[::-1], 1)):
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        environments = [common | {"RANK": str(rank), "SPANFIT_NODE_NAME": host} for rank, host in enumerate(hosts)]
        done = run_all(tmp_path, [[sys.executable, "checked.py"]] * 2, environments)
        assert [one.returncode for one in done] == [code] * 2, done[0].stderr
        assert trained(one.stdout for one in done) == ([] if code else list(enumerate(hosts)))
        for one in done:
            assert (
                not code or "WrongOrderError: ranks are not where the placement put them: rank 0 on n10" in one.stderr
            )


def test_ranks_that_never_come_are_named(tmp_path: Path) -> None:
    write_job(tmp_path, RankMap(node_names=HOSTS, ngpus_per_node=1))
    code = "from spanfit.launch.order import check_order; check_order('placement.json', meeting_s=1)"
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "RANK": "0"}
    (done,) = run_all(tmp_path, [[sys.executable, "-c", code]], [world | {"SPANFIT_NODE_NAME": "n2"}])
    assert "rank 1 did not come, expected on n10" in done.stderr


def site(**slurm_keys: tuple[str, ...] | str) -> LaunchProfile:
    environment = {
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "NOTE": "it's $HOME",
    }
    node = NodeSettings(commands=('test "$NOTE" = "it\'s \\$HOME"',), environment=environment, port=29600)
    return LaunchProfile(slurm=SlurmSettings(**slurm_keys), node=node)  # type: ignore[arg-type]


def placed_hosts(bed: Testbed) -> RankMap:
    """Return the hosts of a testbed in an order that no sorting gives."""
    first, second, third, fourth = bed.hosts
    return RankMap(node_names=(third, first, fourth, second), ngpus_per_node=1)


def test_the_torchrun_script_numbers_the_hosts_of_a_testbed_as_placed(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    bed = bring_up(make_fabric("torchrun-file", hosts_per_leaf=2, host=1e9, uplink=1e9))
    rank_map = placed_hosts(bed)
    write_job(tmp_path, rank_map)
    (tmp_path / "start.sh").write_text(render_torchrun(rank_map, ordered(tmp_path), site()))
    commands = [bed.host_argv(host, ["sh", str(tmp_path / "start.sh")]) for host in bed.hosts]
    path = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    done = run_all(tmp_path, commands, [path] * len(commands))
    assert [one.returncode for one in done] == [0] * 4, done[0].stderr
    assert trained(one.stdout for one in done) == list(enumerate(rank_map.node_names))


def test_a_real_slurm_starts_the_ranks_of_an_sbatch_script_as_placed(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    need("slurmctld", "slurmd", "srun", "sbatch", "munged")
    bed = bring_up(make_fabric("sbatch-file", hosts_per_leaf=2, host=1e9, uplink=1e9))
    rank_map = placed_hosts(bed)
    write_job(tmp_path, rank_map)
    profile = site(
        options=("--partition=all", f"--output={tmp_path}/job.out", "--time=5"),
        gres="gpu",
        shell="/bin/bash",
        mpi="none",
        commands=(f"export PATH={PROGRAMS}:$PATH", "echo gpus $SLURM_GPUS_ON_NODE on $SLURM_JOB_NODELIST"),
    )
    with slurm(bed, tmp_path / "slurm", ngpus=1) as environment:
        (tmp_path / "job.sh").write_text(render_slurm(rank_map, ordered(tmp_path), "placed", profile))
        done = subprocess.run(
            bed.host_argv(next(iter(bed.hosts)), ["sbatch", "--wait", str(tmp_path / "job.sh")]),
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        said = (tmp_path / "job.out").read_text()
        assert done.returncode == 0, done.stderr + said
    assert trained(iter([said])) == list(enumerate(rank_map.node_names))
    assert re.search(r"^gpus 1 on ", said, re.MULTILINE)


def mpiruns() -> dict[Mpi, str]:
    """Return every mpirun beside this Python and on PATH, of each kind the first."""
    found: dict[Mpi, str] = {}
    for folder in (str(PROGRAMS), *os.environ["PATH"].split(":")):
        if mpirun := shutil.which("mpirun", path=folder):
            answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False, timeout=30)
            try:
                found.setdefault(parse_version(answer.stdout.strip()), mpirun)
            except ValueError:
                continue
    return found


WHO = 'echo "rank ${OMPI_COMM_WORLD_RANK-$PMI_RANK} $(uname -n)"'
RENDERERS = {"seqfile": render_seqfile, "rankfile": render_rankfile, "hydra": render_hydra}


@pytest.mark.parametrize("mpi", list(Mpi))
def test_mpirun_honours_the_order_of_its_file_by_the_command_line_that_the_file_names(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path, mpi: Mpi
) -> None:
    need("sshd", "ssh", "ssh-keygen")
    if mpi not in (found := mpiruns()):
        pytest.skip(f"no {mpi} on PATH or beside Python")
    bed = bring_up(make_fabric("mpi-file", hosts_per_leaf=2, host=1e9, uplink=1e9))
    first, second, third, fourth = bed.hosts
    rank_map = RankMap(node_names=(third, first, fourth, second), ngpus_per_node=2)
    (tmp_path / "ssh").mkdir()
    with sshd(bed, tmp_path / "ssh") as programs:
        for name, render in RENDERERS.items():
            text = render(rank_map)
            if (line := re.search(rf"^# {mpi}: (mpirun .*) COMMAND$", text, re.MULTILINE)) is None:
                continue
            (tmp_path / "FILE").write_text(text)
            (tmp_path / "HOSTFILE").write_text(render_hostfile(rank_map))
            words = re.sub(r"\b(HOST)?FILE\b", lambda found: str(tmp_path / found[0]), line[1]).split()
            # mpirun is not on PATH in the hosts, and must be told that root is meant.
            words[:1] = [found[mpi], *([] if mpi is Mpi.MPICH else ["--allow-run-as-root"])]
            done = subprocess.run(
                bed.host_argv(first, [*words, "sh", "-c", WHO]),
                cwd=tmp_path,
                env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )
            ranks = sorted(
                (int(rank), host) for rank, host in re.findall(r"^rank (\d+) (\S+)$", done.stdout, re.MULTILINE)
            )
            expected = [host for host in rank_map.node_names for _ in range(2)]
            assert ranks == list(enumerate(expected)), f"{name}: {done.stdout}{done.stderr}"


def gated_pod(name: str, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "labels": labels, "annotations": annotations}
    spec = {"containers": [{"name": "main"}], "schedulingGates": [{"name": "spanfit/placed"}]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def pods_of(workload: Workload) -> Pods:
    """Return a job with the pods of node ranks 0 and 2; the pod of 1 is bound already."""
    if workload is Workload.INDEXED_JOB:
        index = "batch.kubernetes.io/job-completion-index"
        made = [
            gated_pod("early", {}, {index: "0"}),
            gated_pod("bound", {}, {index: "1"}),
            gated_pod("late", {}, {index: "2"}),
        ]
        kind, ended = {"apiVersion": "batch/v1", "kind": "Job"}, "Complete"
    else:
        key = "training.kubeflow.org/replica-"
        roles = {"early": ("master", "0"), "bound": ("worker", "0"), "late": ("worker", "1")}
        made = [
            gated_pod(name, {f"{key}type": role, f"{key}index": which}, {}) for name, (role, which) in roles.items()
        ]
        kind, ended = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, "Succeeded"
    del made[1]["spec"]["schedulingGates"]
    pods = {pod["metadata"]["name"]: pod for pod in made}
    return Pods(pods=pods, job=kind | {"metadata": {"name": "j", "namespace": "ml"}}, ended=ended)


@pytest.mark.parametrize("workload", [Workload.INDEXED_JOB, Workload.PYTORCHJOB])
def test_the_pinner_gives_pods_their_nodes_by_the_real_kubectl(tmp_path: Path, workload: Workload) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing; install it to run the pinner against a fake API server")
    rank_map = RankMap(node_names=("n12", "n3", "n11"), ngpus_per_node=8)
    profile = LaunchProfile(kubernetes=KubernetesSettings(namespace="ml"))
    pods = pods_of(workload)
    with serving(pods):
        clusters = [{"name": "c", "cluster": {"server": pods.url}}]
        config = {
            "current-context": "c",
            "clusters": clusters,
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        done = subprocess.run(
            ["sh", "-c", render_pinner(workload, rank_map, "j", profile)],
            env=os.environ | {"KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    assert {kind for kind, _ in pods.patches} == {"application/strategic-merge-patch+json"}
    pinned = {
        name: re.findall(r'"values": \["(.*?)"\]', json.dumps(pod["spec"]["affinity"]))
        for name, pod in pods.pods.items()
        if "affinity" in pod["spec"]
    }
    assert pinned == {"early": ["n12"], "late": ["n11"]}
    assert set(pods.selectors) == {
        "batch.kubernetes.io/job-name=j" if workload is Workload.INDEXED_JOB else "training.kubeflow.org/job-name=j"
    }

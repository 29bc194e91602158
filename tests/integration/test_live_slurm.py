"""A real Slurm of eight hosts: read, placed on, its nodes reserved, and ranks started in exactly the placed order."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.launch import fabric as fabrics
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric
from spanfit.launch.testbed import Testbed
from spanfit.topology.hostlist import expand_hostlist, fold_hostlist
from spanfit.topology.model import NodeState
from spanfit.topology.probe_slurm import NODES
from spanfit.topology.readers.cluster_file import read_cluster
from spanfit.topology.readers.slurm_nodes import parse_show_nodes, parse_sinfo
from tests.conftest import make_fabric
from tests.integration.daemons import find, slurm
from tests.integration.test_real_launchers import need

JOB = """name = "{name}"
dp = {dp}
pp = 2
ngpus_per_node = 1
gpu_model = "h200"
command = ["{script}"]
"""
RANK = """import os, socket, torch.distributed as dist
dist.init_process_group("gloo")
hosts = [None] * dist.get_world_size()
dist.all_gather_object(hosts, socket.gethostname())
if dist.get_rank() == 0:
    print("order", *hosts, flush=True)
dist.destroy_process_group()
"""
_WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A Slurm that runs, and how to run programs as somebody who is logged in to its first host."""

    fabric: Fabric
    bed: Testbed
    environment: dict[str, str]

    def run(self, *argv: object, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program; it must end with the code."""
        words = self.bed.host_argv(next(iter(self.bed.hosts)), [str(word) for word in argv])
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=200, env=os.environ | self.environment, cwd=cwd
        )
        assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def spanfit(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run spanfit as a user does."""
        return self.run(sys.executable, "-m", "spanfit", *arguments, code=code)

    def set_node(self, name: str, state: str, reason: str = "test") -> None:
        """Drain or resume a node, and wait until Slurm has heard of it again."""
        more = [f"Reason={reason}"] if state == "drain" else []
        self.run("scontrol", "update", f"NodeName={name}", f"State={state}", *more)
        self.wait_until(lambda: "*" not in self.run("sinfo", "--noheader", "--format=%T").stdout)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for something that Slurm does."""
        deadline = time.monotonic() + _WAIT_S
        while not is_done():
            assert time.monotonic() < deadline, "Slurm took too long"
            time.sleep(0.2)

    def job_state(self, job: str) -> str:
        """Return the state of a job, as Slurm writes it."""
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout.strip()


@pytest.fixture(scope="module")
def lab(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give a Slurm that knows two leaves of four hosts with a GPU each, and lasts as long as the tests of this file."""
    need("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged")
    fabric = make_fabric("live", hosts_per_leaf=4, host=1e9, uplink=1e9)
    bed = beds.up(fabric, attached=True)
    try:
        leaves = [f"SwitchName=l{index} Nodes=m{index}l0h[0-3]" for index in range(2)]
        topology = "\n".join([*leaves, "SwitchName=core Switches=l[0-1]", ""])
        with slurm(bed, tmp_path_factory.mktemp("slurm"), topology=topology, ngpus=1) as environment:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            gloo = {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PATH": path}
            yield Lab(fabric=fabric, bed=bed, environment=environment | gloo)
    finally:
        bed.down()


def write_job(folder: Path, name: str, dp: int) -> Path:
    (folder / "rank.py").write_text(RANK)
    (folder / f"{name}.toml").write_text(JOB.format(name=name, dp=dp, script=folder / "rank.py"))
    return folder / f"{name}.toml"


def placed_names(path: Path) -> list[str]:
    document: dict[str, Any] = json.loads(path.read_text())
    return list(document["rank_map"]["node_names"])


def test_the_cluster_is_read_as_it_is(lab: Lab, tmp_path: Path) -> None:
    lab.set_node("m1l0h2", "drain", "bad $(nic) \"x\"; 'y'")
    try:
        done = lab.spanfit("topology", "import", "slurm:live", "--out", tmp_path / "c.toml", "--json")
        told = [parse_show_nodes(lab.run(*NODES[1].argv).stdout, "f"), parse_sinfo(lab.run(*NODES[2].argv).stdout, "f")]
    finally:
        lab.set_node("m1l0h2", "resume")
    cluster = read_cluster(tmp_path / "c.toml")
    assert (cluster.name, cluster.tiers) == ("slurm", ("minipod", "core"))
    groups = [{node.name for node in nodes} for nodes in cluster.minipods().values()]
    assert groups == [{node.name for node in nodes} for nodes in fabrics.cluster(lab.fabric).minipods().values()]
    assert {(node.ngpus, node.gpu_model) for node in cluster.nodes} == {(1, "h200")}
    assert [node.name for node in cluster.nodes if node.state is not NodeState.IDLE] == ["m1l0h2"]
    ways = [[(node.name, node.state, node.gpus, node.partitions) for node in reading.nodes] for reading in told]
    assert ways[0] == ways[1], "sinfo, which is asked last, says the same"
    kinds = [one["kind"] for one in json.loads(done.stdout)["sources"]]
    assert kinds == ["scontrol-show-topology", "scontrol-show-nodes", "scontrol-show-reservation"]


def cluster_text(lab: Lab) -> list[str]:
    """Return what Slurm says of states and reservations."""
    nodes = lab.run("sinfo", "--Node", "--noheader", "--format=%N %T %E").stdout
    return [nodes, lab.run("scontrol", "--oneliner", "show", "reservation").stdout]


def test_a_dry_run_says_what_would_happen_and_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    job = write_job(tmp_path, "dry", dp=2)
    lab.set_node("m0l0h1", "drain", "bad $(nic) \"x\"; 'y'")
    try:
        before = cluster_text(lab)
        place = ("place", job, "--alpha", 1, "--live", "slurm", "--reserve", "90m", "-o", tmp_path / "p.json")
        done = lab.spanfit(*place)
        assert cluster_text(lab) == before
    finally:
        lab.set_node("m0l0h1", "resume")
    assert "7 of 8 nodes are free for the job; not free:\n  m0l0h1: drained: bad $(nic) \"x\"; 'y'\n" in done.stdout
    names = placed_names(tmp_path / "p.json")
    assert len(names) == 4 and "m0l0h1" not in names
    wanted = f"Users=root 'Nodes={fold_hostlist(sorted(names))}' Flags=STATIC_ALLOC"
    assert f"  scontrol create reservation ReservationName=dry StartTime=now Duration=90 {wanted}\n" in done.stdout


def test_a_reservation_is_made_and_honoured_and_a_drained_node_noticed(lab: Lab, tmp_path: Path) -> None:
    job = write_job(tmp_path, "held", dp=2)
    saved = tmp_path / "p.json"
    place = ("place", job, "--alpha", 1, "--live", "slurm", "--reserve", "1h", "--apply", "-o", saved)
    lab.spanfit(*place)
    names = placed_names(saved)
    try:
        assert (
            "is there already; end it with scontrol delete ReservationName=held" in lab.spanfit(*place, code=4).stderr
        )
        nodes = f"--nodelist={','.join(names)}"
        sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=4", nodes)
        other = lab.run(*sbatch, "--wrap", "true").stdout.strip()
        lab.run(*sbatch, "--reservation=held", "--wait", "--wrap", "true")
        assert lab.job_state(other) == "PENDING", "a job without the reservation waits for its nodes"
        lab.run("scancel", other)

        check = ("place", "--check", saved, "--live", "slurm")
        assert "all 4 nodes of job held are free" in lab.spanfit(*check).stdout
        free = lab.spanfit("place", write_job(tmp_path, "else", dp=4), "--alpha", 1, "--live", "slurm", code=3)
        assert "4 reserved" in free.stderr

        lab.set_node(names[1], "drain", "rail down")
        done = lab.spanfit(*check, code=1)
        assert names[1] in done.stdout and "drained: rail down" in done.stdout
        assert f"--failed {names[1]} --live slurm" in done.stderr
        repaired = tmp_path / "repaired.json"
        lab.spanfit("place", "--repair", saved, "--failed", names[1], "--live", "slurm", "-o", repaired)
        assert names[1] not in placed_names(repaired)
        lab.spanfit("place", "--check", repaired, "--live", "slurm")
        lab.set_node(names[1], "resume")
    finally:
        lab.run("scontrol", "delete", "ReservationName=held")


def test_nodes_of_the_own_allocation_pass_the_check(lab: Lab, tmp_path: Path) -> None:
    saved = tmp_path / "p.json"
    lab.spanfit("place", write_job(tmp_path, "mine", dp=2), "--alpha", 1, "--live", "slurm", "-o", saved)
    nodes = f"--nodelist={','.join(placed_names(saved))}"
    check = (sys.executable, "-m", "spanfit", "place", "--check", saved, "--live", "slurm")
    done = lab.run("salloc", "--quiet", "--nodes=4", nodes, "--exclusive", *check)
    assert "all 4 nodes of job mine are free" in done.stdout
    job = lab.run("sbatch", "--parsable", "--output=/dev/null", "--nodes=4", nodes, "--wrap", "sleep 60").stdout.strip()
    try:
        lab.wait_until(lambda: lab.job_state(job) == "RUNNING")
        assert "allocated" in lab.run(*check, code=1).stdout
    finally:
        lab.run("scancel", job)


def test_ranks_start_in_exactly_the_placed_order(lab: Lab, tmp_path: Path) -> None:
    job, saved = write_job(tmp_path, "world", dp=4), tmp_path / "p.json"
    lab.wait_until(lambda: not lab.run("squeue", "--noheader").stdout.strip())
    place = ("place", job, "--alpha", 0, "--live", "slurm", "--emit", "slurm", "-o", saved)
    (tmp_path / "world.sh").write_text(lab.spanfit(*place).stdout)
    names = placed_names(saved)
    assert len(names) == 8
    assert names != sorted(names), "an order that Slurm would give by itself shows nothing"
    output = tmp_path / "world.out"
    lab.run("sbatch", "--wait", f"--output={output}", tmp_path / "world.sh", cwd=tmp_path)
    order = [line.split()[1:] for line in output.read_text().splitlines() if line.startswith("order ")]
    assert order == [names], output.read_text()


prefixes = st.sampled_from(["n", "rack1-n", "gpu", "a-b", "x1y"])
words = st.one_of(
    st.builds(lambda prefix, low, width: f"{prefix}{low:0{width}}", prefixes, st.integers(0, 12), st.integers(1, 4)),
    st.builds(
        lambda prefix, low, more, width: f"{prefix}[{low:0{width}}-{low + more:0{width}}]",
        prefixes,
        st.integers(0, 105),
        st.integers(0, 12),
        st.integers(1, 4),
    ),
    st.builds(
        lambda prefix, numbers: f"{prefix}[{','.join(map(str, numbers))}]",
        prefixes,
        st.lists(st.integers(0, 9), min_size=1, max_size=5),
    ),
    st.sampled_from(["login", "n[1-2][3-4]", "n[3,1-2,1]"]),
)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the start of a command line of Slurm's own expander, which needs a slurm.conf but no daemon."""
    if find("scontrol") is None:
        pytest.skip("scontrol is missing; install Debian's slurm-client")
    path = tmp_path_factory.mktemp("conf") / "slurm.conf"
    path.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=n\nPartitionName=p Nodes=n\n")
    return ["env", f"SLURM_CONF={path}", "scontrol", "show", "hostnames"]


@settings(max_examples=60)
@given(st.lists(words, min_size=1, max_size=6), st.sampled_from([",", " ", ", "]))
def test_hostlists_are_read_and_written_as_slurm_does(scontrol: list[str], listed: list[str], separator: str) -> None:
    text = separator.join(listed)
    names = expand_hostlist(text)
    for spelling in (text, fold_hostlist(names)):
        said = subprocess.run([*scontrol, spelling], capture_output=True, text=True, check=True, timeout=30).stdout
        assert tuple(said.split()) == names, spelling

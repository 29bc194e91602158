"""Campaigns as a user runs them under a real Slurm, and over a real ssh, in the hosts of a testbed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spanfit.errors import LaunchError
from spanfit.launch import fabric as fabrics
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import find_mpirun
from spanfit.launch.testbed import Testbed
from spanfit.results.store import Store
from spanfit.topology.readers.cluster_toml import render_cluster
from tests.conftest import make_fabric
from tests.integration.daemons import find, slurm, sshd

CAMPAIGN = """name = "real"
cluster = "cluster.toml"
backend = "{backend}"
launches = 1
[launch]
launcher = "{launcher}"
timeout = "60s"
environment = {{ {environment} }}
[collectives]
operations = ["all_reduce"]
sizes = ["64K"]
nodes_per_group = 2
spans = [1, 2]
rank_orders = ["sorted", "alternating"]
concurrency = ["all"]
repetitions = 3
"""
GLOO = 'GLOO_SOCKET_IFNAME = "eth0", TP_SOCKET_IFNAME = "eth0"'
OPEN_MPI = 'OMPI_MCA_btl = "self,sm,tcp", OMPI_MCA_btl_tcp_if_include = "eth0", OMPI_MCA_pml = "ob1"'


def need(*programs: str) -> None:
    if missing := [program for program in programs if find(program) is None]:
        pytest.skip(
            f"{', '.join(missing)} missing; install Debian's slurmctld, slurmd, slurm-client, munge, openssh-server"
        )
    if os.geteuid():
        pytest.skip("these daemons run as root only")


def need_mpirun() -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is missing; install the extra 'mpi'")
    try:
        find_mpirun()
    except LaunchError as error:
        pytest.skip(str(error))


def write_files(folder: Path, fabric: Fabric, launcher: str, backend: str, environment: str) -> None:
    (folder / "cluster.toml").write_text(render_cluster(fabrics.cluster(fabric)))
    text = CAMPAIGN.format(launcher=launcher, backend=backend, environment=environment)
    (folder / "campaign.toml").write_text(text)


def run_campaign(bed: Testbed, folder: Path, before: list[str], environment: dict[str, str]) -> None:
    """Run the campaign in the first host, as a user who is logged in there."""
    argv = [*before, sys.executable, "-m", "spanfit", "campaign", "run", str(folder / "campaign.toml")]
    argv = bed.host_argv(next(iter(bed.hosts)), [*argv, "--store", str(folder / "runs")])
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=200, env=os.environ | environment, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_run(folder: Path, fabric: Fabric, backend: str) -> None:
    store = Store(folder / "runs")
    info, frame = store.read(store.resolve("latest"))
    assert (frame["status"] == "ok").all(), json.dumps(sorted(set(frame["reason"])))
    assert set(frame["span"]) == {1, 2}
    assert (info.backend, info.node_names) == (backend, tuple(host.name for host in fabrics.hosts(fabric)))


def test_a_campaign_in_an_allocation_of_a_real_slurm(bring_up: Callable[[Fabric], Testbed], tmp_path: Path) -> None:
    need("slurmctld", "slurmd", "srun", "salloc", "munged")
    fabric = make_fabric("slurm", hosts_per_leaf=2, host=1e9, uplink=1e9)
    bed = bring_up(fabric)
    write_files(tmp_path, fabric, "srun", "gloo", GLOO)
    with slurm(bed, tmp_path / "slurm") as environment:
        run_campaign(bed, tmp_path, ["salloc", "--quiet", f"--nodes={len(bed.hosts)}"], environment)
    check_run(tmp_path, fabric, "gloo")


@pytest.mark.parametrize(("launcher", "backend"), [("ssh", "gloo"), ("mpirun", "gloo"), ("mpirun", "mpi")])
def test_a_campaign_over_a_real_ssh(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path, launcher: str, backend: str
) -> None:
    need("sshd", "ssh", "ssh-keygen")
    if launcher == "mpirun":
        need_mpirun()
    fabric = make_fabric("ssh", hosts_per_leaf=2, host=1e9, uplink=1e9)
    bed = bring_up(fabric)
    write_files(tmp_path, fabric, launcher, backend, f"{GLOO}, {OPEN_MPI}" if launcher == "mpirun" else GLOO)
    (tmp_path / "ssh").mkdir()
    with sshd(bed, tmp_path / "ssh") as programs:
        run_campaign(bed, tmp_path, [], {"PATH": f"{programs}:{os.environ['PATH']}"})
    check_run(tmp_path, fabric, backend)

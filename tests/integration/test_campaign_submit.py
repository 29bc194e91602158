"""A campaign as a job of a real Slurm: it waits for busy nodes, is cancelled, and goes on where it stopped."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanfit.errors import ExitCode
from spanfit.launch.fabric import Fabric
from spanfit.launch.testbed import Testbed
from spanfit.results.shards import read_shard
from spanfit.results.store import Store
from tests.conftest import make_fabric
from tests.integration.daemons import slurm
from tests.integration.test_real_launchers import GLOO, check_run, need, write_files

LAUNCHES = 3


class User:
    """Somebody who is logged in on the first host, whose shell ends with each command."""

    def __init__(self, bed: Testbed, folder: Path, environment: dict[str, str]) -> None:
        self.bed, self.folder, self.environment = bed, folder, os.environ | environment

    def run(self, *argv: str, code: int = 0) -> str:
        done = subprocess.run(
            self.bed.host_argv(next(iter(self.bed.hosts)), argv),
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
            env=self.environment,
            cwd=self.folder,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self, *options: str, code: int = 0) -> str:
        files = [str(self.folder / "campaign.toml"), "--store", str(self.folder / "runs")]
        return self.run(sys.executable, "-m", "spanfit", "campaign", "submit", *files, *options, code=code)


def wait_for(is_true: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_a_campaign_waits_for_busy_nodes_and_goes_on_after_scancel(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    need("slurmctld", "slurmd", "srun", "sbatch", "scancel", "munged")
    fabric = make_fabric("sbatch", hosts_per_leaf=2, host=1e9, uplink=1e9)
    bed = bring_up(fabric)
    write_files(tmp_path, fabric, "srun", "gloo", GLOO)
    campaign = (tmp_path / "campaign.toml").read_text()
    (tmp_path / "campaign.toml").write_text(campaign.replace("launches = 1", f"launches = {LAUNCHES}"))
    with slurm(bed, tmp_path / "slurm") as environment:
        user = User(bed, tmp_path, environment)
        assert "#SBATCH --time=90\n" in user.submit("--time-limit", "1.5h")
        assert user.run("squeue", "--noheader") == ""
        user.run("sbatch", f"--nodes={len(bed.hosts)}", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
        assert "sent job 2" in user.submit("--send")
        assert "job 2 is pending" in user.submit("--send")
        (folder,) = (tmp_path / "runs").iterdir()
        wait_for(lambda: any(read_shard(path).cases for path in folder.glob("launch-*.jsonl")))
        user.run("scancel", "2")
        wait_for(lambda: not user.run("squeue", "--noheader"))
        assert not list((tmp_path / "runs").glob("*.parquet"))
        said = user.submit("--send", "--follow")
        assert "sent job 3" in said
        assert "is finished" in said
    check_run(tmp_path, fabric, "gloo")
    store = Store(tmp_path / "runs")
    _, frame = store.read(store.resolve("latest"))
    rows = frame.groupby("launch").size()
    assert list(rows.index) == list(range(LAUNCHES))
    assert rows.nunique() == 1  # nothing lost, nothing measured twice


def test_a_job_that_ends_early_is_told(bring_up: Callable[[Fabric], Testbed], tmp_path: Path) -> None:
    need("slurmctld", "slurmd", "srun", "sbatch", "munged")
    fabric = make_fabric("early", hosts_per_leaf=2, host=1e9, uplink=1e9)
    bed = bring_up(fabric)
    write_files(tmp_path, fabric, "srun", "gloo", 'GLOO_SOCKET_IFNAME = "none"')
    with slurm(bed, tmp_path / "slurm") as environment:
        user = User(bed, tmp_path, environment)
        said = user.submit("--send", "--follow", code=ExitCode.LAUNCH_FAILED)
    assert "the job ended before run" in said
    (printed,) = (tmp_path / "runs").glob("*/slurm-*.out")
    assert "spanfit:" in printed.read_text()


def test_only_a_campaign_that_srun_starts_can_be_sent(tmp_path: Path) -> None:
    write_files(tmp_path, make_fabric("other", hosts_per_leaf=2, host=1e9, uplink=1e9), "ssh", "gloo", GLOO)
    argv = [sys.executable, "-m", "spanfit", "campaign", "submit", str(tmp_path / "campaign.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == ExitCode.BAD_INPUT
    assert 'launch.launcher: found "ssh", expected "srun"' in done.stderr


KUBECTL = """#!/bin/sh
# A job of Kubernetes in a folder: created, then as the test says.
cd "$(dirname "$0")"
echo "$@" >> calls
case $2 in
    create) cat > manifest; echo pending > state ;;
    delete) rm -f state ;;
    get) case $(cat state 2> /dev/null) in
        '') ;;
        failed) echo '{"metadata": {"name": "j"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}' ;;
        *) echo '{"metadata": {"name": "j"}, "status": {}}' ;;
    esac ;;
esac
"""


def test_a_campaign_becomes_a_job_of_kubernetes_that_makes_room_once_it_has_failed(tmp_path: Path) -> None:
    write_files(tmp_path, make_fabric("pods", hosts_per_leaf=2, host=1e9, uplink=1e9), "ssh", "gloo", GLOO)
    (tmp_path / "site.toml").write_text(
        f'[container]\nimage = "site/spanfit:1"\n[[container.mounts]]\ntarget = "{tmp_path}"\nclaim = "data"\n'
        "[kubernetes]\nhost_network = true\n"
    )
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    argv = [sys.executable, "-m", "spanfit", "campaign", "submit", "campaign.toml"]
    argv += ["--to", "kubernetes", "--profile", "site.toml"]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        return subprocess.run(
            [*argv, *options], capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"PATH": path}
        )

    def said(*options: str) -> str:
        done = run(*options)
        return done.stdout + done.stderr

    def told(*options: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(run("--json", *options).stdout)
        assert document["run_id"].startswith("real-")
        assert not document["is_finished"]
        return document

    printed = said()
    shown = told()
    assert shown["job"] is None
    assert shown["text"] in printed
    assert 'kind: "Job"' in printed
    assert not (tmp_path / "calls").exists()
    assert "sent job spanfit-real-" in said("--send")
    assert (tmp_path / "manifest").read_text() in printed
    assert "job j is pending" in said("--send")
    (tmp_path / "state").write_text("failed")
    sent = told("--send")["job"]
    assert sent["job_id"].startswith("spanfit-real-")
    assert sent["state"] == "sent"
    assert told("--send")["job"]["state"] == "pending"
    verbs = [line.split()[1] for line in (tmp_path / "calls").read_text().splitlines()]
    assert verbs == ["get", "get", "create", "get", "get", "get", "delete", "create", "get"]

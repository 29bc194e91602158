"""The queue over a real Slurm: it holds, reserves, starts, preempts and cancels, and sees what ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanfit.launch.fabric import Fabric
from spanfit.launch.testbed import Testbed
from tests.conftest import make_fabric
from tests.integration.daemons import slurm
from tests.integration.test_real_launchers import need

PATIENCE_S = 60.0


class Site:
    """A queue beside a Slurm, both asked from its first host."""

    def __init__(self, bed: Testbed, folder: Path, environment: dict[str, str]) -> None:
        self._bed, self._first = bed, next(iter(bed.hosts))
        self._environment = os.environ | environment | {"SPANFIT_QUEUE": str(folder / "queue.sqlite")}

    def run(self, *argv: str) -> str:
        """Return what a command prints; it must succeed."""
        command = self._bed.host_argv(self._first, list(argv))
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def queue(self, *arguments: str) -> Any:
        """Return what a command of the queue prints as JSON."""
        return json.loads(self.run(sys.executable, "-m", "spanfit", "queue", *arguments, "--json"))

    def batch(self, *options: str) -> str:
        """Submit a job that sleeps, held, and return its number."""
        wrapped = ["--hold", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"]
        return self.run("sbatch", "--parsable", *wrapped, *options).strip()

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Return the state and the nodes of each job of Slurm."""
        lines = self.run("squeue", "--noheader", "--format=%i|%T|%N").splitlines()
        return {number: (state, nodes) for number, state, nodes in (line.split("|") for line in lines)}

    def tick_until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Let the queue tick until something is so; it may take Slurm some seconds."""
        deadline = time.monotonic() + PATIENCE_S
        deeds: list[Any] = []
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not so after {PATIENCE_S:.0f} s: {self.jobs()} {deeds}"
            tick = self.run(
                "sh", "-c", f'"{sys.executable}" -m spanfit queue tick --actuator slurm --json || test $? = 4'
            )
            deeds += json.loads(tick)["deeds"]
            time.sleep(0.5)


def test_from_hold_to_end_with_an_announced_job(bring_up: Callable[[Fabric], Testbed], tmp_path: Path) -> None:
    need("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "munged")
    fabric = make_fabric("queue", hosts_per_leaf=2)
    bed = bring_up(fabric)
    names = list(bed.hosts)
    (tmp_path / "cluster.toml").write_text(
        f'name = "bed"\ntiers = ["minipod", "core"]\n'
        f'[[nodes]]\nnames = "{names[0]},{names[1]}"\nswitches = ["m0", "core"]\n'
        f'[[nodes]]\nnames = "{names[2]},{names[3]}"\nswitches = ["m1", "core"]\n'
    )
    with slurm(bed, tmp_path / "slurm") as environment:
        site = Site(bed, tmp_path, environment)
        site.run(sys.executable, "-m", "spanfit", "queue", "init", str(tmp_path / "cluster.toml"))
        check(site)


def check(site: Site) -> None:
    """Take jobs through their whole life."""
    filler = site.batch("--nodes=2", "--requeue", "--comment=spanfit preemptable runtime=20m", "--time=60")
    site.tick_until("the filler runs", lambda: site.jobs()[filler][0] == "RUNNING")
    first = site.run(sys.executable, "-m", "spanfit", "queue", "nodes", filler).split()
    assert sorted(first) == sorted(site.run("scontrol", "show", "hostnames", site.jobs()[filler][1]).split())

    check_what_is_left_out(site, filler)
    site.queue("announce", "llm", "--nodes", "3", "--at", "now+5s", "--runtime", "10m")
    assert [entry["kind"] for entry in site.queue("plan")["entries"]] == ["runs", "reserved"]

    llm = site.batch("--nodes=3", "--comment=spanfit", "--job-name=llm", "--time=30")
    site.tick_until("the announced job runs", lambda: site.jobs()[llm][0] == "RUNNING")
    held = site.run("scontrol", "show", "reservation")
    assert "ReservationName=spanfit-llm" in held
    assert "STATIC" in held
    assert site.jobs()[filler][0] == "PENDING", "it had to leave its nodes"
    planned = site.run(sys.executable, "-m", "spanfit", "queue", "nodes", "llm").split()
    assert sorted(planned) == sorted(site.run("scontrol", "show", "hostnames", site.jobs()[llm][1]).split())
    assert site.queue("why", "llm")["tasks"][-1]["outcome"] == "done"

    site.run("scancel", llm)
    site.tick_until("the filler runs again", lambda: site.jobs()[filler][0] == "RUNNING")
    site.tick_until("the reservation is gone", lambda: "spanfit-llm" not in site.run("scontrol", "show", "reservation"))
    assert [row["job_id"] for row in site.queue("list")] == [filler]

    site.queue("cancel", filler)
    site.tick_until("the filler is gone", lambda: filler not in site.jobs())
    assert site.queue("list") == []
    check_the_script(site)
    assert site.queue("check")["faults"] == []


def check_what_is_left_out(site: Site, running: str) -> None:
    """Take jobs that the queue must not take up, and see that it says why."""
    waits = site.batch("--nodes=1", "--comment=spanfit", f"--dependency=afterany:{running}")
    forged = site.batch("--nodes=1", f"--comment=spanfit\n{running}\x1fPENDING")
    remarks = " ".join(site.queue("tick", "--slurm", "--dry-run")["remarks"])
    assert f"job {waits} depends on other jobs" in remarks
    assert "a name or comment with a newline" in remarks
    assert [row["job_id"] for row in site.queue("list")] == [running]
    site.run("scancel", waits, forged)


def check_the_script(site: Site) -> None:
    """Run what is printed for a job that the queue knows by its name only; a namesake of another user's stays held."""
    number = site.batch("--nodes=2", "--comment=spanfit", "--job-name=by-name", "--time=30")
    other = site.batch("--nodes=1", "--job-name=by-name", "--uid=65534", "--gid=65534", "--chdir=/")
    site.queue("submit", "by-name", "--nodes", "2", "--runtime", "10m")
    site.run("sh", "-e", "-c", site.run(sys.executable, "-m", "spanfit", "queue", "tick"))
    site.tick_until("the job of that name runs", lambda: site.jobs()[number][0] == "RUNNING")
    planned = site.run(sys.executable, "-m", "spanfit", "queue", "nodes", "by-name").split()
    assert sorted(planned) == sorted(site.run("scontrol", "show", "hostnames", site.jobs()[number][1]).split())
    assert site.jobs()[other][0] == "PENDING"
    site.run("scancel", number, other)
    site.queue("finished", "by-name")

"""The queue's ticks end to end: over a Slurm of shell scripts, by a trained model, and on and on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spanfit.errors import ExitCode, LaunchError, StoreError
from spanfit.queue.acting.slurm_programs import is_operator
from spanfit.queue.jct.model import write_model
from spanfit.queue.state.database import acting_lock
from tests.fakes.queue_slurm import FakeSlurm
from tests.integration.queue_typed import ME, NODES, Queue, forecast, journal
from tests.unit.queue.test_jct_model import MODEL


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path)
    found("init", str(tmp_path / "cluster.toml"))
    return found


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "slurm")
    fake.show_nodes(**dict.fromkeys(NODES, "IDLE"))
    monkeypatch.setenv("PATH", fake.path)
    return fake


def held(number: str, nnodes: int, name: str = "sh", comment: str = "spanfit", user: str = ME) -> tuple[str, ...]:
    return number, "PENDING", str(nnodes), user, "0", "", comment, name


def test_a_job_of_slurm_from_hold_to_end(queue: Queue, slurm: FakeSlurm) -> None:
    slurm.show_jobs(held("12", 4), held("13", 4, comment="mine"))
    queue("tick", "--actuator", "slurm")
    names = queue("nodes", "12").stdout.split()
    update, release = slurm.told()
    assert update.startswith("scontrol update JobId=12 ReqNodeList=")
    assert release == "scontrol release 12"
    slurm.show_jobs(("12", "RUNNING", "4", ME, "4294901759", ",".join(names), "spanfit", "sh"), held("13", 4))
    slurm.show_nodes(**dict.fromkeys(NODES, "IDLE") | dict.fromkeys(names, "ALLOCATED"))
    queue("tick", "--actuator", "slurm")
    assert [line for line in slurm.told() if "12" in line.split()] == []
    slurm.show_jobs()
    slurm.show_nodes(**dict.fromkeys(NODES, "IDLE"))
    queue("tick", "--actuator", "slurm")
    assert queue.json("list") == []
    assert queue.json("check")["faults"] == []


def test_what_slurm_refuses_is_tried_again(queue: Queue, slurm: FakeSlurm) -> None:
    slurm.show_jobs(held("12", 4))
    slurm.refuse("Requested nodes are busy [/held]")
    failed = queue("tick", "--actuator", "slurm", code=ExitCode.LAUNCH_FAILED)
    assert "failed, will be tried again: start 12" in failed.stderr
    assert "Requested nodes are busy" in failed.stderr
    assert "busy [/held]" in " ".join(queue("why", "12").stdout.split())
    slurm.refuse("")
    slurm.told()
    queue("tick", "--actuator", "slurm")
    assert slurm.told()[1] == "scontrol release 12"
    (task,) = queue.json("why", "12")["tasks"]
    assert (task["outcome"], task["attempts"]) == ("done", 2)


def test_a_dry_run_over_slurm_tells_it_nothing(queue: Queue, slurm: FakeSlurm) -> None:
    slurm.show_jobs(held("12", 4))
    said = queue("tick", "--slurm", "--dry-run")
    assert "start 12 on " in said.stderr
    assert "scontrol release" in said.stdout
    assert slurm.told() == []
    assert queue.json("list") == []


def test_printing_over_slurm_names_the_jobs_by_their_numbers(queue: Queue, slurm: FakeSlurm) -> None:
    queue("announce", "llm", "--nodes", "4", "--at", "now+1h", "--runtime", "2h")
    slurm.show_jobs(held("77", 4, name="llm"))
    assert "scontrol release 77" in queue("tick", "--slurm").stdout
    assert slurm.told() == []


def test_a_cancelled_job_is_cancelled_in_slurm(queue: Queue, slurm: FakeSlurm) -> None:
    queue("submit", "filler", "--nodes", "12", "--runtime", "2h")
    slurm.show_jobs(held("12", 4))
    queue("tick", "--slurm")
    queue("cancel", "12")
    said = queue("tick", "--actuator", "slurm")
    assert slurm.told() == ["scancel 12"]
    assert "not yet: start filler: Slurm has no such job; submit it with: sbatch --hold" in said.stderr
    assert "not yet" not in queue("tick", "--actuator", "slurm").stderr


def test_what_a_person_was_told_and_did_not_do_is_done_by_a_tick_that_may(queue: Queue, slurm: FakeSlurm) -> None:
    slurm.show_jobs(held("12", 4))
    script = queue("tick", "--slurm").stdout
    assert "scontrol release 12" in script
    assert queue("tick", "--slurm").stdout == ""
    assert queue("tick", "--slurm", "--again").stdout == script
    assert slurm.told() == []
    queue("tick", "--actuator", "slurm")
    assert slurm.told()[-1] == "scontrol release 12"


def test_a_second_tick_looks_at_nothing_while_another_is_at_work(queue: Queue, slurm: FakeSlurm) -> None:
    slurm.show_jobs(held("12", 4))
    with acting_lock(queue.path):
        assert "another tick is at work" in queue.refused(StoreError, "tick", "--slurm")
        assert "start 12" in queue("tick", "--slurm", "--dry-run").stderr
    assert journal(queue.path) == []
    queue("tick", "--slurm")
    assert queue.json("list")[0]["job_id"] == "12"


def test_who_is_an_operator(slurm: FakeSlurm) -> None:
    assert is_operator("root")
    assert is_operator("slurm")
    assert not is_operator("ann"), "there is no accounting"
    program = slurm.folder / "bin" / "sacctmgr"
    program.write_text('#!/bin/sh\ncase "$*" in *user=ann*) echo Operator ;; *) echo None ;; esac\n')
    program.chmod(0o755)
    assert is_operator("ann")
    assert not is_operator("bob")


def test_runtimes_may_come_from_a_trained_model(queue: Queue, slurm: FakeSlurm) -> None:
    model = str(queue.folder / "model.npz")
    write_model(Path(model), MODEL)
    queue("submit", "quick", "--nodes", "2", "--model", model, "--owner", "bob")
    assert forecast(queue.path, "quick")["mean_s"] == pytest.approx(60)
    slurm.show_jobs(held("12", 1, user="ada"), held("13", 1, user="ada", comment="spanfit runtime=5m"))
    queue("tick", "--slurm", "--model", model)
    assert forecast(queue.path, "12")["mean_s"] == pytest.approx(6000)
    assert forecast(queue.path, "13")["mean_s"] == 300


def test_ticks_go_on_until_interrupted(queue: Queue) -> None:
    queue("submit", "train-7", "--nodes", "4", "--runtime", "2h")
    argv = [sys.executable, "-m", "spanfit", "queue", "tick", "--every", "0.2s", "--state", str(queue.path)]
    ticking = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while sum(kind == "ticked" for _, kind, *_ in journal(queue.path)) < 3:
        assert time.monotonic() < deadline
        assert ticking.poll() is None
        time.sleep(0.1)
    ticking.send_signal(signal.SIGINT)
    out, err = ticking.communicate(timeout=60)
    assert (ticking.returncode, err.strip()) == (ExitCode.INTERRUPTED, "spanfit: interrupted")
    assert out.count("sh release train-7 ") == 1


def test_without_slurm_the_message_says_where_to_run(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "squeue is not on PATH; run this where Slurm's commands are" in queue.refused(LaunchError, "tick", "--slurm")
    assert queue.json("list") == []

"""The queue's commands end to end: a file in a folder, a person at the keyboard, a Slurm of shell scripts."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.main import spanfit
from spanfit.errors import ConfigError, ExitCode, LaunchError, StoreError
from spanfit.queue.acting.slurm_programs import is_operator
from spanfit.queue.jct.model import write_model
from spanfit.queue.state.database import acting_lock
from spanfit.topology.probe_slurm import user_name
from spanfit.weights.io import write_weights
from tests.fakes.queue_slurm import FakeSlurm
from tests.unit.queue.test_jct_model import MODEL
from tests.unit.weights.factory import ENTRY, WEIGHTS

CLUSTER = """
name = "small"
tiers = ["minipod", "core"]
[[nodes]]
names = "a[0-5]"
switches = ["east", "core"]
ngpus = 8
[[nodes]]
names = "b[0-5]"
switches = ["west", "core"]
ngpus = 8
"""
JOB = 'name = "llm-1"\ndp = 3\npp = 2\ntp = 8\n'
ME = user_name()
NODES = [f"{letter}{number}" for letter in "ab" for number in range(6)]


class Queue:
    """A queue in a folder, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.sqlite"
        (folder / "cluster.toml").write_text(CLUSTER)
        (folder / "job.toml").write_text(JOB)
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> Result:
        """Run a command and return what it said; it must end with this code."""
        result = CliRunner().invoke(spanfit, ["queue", *arguments, "--state", str(self.path)], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str) -> Any:
        """Return what a command prints with --json."""
        return json.loads(self(*arguments, "--json").stdout)

    def refused(self, kind: type[Exception], *arguments: str) -> str:
        """Return how a command refuses."""
        with pytest.raises(kind) as error:
            self(*arguments)
        return str(error.value)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path)
    found("init", str(tmp_path / "cluster.toml"))
    return found


def test_a_day_in_the_queue(queue: Queue) -> None:
    started = queue("submit", "train-7", "--nodes", "4", "--runtime", "2h")
    assert started.stdout.startswith("start train-7 on a[0-3]: ") or started.stdout.startswith(
        "start train-7 on b[0-3]: "
    )
    announced = queue(
        "announce", "--job", str(queue.folder / "job.toml"), "--alpha", "0.3", "--at", "now+4h", "--runtime", "6d"
    )
    assert announced.stdout.startswith("reserve llm-1 on ")
    assert queue.json("submit", "long", "--nodes", "8", "--runtime", "3d")[0]["kind"] == "wait"
    rows = {row["job_id"]: row for row in queue.json("list")}
    assert {job_id: row["state"] for job_id, row in rows.items()} == {
        "train-7": "running",
        "llm-1": "announced",
        "long": "waiting",
    }
    assert rows["train-7"]["owner"] == ME
    kinds = {entry["job_id"]: entry["kind"] for entry in queue.json("plan")["entries"]}
    assert (kinds["train-7"], kinds["llm-1"]) == ("runs", "reserved")
    names = queue("nodes", "llm-1").stdout.split()
    assert len(names) == 6
    assert "scontrol release jobname=train-7" in queue("tick").stdout
    assert queue("tick").stdout == ""
    assert queue("arrived", "llm-1").stdout.startswith("start llm-1 on ")
    script = queue("tick").stdout
    assert "# as an administrator:\nscontrol create reservation ReservationName=spanfit-llm-1 StartTime=now" in script
    assert "scontrol release jobname=llm-1" in script
    assert script in queue("tick", "--again").stdout
    queue("finished", "llm-1")
    queue("cancel", "long")
    assert [row["job_id"] for row in queue.json("list")] == ["train-7"]
    assert queue.json("check")["faults"] == []


def test_why_says_reason_time_decisions_and_deeds(queue: Queue) -> None:
    queue("submit", "big", "--nodes", "12", "--runtime", "2h")
    queue("submit", "small", "--nodes", "2", "--time-limit", "1h")
    text = queue("why", "small").stdout
    assert text.startswith("small needs 2 nodes: 0 free; until ")
    found = queue.json("why", "small")
    assert found["reason"].startswith("needs 2 nodes: 0 free")
    assert abs(found["until_s"] - time.time() - 7200) < 60
    assert [decision["kind"] for decision in found["decisions"]] == ["wait"]
    queue("tick")
    (task,) = queue.json("why", "big")["tasks"]
    assert (task["kind"], task["outcome"], task["attempts"]) == ("start", "told", 1)
    queue("finished", "big")
    assert queue("why", "big").stdout.startswith("big is not in the queue; last: start, ")


def test_times_are_local_with_their_offset(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        queue("announce", "llm", "--nodes", "2", "--at", "2030-01-01T22:00", "--runtime", "2h")
        assert queue.json("list")[0]["until_s"] == 1893515400.0
        assert "2030-01-01 22:00:00+05:30" in queue("list").stdout
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_dry_run_changes_nothing_and_shows_the_commands(queue: Queue) -> None:
    queue("submit", "train-7", "--nodes", "4", "--runtime", "2h")
    before = _events(queue.path)
    first = queue("tick", "--dry-run")
    assert "scontrol release jobname=train-7" in first.stdout
    assert queue("tick", "--dry-run").stdout == first.stdout
    assert _events(queue.path) == before


def _journal(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT event_id, kind FROM events").fetchall()


def _events(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return (
            connection.execute("SELECT event_id, kind, document FROM events").fetchall()
            + connection.execute("SELECT task_id, outcome, attempts FROM tasks").fetchall()
        )


def test_a_simulated_tick_has_nothing_left_to_do(queue: Queue) -> None:
    queue("submit", "train-7", "--nodes", "4", "--runtime", "2h")
    assert [deed["outcome"] for deed in queue.json("tick", "--actuator", "simulate")["deeds"]] == ["done"]
    assert queue.json("tick", "--actuator", "simulate")["deeds"] == []


def test_a_job_too_large_is_refused_with_the_code_for_infeasible(queue: Queue) -> None:
    said = queue("submit", "huge", "--nodes", "13", "--runtime", "2h", code=ExitCode.INFEASIBLE)
    assert "refuse huge: asks for 13 nodes" in said.stdout


def test_rules_are_read_with_all_mistakes_at_once(queue: Queue) -> None:
    file = queue.folder / "rules.toml"
    file.write_text('policy = "easy"\ninterval = "2m"\n')
    assert queue.json("rules", str(file))["policy"] == "easy"
    assert queue.json("rules")["interval_s"] == 120
    file.write_text('policy = "best"\ninterval = 3\nageing = "soon"\nspeed = 9\nquantile = 2.0\n')
    said = queue.refused(ConfigError, "rules", str(file))
    for part in ("policy: found", "interval: found 3", "ageing: found 'soon'", "speed: unknown key"):
        assert part in said
    file.write_text("quantile = 2.0\ndepth = 0\n")
    said = queue.refused(ConfigError, "rules", str(file))
    assert "quantile: found 2, expected a share" in said
    assert "depth: found 0, expected at least 1" in said
    assert queue.json("rules")["policy"] == "easy"


def test_nodes_go_down_and_up(queue: Queue) -> None:
    queue("submit", "train-7", "--nodes", "5", "--runtime", "2h")
    (where,) = {entry["nodes"][0][0] for entry in queue.json("plan")["entries"]}
    kinds = [row["kind"] for row in queue.json("down", f"{where}[0-5]")]
    assert kinds[:1] == ["preempt"]
    assert [row["out"] for row in queue.json("plan")["minipods"] if row["out"]] == [6]
    queue("up", f"{where}[0-5]")
    assert [row["out"] for row in queue.json("plan")["minipods"]] == [0, 0]
    assert "no such node" in queue.refused(ConfigError, "down", "c7")


def test_nodes_that_are_down_at_first_are_out_of_service(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    text = CLUSTER.replace('names = "b[0-5]"', 'names = "b[0-5]"\nstate = "down"')
    (tmp_path / "cluster.toml").write_text(text)
    assert "6 of them out of service" in queue("init", str(tmp_path / "cluster.toml")).stderr
    assert [row["out"] for row in queue.json("plan")["minipods"]] == [0, 6]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "x", "--nodes", "2"], "give --runtime, --model or --time-limit"),
        (["submit", "x", "--runtime", "2h"], "give one of --nodes N and --job FILE"),
        (["submit", "--nodes", "2", "--runtime", "2h"], "give the job a NAME"),
        (["submit", "a b", "--nodes", "2", "--runtime", "2h"], "NAME: found 'a b'"),
        (["submit", "1201_7", "--nodes", "2", "--runtime", "2h"], "NAME: found '1201_7'"),
        (["submit", "x", "--nodes", "2", "--runtime", "99999999d"], "at most ten years"),
        (["announce", "x", "--nodes", "2", "--runtime", "2h", "--at", "9999-01-01"], "a moment within ten years"),
        (["submit", "x", "--nodes", "2", "--runtime", "soon"], "expected a duration such as"),
        (["submit", "x", "--nodes", "2", "--runtime", "2h", "--alpha", "0.5"], "place the grid of --job"),
        (["announce", "x", "--nodes", "2", "--runtime", "2h", "--at", "noon"], "expected a moment such as"),
        (["tick", "--every", "1m", "--json"], "--every goes on for ever"),
    ],
)
def test_what_cannot_be_understood_is_said(queue: Queue, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(spanfit, ["queue", *arguments, "--state", str(queue.path)])
    assert result.exit_code == ExitCode.BAD_INPUT
    assert said in " ".join(result.stderr.split())


def test_mistakes_about_jobs(queue: Queue) -> None:
    queue("submit", "x", "--nodes", "2", "--runtime", "2h")
    again = queue.refused(ConfigError, "submit", "x", "--nodes", "2", "--runtime", "2h")
    assert "job x is in the queue already" in again
    assert "neither waits nor runs" in queue.refused(ConfigError, "cancel", "y")
    assert "was never in this queue" in queue.refused(ConfigError, "why", "y")
    assert "has no nodes" in queue.refused(ConfigError, "nodes", "y")
    wrong = queue.refused(ConfigError, "submit", "y", "--nodes", "2", "--runtime", "3h", "--time-limit", "2h")
    assert "expected above zero, and none above the next" in wrong


def test_a_queue_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    assert "make one with: spanfit queue init CLUSTER" in queue.refused(StoreError, "list")
    queue("init", str(tmp_path / "cluster.toml"))
    assert "found a database" in queue.refused(StoreError, "init", str(tmp_path / "cluster.toml"))


def test_the_file_may_come_from_the_environment(queue: Queue) -> None:
    argv = [sys.executable, "-m", "spanfit", "queue", "list", "--json"]
    environment = os.environ | {"SPANFIT_QUEUE": str(queue.path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == []


def test_a_changed_state_is_a_finding(queue: Queue) -> None:
    queue("submit", "x", "--nodes", "2", "--runtime", "2h")
    with closing(sqlite3.connect(queue.path, isolation_level=None)) as connection:
        connection.execute("UPDATE nodes SET is_up = 0")
    said = queue("check", code=ExitCode.FINDING).stdout
    assert "job x runs on nodes that are out of service" in said
    assert "up: the kept state is not what the events lead to" in said


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
    slurm.refuse("Requested nodes are busy")
    failed = queue("tick", "--actuator", "slurm", code=ExitCode.LAUNCH_FAILED)
    assert "failed, will be tried again: start 12" in failed.stderr
    assert "Requested nodes are busy" in failed.stderr
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
    assert _journal(queue.path) == []
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


def test_alpha_comes_from_weights_that_hold(queue: Queue) -> None:
    weights, job = queue.folder / "weights.json", str(queue.folder / "job.toml")
    entry = replace(ENTRY, job="llm-1", dp=3, pp=2)
    write_weights(weights, replace(WEIGHTS, entries=(entry,), valid_until="2020-01-01T00:00:00+00:00"))
    options = ("--job", job, "--weights", str(weights), "--at", "now+1h", "--runtime", "2h")
    assert "valid_until: expired on 2020-01-01" in queue.refused(ConfigError, "announce", *options)
    said = queue("announce", *options, "--accept-stale")
    assert "warning: weights of llm-1: valid_until: expired" in said.stderr
    with closing(sqlite3.connect(queue.path)) as connection:
        (text,) = connection.execute("SELECT document FROM jobs").fetchone()
    found = json.loads(text)["job"]
    assert (found["alpha"], found["nrows"], found["ncolumns"], found["nnodes"]) == (0.186, 3, 2, 6)


def _forecast(queue: Queue, job_id: str) -> dict[str, float]:
    with closing(sqlite3.connect(queue.path)) as connection:
        (text,) = connection.execute("SELECT document FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    found: dict[str, float] = json.loads(text)["forecast"]
    return found


def test_runtimes_may_come_from_a_trained_model(queue: Queue, slurm: FakeSlurm) -> None:
    model = str(queue.folder / "model.npz")
    write_model(Path(model), MODEL)
    queue("submit", "quick", "--nodes", "2", "--model", model, "--owner", "bob")
    assert _forecast(queue, "quick")["mean_s"] == pytest.approx(60)
    slurm.show_jobs(held("12", 1, user="ada"), held("13", 1, user="ada", comment="spanfit runtime=5m"))
    queue("tick", "--slurm", "--model", model)
    assert _forecast(queue, "12")["mean_s"] == pytest.approx(6000)
    assert _forecast(queue, "13")["mean_s"] == 300


def test_ticks_go_on_until_interrupted(queue: Queue) -> None:
    queue("submit", "train-7", "--nodes", "4", "--runtime", "2h")
    argv = [sys.executable, "-m", "spanfit", "queue", "tick", "--every", "0.2s", "--state", str(queue.path)]
    ticking = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while sum(kind == "ticked" for _, kind, *_ in _journal(queue.path)) < 3:
        assert time.monotonic() < deadline
        assert ticking.poll() is None
        time.sleep(0.1)
    ticking.send_signal(signal.SIGINT)
    out, err = ticking.communicate(timeout=60)
    assert (ticking.returncode, err.strip()) == (ExitCode.INTERRUPTED, "spanfit: interrupted")
    assert out.count("scontrol release jobname=train-7") == 1


def test_without_slurm_the_message_says_where_to_run(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "squeue is not on PATH; run this where Slurm's commands are" in queue.refused(LaunchError, "tick", "--slurm")
    assert queue.json("list") == []

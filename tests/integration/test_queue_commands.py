"""The queue's commands end to end: a file in a folder, a person at the keyboard, a Slurm of shell scripts."""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spanfit.cli.main import spanfit
from spanfit.cli.queue import queue as queue_group
from spanfit.errors import ConfigError, ExitCode, StoreError
from spanfit.weights.io import write_weights
from tests.integration.queue_typed import CLUSTER, JOB, ME, Queue, forecast
from tests.unit.weights.factory import ENTRY, WEIGHTS


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
    assert queue.json("nodes", "llm-1") == names
    assert "sh release train-7 " in queue("tick").stdout
    assert queue("tick").stdout == ""
    assert queue("arrived", "llm-1").stdout.startswith("start llm-1 on ")
    script = queue("tick").stdout
    assert "# as an administrator:\nscontrol create reservation ReservationName=spanfit-llm-1 StartTime=now" in script
    assert "sh release llm-1 " in script
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
    assert "sh release train-7 " in first.stdout
    assert queue("tick", "--dry-run").stdout == first.stdout
    assert _events(queue.path) == before


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
    said = queue.refused(ConfigError, "down", "a[0-1],c[7-9]")
    assert said == f"HOSTLIST: found c[7-9], expected nodes of {queue.path}: a[0-5],b[0-5]"


def test_what_changes_nothing_says_so_and_what_is_to_be_done_is_counted(queue: Queue) -> None:
    assert queue("up", "a0").stderr == "kept; nothing else was decided\n"
    said = queue("submit", "train-7", "--nodes", "5", "--runtime", "2h").stderr
    assert said == f"1 to be told or done; next: spanfit queue tick --state {queue.path}\n"
    assert queue.json("list")[0]["reason"] == "its start is still to be told or done: spanfit queue tick"
    queue("tick")
    assert queue.json("list")[0]["reason"] == ""


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


@pytest.mark.parametrize(
    ("options", "mean_s", "upper_s"),
    [
        ("--runtime 2h", 7200, 7200),
        ("--runtime 2h --runtime-upper 3h", 7200, 10800),
        ("--runtime 2h --time-limit 4h", 7200, 14400),
        ("--runtime 2h --runtime-upper 3h --time-limit 4h", 7200, 10800),
        ("--time-limit 4h", 14400, 14400),
    ],
)
def test_what_is_said_of_a_runtime_is_its_forecast(queue: Queue, options: str, mean_s: float, upper_s: float) -> None:
    queue("submit", "x", "--nodes", "2", *options.split())
    assert forecast(queue.path, "x") == {"mean_s": mean_s, "upper_s": upper_s}


EXAMPLES = (
    *("init", "rules", "submit", "announce", "list", "why", "plan", "down", "up", "nodes", "tick"),
    *("arrived", "finished", "submit", "cancel", "check"),
)
"""Commands in an order in which their examples follow from each other."""


def test_the_example_of_each_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(CLUSTER.replace("a[0-5]", "node[01-24]").replace("b[0-5]", "node[25-48]"))
    Path("job.toml").write_text(JOB)
    Path("rules.toml").write_text('ageing = "12h"\n')
    assert set(EXAMPLES) | {"advise"} == set(queue_group.commands)  # advise has a test file of its own
    for name in EXAMPLES:
        example = str(queue_group.commands[name].epilog).removeprefix("Example: spanfit ").partition(" >")[0]
        done = CliRunner().invoke(spanfit, shlex.split(example))
        assert done.exit_code == 0, f"{example}: {done.output}"

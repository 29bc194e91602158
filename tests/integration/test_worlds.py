import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from spanfit.errors import LaunchError
from spanfit.launch import worlds
from spanfit.launch.worlds import AgentWorlds, Failure, WorldRequest, ssh_argv
from spanfit.topology.model import RankMap


def request_of(logs: Path, *hosts: str, environment: dict[str, str] | None = None) -> WorldRequest:
    return WorldRequest(
        rank_map=RankMap(node_names=hosts, ngpus_per_node=2),
        module="spanfit.bench.worker",
        argv=("a plan.json",),
        environment=environment or {},
        port=29501,
        logs=logs,
    )


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (1, "ended with exit code 1"),
        (70, "ended with exit code 70"),
        (-9, "was ended by signal 9 (SIGKILL)"),
        (-11, "was ended by signal 11 (SIGSEGV)"),
    ],
)
def test_a_failure_says_how_it_ended(code: int, how: str) -> None:
    assert Failure(who="rank 0 on n0", code=code, log=Path("log")).how() == how


def test_agents_are_described_as_the_exact_torchrun_lines_with_static_ranks() -> None:
    agents = AgentWorlds(lambda host, command: ["reach", host, *command], lambda host: f"{host}.lan")
    request = request_of(Path("logs"), "n2", "n1", environment={"NCCL_ALGO": "Ring", "GLOO_X": "$(reboot)"})
    common = (
        f"env 'GLOO_X=$(reboot)' NCCL_ALGO=Ring PYTHONSAFEPATH=1 {shlex.quote(sys.executable)} "
        "-m torch.distributed.run --nnodes=2 --nproc-per-node=2"
    )
    tail = "--master-addr=n2.lan --master-port=29501 -m spanfit.bench.worker 'a plan.json'"
    assert agents.describe(request).splitlines() == [
        f"reach n2 {common} --node-rank=0 {tail}",
        f"reach n1 {common} --node-rank=1 {tail}",
    ]


FAKE_SSH = '#!/bin/sh\nprintf "%s\\0" "$@" > "$RECORD"\nfor last; do :; done\nexec sh -c "$last"\n'


def test_ssh_takes_hostile_arguments_unharmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text(FAKE_SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hostile = ["$(touch owned)", "a b", "'", '"', ";", "*", "", "\\", "-x", "a\nb"]
    argv = ssh_argv("n1", ["printf", "[%s]", *hostile])
    record = tmp_path / "record"
    done = subprocess.run(
        argv, env=os.environ | {"RECORD": str(record)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    # The far shell sees each argument as it was given; nothing of it is run.
    assert done.stdout == "".join(f"[{argument}]" for argument in hostile)
    assert not (tmp_path / "owned").exists()
    options = record.read_text().split("\0")[:-2]
    assert options == ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "n1", "--"]


def test_a_missing_ssh_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="the program ssh is missing; install the Debian package openssh-client"):
        ssh_argv("n1", ["true"])


def agents_that(scripts: dict[str, str]) -> AgentWorlds:
    """Return worlds whose agents are, for each host, a sh script on this machine."""

    def argv(host: str, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", scripts[host], "sh", *command]

    return AgentWorlds(argv, str)


def test_a_world_whose_agents_all_end_well_has_no_failure(tmp_path: Path) -> None:
    ticks: list[None] = []
    with agents_that({"n0": 'echo "$1"', "n1": "sleep 0.3; echo to stderr >&2"}) as agents:
        request = request_of(tmp_path, "n0", "n1")
        assert agents.run(request, lambda: ticks.append(None)) is None
        assert agents.run(request, lambda: ticks.append(None)) is None
    assert len(ticks) >= 4
    assert (tmp_path / "agent-0.log").read_text() == "env\nenv\n"
    assert (tmp_path / "agent-1.log").read_text() == "to stderr\nto stderr\n"


def test_the_first_failure_is_named_and_the_others_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "_GRACE_S", 0.4)  # real seconds otherwise
    scripts = {"n0": "exec sleep 60", "n1": "echo broken >&2; exit 3", "n2": "sleep 1; exit 4"}
    start = time.monotonic()
    with agents_that(scripts) as agents:
        failure = agents.run(request_of(tmp_path, "n0", "n1", "n2"), lambda: None)
    assert time.monotonic() - start < 20
    assert failure == Failure(who="the torchrun agent on n1", host="n1", code=3, log=tmp_path / "agent-1.log")
    assert failure.log.read_text() == "broken\n"


def test_the_agent_whose_rank_a_signal_ended_is_named_though_another_failed_first(tmp_path: Path) -> None:
    scripts = {"n0": "echo peer is gone >&2; exit 1", "n1": "sleep 0.5; echo '  exitcode  : -9 (pid: 7)' >&2; exit 1"}
    with agents_that(scripts) as agents:
        failure = agents.run(request_of(tmp_path, *scripts), lambda: None)
    assert failure == Failure(who="a rank on n1", host="n1", code=-9, log=tmp_path / "agent-1.log")


def test_a_world_that_the_watcher_calls_stuck_is_ended_and_says_so(tmp_path: Path) -> None:
    start = time.monotonic()
    with agents_that({"n0": "exec sleep 60", "n1": "exec sleep 60"}) as agents:
        failure = agents.run(request_of(tmp_path, "n0", "n1"), lambda: time.monotonic() > start + 0.3)
    assert time.monotonic() - start < 20
    assert failure is not None and failure.is_stuck


def test_agents_that_end_one_by_one_do_not_shorten_the_patience_with_the_rest(tmp_path: Path) -> None:
    # 30 agents end after the failure, each waking the loop; the last still has its second to end by itself.
    hosts = {"first": "exit 3", "last": "sleep 1; echo done"}
    hosts |= {f"n{index}": f"sleep 0.{index + 20}" for index in range(30)}
    with agents_that(hosts) as agents:
        failure = agents.run(request_of(tmp_path, *hosts), lambda: None)
    assert failure is not None and failure.code == 3
    assert (tmp_path / "agent-1.log").read_text() == "done\n"


def test_an_interrupted_world_leaves_no_agent_behind(tmp_path: Path) -> None:
    log = tmp_path / "agent-0.log"

    def interrupt_once_it_runs() -> None:
        if log.read_text().endswith("\n"):
            raise KeyboardInterrupt

    agents = agents_that({"n0": "echo $$; exec sleep 60"})
    with pytest.raises(KeyboardInterrupt), agents:
        agents.run(request_of(tmp_path, "n0"), interrupt_once_it_runs)
    assert not Path("/proc", log.read_text().strip()).exists()


def test_an_agent_ended_by_a_signal_is_a_failure_with_that_signal(tmp_path: Path) -> None:
    with agents_that({"n0": "kill -KILL $$"}) as agents:
        failure = agents.run(request_of(tmp_path, "n0"), lambda: None)
    assert failure is not None
    assert failure.how() == "was ended by signal 9 (SIGKILL)"

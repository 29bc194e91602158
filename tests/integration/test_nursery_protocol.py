"""What the nursery says on its pipes, with ranks forked into this process's own namespaces."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.factory import wait_for_end

MODULE = """
import os, sys, time
def main():
    print(os.environ["RANK"], sys.argv[1:], flush=True)
    if os.environ["DO"] == "fail":
        raise ValueError("the ring is broken")
    if os.environ["DO"] == "sleep":
        print(os.getpid(), flush=True)
        time.sleep(60)
"""


@contextmanager
def nursery(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    (folder / "ranks_of_a_test.py").write_text(MODULE)
    process = subprocess.Popen(
        [sys.executable, "-m", "spanfit.launch.nursery", "ranks_of_a_test"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
    )
    with process:
        assert hear(process) == {"ready": True}
        try:
            yield process
        finally:
            process.kill()


def hear(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def tell(process: "subprocess.Popen[str]", *requests: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(json.dumps(request) + "\n" for request in requests))
    process.stdin.flush()


def launch_of(folder: Path, *deeds: str) -> dict[str, Any]:
    ranks = [
        {
            "pid": os.getpid(),
            "environment": {"RANK": str(rank), "DO": deed},
            "argv": ["a b", str(rank)],
            "log": str(folder / f"rank-{rank}.log"),
        }
        for rank, deed in enumerate(deeds)
    ]
    return {"op": "launch", "ranks": ranks}


@pytest.fixture
def may_enter(tmp_path: Path) -> None:
    """Skip where the machine refuses to enter even one's own namespaces."""
    with nursery(tmp_path) as process:
        tell(process, launch_of(tmp_path, "end"))
        exit_code = hear(process)["exit"]
    log = tmp_path / "rank-0.log"
    if exit_code and "PermissionError" in log.read_text():
        pytest.skip("this machine refuses setns; entering hosts is covered by the testbed tests")
    log.unlink()


def test_ranks_end_as_they_end_and_write_to_their_logs(tmp_path: Path, may_enter: None) -> None:
    with nursery(tmp_path) as process:
        tell(process, launch_of(tmp_path, "end", "fail"))
        answers = sorted((hear(process) for _ in range(2)), key=lambda answer: int(answer["rank"]))
        assert answers == [{"rank": 0, "exit": 0}, {"rank": 1, "exit": 1}]
        # The same nursery serves the next launch.
        tell(process, launch_of(tmp_path, "end"))
        assert hear(process) == {"rank": 0, "exit": 0}
    assert (tmp_path / "rank-0.log").read_text() == "0 ['a b', '0']\n" * 2
    log = (tmp_path / "rank-1.log").read_text()
    assert log.startswith("1 ['a b', '1']\n")
    assert log.endswith("ValueError: the ring is broken\n")


def test_kill_ends_every_rank_and_says_by_which_signal(tmp_path: Path, may_enter: None) -> None:
    with nursery(tmp_path) as process:
        tell(process, launch_of(tmp_path, "sleep", "sleep"), {"op": "kill"})
        answers = [hear(process) for _ in range(2)]
    assert sorted(answer["rank"] for answer in answers) == [0, 1]
    assert {answer["exit"] for answer in answers} == {-9}


def test_every_rank_ends_with_the_pipe(tmp_path: Path, may_enter: None) -> None:
    # A pipe in place of its log tells when the rank runs.
    os.mkfifo(tmp_path / "rank-0.log")
    with nursery(tmp_path) as process:
        tell(process, launch_of(tmp_path, "sleep"))
        with (tmp_path / "rank-0.log").open() as said:
            said.readline()
            pid = int(said.readline())
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(20) == 0
        wait_for_end([pid])

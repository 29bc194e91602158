"""A rank that hangs says where, by itself or when it is asked, and one that went on says nothing of the past."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from spanfit.bench.stacks import Stacks

def hang():
    time.sleep(0.3)

stacks = Stacks(Path(sys.argv[1]), 3, float(sys.argv[2]))
stacks.watch()
for step in sys.argv[3:]:
    if step == "hang":
        hang()
    elif step == "ask":
        os.kill(os.getpid(), signal.SIGUSR1)
    else:
        stacks.watch()
"""


def said(folder: Path, after_s: float, *steps: str) -> str:
    # A process of its own: the interpreter has one such watch, and pytest may have set it.
    argv = [sys.executable, "-c", SCRIPT, str(folder), str(after_s), *steps]
    subprocess.run(argv, check=True)
    return (folder / "stacks-3.txt").read_text()


def test_a_phase_that_outlasts_its_limit_is_told_where_it_is(tmp_path: Path) -> None:
    text = said(tmp_path / "beats", 0.1, "hang")
    assert text.startswith("Timeout")
    assert "in hang" in text


def test_a_phase_that_ends_after_all_is_forgotten_and_the_next_is_watched(tmp_path: Path) -> None:
    assert said(tmp_path, 0.1, "hang", "next") == ""
    assert said(tmp_path, 0.1, "hang", "next", "hang").count("in hang") == 1


def test_without_a_limit_it_speaks_only_when_it_is_asked(tmp_path: Path) -> None:
    assert said(tmp_path, 0.0, "hang") == ""
    assert "most recent call first" in said(tmp_path, 0.0, "ask")

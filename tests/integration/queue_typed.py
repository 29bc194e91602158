"""A queue in a folder for tests, and its commands as a person types them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from spanfit.topology.probe_slurm import user_name
from tests.integration.typed import typed

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
        return typed("queue", *arguments, "--state", str(self.path), code=code)

    def json(self, *arguments: str) -> Any:
        """Return what a command prints with --json."""
        return json.loads(self(*arguments, "--json").stdout)

    def refused(self, kind: type[Exception], *arguments: str) -> str:
        """Return how a command refuses."""
        with pytest.raises(kind) as error:
            self(*arguments)
        return str(error.value)


def journal(path: Path) -> list[tuple[Any, ...]]:
    """Return number and kind of each event that a queue keeps."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT event_id, kind FROM events").fetchall()


def forecast(path: Path, job_id: str) -> dict[str, float]:
    """Return how long a job of a queue is predicted to run."""
    with closing(sqlite3.connect(path)) as connection:
        (text,) = connection.execute("SELECT document FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    found: dict[str, float] = json.loads(text)["forecast"]
    return found

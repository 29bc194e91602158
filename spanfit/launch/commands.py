"""Worlds that one command starts on every host, such as mpirun or srun: edge; starts that command."""

import os
import selectors
import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from spanfit.launch.processes import end_tree
from spanfit.launch.worlds import Failure, Tick, WorldRequest

_POLL_S = 0.2


class CommandWorlds(ABC):
    """Worlds of one command each, which starts all ranks and ends when they have ended.

    Parameters
    ----------
    name : str
        What the command is called in messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def argv(self, request: WorldRequest) -> list[str]:
        """Return the command line that starts a world; the files of :meth:`texts` are in the folder of its logs."""

    @abstractmethod
    def texts(self, request: WorldRequest) -> dict[str, str]:
        """Return the files that the command line reads: name and text."""

    def describe(self, request: WorldRequest) -> str:
        """Return the command line, and the files that it reads."""
        lines = [shlex.join(self.argv(request))]
        for name, text in self.texts(request).items():
            lines += [f"# {request.logs / name}:", *(f"#   {line}" for line in text.splitlines())]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        """Nothing is started before the first world."""
        return self

    def run(self, request: WorldRequest, tick: Tick) -> Failure | None:
        """Start a world and wait for its end; the command ends the other ranks when one fails."""
        log = request.logs / f"{self.name}.log"
        code, is_stuck = self.execute(request, tick, log, log)
        return Failure(who=self.name, code=code, log=log, is_stuck=is_stuck) if code or is_stuck else None

    def execute(self, request: WorldRequest, tick: Tick, out: Path, err: Path) -> tuple[int, bool]:
        """Run the command of a world; return its exit code and whether ``tick`` had it ended, with all it had started.

        What it says is appended to the files ``out`` and ``err``, which may be one.
        """
        for name, text in self.texts(request).items():
            (request.logs / name).write_text(text, encoding="utf-8")
        with out.open("ab") as stdout, err.open("ab") as stderr:
            process = subprocess.Popen(
                self.argv(request), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )
        self._process = process
        is_stuck = _wait(process, tick)
        self.end()
        return process.returncode, is_stuck

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a command that still runs."""
        self.end()

    def end(self) -> None:
        """End a command that still runs, with all that it started."""
        if self._process is not None:
            end_tree(self._process)
            self._process = None


def _wait(process: "subprocess.Popen[bytes]", tick: Tick) -> bool:
    """Return once a process has ended, or its watcher says that it is stuck, and which of both."""
    pidfd = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            while not selector.select(_POLL_S):
                if tick():
                    return True
    finally:
        os.close(pidfd)
    return False


def rank_command(
    request: WorldRequest, master_address: str, defaults: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return what each rank runs; its starter tells it who it is.

    A module of ours is told by its environment where rank 0 listens. ``defaults`` are variables that the request may
    overrule.
    """
    variables = {**defaults, **request.environment}
    command = [*request.argv]
    if request.module:
        # A launch.py in the working folder must not shadow a module of ours.
        variables |= {"MASTER_ADDR": master_address, "MASTER_PORT": str(request.port), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", request.module, *command]
    environment = [f"{name}={value}" for name, value in sorted(variables.items())]
    return ["env", *environment, *command]


class LocalWorlds(CommandWorlds):
    """Worlds of one process on this machine, which finds its GPUs by itself."""

    def __init__(self) -> None:
        super().__init__("local")

    def argv(self, request: WorldRequest) -> list[str]:
        """Return what the process runs."""
        return rank_command(request, "localhost")

    def texts(self, request: WorldRequest) -> dict[str, str]:
        """Return no file: there is nothing to place."""
        return {}

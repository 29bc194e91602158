"""Worlds that one command starts on every host, such as mpirun or srun: edge; starts that command."""

import os
import selectors
import shlex
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Self

from spanfit.launch.worlds import Failure, Tick, WorldRequest

_POLL_S = 0.2
_END_LIMIT_S = 5.0


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
        for name, text in self.texts(request).items():
            (request.logs / name).write_text(text, encoding="utf-8")
        log = request.logs / f"{self.name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(self.argv(request), stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self._process = process
        is_stuck = _wait(process, tick)
        if is_stuck:
            _end(process)
        self._process = None
        code = process.wait()
        return Failure(who=self.name, code=code, log=log, is_stuck=is_stuck) if code or is_stuck else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a command that still runs."""
        if self._process is not None:
            _end(self._process)


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


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process: first asked, so that it ends its ranks on other hosts, then made to."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def rank_command(
    request: WorldRequest, master_address: str, defaults: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return what each rank runs, told by its environment where rank 0 listens; its starter tells it who it is.

    ``defaults`` are variables that the request may overrule.
    """
    variables = {
        **defaults,
        **request.environment,
        "MASTER_ADDR": master_address,
        "MASTER_PORT": str(request.port),
        # A launch.py in the working folder must not shadow a module of ours.
        "PYTHONSAFEPATH": "1",
    }
    environment = [f"{name}={value}" for name, value in sorted(variables.items())]
    return ["env", *environment, sys.executable, "-m", request.module, *request.argv]

"""Ending a command with everything that it started on this machine: edge, reads /proc and sends signals."""

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ASKED_S = 5.0
"""How long a command has to end its ranks on other hosts."""
_KILLED_S = 5.0


class _Process(NamedTuple):
    parent: int
    session: int
    has_ended: bool


def end_tree(process: "subprocess.Popen[bytes]") -> None:
    """End the leader of a session and what it started: asked first, so that it ends other hosts' ranks, then made to.

    A process counts if it is in the session, or descends from the leader while that still runs: mpirun gives its ranks
    process groups of their own, and some start-up scripts a session.
    """
    with _Held() as held:
        if process.poll() is None:
            held.add(_members(process.pid))
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ASKED_S)
        held.add(_members(process.pid))
        process.kill()
        process.wait()
        held.kill()


class _Held:
    """Processes held by a descriptor, so that a number that is used again never names another one."""

    def __init__(self) -> None:
        self.pidfds: dict[int, int] = {}

    def __enter__(self) -> "_Held":
        return self

    def __exit__(self, *_: object) -> None:
        for pidfd in self.pidfds.values():
            os.close(pidfd)

    def add(self, pids: Iterator[int]) -> None:
        """Hold more processes."""
        for pid in pids:
            if pid not in self.pidfds:
                with contextlib.suppress(ProcessLookupError):
                    self.pidfds[pid] = os.pidfd_open(pid)

    def kill(self) -> None:
        """Kill all and return when they have ended."""
        with selectors.DefaultSelector() as selector:
            for pidfd in self.pidfds.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                selector.register(pidfd, selectors.EVENT_READ)
            while selector.get_map() and (ended := selector.select(_KILLED_S)):
                for key, _ in ended:
                    selector.unregister(key.fileobj)


def _members(leader: int) -> Iterator[int]:
    """Yield the processes of a leader's session and its descendants, without the leader."""
    table = dict(_processes())
    family = {leader}
    while found := {pid for pid, process in table.items() if process.parent in family} - family:
        family |= found
    for pid, process in table.items():
        if pid != leader and not process.has_ended and (pid in family or process.session == leader):
            yield pid


def _processes() -> Iterator[tuple[int, _Process]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name is in parentheses and may hold anything.
                state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                yield int(entry.name), _Process(int(parent), int(session), state in "ZX")

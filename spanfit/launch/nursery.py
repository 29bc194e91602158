"""The quick launch: import once, fork a rank per host, enter the host; edge, runs beside a testbed's switches.

``python -m spanfit.launch.nursery MODULE`` imports MODULE (and so torch) once, then serves requests on standard input,
a JSON line each: ``{"op": "launch", "ranks": [{"pid", "environment", "argv", "log"}, ...]}`` forks a process per rank
that enters the namespaces of the host process ``pid`` and calls MODULE's ``main``; ``{"op": "kill"}`` ends them all;
``{"op": "inspect"}`` asks each for its stacks and answers ``{"states": {rank: state}}``, the kernel's letter for what
its process does (T: stopped). It answers ``{"rank": r, "exit": code}`` as each rank ends (negative: by that signal).
When its standard input closes, or it dies, every rank ends with it.
"""

import ctypes
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_NAMESPACES = ("net", "uts", "mnt")
INSPECT_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Sent to a rank that hangs: write the stacks of every thread; write what the flight recorder holds."""


def enter(pid: int) -> None:
    """Move this process into the network, name and mount namespaces of another."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptors = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in _NAMESPACES]
    for descriptor in descriptors:
        if libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.close(descriptor)


def fork_rank(main: Callable[[], None], rank: dict[str, Any]) -> int:
    """Start a rank in its host and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        enter(rank["pid"])
        os.environ.update(rank["environment"])
        sys.argv[1:] = rank["argv"]
        main()
        code = 0
    except BaseException:
        # The child's outermost frame: nothing may return into the parent's loop.
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def process_state(pidfd: int) -> str:
    """Return the kernel's letter for the state of a process, such as R, S, D or T; "" where /proc does not say.

    The process id is that of the /proc at hand, which may belong to another process space than this one's.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
        return Path(f"/proc/{int(fields['Pid'])}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, KeyError):
        return ""


class Nursery:
    """The ranks of the launch that is running."""

    def __init__(self, main: Callable[[], None]) -> None:
        self.main = main
        self.selector = selectors.DefaultSelector()
        self.pids: dict[int, int] = {}
        self.pidfds: dict[int, int] = {}

    def launch(self, ranks: list[dict[str, Any]]) -> None:
        """Fork every rank and watch for its end."""
        for index, rank in enumerate(ranks):
            pid = fork_rank(self.main, rank)
            self.pids[index] = pid
            self.pidfds[index] = os.pidfd_open(pid)
            self.selector.register(self.pidfds[index], selectors.EVENT_READ, index)

    def kill(self) -> None:
        """End every rank that still runs."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)

    def inspect(self) -> None:
        """Say what each rank's process does, and ask it for its stacks; a stopped one cannot give them."""
        states = {str(index): process_state(pidfd) for index, pidfd in self.pidfds.items()}
        for pid in self.pids.values():
            for number in INSPECT_SIGNALS:
                os.kill(pid, number)
        print(json.dumps({"states": states}), flush=True)

    def report(self, index: int) -> None:
        """Collect a rank that ended and say how."""
        pidfd = self.pidfds.pop(index)
        self.selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(self.pids.pop(index), 0)
        print(json.dumps({"rank": index, "exit": os.waitstatus_to_exitcode(status)}), flush=True)

    def serve(self) -> None:
        """Answer requests until standard input closes, then end every rank."""
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
        pending = b""
        while True:
            for key, _ in self.selector.select():
                if key.data is not None:
                    self.report(key.data)
                    continue
                chunk = os.read(key.fd, 1 << 20)
                if not chunk:
                    return self.kill()
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self.answer(json.loads(line))

    def answer(self, request: dict[str, Any]) -> None:
        """Do what one request says."""
        if request["op"] == "launch":
            self.launch(request["ranks"])
        elif request["op"] == "inspect":
            self.inspect()
        else:
            self.kill()


def main() -> None:
    """Import the module that ranks run, say so, and serve."""
    # A terminal's Ctrl-C reaches the whole process group; the campaign decides when ranks end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module: ModuleType = import_module(sys.argv[1])
    print(json.dumps({"ready": True}), flush=True)
    Nursery(module.main).serve()


if __name__ == "__main__":
    main()

"""The quick launch: import once, fork a rank per host, enter the host; edge, runs beside a testbed's switches.

``python -m spanfit.launch.nursery MODULE`` imports MODULE (and so torch) once, then serves requests on standard input,
a JSON line each: ``{"op": "launch", "ranks": [{"pid", "environment", "argv", "log"}, ...]}`` forks a process per rank
that enters the namespaces of the host process ``pid`` and calls MODULE's ``main``; ``{"op": "kill"}`` ends them all.
It answers ``{"rank": r, "exit": code}`` as each rank ends (negative: by that signal). When its standard input closes,
or it dies, every rank ends with it.
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
from types import ModuleType
from typing import Any

_NAMESPACES = ("net", "uts", "mnt")


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


class Nursery:
    """The ranks of the launch that is running."""

    def __init__(self, main: Callable[[], None]) -> None:
        self.main = main
        self.selector = selectors.DefaultSelector()
        self.pids: dict[int, int] = {}

    def launch(self, ranks: list[dict[str, Any]]) -> None:
        """Fork every rank and watch for its end."""
        for index, rank in enumerate(ranks):
            pid = fork_rank(self.main, rank)
            self.pids[index] = pid
            self.selector.register(os.pidfd_open(pid), selectors.EVENT_READ, index)

    def kill(self) -> None:
        """End every rank that still runs."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)

    def report(self, pidfd: int, index: int) -> None:
        """Collect a rank that ended and say how."""
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
                    self.report(key.fd, key.data)
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

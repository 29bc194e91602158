"""Starting the ranks of a world on its hosts and waiting for their end: edge; starts processes.

Two ways: :class:`ForkedWorlds` forks ranks inside a testbed's hosts, with torch imported once for all launches;
:class:`AgentWorlds` starts one torchrun agent a host, through a testbed or ssh.
"""

import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from spanfit.errors import ConfigError, LaunchError
from spanfit.launch.testbed import Testbed
from spanfit.topology.model import RankMap

_POLL_S = 0.2
_GRACE_S = 5.0
"""After one rank fails, how long the others have to notice before they are ended."""
_INSPECT_S = 1.0
"""How long ranks have to write their stacks before a stuck world is ended."""
_READY_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRequest:
    """A world to start.

    Attributes
    ----------
    rank_map : RankMap
    module : str
        What every rank runs, as ``python -m`` would; "" where ``argv`` is a whole command line.
    argv : tuple of str
    environment : mapping of str to str
        Set for every rank.
    port : int
        Where rank 0's host listens for the others.
    logs : Path
        A folder for what ranks print, a file a rank or an agent.
    """

    rank_map: RankMap
    module: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    port: int
    logs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The process of a world that says most about why it failed: one that a signal ended, else the first.

    Attributes
    ----------
    who : str
        Rank and host, or the agent's host.
    code : int
        Exit code; negative: ended by that signal.
    log : Path
    host : str
        The one host to blame, "" where that is not known.
    is_stuck : bool
        Whether the watcher, not the process, ended the world.
    states : mapping of int to str
        Of each rank of a stuck world the kernel's letter for its process's state, where it is known.
    """

    who: str
    code: int
    log: Path
    host: str = ""
    is_stuck: bool = False
    states: Mapping[int, str] = field(default_factory=dict)

    def how(self) -> str:
        """Return how it ended, in words."""
        if self.code < 0:
            return f"was ended by signal {-self.code} ({signal.Signals(-self.code).name})"
        return f"ended with exit code {self.code}"


Tick = Callable[[], bool | None]
"""Called now and then while a world runs; returns True where it is stuck and must be ended."""


class Worlds(Protocol):
    """A way to run worlds one after the other."""

    def describe(self, request: WorldRequest) -> str:
        """Return what would run, as a person could type it."""
        ...

    def run(self, request: WorldRequest, tick: Tick) -> Failure | None:
        """Run a world to its end, or until ``tick`` says that it is stuck; return its failure, if any."""
        ...

    def __enter__(self) -> Self:
        """Make ready."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End whatever still runs."""
        ...


class ForkedWorlds:
    """Worlds forked from one process that has imported what they run, in the hosts of a testbed."""

    def __init__(self, testbed: Testbed, module: str) -> None:
        self.testbed = testbed
        self.module = module
        self._nursery: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None

    def describe(self, request: WorldRequest) -> str:
        """Return what would run."""
        hosts = ", ".join(request.rank_map.node_names)
        return f"fork in the hosts of testbed {self.testbed.name} ({hosts}): {_command(request)}"

    def __enter__(self) -> Self:
        """Import the module in a new process beside the testbed's switches."""
        self._complaints = tempfile.TemporaryFile()
        self._nursery = subprocess.Popen(
            self.testbed.switch_argv([sys.executable, "-m", "spanfit.launch.nursery", self.module]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
        )
        assert self._nursery.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._nursery.stdout, selectors.EVENT_READ)
            ready = selector.select(_READY_LIMIT_S) and self._nursery.stdout.readline()
        if not ready:
            self._nursery.kill()
            raise LaunchError(f"ranks cannot be started in testbed {self.testbed.name}: {self._complaint()}")
        return self

    def _complaint(self) -> str:
        assert self._complaints is not None
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace").strip() or "no answer"

    def run(self, request: WorldRequest, tick: Tick) -> Failure | None:
        """Fork the ranks and wait for them; after a failure the others are given a moment, then ended."""
        ranks = [self._rank(request, rank) for rank in range(request.rank_map.nranks)]
        self._send({"op": "launch", "ranks": ranks})
        failure: Failure | None = None
        is_stuck, states = False, dict[int, str]()
        left, patience = len(ranks), float("inf")
        for line in self._lines(tick):
            if line == _STUCK:
                if not is_stuck:
                    self._send({"op": "inspect"})
                    is_stuck, patience = True, min(patience, _INSPECT_S)
            elif line is None:
                patience -= _POLL_S
            elif "states" in line:
                states = {int(rank): state for rank, state in line["states"].items()}
            else:
                left -= 1
                ended = self._ended(request, line)
                if ended and (failure is None or (failure.code > 0 > ended.code and patience < float("inf"))):
                    failure, patience = ended, min(patience, _GRACE_S)
            if not left:
                return failure and replace(failure, is_stuck=is_stuck, states=states)
            if patience <= 0:
                self._send({"op": "kill"})
                patience = float("inf")
        raise LaunchError(f"testbed {self.testbed.name} ended while ranks were running: {self._complaint()}")

    def _ended(self, request: WorldRequest, line: Mapping[str, int]) -> Failure | None:
        if not line["exit"]:
            return None
        host = request.rank_map.node_names[line["rank"] // request.rank_map.ngpus_per_node]
        return Failure(
            who=f"rank {line['rank']} on {host}", host=host, code=line["exit"], log=_rank_log(request, line["rank"])
        )

    def _rank(self, request: WorldRequest, rank: int) -> dict[str, object]:
        node_rank, local_rank = divmod(rank, request.rank_map.ngpus_per_node)
        names = request.rank_map.node_names
        missing = [name for name in names if name not in self.testbed.hosts]
        if missing:
            raise ConfigError(f"testbed {self.testbed.name} has no host {', '.join(missing)}")
        rendezvous = {
            "RANK": rank,
            "WORLD_SIZE": request.rank_map.nranks,
            "LOCAL_RANK": local_rank,
            "MASTER_ADDR": self.testbed.hosts[names[0]].address,
            "MASTER_PORT": request.port,
        }
        return {
            "pid": self.testbed.hosts[names[node_rank]].pid,
            "environment": {**request.environment, **{key: str(value) for key, value in rendezvous.items()}},
            "argv": list(request.argv),
            "log": str(_rank_log(request, rank)),
        }

    def _send(self, request: dict[str, object]) -> None:
        assert self._nursery is not None and self._nursery.stdin is not None
        try:
            self._nursery.stdin.write(json.dumps(request).encode() + b"\n")
            self._nursery.stdin.flush()
        except BrokenPipeError:
            raise LaunchError(f"testbed {self.testbed.name} is gone: {self._complaint()}") from None

    def _lines(self, tick: Tick) -> "_Lines":
        assert self._nursery is not None and self._nursery.stdout is not None
        return _Lines(self._nursery.stdout, tick)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the nursery's input, at which it ends every rank and itself."""
        if self._nursery is not None:
            self._nursery.communicate()
        if self._complaints is not None:
            self._complaints.close()


def _rank_log(request: WorldRequest, rank: int) -> Path:
    return request.logs / f"rank-{rank}.log"


_STUCK: dict[str, Any] = {"stuck": True}


class _Lines:
    """JSON lines of a pipe as they come; None each time nothing came for a while, _STUCK once the watcher says so."""

    def __init__(self, pipe: IO[bytes], tick: Tick) -> None:
        self.pipe = pipe
        self.tick = tick
        self.pending = b""
        self.is_stuck = False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> dict[str, Any] | None:
        if not self.is_stuck and self.tick():
            self.is_stuck = True
            return _STUCK
        if b"\n" not in self.pending:
            with selectors.DefaultSelector() as selector:
                selector.register(self.pipe, selectors.EVENT_READ)
                if not selector.select(_POLL_S):
                    return None
            chunk = os.read(self.pipe.fileno(), 65536)
            if not chunk:
                raise StopIteration
            self.pending += chunk
            if b"\n" not in self.pending:
                return None
        line, _, self.pending = self.pending.partition(b"\n")
        return dict(json.loads(line))


HostArgv = Callable[[str, Sequence[str]], list[str]]
"""Turns a host and a command into the command line that runs it there."""


def ssh_argv(host: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command on another machine by ssh, never asking a question."""
    ssh = shutil.which("ssh")
    if ssh is None:
        raise LaunchError("the program ssh is missing; install the Debian package openssh-client")
    return [ssh, "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, "--", shlex.join(command)]


class AgentWorlds:
    """Worlds of torchrun agents, one a host, with static ranks in the order of the rank map.

    Parameters
    ----------
    host_argv : callable
        How a host is reached: :meth:`Testbed.host_argv` or :func:`ssh_argv`.
    address : callable
        How the others reach a host, by its name.
    """

    def __init__(self, host_argv: HostArgv, address: Callable[[str], str]) -> None:
        self.host_argv = host_argv
        self.address = address
        self._agents: list[subprocess.Popen[bytes]] = []

    def describe(self, request: WorldRequest) -> str:
        """Return the command lines, one a host."""
        return "\n".join(shlex.join(self._argv(request, rank)) for rank in range(len(request.rank_map.node_names)))

    def _argv(self, request: WorldRequest, node_rank: int) -> list[str]:
        names = request.rank_map.node_names
        # A launch.py in the working folder must not shadow a module of ours.
        variables = {**request.environment, "PYTHONSAFEPATH": "1"}
        environment = [f"{name}={value}" for name, value in sorted(variables.items())]
        torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(names)}"]
        torchrun += [f"--nproc-per-node={request.rank_map.ngpus_per_node}", f"--node-rank={node_rank}"]
        torchrun += [f"--master-addr={self.address(names[0])}", f"--master-port={request.port}"]
        command = ["env", *environment, *torchrun, "-m", request.module, *request.argv]
        return self.host_argv(names[node_rank], command)

    def __enter__(self) -> Self:
        """Nothing is started before the first world."""
        return self

    def run(self, request: WorldRequest, tick: Tick) -> Failure | None:
        """Start an agent a host and wait for them; after a failure the others are given a moment, then ended."""
        names = request.rank_map.node_names
        logs = [request.logs / f"agent-{node_rank}.log" for node_rank in range(len(names))]
        argvs = [self._argv(request, node_rank) for node_rank in range(len(names))]
        with selectors.DefaultSelector() as selector:
            for node_rank, (argv, log) in enumerate(zip(argvs, logs, strict=True)):
                with log.open("ab") as file:
                    agent = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
                self._agents.append(agent)
                selector.register(os.pidfd_open(agent.pid), selectors.EVENT_READ, node_rank)
            failure: Failure | None = None
            patience, is_stuck = float("inf"), False
            while selector.get_map():
                ended = selector.select(_POLL_S)
                if not is_stuck and tick():
                    is_stuck = True
                    self._stop()
                for key, _ in ended:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = self._agents[key.data].wait()
                    ended_badly = _agent_failure(names[key.data], code, logs[key.data]) if code else None
                    if ended_badly and (failure is None or (failure.code > 0 > ended_badly.code and patience > 0)):
                        failure, patience = ended_badly, min(patience, _GRACE_S)
                patience -= 0 if ended else _POLL_S
                if patience <= 0:
                    self._stop()
        self._agents.clear()
        return failure and replace(failure, is_stuck=is_stuck)

    def _stop(self) -> None:
        """End every agent, and with it its ranks."""
        for agent in self._agents:
            if agent.poll() is None:
                agent.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the agents that still run."""
        self._stop()
        for agent in self._agents:
            agent.wait()


def _agent_failure(host: str, code: int, log: Path) -> Failure:
    """Return how an agent ended; where it says that a signal ended its rank, that is the failure."""
    signals = re.findall(r"exitcode\s*: (-\d+)", log.read_text(encoding="utf-8", errors="replace"))
    if signals:
        return Failure(who=f"a rank on {host}", host=host, code=int(signals[0]), log=log)
    return Failure(who=f"the torchrun agent on {host}", host=host, code=code, log=log)


def _command(request: WorldRequest) -> str:
    environment = [f"{name}={value}" for name, value in sorted(request.environment.items())]
    return shlex.join([*environment, "python", "-m", request.module, *request.argv])

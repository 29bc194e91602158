"""Bringing testbeds up and down and running programs in their hosts: edge; starts processes, opens sockets.

A testbed has no files. Its name is an abstract socket that its holder listens on, so a second one of the same name is
refused by the kernel, and nothing is left to clean up when the holder is gone.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError, LaunchError
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape

PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
}
"""What a testbed needs, and the Debian package that has it."""

_START_LIMIT_S = 60.0
_END_LIMIT_S = 5.0
_PROBE_LINKS = {LinkClass.HOST: LinkShape(rate_bits_per_s=1e9)}
_SBIN = "/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFile:
    """A ``[links.CLASS]`` table of a testbed file."""

    __pydantic_config__ = files.CONFIG
    rate: files.LinkRate | None = None
    delay: files.Seconds = 0.0
    loss: files.Share = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedFile:
    """A testbed file: the shape of the tree and what each class of links carries."""

    __pydantic_config__ = files.CONFIG
    name: str
    minipods: files.Count
    hosts_per_leaf: files.Count
    leaves_per_minipod: files.Count = 1
    rails: files.Count = 1
    links: dict[LinkClass, LinkFile]


def read_fabric(path: Path) -> Fabric:
    """Return the fabric of a testbed file; ConfigError lists every wrong key of it."""
    document = files.read_toml(path, TestbedFile)
    shapes = {
        kind: LinkShape(rate_bits_per_s=link.rate, delay_s=link.delay, loss=link.loss)
        for kind, link in document.links.items()
    }
    try:
        return Fabric(
            name=document.name,
            minipods=document.minipods,
            leaves_per_minipod=document.leaves_per_minipod,
            hosts_per_leaf=document.hosts_per_leaf,
            links=shapes,
            rails=document.rails,
        )
    except ValueError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningHost:
    """A host of a testbed that is up; ``pid`` is the process that keeps its namespaces."""

    name: str
    addresses: tuple[str, ...]
    leaf: str
    minipod: str
    pid: int

    @property
    def address(self) -> str:
        """What its name means: its address on rail 0."""
        return self.addresses[0]


class Testbed:
    """A testbed that is up."""

    def __init__(self, name: str, status: dict[str, Any], process: "subprocess.Popen[str] | None" = None) -> None:
        self.name = name
        self.pid: int = status["pid"]
        self.hosts = {host["name"]: _running(host) for host in status["hosts"]}
        self._process = process

    def links(self) -> list[dict[str, Any]]:
        """Return every link as it is shaped now: name, class, to, rate_bits_per_s, delay_s, loss."""
        found: list[dict[str, Any]] = ask(self.name, {"op": "status"})["links"]
        return found

    def set_rate(self, link: str, rate_bits_per_s: float) -> None:
        """Change the rate of a class of links, or of one link, in both directions while the testbed is up."""
        ask(self.name, {"op": "shape", "link": link, "rate_bits_per_s": rate_bits_per_s})

    def set_loss(self, link: str, loss: float) -> None:
        """Change the share of packets that a class of links, or one link, drops in each direction."""
        ask(self.name, {"op": "shape", "link": link, "loss": loss})

    def truth(self) -> dict[str, float]:
        """Return the rate of every shaped link [bits/s] under ``class/name``."""
        return {
            f"{link['class']}/{link['name']}": link["rate_bits_per_s"]
            for link in self.links()
            if link["rate_bits_per_s"] is not None
        }

    def host_argv(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command inside a host; ConfigError if there is no such host."""
        if host not in self.hosts:
            raise ConfigError(f"no host {host} in testbed {self.name}; its hosts are {', '.join(self.hosts)}")
        return [*_enter(self.hosts[host].pid), "--net", "--uts", "--mount", "--", *_dying(), *command]

    def switch_argv(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command beside the switches, in the testbed's own process space."""
        return [*_enter(self.pid), "--net", "--mount", "--", *command]

    def down(self) -> None:
        """End the testbed and everything that runs in it, if it is still up."""
        with contextlib.suppress(ProcessLookupError):
            _end(self.pid)
        if self._process is not None:
            self._process.communicate()


def _running(host: dict[str, Any]) -> RunningHost:
    return RunningHost(**host | {"addresses": tuple(host["addresses"])})


def _end(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(pidfd, number)
                if selector.select(_END_LIMIT_S):
                    return
    finally:
        os.close(pidfd)


def _enter(pid: int) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return [*_dying(), program("nsenter"), "--target", str(pid), *user, "--pid"]


def _dying() -> list[str]:
    """Return what makes a command end with the process that started it."""
    return [program("setpriv"), "--pdeathsig", "KILL"]


def program(name: str) -> str:
    """Return the path of a program that a testbed needs; LaunchError names the package that has it."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if found is None:
        raise LaunchError(f"the program {name} is missing; install the Debian package {PROGRAMS[name]}")
    return found


def refusal() -> str:
    """Return why this machine cannot have a testbed, "" where it can: one of two hosts is brought up and ended."""
    smallest = Fabric(
        name=f"probe-{os.getpid()}", minipods=1, leaves_per_minipod=1, hosts_per_leaf=2, links=_PROBE_LINKS
    )
    try:
        up(smallest, attached=True).down()
    except LaunchError as error:
        return str(error)
    return ""


def up(fabric: Fabric, *, attached: bool) -> Testbed:
    """Bring a testbed up and return it.

    Parameters
    ----------
    fabric : Fabric
    attached : bool
        The testbed ends with this process, however that ends; otherwise it stays until it is told to go.

    Raises
    ------
    ConfigError
        If a testbed of this name is up already.
    LaunchError
        If a program is missing, or the machine refuses namespaces or a kind of link.
    """
    for name in PROGRAMS:
        program(name)
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile("w+") as complaints:
        _bind(listener, fabric.name)
        process = subprocess.Popen(
            _holder_argv(listener.fileno(), "attached" if attached else "detached"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            pass_fds=(listener.fileno(),),
            start_new_session=True,
            env=os.environ | {"PATH": f"{os.environ.get('PATH', '')}:{_SBIN}", "PYTHONSAFEPATH": "1"},
        )
        status = _first_answer(process, fabric, complaints)
    if attached:
        return Testbed(fabric.name, status, process)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return Testbed(fabric.name, status)


def _holder_argv(listener: int, lifetime: str) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = [program("unshare"), *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
    return [*unshare, sys.executable, "-m", "spanfit.launch.holder", str(listener), lifetime]


def _first_answer(process: "subprocess.Popen[str]", fabric: Fabric, complaints: Any) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            process.stdin.write(json.dumps(files.plain(fabric)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline() if selector.select(_START_LIMIT_S) else ""
        except BrokenPipeError:
            line = ""
    reply = json.loads(line) if line else {}
    if "pid" in reply:
        return dict(reply)
    process.kill()
    process.communicate()
    complaints.seek(0)
    raise LaunchError(_refusal(reply.get("error") or complaints.read().strip() or "no answer"))


def _refusal(reason: str) -> str:
    if "qdisc kind is unknown" in reason:
        return f"testbed: this kernel cannot delay packets (no netem); leave delay out ({reason})"
    if "/proc/sys" in reason:
        return f"testbed: this machine lets no one keep the rails of a host apart; use rails = 1 ({reason})"
    if "nft: " in reason:
        return f"testbed: dropping packets needs the Debian package nftables; install it or leave loss out ({reason})"
    if "unshare failed" in reason or "ermission denied" in reason or "not permitted" in reason:
        return (
            f"testbed: this machine refuses namespaces ({reason}); run as root, allow unprivileged user namespaces "
            "(on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or use a virtual machine"
        )
    return f"testbed: cannot be built: {reason}"


def _prefix() -> str:
    return f"\0spanfit-testbed-{os.geteuid()}-"


def _bind(listener: socket.socket, name: str) -> None:
    try:
        listener.bind(_prefix() + name)
    except OSError as error:
        raise ConfigError(
            f"a testbed named {name} is up already; use it, end it with 'spanfit testbed down {name}', or choose "
            "another name"
        ) from error
    listener.listen()


def names() -> tuple[str, ...]:
    """Return the names of this user's testbeds that are up."""
    prefix = _prefix().replace("\0", "@")
    fields = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    found = {field[-1].removeprefix(prefix) for field in fields if field[-1].startswith(prefix)}
    return tuple(sorted(found))


def connect(name: str) -> Testbed:
    """Return a testbed that is up; ConfigError where there is none of this name."""
    return Testbed(name, ask(name, {"op": "status"}))


def ask(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a holder's answer to a request; ConfigError if there is no such testbed or it refuses."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_START_LIMIT_S)
        try:
            client.connect(_prefix() + name)
        except OSError as error:
            others = ", ".join(names()) or "none"
            raise ConfigError(
                f"no testbed named {name} is up (up now: {others}); start it with 'spanfit testbed up FILE'"
            ) from error
        client.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(client.makefile("rb").readline() or b'{"error": "the testbed ended"}')
    if "error" in reply:
        raise ConfigError(f"testbed {name}: {reply['error']}")
    return dict(reply)

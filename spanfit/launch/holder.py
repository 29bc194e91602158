"""The process that owns a testbed: edge; makes namespaces, interfaces and a tmpfs of its own and nothing else.

It runs as process 1 of a PID namespace of its own (started by :mod:`spanfit.launch.testbed` through ``unshare``), so
when it ends, however it ends, the kernel ends every process in the testbed, and with them the namespaces, interfaces
and mounts. It answers requests on a listening socket that it inherits: the socket's name is the testbed's lock.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spanfit.launch import fabric as fabrics
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape

_HOSTS_FILE = Path("/run/spanfit-hosts")
_REQUEST_LIMIT_BYTES = 65536
_HOST_SCRIPT = """
hostname "$1" && mount --bind "$2" /etc/hosts && read pid rest < /proc/self/stat && echo "$pid" && exec sleep infinity
"""


class SetupError(Exception):
    """A command that builds the testbed failed; the text says which and why."""


def run(argv: list[str], lines: str = "") -> None:
    """Run a command to its end, with text on its standard input."""
    try:
        done = subprocess.run(argv, input=lines, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SetupError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        raise SetupError(f"{' '.join(argv)}: {done.stderr.strip() or f'exit {done.returncode}'}")


class Holder:
    """A testbed that is up: its hosts' processes and the shape of every link."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.pids: dict[str, int] = {}
        self.shapes = {link.name: fabric.links.get(link.link_class, LinkShape()) for link in fabrics.links(fabric)}

    def build(self) -> None:
        """Make hosts, switches and cables, and shape them."""
        run(["mount", "-t", "tmpfs", "-o", "size=1m", "spanfit", "/run"])
        _HOSTS_FILE.write_text(fabrics.render_hosts_file(self.fabric))
        inner = {host.name: self._start_host(host.name) for host in fabrics.hosts(self.fabric)}
        run(["ip", "-batch", "-"], _lines(fabrics.render_switches(self.fabric, inner)))
        settings = _lines(fabrics.render_rail_settings(self.fabric))
        for host in fabrics.hosts(self.fabric):
            if settings:
                run([*self._inside(host.name), "sh", "-e"], settings)
            run([*self._inside(host.name), "ip", "-batch", "-"], _lines(fabrics.render_host(host)))
        self.shape(fabrics.links(self.fabric), self.shapes)

    def _start_host(self, name: str) -> int:
        """Start the process that keeps a host's namespaces; return its id as this process sees it."""
        argv = ["unshare", "--net", "--uts", "--mount", "sh", "-c", _HOST_SCRIPT, "sh", name, str(_HOSTS_FILE)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            raise SetupError(f"host {name}: {process.stderr.read().strip()}")
        # /proc still belongs to the outside, so the host read the id by which the outside knows it.
        self.pids[name] = int(line)
        return process.pid

    def _inside(self, host: str) -> list[str]:
        return ["nsenter", "--target", str(self.pids[host]), "--net"]

    def shape(self, links: tuple[fabrics.Link, ...], shapes: dict[str, LinkShape]) -> None:
        """Shape both ends of links; remember it only if the kernel took it."""
        rates: list[str] = []
        losses: list[str] = []
        for link in links:
            shape = shapes[link.name]
            rates += fabrics.render_shape(link.link_class, link.down_device, shape)
            lost = fabrics.render_no_loss if self.shapes[link.name].loss and not shape.loss else None
            losses += lost(link.down_device) if lost else fabrics.render_loss(link.down_device, shape)
            up_rates = list(fabrics.render_shape(link.link_class, link.up_device, shape))
            up_losses = list(lost(link.up_device) if lost else fabrics.render_loss(link.up_device, shape))
            if link.link_class is LinkClass.HOST:
                _apply(self._inside(link.host), up_rates, up_losses)
            else:
                rates += up_rates
                losses += up_losses
        _apply([], rates, losses)
        self.shapes |= {link.name: shapes[link.name] for link in links}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request of the testbed's owner."""
        if request["op"] == "shape":
            links = fabrics.select_links(self.fabric, request["link"])
            changes = {key: request[key] for key in ("rate_bits_per_s", "loss") if key in request}
            self.shape(links, {link.name: replace(self.shapes[link.name], **changes) for link in links})
        return {
            "pid": _outer_pid(),
            "hosts": [{**asdict(host), "pid": self.pids[host.name]} for host in fabrics.hosts(self.fabric)],
            "links": [
                {
                    "name": link.name,
                    "class": link.link_class,
                    "to": link.peer,
                    "rate_bits_per_s": self.shapes[link.name].rate_bits_per_s,
                    "delay_s": self.shapes[link.name].delay_s,
                    "loss": self.shapes[link.name].loss,
                }
                for link in fabrics.links(self.fabric)
            ],
        }


def _apply(inside: list[str], rates: list[str], losses: list[str]) -> None:
    if rates:
        run([*inside, "tc", "-batch", "-"], _lines(rates))
    if losses:
        run([*inside, "nft", "-f", "-"], _lines(losses))


def _lines(commands: Any) -> str:
    return "".join(f"{line}\n" for line in commands)


def _outer_pid() -> int:
    return int(Path("/proc/self").readlink().name)


def _is_owner(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def _serve_one(holder: Holder, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5)
        if not _is_owner(connection):
            return
        try:
            request = json.loads(connection.makefile("rb").readline(_REQUEST_LIMIT_BYTES))
            reply = holder.answer(request)
        except (SetupError, ValueError, KeyError) as error:
            reply = {"error": str(error)}
        except TimeoutError:
            return
        connection.sendall(json.dumps(reply).encode() + b"\n")


def main() -> None:
    """Build the testbed described on the first line of standard input, say so, and serve until told to end.

    Arguments are the inherited socket's descriptor and ``attached`` or ``detached``: an attached holder ends with
    the process at the other end of its standard input.
    """
    listener = socket.socket(fileno=int(sys.argv[1]))
    holder = Holder(parse_fabric(json.loads(sys.stdin.readline())))
    try:
        holder.build()
    except (SetupError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps(holder.answer({"op": "status"})), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    if sys.argv[2] == "attached":
        selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select(timeout=1):
            if key.fileobj is sys.stdin:
                return
            _serve_one(holder, listener)
        _reap()


def _reap() -> None:
    """Collect the testbed's orphans, which process 1 inherits."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def parse_fabric(document: dict[str, Any]) -> Fabric:
    """Return the fabric that :func:`spanfit.files.plain` made plain."""
    shapes = {LinkClass(kind): LinkShape(**shape) for kind, shape in document.pop("links").items()}
    return Fabric(**document, links=shapes)


if __name__ == "__main__":
    main()

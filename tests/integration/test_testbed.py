"""The emulated fat tree: its hosts are hosts, its rates hold, and its end leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import spanfit as spanfit_package
from spanfit.errors import ConfigError, ExitCode, LaunchError
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.launch.testbed import Testbed
from tests.conftest import make_fabric
from tests.integration.factory import namespace, processes_in, wait_for_end

BringUp = Callable[[Fabric], Testbed]

_RECEIVER = """
import socket, sys, time
with socket.create_server(("", 5000)) as server:
    print("ready", flush=True)
    server.settimeout(60)
    connection, _ = server.accept()
    connection.settimeout(60)
    left, start = int(sys.argv[1]), None
    while left > 0:
        left -= len(connection.recv(1 << 20))
        start = start or (time.monotonic(), left)
    print((start[1] - left) / (time.monotonic() - start[0]))
"""
_SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=60) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # an abandoned socket gives up soon where packets are lost
"""


_COUNTER = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind(("", 5001))
    print("ready", flush=True)
    count = 0
    while receiver.recv(64) != b"end":
        count += 1
    print(count)
"""
_DATAGRAMS = 200
"""So few that they fit the receiver's buffer."""
_SPRAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(int(sys.argv[2])):
        sender.sendto(b"x", (sys.argv[1], 5001))
    for _ in range(100):
        sender.sendto(b"end", (sys.argv[1], 5001))
"""


def lost_share(bed: Testbed, source: str, target: str) -> float:
    """Return the share of small datagrams from one host to another that are lost."""
    # A connection first, so that both hosts know each other's hardware address.
    throughput(bed, source, target, 1 << 10)
    with subprocess.Popen(
        bed.host_argv(target, [sys.executable, "-c", _COUNTER]), stdout=subprocess.PIPE, text=True
    ) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        spray = [sys.executable, "-c", _SPRAY, bed.hosts[target].address, str(_DATAGRAMS)]
        subprocess.run(bed.host_argv(source, spray), check=True)
        return 1 - int(receiver.stdout.read()) / _DATAGRAMS


def throughput(bed: Testbed, source: str, target: str, size_bytes: int, rail: int = 0) -> float:
    """Return the TCP payload rate [bytes/s] from one host to another's address on a rail."""
    receive = bed.host_argv(target, [sys.executable, "-c", _RECEIVER, str(size_bytes)])
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        address = bed.hosts[target].addresses[rail]
        subprocess.run(bed.host_argv(source, [sys.executable, "-c", _SENDER, address, str(size_bytes)]), check=True)
        return float(receiver.stdout.read())


def test_hosts_have_their_own_name_addresses_and_hosts_file(bring_up: BringUp) -> None:
    bed = bring_up(make_fabric("names", hosts_per_leaf=2))
    script = "hostname; ip -brief -4 addr show dev eth0; getent hosts m1l0h1"
    done = subprocess.run(bed.host_argv("m0l0h1", ["sh", "-c", script]), capture_output=True, text=True, check=True)
    name, address, lookup = done.stdout.splitlines()
    assert name == "m0l0h1"
    assert address.split()[2] == "10.77.0.2/16"
    assert lookup.split() == ["10.77.1.2", "m1l0h1"]


def test_every_link_class_carries_its_own_rate_and_can_change_while_up(bring_up: BringUp) -> None:
    bed = bring_up(make_fabric("rates", hosts_per_leaf=2, host=4e8, uplink=1e8))
    within, across = (throughput(bed, "m0l0h0", target, 8 << 20) for target in ("m0l0h1", "m1l0h0"))
    assert within == pytest.approx(4e8 / 8 * 0.956, rel=0.1)
    assert across == pytest.approx(1e8 / 8 * 0.956, rel=0.1)
    bed.set_rate("m0", 2e8)
    bed.set_rate("m1", 2e8)
    assert throughput(bed, "m0l0h0", "m1l0h0", 8 << 20) == pytest.approx(2e8 / 8 * 0.956, rel=0.1)
    assert bed.truth()["minipod/m1"] == 2e8
    with pytest.raises(ConfigError, match="no link 'm7'"):
        bed.set_rate("m7", 1e8)


def test_loss_comes_and_goes_while_it_is_up(bring_up: BringUp) -> None:
    bed = bring_up(make_fabric("loses", hosts_per_leaf=2))
    for link in ("m0l0h1", "m0"):
        bed.set_loss(link, 0.1)
        assert {found["name"] for found in bed.links() if found["loss"] == 0.1} == {link}
        assert lost_share(bed, "m0l0h1", "m1l0h0") == pytest.approx(0.1, abs=0.085)
        bed.set_loss(link, 0.0)
        bed.set_loss(link, 0.0)
    assert lost_share(bed, "m0l0h1", "m1l0h0") == 0


def test_two_under_one_name_are_refused_and_the_first_goes_on(bring_up: BringUp) -> None:
    fabric = make_fabric("twins", hosts_per_leaf=2)
    bring_up(fabric)
    with pytest.raises(ConfigError, match="is up already"):
        beds.up(fabric, attached=True)
    assert len(beds.connect(fabric.name).hosts) == 4


@pytest.mark.parametrize("end", ["down", "killed"])
def test_its_end_leaves_no_process_and_no_name(bring_up: BringUp, end: str) -> None:
    outside = _links()
    bed = bring_up(make_fabric("gone", hosts_per_leaf=2))
    sleeper = subprocess.Popen(bed.host_argv("m0l0h0", ["sh", "-c", "echo in; exec sleep 600"]), stdout=subprocess.PIPE)
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == b"in\n"
    identity = namespace(bed.pid, "pid")
    inside = processes_in("pid", identity)
    assert len(inside) >= 6, "the holder, four hosts and the sleeper"
    if end == "down":
        bed.down()
    else:
        os.kill(bed.pid, signal.SIGKILL)
    wait_for_end(inside)
    bed.down()
    assert sleeper.wait() != 0
    sleeper.stdout.close()
    assert bed.name not in beds.names()
    assert _links() == outside


def _links() -> list[str]:
    done = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True)
    return [link["ifname"] for link in json.loads(done.stdout)]


def test_a_delay_is_kept_or_refused_in_words(bring_up: BringUp) -> None:
    fabric = make_fabric("delay", hosts_per_leaf=2)
    slow = replace(fabric, links={LinkClass.HOST: LinkShape(rate_bits_per_s=4e8, delay_s=0.005)})
    try:
        bed = bring_up(slow)
    except LaunchError as error:
        assert "no netem" in str(error)
        return
    done = subprocess.run(
        bed.host_argv("m0l0h0", ["tc", "qdisc", "show", "dev", "eth0"]), capture_output=True, text=True, check=True
    )
    assert "delay 5ms" in done.stdout


def test_a_lossy_link_class_loses_at_both_ends_of_a_path(bring_up: BringUp) -> None:
    fabric = make_fabric("loss", hosts_per_leaf=2)
    if shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("dropping packets needs the Debian package nftables")
    bed = bring_up(replace(fabric, links={LinkClass.HOST: LinkShape(rate_bits_per_s=4e8, loss=0.1)}))
    assert lost_share(bed, "m0l0h0", "m0l0h1") == pytest.approx(1 - 0.9**2, abs=0.11)


def spanfit(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "spanfit", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_commands_bring_it_up_show_it_enter_it_and_end_it(namespaces: None, tmp_path: Path) -> None:
    name = f"commands-{os.getpid()}"
    file = tmp_path / "testbed.toml"
    file.write_text(f'name = "{name}"\nminipods = 2\nhosts_per_leaf = 1\n[links.host]\nrate = "1gbit"\n')
    assert spanfit("testbed", "up", file).returncode == 0
    try:
        again = spanfit("testbed", "up", file)
        assert again.returncode == ExitCode.BAD_INPUT
        assert "is up already" in again.stderr
        assert name in spanfit("testbed", "status").stdout
        assert spanfit("testbed", "rate", name, "host", "100mbit").returncode == 0
        status = json.loads(spanfit("testbed", "status", name, "--json").stdout)
        rates = {link["rate_bits_per_s"] for link in status["links"] if link["class"] == "host"}
        assert rates == {1e8}
        entered = spanfit("testbed", "exec", name, "m1l0h0", "--", "sh", "-c", "hostname; exit 7")
        assert (entered.stdout, entered.returncode) == ("m1l0h0\n", 7)
        assert "no host m9" in spanfit("testbed", "exec", name, "m9", "--", "true").stderr
    finally:
        assert spanfit("testbed", "down", name).returncode == 0
    assert spanfit("testbed", "down", name).returncode == ExitCode.BAD_INPUT


@pytest.mark.skipif(os.geteuid() != 0, reason="already runs without root")
def test_it_comes_up_without_root(namespaces: None, tmp_path: Path) -> None:
    script = """
import subprocess
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
links = {LinkClass.HOST: LinkShape(rate_bits_per_s=1e9)}
bed = beds.up(Fabric(name="rootless", minipods=1, leaves_per_minipod=1, hosts_per_leaf=2, links=links), attached=True)
print(subprocess.run(bed.host_argv("m0l0h1", ["hostname"]), capture_output=True, text=True, check=True).stdout)
bed.down()
"""
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]
    libraries = [str(Path(spanfit_package.__file__).parents[1]), sysconfig.get_path("purelib")]
    environment = os.environ | {"PYTHONPATH": ":".join(libraries), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"}

    def is_fit(python: str) -> bool:
        probe = [
            *as_nobody,
            "unshare",
            "--user",
            "--map-root-user",
            "--net",
            python,
            "-c",
            "import spanfit.launch.testbed",
        ]
        return subprocess.run(probe, capture_output=True, check=False, env=environment).returncode == 0

    # A Python under root's home cannot be read by others; the system's can, with this one's libraries.
    python = next(filter(is_fit, (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("another user cannot make namespaces, or can run neither this Python nor the system's")
    argv = [*as_nobody, python, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "m0l0h1", done.stderr

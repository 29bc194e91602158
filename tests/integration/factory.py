"""Small campaigns on small testbeds, written as files as a person would."""

import contextlib
import os
import selectors
from pathlib import Path

from spanfit.launch import fabric as fabrics
from spanfit.launch.fabric import Fabric
from spanfit.topology.readers.cluster_toml import render_cluster


def write_campaign(folder: Path, fabric: Fabric, body: str, *, launcher: str = "testbed", timeout: str = "60s") -> Path:
    """Write testbed, cluster and campaign files of a fabric with one leaf a minipod; return the campaign's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = "".join(
        f'[links.{kind}]\nrate = "{shape.rate_bits_per_s:.0f}bit"\n' for kind, shape in fabric.links.items()
    )
    shape = f"minipods = {fabric.minipods}\nhosts_per_leaf = {fabric.hosts_per_leaf}\n"
    (folder / "testbed.toml").write_text(f'name = "{fabric.name}"\n{shape}{tables}')
    (folder / "cluster.toml").write_text(render_cluster(fabrics.cluster(fabric)))
    launch = f'[launch]\nlauncher = "{launcher}"\ntestbed = "testbed.toml"\ntimeout = "{timeout}"\n'
    head, _, tables = body.partition("[")
    text = f'name = "test"\ncluster = "cluster.toml"\n{head}{launch}[{tables}'
    (folder / "campaign.toml").write_text(text)
    return folder / "campaign.toml"


SMALL = """launches = 2
[collectives]
operations = ["all_reduce", "send_recv", "broadcast"]
sizes = ["64K", "128K"]
nodes_per_group = 2
spans = [1, 2]
concurrency = ["alone", "all"]
repetitions = 4
"""
"""A campaign of 24 quick cases a launch on two minipods of two hosts."""


def namespace(pid: int, kind: str) -> str:
    """Return what identifies a process's namespace of a kind, such as net or pid."""
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def processes_in(kind: str, identity: str) -> list[int]:
    """Return the processes in a namespace, which :func:`namespace` has identified."""
    found = []
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            if namespace(pid, kind) == identity:
                found.append(pid)
    return found


def wait_for_end(pids: list[int]) -> None:
    """Block until processes that are not our children have ended; fail if one does not."""
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ)
        while selector.get_map():
            ended = selector.select(timeout=20)
            assert ended, "a process of the testbed outlived it"
            for key, _ in ended:
                selector.unregister(key.fd)
                os.close(key.fd)

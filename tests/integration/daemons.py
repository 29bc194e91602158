"""Real Slurm and real sshd in the hosts of a testbed, each with its state in a folder of the test."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from spanfit.launch.testbed import Testbed

_READY_S = 30.0
SLURM_CONF = """ClusterName=testbed
SlurmctldHost={first}({address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SSHD_CONF = """Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
"""
SSH_CONF = """IdentityFile {folder}/user_key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


def find(program: str) -> str | None:
    """Return the path of a program, or of a daemon, which PATH may not have."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextlib.contextmanager
def running(commands: list[list[str]], log: Path, environment: dict[str, str]) -> Iterator[list[int]]:
    """Run daemons for the time of the block; give their process ids."""
    with log.open("ab") as file:
        started = [
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | environment)
            for argv in commands
        ]
    try:
        yield [process.pid for process in started]
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def slurm(bed: Testbed, folder: Path, *, topology: str = "", ngpus: int = 0) -> Iterator[dict[str, str]]:
    """Give the variables by which Slurm finds a cluster of the testbed's hosts; it lasts as long as the block.

    Slurm knows the switches of ``topology``, a topology.conf, and takes empty files for GPUs where ``ngpus`` are asked
    for. RuntimeError with the daemons' log where it does not come up.
    """
    for name in ("state", *(f"spool/{host}" for host in bed.hosts)):
        (folder / name).mkdir(parents=True)
    first = next(iter(bed.hosts))
    gres = f" Gres=gpu:h200:{ngpus}" if ngpus else ""
    nodes = "\n".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs=4 RealMemory=1000{gres} State=UNKNOWN"
        for host in bed.hosts.values()
    )
    if topology:
        (folder / "topology.conf").write_text(topology)
        nodes = f"TopologyPlugin=topology/tree\n{nodes}"
    if ngpus:
        nodes = f"GresTypes=gpu\n{nodes}"
        devices = [folder / f"gpu{index}" for index in range(ngpus)]
        lines = ["AutoDetect=off", *(f"Name=gpu Type=h200 File={device}" for device in devices)]
        (folder / "gres.conf").write_text("\n".join([*lines, ""]))
        for device in devices:
            device.touch()
    text = SLURM_CONF.format(first=first, address=bed.hosts[first].address, folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=no\n")
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    munged = [str(find("munged")), "-F", "--force", f"--key-file={folder}/munge.key"]
    munged += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"]
    munged += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    commands = [munged, bed.host_argv(first, [str(find("slurmctld")), "-D", "-c"])]
    commands += [bed.host_argv(host, [str(find("slurmd")), "-D"]) for host in bed.hosts]
    environment, log = {"SLURM_CONF": str(folder / "slurm.conf")}, folder / "daemons.log"
    with running(commands, log, environment):
        _wait_for_nodes(bed, first, environment, log)
        yield environment


def _wait_for_nodes(bed: Testbed, first: str, environment: dict[str, str], log: Path) -> None:
    argv = bed.host_argv(first, ["sinfo", "--noheader", "--format=%T %D"])
    deadline, said = time.monotonic() + _READY_S, ""
    while time.monotonic() < deadline:
        answer = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | environment)
        said = answer.stdout.strip()
        if said == f"idle {len(bed.hosts)}":
            return
        time.sleep(0.2)
    raise RuntimeError(f"Slurm did not come up in {_READY_S:.0f} s (sinfo: {said!r}):\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def sshd(bed: Testbed, folder: Path) -> Iterator[Path]:
    """Give a folder whose ``ssh`` reaches the testbed's hosts through a real sshd in each, without a question asked."""
    for key in ("host_key", "user_key"):
        subprocess.run([str(find("ssh-keygen")), "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "sshd.conf").write_text(SSHD_CONF.format(folder=folder))
    (folder / "ssh.conf").write_text(SSH_CONF.format(folder=folder))
    programs = folder / "bin"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find("ssh")))} -F {shlex.quote(str(folder / "ssh.conf"))} "$@"\n')
    ssh.chmod(0o755)
    # sshd insists on this folder, and hosts have a /run of their own.
    start = f"mkdir -p /run/sshd && exec {find('sshd')} -D -e -f {shlex.quote(str(folder / 'sshd.conf'))}"
    commands = [bed.host_argv(host, ["sh", "-c", start]) for host in bed.hosts]
    with running(commands, folder / "sshd.log", {}):
        for host in bed.hosts.values():
            _wait_for_port(host.address, 22, bed)
        yield programs


def _wait_for_port(address: str, port: int, bed: Testbed) -> None:
    code = f"import socket; socket.create_connection(({address!r}, {port}), 1).close()"
    argv = bed.host_argv(next(iter(bed.hosts)), [sys.executable, "-c", code])
    deadline = time.monotonic() + _READY_S
    while subprocess.run(argv, capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing listens on {address} port {port} after {_READY_S:.0f} s")

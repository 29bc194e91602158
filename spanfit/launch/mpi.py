"""Worlds that mpirun starts, in the order of the rank map: edge; asks mpirun for its version.

Inside a testbed mpirun runs in the first host and reaches the others through a script in the place of ssh.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from spanfit.errors import LaunchError
from spanfit.launch.commands import CommandWorlds, rank_command
from spanfit.launch.render.mpi import ORDERED, Mpi, parse_version, render_hosts
from spanfit.launch.testbed import Testbed, program
from spanfit.launch.worlds import WorldRequest

_ANSWER_LIMIT_S = 30.0
_HOSTS = "hosts.txt"
_DEVICE = "eth0"


_OPEN_MPI_EMULATED = ("--mca", "btl", "self,{shared},tcp", "--mca", "btl_tcp_if_include", _DEVICE)
_EMULATED: dict[Mpi, tuple[str, ...]] = {
    Mpi.OPEN_MPI_4: (
        *("--mca", "plm_rsh_agent", "{agent}", "--mca", "oob_tcp_if_include", _DEVICE),
        *("--mca", "orte_tmpdir_base", "{scratch}", "--mca", "pml", "ob1"),
        *(word.replace("{shared}", "vader") for word in _OPEN_MPI_EMULATED),
        *("--mca", "mpi_yield_when_idle", "1"),
    ),
    Mpi.OPEN_MPI_5: (
        *("--prtemca", "plm_ssh_agent", "{agent}", "--prtemca", "prte_if_include", _DEVICE),
        *("--prtemca", "prte_tmpdir_base", "{scratch}", "--mca", "pml", "ob1"),
        *(word.replace("{shared}", "sm") for word in _OPEN_MPI_EMULATED),
        *("--mca", "mpi_yield_when_idle", "1"),
    ),
    Mpi.MPICH: ("-launcher", "ssh", "-launcher-exec", "{agent}", "-iface", _DEVICE),
}
"""What keeps to the emulated links. Hosts share two cores, so a rank that waits must yield. The scratch folder is one
of ours, since the names that Open MPI gives its own are made of process ids, which testbeds share."""

_EMULATED_ENVIRONMENT: dict[Mpi, dict[str, str]] = {
    Mpi.OPEN_MPI_4: {},
    Mpi.OPEN_MPI_5: {},
    # Otherwise MPICH crosses hosts through shared memory, since they are one machine.
    Mpi.MPICH: {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": _DEVICE, "MPIR_CVAR_NOLOCAL": "1"},
}


def render_agent(pids: Mapping[str, int], nsenter: str, setpriv: str) -> str:
    """Return a script that runs a command in a host of a testbed, called as ssh is: options, host, command.

    Parameters
    ----------
    pids : mapping of str to int
        The process that keeps each host's namespaces.
    nsenter, setpriv : str
        Paths of these programs.
    """
    table = "\n".join(f"    {shlex.quote(host)}) pid={pid} ;;" for host, pid in pids.items())
    return f"""\
#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
case $host in
{table}
    *) echo "no host $host in this testbed" >&2; exit 2 ;;
esac
exec {shlex.quote(nsenter)} --target "$pid" --net --uts --mount -- \\
    {shlex.quote(setpriv)} --pdeathsig KILL sh -c "$*"
"""


def mpirun_argv(
    mpi: Mpi, mpirun: str, request: WorldRequest, command: list[str], *, as_root: bool, scratch: Path | None = None
) -> list[str]:
    """Return the mpirun command line of a world whose hosts file is in the folder of its logs.

    Parameters
    ----------
    mpirun : str
        Path of the program.
    command : list of str
        What each rank runs.
    as_root : bool
        Open MPI must be told that this is meant.
    scratch : Path, optional
        The folder with ``agent`` in it, for hosts of a testbed; otherwise hosts are reached by ssh.
    """
    options = ["-n", str(request.rank_map.nranks)]
    if as_root and mpi is not Mpi.MPICH:
        options.append("--allow-run-as-root")
    options += [*ORDERED[mpi], str(request.logs / _HOSTS)]
    if scratch is not None:
        options += [word.format(agent=scratch / "agent", scratch=scratch) for word in _EMULATED[mpi]]
    return [mpirun, *options, *command]


class MpirunWorlds(CommandWorlds):
    """Worlds of one mpirun each, in the hosts of a testbed or on hosts that ssh reaches.

    Parameters
    ----------
    bed : Testbed, optional
    of_python : bool
        Whether the ranks are Python's, so that the mpirun beside it comes first.
    """

    def __init__(self, bed: Testbed | None = None, *, of_python: bool = True) -> None:
        super().__init__("mpirun")
        self.bed = bed
        self.mpirun, self.mpi = find_mpirun(of_python=of_python)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        if bed is not None:
            self._scratch = tempfile.TemporaryDirectory(prefix="spanfit-mpi-")
            agent = Path(self._scratch.name) / "agent"
            pids = {host.name: host.pid for host in bed.hosts.values()}
            agent.write_text(render_agent(pids, program("nsenter"), program("setpriv")), encoding="utf-8")
            agent.chmod(0o755)

    def texts(self, request: WorldRequest) -> dict[str, str]:
        """Return the hosts file."""
        return {_HOSTS: render_hosts(self.mpi, request.rank_map)}

    def argv(self, request: WorldRequest) -> list[str]:
        """Return the mpirun command line, in a testbed run in the first host."""
        first = request.rank_map.node_names[0]
        if self.bed is None or self._scratch is None:
            command = rank_command(request, first)
            return mpirun_argv(self.mpi, self.mpirun, request, command, as_root=os.geteuid() == 0)
        enter = self.bed.host_argv(first, ())
        command = rank_command(request, self.bed.hosts[first].address, _EMULATED_ENVIRONMENT[self.mpi])
        scratch = Path(self._scratch.name)
        # A testbed's user is root inside, whoever that is outside.
        return [*enter, *mpirun_argv(self.mpi, self.mpirun, request, command, as_root=True, scratch=scratch)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End mpirun if it still runs, and remove the agent."""
        super().__exit__(kind, error, trace)
        if self._scratch is not None:
            self._scratch.cleanup()


def find_mpirun(*, of_python: bool = True) -> tuple[str, Mpi]:
    """Return the path and kind of the first mpirun of two places: beside this Python, and on PATH.

    The one beside Python, which mpi4py's wheels belong to, comes first with ``of_python``, else last: other programs
    were built with that on PATH.

    Raises
    ------
    LaunchError
        If there is none, or none that is understood.
    """
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    mpirun = shutil.which("mpirun", path=":".join(folders if of_python else reversed(folders)))
    if mpirun is None:
        raise LaunchError("the program mpirun is missing; install spanfit's extra 'mpi', or Open MPI or MPICH")
    answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False, timeout=_ANSWER_LIMIT_S)
    try:
        return mpirun, parse_version(answer.stdout.strip())
    except ValueError as error:
        raise LaunchError(f"{mpirun} --version: {error}") from None

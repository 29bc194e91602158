"""Opening what a campaign names to start its worlds: edge, brings testbeds up and down."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from spanfit.bench.campaign_file import CampaignFile, Engine, Launcher
from spanfit.errors import ConfigError
from spanfit.launch import fabric as fabrics
from spanfit.launch import testbed
from spanfit.launch.commands import CommandWorlds, LocalWorlds
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import MpirunWorlds
from spanfit.launch.slurm import SrunWorlds
from spanfit.launch.testbed import Testbed
from spanfit.launch.worlds import AgentWorlds, ForkedWorlds, Worlds, ssh_argv
from spanfit.profiler.programs import Programs, ProgramWorlds

WORKER = "spanfit.bench.worker"
MPI_WORKER = "spanfit.bench.mpi_worker"

Way = tuple[Worlds, str, dict[str, float]]
"""How worlds are started, what their traffic goes over, and the known rates [bits/s] of that."""


@contextmanager
def open_worlds(launcher: Launcher, fabric: Fabric | None) -> Iterator[Way]:
    """Give a way to start worlds, what their traffic goes over, and the known rates [bits/s] of that.

    A testbed that is up already is used and left up; otherwise one is brought up for the time of the campaign.
    """
    if not launcher.on_testbed:
        starters: dict[Launcher, Callable[[], Worlds]] = {
            Launcher.SSH: lambda: AgentWorlds(ssh_argv, str),
            Launcher.MPIRUN: MpirunWorlds,
            Launcher.SRUN: SrunWorlds,
        }
        with starters[launcher]() as worlds:
            yield worlds, "network between the hosts", {}
        return
    assert fabric is not None
    with open_testbed(fabric) as bed:
        transport = f"testbed {bed.name} (emulated: network namespaces on one machine)"
        in_testbed: dict[Launcher, Callable[[], Worlds]] = {
            Launcher.TESTBED: lambda: ForkedWorlds(bed, WORKER),
            Launcher.TESTBED_TORCHRUN: lambda: AgentWorlds(bed.host_argv, lambda host: bed.hosts[host].address),
            Launcher.TESTBED_MPIRUN: lambda: MpirunWorlds(bed),
        }
        with in_testbed[launcher]() as worlds:
            yield worlds, transport, bed.truth()


def open_campaign(campaign: CampaignFile, fabric: Fabric | None, base: Path, logs: Path) -> AbstractContextManager[Way]:
    """Return what starts the worlds of a campaign, ours or programs in their place, open while its block lasts.

    Parameters
    ----------
    base : Path
        What the paths in the campaign are relative to.
    logs : Path
        Where what programs print is kept.
    """
    if campaign.engine is Engine.SPANFIT:
        return open_worlds(campaign.launch.launcher, fabric)
    named = campaign.nccl_tests.folder
    folder = None if named is None else (base / named).absolute()
    return _open_programs(Programs(campaign=campaign, folder=folder, logs=logs.absolute()))


@contextmanager
def _open_programs(programs: Programs) -> Iterator[Way]:
    launcher = programs.campaign.launch.launcher
    starters: dict[Launcher, Callable[[], CommandWorlds]] = {
        Launcher.MPIRUN: lambda: MpirunWorlds(of_python=False),
        Launcher.SRUN: SrunWorlds,
        Launcher.LOCAL: LocalWorlds,
    }
    with ProgramWorlds(starters[launcher](), programs) as worlds:
        yield worlds, "links inside one node" if launcher is Launcher.LOCAL else "network between the hosts", {}


@contextmanager
def open_testbed(fabric: Fabric) -> Iterator[Testbed]:
    """Give the testbed of this name that is up, else one that lasts as long as the block.

    ConfigError where the one that is up has other hosts or other rails.
    """
    if fabric.name in testbed.names():
        bed = testbed.connect(fabric.name)
        found = {host.name: len(host.addresses) for host in bed.hosts.values()}
        if found != {host.name: fabric.rails for host in fabrics.hosts(fabric)}:
            raise ConfigError(
                f"testbed {fabric.name}: the one that is up has other hosts or rails than its file; "
                f"end it with: spanfit testbed down {fabric.name}"
            )
        yield bed
        return
    bed = testbed.up(fabric, attached=True)
    try:
        yield bed
    finally:
        bed.down()

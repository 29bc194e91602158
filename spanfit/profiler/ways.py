"""Opening what a campaign names to start its worlds: edge, brings testbeds up and down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spanfit.bench.campaign_file import Launcher
from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import MpirunWorlds
from spanfit.launch.slurm import SrunWorlds
from spanfit.launch.testbed import Testbed
from spanfit.launch.worlds import AgentWorlds, ForkedWorlds, Worlds, ssh_argv

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


@contextmanager
def open_testbed(fabric: Fabric) -> Iterator[Testbed]:
    """Give the testbed of this name that is up, else one that lasts as long as the block."""
    if fabric.name in testbed.names():
        yield testbed.connect(fabric.name)
        return
    bed = testbed.up(fabric, attached=True)
    try:
        yield bed
    finally:
        bed.down()

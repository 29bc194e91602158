import subprocess
from pathlib import Path

import pytest

from spanfit.launch.mpi import mpirun_argv, render_agent
from spanfit.launch.render.mpi import Mpi
from spanfit.launch.worlds import WorldRequest
from spanfit.topology.model import RankMap

MAP = RankMap(node_names=("n10", "n2"), ngpus_per_node=2)
REQUEST = WorldRequest(rank_map=MAP, module="m", argv=(), environment={}, port=1, logs=Path("logs"))


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (Mpi.OPEN_MPI_4, "-n 4 --allow-run-as-root --mca rmaps seq --bind-to none --hostfile logs/hosts.txt"),
        (Mpi.OPEN_MPI_5, "-n 4 --allow-run-as-root --map-by seq --bind-to none --hostfile logs/hosts.txt"),
        (Mpi.MPICH, "-n 4 -bind-to none -f logs/hosts.txt"),
    ],
)
def test_ranks_follow_the_hosts_file_and_are_not_bound(mpi: Mpi, expected: str) -> None:
    argv = mpirun_argv(mpi, "/bin/mpirun", REQUEST, ["true"], as_root=True)
    assert argv == ["/bin/mpirun", *expected.split(), "true"]
    assert "--allow-run-as-root" not in mpirun_argv(mpi, "mpirun", REQUEST, [], as_root=False)


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (
            Mpi.OPEN_MPI_4,
            "--mca plm_rsh_agent s/agent --mca oob_tcp_if_include eth0 --mca orte_tmpdir_base s --mca pml ob1 "
            "--mca btl self,vader,tcp --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1",
        ),
        (
            Mpi.OPEN_MPI_5,
            "--prtemca plm_ssh_agent s/agent --prtemca prte_if_include eth0 --prtemca prte_tmpdir_base s "
            "--mca pml ob1 --mca btl self,sm,tcp --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1",
        ),
        (Mpi.MPICH, "-launcher ssh -launcher-exec s/agent -iface eth0"),
    ],
)
def test_in_a_testbed_hosts_are_reached_by_the_agent_and_bytes_keep_to_its_links(mpi: Mpi, expected: str) -> None:
    plain = mpirun_argv(mpi, "mpirun", REQUEST, [], as_root=True)
    assert mpirun_argv(mpi, "mpirun", REQUEST, [], as_root=True, scratch=Path("s")) == [*plain, *expected.split()]


def test_the_agent_enters_the_host_and_runs_the_command_as_ssh_would(tmp_path: Path) -> None:
    nsenter = tmp_path / "ns enter"
    nsenter.write_text('#!/bin/sh\necho "$@"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    setpriv = tmp_path / "setpriv"
    setpriv.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    agent = tmp_path / "agent"
    agent.write_text(render_agent({"h0": 10, "h1": 11}, str(nsenter), str(setpriv)))
    for script in (nsenter, setpriv, agent):
        script.chmod(0o755)
    done = subprocess.run(
        [agent, "-x", "h1", "A=1; export A;", "echo", '"$A  2"'], capture_output=True, text=True, check=True
    )
    entered, said = done.stdout.splitlines()
    assert entered.startswith("--target 11 --net --uts --mount --")
    assert said == "1  2"
    refused = subprocess.run([agent, "h2", "true"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr) == (2, "no host h2 in this testbed\n")

"""Worlds that srun starts inside a Slurm allocation, in the order of the rank map: edge, through its base class."""

import os
from collections.abc import Mapping

from spanfit.errors import LaunchError
from spanfit.launch.commands import CommandWorlds, rank_command
from spanfit.launch.worlds import WorldRequest

_HOSTS = "hosts.txt"


class SrunWorlds(CommandWorlds):
    """Worlds of one srun step each.

    Parameters
    ----------
    environment : mapping of str to str
        The environment of this process; it tells whether it is inside an allocation.

    Raises
    ------
    LaunchError
        Outside an allocation: a step of arbitrary order needs one.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__("srun")
        if "SLURM_JOB_ID" not in environment:
            raise LaunchError(
                "launcher srun: this is no Slurm allocation (SLURM_JOB_ID is not set); run the same command inside "
                "salloc or sbatch, with every node of the campaign in it"
            )

    def texts(self, request: WorldRequest) -> dict[str, str]:
        """Return Slurm's host file: one plain host a line and a line a task, task i on line i."""
        rank_map = request.rank_map
        return {_HOSTS: "".join(f"{name}\n" * rank_map.ngpus_per_node for name in rank_map.node_names)}

    def argv(self, request: WorldRequest) -> list[str]:
        """Return the srun command line.

        Notes
        -----
        The number of nodes (``-N``) and of tasks a node are refused or ignored with an arbitrary distribution, and a
        list of nodes (``-w``) would win over the file; none of them is given.
        """
        hosts = f"SLURM_HOSTFILE={request.logs / _HOSTS}"
        options = [f"--ntasks={request.rank_map.nranks}", "--distribution=arbitrary", "--kill-on-bad-exit=1"]
        command = rank_command(request, request.rank_map.node_names[0])
        return ["env", hosts, "srun", *options, "--cpu-bind=none", *command]

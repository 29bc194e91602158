"""A placement as the launch file that starts its ranks in its order."""

from enum import StrEnum

from spanfit.errors import ConfigError
from spanfit.launch import render
from spanfit.placer.model import Placement


class LaunchFile(StrEnum):
    """The launch files that a placement can be written as."""

    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    TORCHRUN = "torchrun"
    SLURM = "slurm"


def emit(placement: Placement, kind: str) -> str:
    """Return the text of a launch file.

    Parameters
    ----------
    placement : Placement
    kind : str
        A value of LaunchFile.

    Raises
    ------
    ConfigError
        If the job has no command and the file needs one, or the format cannot carry a node's name.
    """
    job, kind = placement.job, LaunchFile(kind)
    if kind in (LaunchFile.TORCHRUN, LaunchFile.SLURM) and not job.command:
        raise ConfigError(
            f"job {job.name}: command: missing; a {kind} file needs it; "
            'add what torchrun starts to the job file, such as command = ["train.py"]'
        )
    try:
        match kind:
            case LaunchFile.HOSTFILE:
                return render.render_hostfile(placement.rank_map)
            case LaunchFile.RANKFILE:
                return render.render_rankfile(placement.rank_map)
            case LaunchFile.TORCHRUN:
                return render.render_torchrun(placement.rank_map, job.command)
            case LaunchFile.SLURM:
                return render.render_slurm(placement.rank_map, job.command, job.name)
    except ValueError as error:
        raise ConfigError(f"{kind}: {error}") from error

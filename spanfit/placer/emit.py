"""A placement as the launch file that starts its ranks in its order, or as what a framework needs to keep it."""

from collections.abc import Callable
from enum import StrEnum

from spanfit.errors import ConfigError
from spanfit.launch.profile import LaunchProfile
from spanfit.launch.render import frameworks, kubernetes, mpi
from spanfit.launch.render.kubernetes import Workload
from spanfit.launch.render.pinner import render_pinner
from spanfit.launch.render.slurm import render_slurm
from spanfit.launch.render.torchrun import render_torchrun
from spanfit.placer.model import JobSpec, Placement


class LaunchFile(StrEnum):
    """What a placement can be written as."""

    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    SEQFILE = "seqfile"
    MPICH = "mpich"
    TORCHRUN = "torchrun"
    SLURM = "slurm"
    JOBSET = "jobset"
    INDEXED_JOB = "indexed-job"
    INDEXED_JOB_PINNER = "indexed-job-pinner"
    PYTORCHJOB = "pytorchjob"
    PYTORCHJOB_PINNER = "pytorchjob-pinner"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    TORCHTITAN = "torchtitan"


_OF_MPI: dict[LaunchFile, Callable[..., str]] = {
    LaunchFile.HOSTFILE: mpi.render_hostfile,
    LaunchFile.RANKFILE: mpi.render_rankfile,
    LaunchFile.SEQFILE: mpi.render_seqfile,
    LaunchFile.MPICH: mpi.render_hydra,
}
_WORKLOADS = {
    LaunchFile.JOBSET: Workload.JOBSET,
    LaunchFile.INDEXED_JOB: Workload.INDEXED_JOB,
    LaunchFile.PYTORCHJOB: Workload.PYTORCHJOB,
}
_PINNERS = {
    LaunchFile.INDEXED_JOB_PINNER: Workload.INDEXED_JOB,
    LaunchFile.PYTORCHJOB_PINNER: Workload.PYTORCHJOB,
}
_STARTING = (LaunchFile.TORCHRUN, LaunchFile.SLURM, *_WORKLOADS)
"""Files that name the job's command; these and the pinners look at a profile."""


def emit(placement: Placement, kind: str, profile: LaunchProfile | None = None) -> str:
    """Return the text of a launch file.

    Parameters
    ----------
    placement : Placement
    kind : str
        A value of LaunchFile.
    profile : LaunchProfile, optional
        What the site's nodes need around the job.

    Raises
    ------
    ConfigError
        If the job has no command and the file needs one, the format cannot carry a node's name, the site's settings or
        the job's order, or it has no place for settings at all.
    """
    job, kind = placement.job, LaunchFile(kind)
    if kind in _STARTING and not job.command:
        raise ConfigError(
            f"job {job.name}: command: missing; a {kind} file needs it; "
            'add what torchrun starts to the job file, such as command = ["train.py"]'
        )
    if profile is not None and kind not in (*_STARTING, *_PINNERS):
        raise ConfigError(
            f"--profile: a {kind} file has no place for a site's settings; leave it out, or write one of "
            f"{', '.join((*_STARTING, *_PINNERS))}"
        )
    try:
        return _text(placement, job, kind, profile or LaunchProfile())
    except ValueError as error:
        raise ConfigError("\n".join(f"{kind}: {line}" for line in str(error).splitlines())) from error


def _text(placement: Placement, job: JobSpec, kind: LaunchFile, profile: LaunchProfile) -> str:
    rank_map = placement.rank_map
    if kind in _OF_MPI:
        return _OF_MPI[kind](rank_map)
    if kind in _WORKLOADS:
        return kubernetes.render_manifest(_WORKLOADS[kind], rank_map, job.command, job.name, profile)
    if kind in _PINNERS:
        return render_pinner(_PINNERS[kind], rank_map, job.name, profile)
    if kind is LaunchFile.TORCHRUN:
        return render_torchrun(rank_map, job.command, profile)
    if kind is LaunchFile.SLURM:
        return render_slurm(rank_map, job.command, job.name, profile)
    return frameworks.render_framework(job.layout, frameworks.Framework(kind))

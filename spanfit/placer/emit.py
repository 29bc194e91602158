"""A placement as the launch file that starts its ranks in its order, or as what a framework needs to keep it."""

from collections.abc import Callable

from spanfit.errors import ConfigError
from spanfit.launch.formats import LaunchFormat
from spanfit.launch.profile import LaunchProfile
from spanfit.launch.render import frameworks, kubernetes, mpi
from spanfit.launch.render.kubernetes import Workload
from spanfit.launch.render.pinner import render_pinner
from spanfit.launch.render.slurm import render_slurm
from spanfit.launch.render.torchrun import render_torchrun
from spanfit.placer.model import JobSpec, Placement

_OF_MPI: dict[LaunchFormat, Callable[..., str]] = {
    LaunchFormat.HOSTFILE: mpi.render_hostfile,
    LaunchFormat.RANKFILE: mpi.render_rankfile,
    LaunchFormat.SEQFILE: mpi.render_seqfile,
    LaunchFormat.MPICH: mpi.render_hydra,
}
_WORKLOADS = {
    LaunchFormat.JOBSET: Workload.JOBSET,
    LaunchFormat.INDEXED_JOB: Workload.INDEXED_JOB,
    LaunchFormat.PYTORCHJOB: Workload.PYTORCHJOB,
}
_PINNERS = {
    LaunchFormat.INDEXED_JOB_PINNER: Workload.INDEXED_JOB,
    LaunchFormat.PYTORCHJOB_PINNER: Workload.PYTORCHJOB,
}
_STARTING = (LaunchFormat.TORCHRUN, LaunchFormat.SLURM, *_WORKLOADS)
"""Files that name the job's command; these and the pinners look at a profile."""


def emit(placement: Placement, kind: LaunchFormat, profile: LaunchProfile | None = None) -> str:
    """Return the text of a launch file.

    Parameters
    ----------
    placement : Placement
    kind : LaunchFormat
    profile : LaunchProfile, optional
        What the site's nodes need around the job.

    Raises
    ------
    ConfigError
        If the job has no command and the file needs one, the format cannot carry a node's name, the site's settings or
        the job's order, or it has no place for settings at all.
    """
    job = placement.job
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


def _text(placement: Placement, job: JobSpec, kind: LaunchFormat, profile: LaunchProfile) -> str:
    rank_map = placement.rank_map
    if kind in _OF_MPI:
        return _OF_MPI[kind](rank_map)
    if kind in _WORKLOADS:
        return kubernetes.render_manifest(_WORKLOADS[kind], rank_map, job.command, job.name, profile)
    if kind in _PINNERS:
        return render_pinner(_PINNERS[kind], rank_map, job.name, profile)
    if kind is LaunchFormat.TORCHRUN:
        return render_torchrun(rank_map, job.command, profile)
    if kind is LaunchFormat.SLURM:
        return render_slurm(rank_map, job.command, job.name, profile)
    return frameworks.render_framework(job.layout, frameworks.Framework(kind))

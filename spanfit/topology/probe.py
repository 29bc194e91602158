"""Clusters read while they run: edge, through Slurm's commands or the Kubernetes API; changes nothing."""

from collections.abc import Collection
from enum import StrEnum

from spanfit.topology.holding import hold_until, release, taint_key
from spanfit.topology.probe_kubernetes import read_kubernetes
from spanfit.topology.probe_slurm import read_slurm, user_name
from spanfit.topology.reading import Reading

_SUFFIX = ":live"


class LiveSource(StrEnum):
    """What runs a cluster."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"


def live_source(name: str) -> LiveSource | None:
    """Return the live source that a name such as ``slurm:live`` stands for; None where it names a file."""
    return next((source for source in LiveSource if name == f"{source}{_SUFFIX}"), None)


def read_live(
    source: LiveSource,
    now_s: float,
    *,
    topology: str | None = None,
    own: str = "",
    until_s: float | None = None,
    tolerated: Collection[str] = (),
) -> tuple[Reading, ...]:
    """Return what a running cluster says of its nodes.

    Parameters
    ----------
    source : LiveSource
    now_s : float
        The time, seconds since 1970, at which reservations hold.
    topology : str or None
        Which of several topologies of Slurm counts; None for its default.
    own : str
        The job that is placed, "" for none: nodes that are kept for it do not count as reserved. In Slurm these are
        in a reservation of that name which the caller may use, in Kubernetes they carry its taint.
    until_s : float or None
        Reservations of Slurm's that begin before this time hold their nodes too.
    tolerated : collection of str
        Keys of taints of Kubernetes that do not speak against a node, beside the job's own.

    Raises
    ------
    LaunchError
        If the cluster cannot be reached, or refuses.
    TimedOutError
        If it does not answer in time.
    ConfigError
        If what it says is of another shape than expected.
    """
    if source is LiveSource.KUBERNETES:
        return read_kubernetes({*tolerated, taint_key(own)} if own else tolerated)
    readings = read_slurm(now_s, topology)
    readings = release(readings, own, user_name()) if own else readings
    return readings if until_s is None else hold_until(readings, until_s)

"""Slurm: sbatch scripts that keep the placed order, and reservations of the placed nodes."""

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum

from spanfit.launch.profile import LaunchProfile, Runtime
from spanfit.launch.render.names import (
    check_command,
    check_names,
    check_rank_map,
    check_slurm_job_name,
    is_slurm_name,
    listed,
    natural,
)
from spanfit.launch.render.torchrun import in_container, mounts, prepare_block, torchrun_options
from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.model import RankMap

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")


def render_slurm(
    rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile | None = None
) -> str:
    """Return an sbatch script that starts torchrun once on each node, in the order of the rank map.

    ``--nodelist`` names a set only. The order comes from SLURM_HOSTFILE with ``--distribution=arbitrary`` on the
    step, where ``-N`` and ``--ntasks-per-node`` are refused or ignored; the node rank is SLURM_PROCID, since
    SLURM_NODEID stays sorted. Names with text after their number are folded as Slurm reads them from 23.11.

    Raises
    ------
    ValueError
        If a host name or the job's name holds more than letters, digits, dots, dashes and underscores, the command
        is empty, or the container is one that Slurm does not start.
    """
    profile = profile or LaunchProfile()
    check_rank_map(rank_map)
    check_command(command)
    check_names(rank_map.node_names, is_slurm_name, "a Slurm host file")
    check_slurm_job_name(job_name)
    nnodes = len(rank_map.node_names)
    hosts = " \\\n    ".join(rank_map.node_names)
    commands = "".join(f"{line}\n" for line in profile.slurm.commands)
    prepare = prepare_block(profile)
    step = (
        f"{'prepare=$1; shift; ' if prepare else ''}master_addr=$1; shift; "
        f"exec {in_container(profile)}torchrun {torchrun_options(rank_map, profile)} "
        '--node-rank="$SLURM_PROCID" --master-addr="$master_addr" "$@"'
    )
    return f"""\
#!{profile.slurm.shell}
{directives(rank_map.node_names, rank_map.ngpus_per_node, job_name, profile)}
set -e
{commands}# Slurm takes --nodelist as a set and numbers tasks by name; the host file numbers them in this order instead.
SLURM_HOSTFILE=$(mktemp)
export SLURM_HOSTFILE
trap 'rm -f "$SLURM_HOSTFILE"' EXIT
printf '%s\\n' \\
    {hosts} > "$SLURM_HOSTFILE"
master_addr=$(head -n 1 "$SLURM_HOSTFILE")
{prepare}srun {shlex.join(_step_options(nnodes, profile))} \\
    sh -c {shlex.quote(step)} \\
    torchrun {'"$prepare" ' if prepare else ""}"$master_addr" {shlex.join(command)}
"""


def directives(
    node_names: tuple[str, ...], ngpus: int, job_name: str, profile: LaunchProfile, more: tuple[str, ...] = ()
) -> str:
    """Return the ``#SBATCH`` lines of a job that takes its nodes whole, those of the site last."""
    options = [
        f"--job-name={job_name}",
        f"--nodes={len(node_names)}",
        f"--nodelist={fold_hostlist(sorted(node_names, key=natural))}",
        "--exclusive",
        *more,
    ]
    if profile.slurm.gres:
        options.append(f"--gres={profile.slurm.gres}:{ngpus}")
    return "\n".join(f"#SBATCH {option}" for option in (*options, *profile.slurm.options))


def _step_options(nnodes: int, profile: LaunchProfile) -> list[str]:
    """Return srun's options: a task is the torchrun of a node, whose ranks need all its cores."""
    options = ["-n", str(nnodes), "--distribution=arbitrary", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    if profile.slurm.mpi:
        options.append(f"--mpi={profile.slurm.mpi}")
    return options + _pyxis_options(profile)


def _pyxis_options(profile: LaunchProfile) -> list[str]:
    container = profile.container
    if container is None:
        return []
    if container.runtime is None:
        raise ValueError("container.runtime: missing; expected pyxis, enroot or apptainer, which a Slurm job starts")
    if container.runtime is not Runtime.PYXIS:
        return []
    options = [f"--container-image={container.image}"]
    if container.mounts:
        found = (
            f"{source}:{target}{':ro' if is_read_only else ''}" for source, target, is_read_only in mounts(container)
        )
        options.append(f"--container-mounts={','.join(found)}")
    if container.workdir:
        options.append(f"--container-workdir={container.workdir}")
    return [*options, *container.options]


class ReservationFlag(StrEnum):
    """Flags of a reservation that fit placed nodes.

    STATIC_ALLOC keeps a reserved node that fails instead of swapping it for another, which would undo a placement.
    IGNORE_JOBS reserves nodes though jobs run on them.
    """

    STATIC_ALLOC = "STATIC_ALLOC"
    IGNORE_JOBS = "IGNORE_JOBS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """Nodes of Slurm kept for a while, from now on.

    Attributes
    ----------
    name : str
    node_names : tuple of str
        A set: Slurm sorts them.
    users : tuple of str
        Who may use it.
    duration_s : float or None
        None is without an end.
    flags : tuple of ReservationFlag
    """

    name: str
    node_names: tuple[str, ...]
    users: tuple[str, ...]
    duration_s: float | None = None
    flags: tuple[ReservationFlag, ...] = (ReservationFlag.STATIC_ALLOC,)

    def __post_init__(self) -> None:
        """Refuse what scontrol would refuse, or read otherwise than it is meant."""
        faults = []
        if not is_slurm_name(self.name):
            faults.append(f"name is {listed((self.name,))}; expected letters, digits, dots, dashes and underscores")
        if not self.node_names or len(set(self.node_names)) < len(self.node_names):
            faults.append(f"found {len(self.node_names)} nodes, expected at least one, each once")
        if not self.users:
            faults.append("found no users, expected who may use it")
        if bad := [who for who in self.users if not _USER.fullmatch(who)]:
            faults.append(f"found {listed(bad)}, expected names of users")
        if self.duration_s is not None and self.duration_s < 60:
            faults.append(f"duration is {self.duration_s} s; expected at least a minute, Slurm's unit")
        if faults:
            raise ValueError("\n".join(f"reservation: {fault}" for fault in faults))


def reservation_argv(reservation: SlurmReservation) -> tuple[str, ...]:
    """Return the command line that makes a reservation; ``shlex.join`` of it is what a person can run.

    Raises
    ------
    ValueError
        If Slurm's hostlists cannot carry a node's name.
    """
    check_names(reservation.node_names, is_slurm_name, "a Slurm reservation")
    minutes = "UNLIMITED" if reservation.duration_s is None else str(-int(-reservation.duration_s // 60))
    settings = {
        "ReservationName": reservation.name,
        "StartTime": "now",
        "Duration": minutes,
        "Users": ",".join(reservation.users),
        "Nodes": fold_hostlist(sorted(reservation.node_names, key=natural)),
        "Flags": ",".join(reservation.flags),
    }
    return ("scontrol", "create", "reservation", *(f"{key}={value}" for key, value in settings.items()))

"""What is to be done as the exact commands of Slurm; pure.

A placement is fixed by ``ReqNodeList``, which is a set; the order of node ranks is for the job's script to take from
``spanfit queue nodes``. A reservation has no end of its own: it is deleted when its job has ended, and until then a job
without a time limit may start in it.
"""

import re
from dataclasses import dataclass

from spanfit.launch.render.slurm import ReservationFlag, SlurmReservation, reservation_argv
from spanfit.queue.model.nodes import Ground
from spanfit.queue.state.tasks import Task, TaskKind
from spanfit.topology.hostlist import fold_hostlist

FLAGS = (ReservationFlag.STATIC_ALLOC, ReservationFlag.IGNORE_JOBS)
"""Slurm swaps no node of a placement, and reserves nodes that other jobs are just leaving."""
PREFIX = "spanfit-"
"""Begins the name of every reservation that is the queue's."""
JOB_NUMBER = re.compile(r"[0-9]+(?:[_+][0-9]+)*")
"""What Slurm calls a job, of an array or not; no job that is known by a name has such a one."""
_BY_NAME = 'scontrol "$1" "$(squeue --noheader --format=%i --name="$2" --user="$3")"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, and whether it takes an administrator or operator of Slurm."""

    argv: tuple[str, ...]
    needs_operator: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What commands depend on beside the task: the nodes, and who is to run them."""

    ground: Ground
    user: str


def reservation_name(job_id: str) -> str:
    """Return what the reservation of a job is called."""
    return f"{PREFIX}{job_id}"


def slurm_commands(task: Task, site: Site, slurm_id: str | None, *, is_reserved: bool) -> tuple[Command, ...]:
    """Return the commands for a task.

    Parameters
    ----------
    task : Task
    site : Site
    slurm_id : str or None
        What Slurm calls the job; None where it is only known by its name.
    is_reserved : bool
        Slurm has a reservation for the job already.
    """
    names = tuple(site.ground.names[node] for node in sorted(task.order))
    if task.kind in (TaskKind.RESERVE, TaskKind.RELEASE):
        return (Command(argv=_reservation_argv(task, names, is_reserved), needs_operator=True),)
    if slurm_id is None and JOB_NUMBER.fullmatch(task.job_id):
        slurm_id = task.job_id
    argvs = _job_argvs(task, names, slurm_id, is_reserved)
    return tuple(Command(argv=argv, needs_operator=task.owner != site.user) for argv in argvs)


def _reservation_argv(task: Task, names: tuple[str, ...], is_reserved: bool) -> tuple[str, ...]:
    name = reservation_name(task.job_id)
    if task.kind is TaskKind.RELEASE:
        return ("scontrol", "delete", f"ReservationName={name}")
    if is_reserved:
        return ("scontrol", "update", f"ReservationName={name}", f"Nodes={fold_hostlist(names)}")
    return reservation_argv(SlurmReservation(name=name, node_names=names, users=(task.owner,), flags=FLAGS))


def _job_argvs(
    task: Task, names: tuple[str, ...], slurm_id: str | None, is_reserved: bool
) -> tuple[tuple[str, ...], ...]:
    """Return what is to be done about a job itself; of a name, only its owner's."""
    job = (f"JobId={slurm_id}",) if slurm_id else (f"JobName={task.job_id}", f"UserID={task.owner}")
    inside = f"ReservationName={reservation_name(task.job_id)}"
    match task.kind:
        case TaskKind.START:
            # A job that was requeued would wait two minutes more before it starts.
            fixed = (f"ReqNodeList={fold_hostlist(names)}", "StartTime=now", *((inside,) if is_reserved else ()))
            return (("scontrol", "update", *job, *fixed), _told(task, "release", slurm_id))
        case TaskKind.ADMIT:
            return (("scontrol", "update", *job, inside),)
        case TaskKind.HOLD:
            return (_told(task, "uhold", slurm_id),)
        case TaskKind.PREEMPT:
            return (_told(task, "requeuehold", slurm_id),)
        case TaskKind.CANCEL if slurm_id:
            return (("scancel", slurm_id),)
        case TaskKind.CANCEL:
            return (("scancel", f"--name={task.job_id}", f"--user={task.owner}"),)
    raise ValueError(f"{task.kind} is about no job")


def _told(task: Task, what: str, slurm_id: str | None) -> tuple[str, ...]:
    """Return a command that takes a job's number; scontrol itself would take all jobs of a name, whoever's they are."""
    if slurm_id:
        return ("scontrol", what, slurm_id)
    return ("sh", "-c", _BY_NAME, "sh", what, task.job_id, task.owner)

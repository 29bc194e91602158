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
_REQUEUE_BY_NAME = 'scontrol requeuehold "$(squeue --noheader --format=%i --name="$1" --user="$2")"'


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
    reservation = reservation_name(task.job_id)
    names = [site.ground.names[node] for node in sorted(task.order)]
    nodes = f"ReqNodeList={fold_hostlist(names)}"
    if slurm_id is None and JOB_NUMBER.fullmatch(task.job_id):
        slurm_id = task.job_id
    job = f"JobId={slurm_id}" if slurm_id else f"JobName={task.job_id}"
    match task.kind:
        case TaskKind.RESERVE if is_reserved:
            return (_operator("update", f"ReservationName={reservation}", f"Nodes={fold_hostlist(names)}"),)
        case TaskKind.RESERVE:
            asked = SlurmReservation(name=reservation, node_names=tuple(names), users=(task.owner,), flags=FLAGS)
            return (Command(argv=reservation_argv(asked), needs_operator=True),)
        case TaskKind.RELEASE:
            return (_operator("delete", f"ReservationName={reservation}"),)
        case TaskKind.START:
            inside = (f"ReservationName={reservation}",) if is_reserved else ()
            listed = slurm_id or f"jobname={task.job_id}"
            # A job that was requeued would wait two minutes more before it starts.
            fixed = ("scontrol", "update", job, nodes, "StartTime=now", *inside)
            argvs = [fixed, ("scontrol", "release", listed)]
        case TaskKind.ADMIT:
            argvs = [("scontrol", "update", job, f"ReservationName={reservation}")]
        case TaskKind.HOLD:
            argvs = [("scontrol", "uhold", slurm_id or f"jobname={task.job_id}")]
        case TaskKind.PREEMPT if slurm_id:
            argvs = [("scontrol", "requeuehold", slurm_id)]
        case TaskKind.PREEMPT:
            argvs = [("sh", "-c", _REQUEUE_BY_NAME, "sh", task.job_id, task.owner)]
        case TaskKind.CANCEL if slurm_id:
            argvs = [("scancel", slurm_id)]
        case TaskKind.CANCEL:
            argvs = [("scancel", f"--name={task.job_id}", f"--user={task.owner}")]
    return tuple(Command(argv=argv, needs_operator=task.owner != site.user) for argv in argvs)


def _operator(*arguments: str) -> Command:
    return Command(argv=("scontrol", *arguments), needs_operator=True)

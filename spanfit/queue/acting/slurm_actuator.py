"""The actuator that tells Slurm: its user's part is done, the rest is handed to an administrator [edge: processes]."""

import shlex
from collections.abc import Callable
from dataclasses import replace

from spanfit.queue.acting.deeds import Deed
from spanfit.queue.acting.print_actuator import script
from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.slurm_commands import Site, reservation_name, slurm_commands
from spanfit.queue.state.tasks import Outcome, Task, TaskKind
from spanfit.topology.probe_slurm import Answer

Tell = Callable[[tuple[str, ...]], Answer]
"""Runs a command of Slurm's."""


class Slurm:
    """Runs the commands that its user may run.

    Parameters
    ----------
    site : Site
    seen : Seen
        What Slurm said at the last look; what is so already is not done again.
    links : callable
        Returns what Slurm calls each job of the queue.
    may_operate : bool
        The user may make reservations and change the jobs of others.
    tell : callable
    """

    def __init__(
        self, site: Site, seen: Seen, links: Callable[[], dict[str, str]], *, may_operate: bool, tell: Tell
    ) -> None:
        self._site, self._links, self._may_operate, self._tell = site, links, may_operate, tell
        self._jobs = {job.slurm_id: job for job in seen.jobs}
        self._reserved = {name: frozenset(held.nodes) for name, held in seen.reservations.items()}

    def carry_out(self, task: Task) -> Deed:
        """Do a task unless it is done already; what fails is tried again at the next tick."""
        slurm_id = task.outside_id or self._links().get(task.job_id)
        job = self._jobs.get(slurm_id) if slurm_id else None
        if why := self._is_done(task, job):
            return Deed(task=task, outcome=Outcome.DONE, text=why)
        if why := _waits_for(task, job):
            return Deed(task=task, outcome=Outcome.PENDING, text=why)
        is_reserved = reservation_name(task.job_id) in self._reserved
        can_only_hold = task.kind is TaskKind.PREEMPT and job is not None and job.is_pending
        asked = replace(task, kind=TaskKind.HOLD) if can_only_hold else task
        commands = slurm_commands(asked, self._site, slurm_id, is_reserved=is_reserved)
        if not self._may_operate and any(command.needs_operator for command in commands):
            return Deed(task=task, outcome=Outcome.TOLD, text=script(task, commands))
        for command in commands:
            answer = self._tell(command.argv)
            if answer.code:
                text = f"{shlex.join(command.argv)}: ended with {answer.code}: {answer.complaint}"
                return Deed(task=task, outcome=Outcome.FAILED, text=text)
        self._note(task, job)
        return Deed(task=task, outcome=Outcome.DONE, text="\n".join(shlex.join(each.argv) for each in commands))

    def _is_done(self, task: Task, job: SeenJob | None) -> str:
        """Return why nothing is left to do, or ""."""
        name = reservation_name(task.job_id)
        match task.kind:
            case TaskKind.START:
                return "it runs" if job is not None and not job.is_pending and not job.is_ending else ""
            case TaskKind.PREEMPT | TaskKind.HOLD:
                if job is None:
                    return "Slurm has no such job"
                return "it waits, held" if job.is_pending and job.is_held else ""
            case TaskKind.CANCEL:
                return "Slurm has no such job" if job is None else ""
            case TaskKind.RELEASE:
                return "" if name in self._reserved else "there is no such reservation"
            case TaskKind.RESERVE:
                return "it is there" if self._reserved.get(name) == self._names(task) else ""
            case TaskKind.ADMIT:
                is_waiting = job is not None and job.is_pending
                return "" if is_waiting and name in self._reserved else "it runs, or its reservation is gone"

    def _names(self, task: Task) -> frozenset[str]:
        return frozenset(self._site.ground.names[node] for node in task.order)

    def _note(self, task: Task, job: SeenJob | None) -> None:
        """Keep in mind what a task has changed since the look."""
        if task.kind is TaskKind.RESERVE:
            self._reserved[reservation_name(task.job_id)] = self._names(task)
        elif task.kind is TaskKind.RELEASE:
            self._reserved.pop(reservation_name(task.job_id), None)
        elif task.kind is TaskKind.PREEMPT and job is not None:
            self._jobs[job.slurm_id] = replace(job, is_pending=True, is_held=True, nodes=())


def _waits_for(task: Task, job: SeenJob | None) -> str:
    """Return what has to be so before a task can be done, or ""."""
    if task.kind is TaskKind.START and job is None:
        asked = f"--hold --exclusive --comment=spanfit --job-name={task.job_id} --nodes={len(task.order)}"
        return f"Slurm has no such job; submit it with: sbatch {asked} SCRIPT"
    if task.kind in (TaskKind.START, TaskKind.PREEMPT, TaskKind.HOLD) and job is not None and job.is_ending:
        return "it is leaving its nodes"
    return ""

"""The actuator that does nothing itself: it tells a person the exact commands; pure."""

import shlex
from collections.abc import Callable, Collection

from spanfit.queue.acting.deeds import Deed
from spanfit.queue.acting.slurm_commands import Command, Site, slurm_commands
from spanfit.queue.state.tasks import Outcome, Task, TaskKind


class Printing:
    """Tells what to run; the text of a deed is lines of shell with comments.

    Parameters
    ----------
    site : Site
    links : callable
        Returns what Slurm calls each job of the queue, where that is known.
    reserved : collection of str
        Jobs whose reservation was told before and not released.
    """

    def __init__(self, site: Site, links: Callable[[], dict[str, str]], reserved: Collection[str]) -> None:
        self._site, self._links, self._reserved = site, links, set(reserved)

    def carry_out(self, task: Task) -> Deed:
        """Return the commands, and remember which reservations they make and end."""
        slurm_id = task.outside_id or self._links().get(task.job_id)
        commands = slurm_commands(task, self._site, slurm_id, is_reserved=task.job_id in self._reserved)
        if task.kind is TaskKind.RESERVE:
            self._reserved.add(task.job_id)
        elif task.kind is TaskKind.RELEASE:
            self._reserved.discard(task.job_id)
        return Deed(task=task, outcome=Outcome.TOLD, text=script(task, commands))


def script(task: Task, commands: tuple[Command, ...]) -> str:
    """Return commands as shell: a comment says why, and one more marks what an administrator must run."""
    lines = [f"# {task.kind} {task.job_id}{f' of {task.owner}' if task.owner else ''}: {_one_line(task.reason)}"]
    was_marked = False
    for command in commands:
        if command.needs_operator and not was_marked:
            lines.append("# as an administrator:")
        was_marked = command.needs_operator
        lines.append(shlex.join(command.argv))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())

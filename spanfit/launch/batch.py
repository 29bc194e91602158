"""A command as a job of a batch system, which starts it once its nodes are free: texts, and what squeue says of it."""

import re
import shlex
from dataclasses import dataclass

from spanfit.topology.hostlist import fold_hostlist

INTERRUPT_S = 60
"""How long before its time limit a job is interrupted, so that it ends by itself and loses nothing [s]."""

SQUEUE_FORMAT = "%i|%T|%r|%S"
"""What :func:`parse_squeue` reads: id, state, reason, expected start."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """A command that waits for nodes.

    Attributes
    ----------
    name : str
        The job's.
    node_names : tuple of str
        The nodes it needs, all of them.
    command : tuple of str
        What runs once, on the first of them.
    folder : str
        Where it runs, and where what it prints is kept.
    time_limit_s : float or None
        None takes the partition's own [s].
    options : tuple of str
        More options of sbatch, such as ``--partition=batch``.
    """

    name: str
    node_names: tuple[str, ...]
    command: tuple[str, ...]
    folder: str
    time_limit_s: float | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """What the batch system says of a job that has not ended.

    Attributes
    ----------
    job_id : str
    state : str
        In Slurm's words, such as PENDING.
    reason : str
        Why it waits, "" where it does not.
    start : str
        When it starts or started, "" where Slurm does not know.
    """

    job_id: str
    state: str
    reason: str = ""
    start: str = ""

    def words(self) -> str:
        """Return the job in one line."""
        why = f" ({self.reason})" if self.reason else ""
        verb = "started" if self.state == "RUNNING" else "expected to start"
        return f"job {self.job_id} is {self.state.lower()}{why}" + (f", {verb} {self.start}" if self.start else "")


def render_batch(request: BatchRequest) -> str:
    """Return an sbatch script that runs a command once all its nodes are free.

    The command takes the place of the script's shell, so that the interrupt that Slurm sends before the time limit
    reaches it.

    Raises
    ------
    ValueError
        If the name or a node's holds more than letters, digits, dots, dashes and underscores, or the folder or an
        option holds what a line of ``#SBATCH`` cannot carry.
    """
    _check(request)
    lines = [
        f"--job-name={request.name}",
        f"--nodes={len(request.node_names)}",
        f"--nodelist={fold_hostlist(sorted(request.node_names))}",
        "--exclusive",
        f"--chdir={request.folder}",
        f"--output={request.folder}/slurm-%j.out",
        f"--signal=B:INT@{INTERRUPT_S}",
    ]
    if request.time_limit_s is not None:
        lines.append(f"--time={_minutes(request.time_limit_s)}")
    options = "\n".join(f"#SBATCH {line}" for line in (*lines, *request.options))
    return f"#!/bin/sh\n{options}\nset -eu\nexec {shlex.join(request.command)}\n"


def _check(request: BatchRequest) -> None:
    faults = [
        f"the name {name!r}; expected letters, digits, dots, dashes and underscores"
        for name in (request.name, *request.node_names)
        if not _NAME.fullmatch(name)
    ]
    faults += [
        f"{text!r}; expected neither blanks, quotes, backslashes, #, % nor control characters"
        for text in (request.folder, *request.options)
        if not text.isprintable() or set(text) & set(" \"'\\#%")
    ]
    if faults:
        raise ValueError("\n".join(f"an sbatch script cannot carry {fault}" for fault in faults))


def _minutes(time_s: float) -> int:
    """Return Slurm's whole minutes, rounded up."""
    return max(1, -int(-time_s // 60))


def parse_squeue(text: str) -> tuple[QueuedJob, ...]:
    """Return the jobs of ``squeue --noheader --format=SQUEUE_FORMAT``.

    >>> parse_squeue("7|PENDING|Resources|2026-12-01T10:00:00")[0].words()
    'job 7 is pending (Resources), expected to start 2026-12-01T10:00:00'
    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == len(SQUEUE_FORMAT.split("|")):
            job_id, state, reason, start = parts
            jobs.append(
                QueuedJob(
                    job_id=job_id,
                    state=state,
                    reason="" if reason == "None" else reason,
                    start="" if start == "N/A" else start,
                )
            )
    return tuple(jobs)

"""What Slurm says of jobs, as the queue reads it: the text of ``squeue`` and of the comments that mark a job; pure.

A job is the queue's if its comment begins with ``spanfit``. More words may follow: ``preemptable``, ``priority=2``,
``runtime=2h``, ``runtime-upper=3h``, ``grid=46x8`` (PP groups by stages) and ``alpha=0.3``.

Names and comments are whatever their users typed. Each line begins with a token that no user can know, so that a
newline in a comment cannot pass for a job of somebody else.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.readers.slurm_states import parse_gres
from spanfit.topology.reading import NodeFacts, Reservation, shown
from spanfit.units import parse_duration

SEPARATOR = "\x1f"
_FIELDS = ("%i", "%T", "%D", "%u", "%a", "%l", "%Q", "%V", "%C", "%b", "%N", "%v", "%E", "%k", "%j")
_NOTHING = frozenset({"", "(null)"})
MARK = "spanfit"
MOST_PRIORITY = 1_000_000
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_GRID = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job as Slurm has it.

    Attributes
    ----------
    slurm_id, name, user, account : str
    is_pending : bool
        It waits in Slurm, held or not.
    is_ending : bool
        It has ended, and its nodes are not free yet.
    is_held : bool
    nnodes, ncpus, ngpus : int
    time_limit_s : float or None
        None without a limit [s].
    submitted_s : float
        Unix time [s].
    nodes : tuple of str
    reservation : str
        The reservation of Slurm's that it is to run in; "" for none.
    is_dependent : bool
        It may not start before other jobs have ended.
    is_marked : bool
        Its comment says that it is the queue's.
    wishes : mapping
        What more its comment says, by field of a job of the queue; runtimes by ``mean_s`` and ``upper_s``.
    remarks : tuple of str
        What could not be read.
    """

    slurm_id: str
    name: str
    user: str
    account: str
    is_pending: bool
    is_ending: bool
    is_held: bool
    nnodes: int
    ncpus: int
    ngpus: int
    time_limit_s: float | None
    submitted_s: float
    nodes: tuple[str, ...]
    reservation: str = ""
    is_dependent: bool = False
    is_marked: bool = False
    wishes: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What Slurm says at one look: nodes by name, jobs, reservations by name, and what could not be read."""

    nodes: Mapping[str, NodeFacts]
    jobs: tuple[SeenJob, ...]
    reservations: Mapping[str, Reservation]
    remarks: tuple[str, ...] = ()


def squeue_argv(token: str) -> tuple[str, ...]:
    """Return the command that prints a line for each job, each behind a token."""
    return ("squeue", "--noheader", "--array", f"--format={SEPARATOR.join((token, *_FIELDS))}")


def parse_squeue(text: str, token: str) -> tuple[tuple[SeenJob, ...], tuple[str, ...]]:
    """Return the jobs of what ``squeue_argv`` prints for a token, and what was left out."""
    jobs, remarks = [], []
    for line in filter(None, text.split("\n")):
        found, *cells = line.split(SEPARATOR)
        try:
            if found != token:
                raise ValueError("a name or comment with a newline")
            jobs.append(_job(cells))
        except ValueError as error:
            words = "|".join(cells if found == token else (found, *cells))
            remarks.append(f"squeue: left out {shown(words)}: {error}")
    return tuple(jobs), tuple(remarks)


def _job(cells: list[str]) -> SeenJob:
    if len(cells) != len(_FIELDS):
        raise ValueError(f"found {len(cells)} fields, expected {len(_FIELDS)}")
    slurm_id, state, nnodes, user, account, limit, priority, submitted, ncpus, gres, nodes, *more = cells
    reservation, dependency, comment, name = more
    words = [] if comment in _NOTHING else comment.split()
    is_marked = words[:1] == [MARK]
    wishes, remarks = _wishes(words[1:], int(nnodes)) if is_marked else ({}, ())
    return SeenJob(
        slurm_id=slurm_id,
        name=name,
        user=user,
        account="" if account in _NOTHING else account,
        is_pending=state in _WAITING,
        is_ending=state == "COMPLETING",
        is_held=priority == "0",
        nnodes=int(nnodes),
        ncpus=int(ncpus),
        time_limit_s=_limit_s(limit),
        ngpus=int(nnodes) * sum(count for _, count in parse_gres(gres.replace("gres/", "").replace("gres:", ""))),
        submitted_s=datetime.fromisoformat(submitted).timestamp(),  # local, as Slurm prints it
        nodes=expand_hostlist(nodes),
        reservation="" if reservation in _NOTHING else reservation,
        is_dependent=dependency not in _NOTHING,
        is_marked=is_marked,
        wishes=wishes,
        remarks=tuple(f"job {shown(slurm_id)}: comment: {remark}" for remark in remarks),
    )


def _limit_s(text: str) -> float | None:
    return None if text in ("UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit", "") else parse_duration(text)


def _wishes(words: list[str], nnodes: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a comment says that can be read and can be so, and what is left out."""
    wishes: dict[str, Any] = {}
    remarks = []
    for word in words:
        key, _, value = word.partition("=")
        try:
            wishes |= _READERS[key](value)
        except (KeyError, ValueError):
            remarks.append(f"found {shown(word)!r}, expected {', '.join(_READERS)}, each with its value; left out")
    if "nrows" in wishes and (cells := wishes["nrows"] * wishes["ncolumns"]) != nnodes:
        remarks.append(f"grid: found {cells} nodes, expected the {nnodes} that the job asks for; left out")
        del wishes["nrows"], wishes["ncolumns"]
    return wishes, tuple(remarks)


def _flag(value: str) -> dict[str, Any]:
    if value:
        raise ValueError("takes no value")
    return {"is_preemptable": True}


def _grid(value: str) -> dict[str, Any]:
    match = _GRID.fullmatch(value)
    if not match:
        raise ValueError("no grid")
    return {"nrows": int(match[1]), "ncolumns": int(match[2])}


def _alpha(value: str) -> dict[str, Any]:
    if not 0 <= float(value) <= 1:
        raise ValueError("no share")
    return {"alpha": float(value)}


def _priority(value: str) -> dict[str, Any]:
    if abs(int(value)) > MOST_PRIORITY:
        raise ValueError("beyond what is kept")
    return {"priority": int(value)}


def _runtime(name: str) -> Callable[[str], dict[str, Any]]:
    def read(value: str) -> dict[str, Any]:
        if not parse_duration(value):
            raise ValueError("no time at all")
        return {name: parse_duration(value)}

    return read


_READERS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "preemptable": _flag,
    "priority": _priority,
    "runtime": _runtime("mean_s"),
    "runtime-upper": _runtime("upper_s"),
    "grid": _grid,
    "alpha": _alpha,
}

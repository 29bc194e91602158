"""What is kept of a launch that failed: a row for the case in hand, what its ranks said, and who is to blame: edge."""

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanfit.bench.case import LaunchPlan, Visit
from spanfit.bench.heartbeat import read_heartbeats
from spanfit.bench.lines import render_failure
from spanfit.errors import LaunchError, TimedOutError
from spanfit.launch.worlds import Failure
from spanfit.profiler.watchdog import find_suspects, name_ranks
from spanfit.results.schema import Status
from spanfit.results.shards import append_failure, read_shard

_UNREACHABLE = 255
"""The exit code of ssh where it cannot reach a host."""
_EVIDENCE = ("stacks-*", "flight-*", "nccl-*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A launch that failed.

    Attributes
    ----------
    error : LaunchError or TimedOutError
        What a campaign ends with, unless it goes on without the sick hosts.
    sick : tuple of str
        The hosts that are surely to blame.
    reason : str
    """

    error: LaunchError | TimedOutError
    sick: tuple[str, ...]
    reason: str


def blame(failure: Failure, plan: LaunchPlan, shard: Path, left: Sequence[Visit]) -> Incident:
    """Return what a launch failed of, after noting the case in hand, if one was begun, as a row.

    Parameters
    ----------
    failure : Failure
    plan : LaunchPlan
    shard : Path
        The launch's file.
    left : sequence of Visit
        What the launch had not finished, in its order; the first is the case in hand.
    """
    cause = last_error(failure.log)
    hung = failure.is_stuck or "timed out" in cause.lower() or "timeout" in cause.lower()
    sick, reason = _hung(failure, plan, cause) if hung else _died(failure, cause)
    in_hand = ""
    if left and any(world["comm_id"] == plan.comm_id for world in read_shard(shard).worlds):
        append_failure(shard, render_failure(plan, left[0], Status.TIMED_OUT if hung else Status.FAILED, reason))
        in_hand = f" during {left[0].case.label()}"
    kept = keep_evidence(plan, failure.log.parent, shard.parent)
    text = (
        f"launch {plan.launch}: {reason}{in_hand}; what is finished is kept in {shard.parent}, "
        f"what its ranks said is in {kept}; run the same command to go on"
    )
    return Incident(error=(TimedOutError if hung else LaunchError)(text), sick=sick, reason=reason)


def _hung(failure: Failure, plan: LaunchPlan, cause: str) -> tuple[tuple[str, ...], str]:
    folder = Path(plan.heartbeats) if plan.heartbeats else None
    nranks = len(plan.node_names) * plan.ngpus_per_node
    beats, told = (read_heartbeats(folder), read_told(folder, nranks)) if folder else ({}, ())
    suspects = find_suspects(nranks, beats, failure.states, told)
    said = "no rank began another phase within the limit" if failure.is_stuck else f"timed out: {cause}"
    if not suspects.ranks:
        return (), f"{said}: {suspects.evidence}"
    hosts = dict.fromkeys(plan.node_names[rank // plan.ngpus_per_node] for rank in suspects.ranks)
    return tuple(hosts), f"{name_ranks(suspects.ranks, plan.node_names, plan.ngpus_per_node)} {suspects.evidence}"


def read_told(folder: Path, nranks: int) -> tuple[int, ...]:
    """Return the ranks that wrote their stacks."""
    files = ((rank, folder / f"stacks-{rank}.txt") for rank in range(nranks))
    return tuple(rank for rank, file in files if file.exists() and file.stat().st_size)


def _died(failure: Failure, cause: str) -> tuple[tuple[str, ...], str]:
    surely = failure.host and (failure.code < 0 or failure.code == _UNREACHABLE)
    reason = f"{failure.who} {failure.how()}" + (f": {cause}" if cause else "")
    return (failure.host,) if surely else (), reason


def keep_evidence(plan: LaunchPlan, logs: Path, run: Path) -> Path:
    """Copy what the ranks of a launch printed and answered to where the end of the run leaves it; return that folder.

    It lies beside the run's folder, as ``RUN_ID.failures/launch-LAUNCH.ATTEMPT``.
    """
    kept = run.with_name(f"{run.name}.failures") / f"launch-{plan.launch:03d}.{plan.attempt}"
    kept.mkdir(parents=True, exist_ok=True)
    found = [*logs.glob("*.log")]
    for pattern in _EVIDENCE if plan.heartbeats else ():
        found += Path(plan.heartbeats).glob(pattern)
    for path in found:
        if path.stat().st_size:
            shutil.copy(path, kept / path.name)
    return kept


def note_impossible(plan: LaunchPlan, shard: Path, visits: Iterable[Visit], excluded: dict[int, str]) -> None:
    """Note the cases that need an excluded node as rows that nothing will measure.

    Parameters
    ----------
    excluded : dict of int to str
        Node rank -> why, in words.
    """
    for visit in visits:
        nodes = {node for group in visit.case.groups for node in group}
        why = "; ".join(reason for node, reason in excluded.items() if node in nodes)
        append_failure(shard, render_failure(plan, visit, Status.FAILED, why) | {"final": True})


def last_error(log: Path) -> str:
    """Return the line of a log that says most: the last that looks like an error, else the last but for warnings."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("[W")]
    telling = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (telling or lines or [""])[-1][:500]

"""What is kept of a launch that failed: a row for the case in hand, and the error that says what happened: edge."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spanfit.bench.case import LaunchPlan, Visit
from spanfit.errors import LaunchError, TimedOutError
from spanfit.launch.worlds import Failure
from spanfit.results.schema import Status
from spanfit.results.shards import append_failure, read_shard


def blame(failure: Failure, plan: LaunchPlan, shard: Path, left: Sequence[Visit]) -> LaunchError | TimedOutError:
    """Return the error of a launch that failed, after noting the case in hand, if one was begun, as a row.

    Parameters
    ----------
    failure : Failure
        The first process that ended badly.
    plan : LaunchPlan
    shard : Path
        The launch's file.
    left : sequence of Visit
        What the launch had not finished, in its order; the first is the case in hand.
    """
    cause = last_error(failure.log)
    reason = f"{failure.who} {failure.how()}" + (f": {cause}" if cause else "")
    hung = "timed out" in cause.lower() or "timeout" in cause.lower()
    in_hand = ""
    if left and any(world["comm_id"] == plan.comm_id for world in read_shard(shard).worlds):
        append_failure(shard, failed_line(plan, left[0], Status.TIMED_OUT if hung else Status.FAILED, reason))
        in_hand = f" during {left[0].case.label()}"
    text = (
        f"launch {plan.launch}: {reason}{in_hand}; what is finished is kept in {shard.parent}, "
        f"its output is in {failure.log}; run the same command to go on"
    )
    return TimedOutError(text) if hung else LaunchError(text)


def failed_line(plan: LaunchPlan, visit: Visit, status: Status, reason: str) -> dict[str, Any]:
    """Return the shard line of a case that did not end well."""
    per_node = plan.ngpus_per_node
    return {
        "type": "case",
        "launch": plan.launch,
        "comm_id": f"{plan.comm_id}.{visit.block}",
        "position": visit.position,
        "block": visit.block,
        "case_id": visit.case.case_id,
        "case": asdict(visit.case),
        "status": status,
        "reason": reason,
        "ranks": [[node * per_node + i for node in group for i in range(per_node)] for group in visit.case.groups],
        "times_s": [],
    }


def last_error(log: Path) -> str:
    """Return the line of a log that says most: the last that looks like an error, else the last."""
    lines = (
        [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    )
    telling = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (telling or lines or [""])[-1][:500]

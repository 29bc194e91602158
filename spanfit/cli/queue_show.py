"""``spanfit queue list|why|plan|nodes``: what waits, why and until when, and what is planned."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import json_option, print_json, print_table
from spanfit.cli.queue_options import job_argument, open_queue, state_option
from spanfit.queue.when import format_moment

if TYPE_CHECKING:
    from spanfit.queue.model.events import Decision
    from spanfit.queue.model.jobs import QueueJob
    from spanfit.queue.model.rules import QueueRules
    from spanfit.queue.model.state import QueueState
    from spanfit.queue.state.tasks import Entry, Outcome, TaskKind


@click.command("list", epilog="Example: spanfit queue list --json")
@state_option
@json_option
def list_jobs(path: Path, as_json: bool) -> None:
    """List the jobs that run, wait or are announced."""
    with open_queue(path) as store:
        rows = list(_job_rows(_now(store.state()), store.rules(), store.last_deeds()))
    if as_json:
        print_json(rows)
        return
    columns = ("job", "owner", ">nodes", "state", "since", "until, as expected", "reason")
    table = [
        (
            row["job_id"],
            row["owner"],
            str(row["nnodes"]),
            row["state"],
            format_moment(row["since_s"]),
            format_moment(row["until_s"]),
            row["reason"],
        )
        for row in rows
    ]
    print_table(f"Queue at {format_moment(time.time())}", columns, table)


def _now(state: "QueueState") -> "QueueState":
    """Return a state as it stands at this moment."""
    from dataclasses import replace

    return replace(state, now_s=max(state.now_s, time.time()))


def _job_rows(
    state: "QueueState", rules: "QueueRules", deeds: "dict[str, tuple[TaskKind, Outcome]]"
) -> Iterator[dict[str, Any]]:
    """Yield the jobs: those that run, then those that wait, by priority and age."""
    from spanfit.queue.policy.explain import predicted_starts
    from spanfit.queue.policy.occupancy import expected_end_s, queue_key

    starts = predicted_starts(state, rules)
    for run in state.running.values():
        end_s = expected_end_s(run, state.now_s, rules)
        outcome = deeds[run.job.job_id][1] if run.job.job_id in deeds else ""
        yield _row(run.job, "running", run.started_s, end_s, _UNDONE.get(outcome, ""), run.npreemptions)
    for each in sorted(state.waiting.values(), key=lambda each: queue_key(each, rules)):
        job, word = each.job, "waiting" if each.is_here else "announced"
        until_s = job.expected_start_s if not each.is_here else starts.get(job.job_id, each.until_s)
        yield _row(job, word, job.submitted_s, until_s, each.reason, each.npreemptions)


_UNDONE = {
    "pending": "its start is still to be told or done: spanfit queue tick",
    "failed": "its start failed and is tried again: spanfit queue why",
}


def _row(
    job: "QueueJob", word: str, since_s: float, until_s: float | None, reason: str, npreemptions: int
) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "owner": job.owner,
        "nnodes": job.nnodes,
        "priority": job.priority,
        "state": word,
        "since_s": since_s,
        "until_s": until_s,
        "reason": reason,
        "npreemptions": npreemptions,
    }


@click.command(epilog="Example: spanfit queue why train-7")
@job_argument
@click.option("--last", type=click.IntRange(1), default=10, show_default=True, help="Decisions to show.")
@state_option
@json_option
def why(job_id: str, last: int, path: Path, as_json: bool) -> None:
    """Say why a job waits and until when.

    Also what was decided about it, and how far that has come: pending, done, failed, told to a person, or dropped
    since a later decision overtook it.
    """
    from spanfit.errors import ConfigError
    from spanfit.queue.policy.explain import why as explain

    with open_queue(path) as store:
        state, rules = _now(store.state()), store.rules()
        decisions, tasks, ground = store.decisions(job_id, last), store.tasks_of_job(job_id), store.ground
    is_here = job_id in state.waiting or job_id in state.running
    if not is_here and not decisions:
        raise ConfigError(f"{path}: job {job_id!r} was never in this queue; see: spanfit queue list --state {path}")
    found = explain(state, job_id, rules) if is_here else None
    reason = found.reason if found else f"is not in the queue; last: {decisions[-1].kind}, {decisions[-1].reason}"
    until_s = found.until_s if found else None
    if as_json:
        print_json(
            {
                "job_id": job_id,
                "reason": reason,
                "until_s": until_s,
                "decisions": [_decision_row(each, ground.names) for each in decisions],
                "tasks": [_task_row(each) for each in tasks[-last:]],
            }
        )
        return
    until = f"; until {format_moment(until_s)}, as expected" if until_s is not None else ""
    click.echo(f"{job_id} {reason}{until}")
    rows = [(format_moment(each.at_s), each.kind, format_moment(each.until_s), each.reason) for each in decisions]
    print_table("Decided", ("at", "what", "until", "why"), rows)
    if tasks:
        done = [(each.task.kind, each.outcome, str(each.attempts), each.said) for each in tasks[-last:]]
        print_table("To be done", ("what", "how far", ">attempts", "said"), done)


def _decision_row(decision: "Decision", names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "kind": decision.kind,
        "at_s": decision.at_s,
        "until_s": decision.until_s,
        "reason": decision.reason,
        "nodes": [names[node] for node in decision.order],
    }


def _task_row(entry: "Entry") -> dict[str, Any]:
    return {"kind": entry.task.kind, "outcome": entry.outcome, "attempts": entry.attempts, "said": entry.said}


@click.command(epilog="Example: spanfit queue plan")
@state_option
@json_option
def plan(path: Path, as_json: bool) -> None:
    """Show the calendar of jobs and reservations.

    Which nodes are reserved when, what runs until when and what starts when, as expected.
    """
    with open_queue(path) as store:
        state, rules = _now(store.state()), store.rules()
    entries, minipods = list(_calendar(state, rules)), list(_minipods(state))
    if as_json:
        print_json({"now_s": state.now_s, "entries": entries, "minipods": minipods})
        return
    rows = [
        (
            entry["kind"],
            entry["job_id"],
            str(entry["nnodes"]),
            format_moment(entry["start_s"]),
            format_moment(entry["end_s"]),
            _folded(entry["nodes"]),
        )
        for entry in entries
    ]
    columns = ("what", "job", ">nodes", "from", "until, as expected", "on")
    print_table(f"Calendar at {format_moment(time.time())}", columns, rows)
    table = [
        (row["minipod"], *(str(row[key]) for key in ("nnodes", "running", "free", "reserved", "out")))
        for row in minipods
    ]
    print_table(
        "Nodes", ("minipod", ">nodes", ">running", ">free", ">reserved, now or later", ">out of service"), table
    )


def _calendar(state: "QueueState", rules: "QueueRules") -> Iterator[dict[str, Any]]:
    """Yield what holds nodes and when: running jobs, reservations, and waiting jobs at their predicted starts."""
    from spanfit.queue.policy.explain import predicted_starts
    from spanfit.queue.policy.occupancy import counted_s, expected_end_s

    entries = [
        _entry("runs", run.job, run.started_s, expected_end_s(run, state.now_s, rules), state.ground.members(run.nodes))
        for run in state.running.values()
    ]
    for job_id, held in state.reservations.items():
        job = state.waiting[job_id].job
        entries.append(_entry("reserved", job, held.start_s, held.end_s, state.ground.members(held.nodes)))
    for job_id, start_s in predicted_starts(state, rules).items():
        if job_id not in state.reservations:
            each = state.waiting[job_id]
            end_s = start_s + counted_s(each.job, each.forecast, rules)
            entries.append(_entry("waits", each.job, start_s, end_s, ()))
    return iter(sorted(entries, key=lambda entry: (entry["start_s"], entry["job_id"])))


def _entry(kind: str, job: "QueueJob", start_s: float, end_s: float, nodes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "kind": kind,
        "job_id": job.job_id,
        "owner": job.owner,
        "nnodes": job.nnodes,
        "start_s": start_s,
        "end_s": end_s,
        "nodes": list(nodes),
    }


def _minipods(state: "QueueState") -> Iterator[dict[str, Any]]:
    """Yield how the nodes of each minipod stand now."""
    taken = reserved = 0
    for run in state.running.values():
        taken |= run.nodes
    for held in state.reservations.values():
        reserved |= held.nodes
    for label, mask in zip(state.ground.labels, state.ground.masks, strict=True):
        yield {
            "minipod": label,
            "nnodes": mask.bit_count(),
            "running": (mask & taken).bit_count(),
            "free": (mask & state.up & ~taken).bit_count(),
            "reserved": (mask & reserved).bit_count(),
            "out": (mask & ~state.up).bit_count(),
        }


def _folded(names: list[str]) -> str:
    from spanfit.topology.reading import folded

    return folded(names) if names else ""


@click.command(epilog="Example: spanfit queue nodes llm-1 > hosts.txt")
@job_argument
@state_option
@json_option
def nodes(job_id: str, path: Path, as_json: bool) -> None:
    """Print the nodes of a job in the order of its node ranks.

    Those that it runs on or has reserved, one a line. A job's script gives them to srun:
    SLURM_HOSTFILE=hosts.txt srun -n N --distribution=arbitrary.
    """
    from spanfit.errors import ConfigError

    with open_queue(path) as store:
        state = store.state()
    found = state.running.get(job_id) or state.reservations.get(job_id)
    if found is None:
        raise ConfigError(f"{path}: job {job_id!r} has no nodes; see: spanfit queue why {job_id}")
    names = [state.ground.names[node] for node in found.order]
    print_json(names) if as_json else click.echo("\n".join(names))

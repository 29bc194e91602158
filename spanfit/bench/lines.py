"""The lines that rank 0 appends to a launch's shard, whichever library moved the bytes; standard library only."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spanfit.bench.case import ALL_GPUS, EACH_RAIL, BenchCase, LaunchPlan, Visit
from spanfit.environment import kept_environment
from spanfit.workload.job import seat_ranks


def world_ranks(case: BenchCase, ngpus_per_node: int) -> tuple[tuple[int, ...], ...]:
    """Return the world ranks of each group of a case.

    A step has a group for each job that runs, whose ranks are those of the job in order. Of any other case that runs
    each rail at once, the groups of the first rail come first.
    """
    if case.step is not None:
        return seat_ranks(case.step, case.groups[0], ngpus_per_node)
    together: list[Sequence[int]] = [range(ngpus_per_node)] if case.rail == ALL_GPUS else [(case.rail,)]
    if case.rail == EACH_RAIL:
        together = [(local,) for local in range(ngpus_per_node)]
    return tuple(
        tuple(node * ngpus_per_node + local for node in group for local in chosen)
        for chosen in together
        for group in case.groups
    )


def startup_parts(case: BenchCase) -> tuple[str, str, str]:
    """Return what a start-up case times: the communicator with its first operation, that one, and the second."""
    return "communicator", f"first_{case.operation}", f"second_{case.operation}"


def misplaced(plan: LaunchPlan, hosts: Sequence[str]) -> str:
    """Return what is wrong with a world whose rank i runs on ``hosts[i]``, "" where that is what the plan names."""
    expected = [name for name in plan.node_names for _ in range(plan.ngpus_per_node)]
    if len(expected) != len(hosts):
        return f"the world has {len(hosts)} ranks; expected {len(expected)}"
    return "; ".join(
        f"rank {rank} runs on {host}, expected {name}"
        for rank, (host, name) in enumerate(zip(hosts, expected, strict=True))
        if host.partition(".")[0] != name.partition(".")[0]
    )


def render_world(
    plan: LaunchPlan, environment: Mapping[str, str], versions: Mapping[str, str], gpu_model: str = ""
) -> dict[str, Any]:
    """Return the shard's first line: versions, settings and hardware as rank 0 sees them."""
    return {
        "type": "world",
        "comm_id": plan.comm_id,
        "environment": kept_environment(environment),
        "versions": {"python": platform.python_version(), "kernel": platform.release(), **versions},
        "gpu_model": gpu_model,
    }


def render_visit(
    plan: LaunchPlan,
    visit: Visit,
    gathered: Sequence[Sequence[float]],
    *,
    parts: Sequence[str] = (),
    notes: Mapping[str, Any] | None = None,
    fault: str = "",
) -> dict[str, Any]:
    """Return a visit's line of the shard: the case, its groups' ranks, and seconds by group, rank and repetition.

    Parameters
    ----------
    gathered : sequence of sequence of float
        For each rank of the world 1 or 0 for a right or wrong result, then its seconds, part after part.
    parts : sequence of str
        What was timed, as many repetitions each; where it is more than the case's operation, the line has each by name.
    notes : mapping of str to plain data
        How it was timed, such as the iterations of the warm-up.
    fault : str
        Why nothing could be timed, "" where it was.
    """
    groups = world_ranks(visit.case, plan.ngpus_per_node)
    wrong = [rank for ranks in groups for rank in ranks if not gathered[rank][0]]
    status, reason = ("failed", fault) if fault else ("ok", "")
    if wrong:
        status, reason = "wrong_result", f"wrong values on ranks {', '.join(map(str, wrong))}"
    repetitions = visit.case.repetitions

    def times_s(part: int) -> list[list[list[float]]]:
        chosen = slice(1 + part * repetitions, 1 + (part + 1) * repetitions)
        return [[[] if fault else list(gathered[rank][chosen]) for rank in ranks] for ranks in groups]

    by_name = {name: times_s(part) for part, name in enumerate(parts)} if len(parts) > 1 else {}
    return {
        **render_failure(plan, visit, status, reason),
        "times_s": times_s(0),
        **({"final": True} if fault else {}),
        **({"parts": by_name} if by_name else {}),
        **(notes or {}),
    }


def render_failure(plan: LaunchPlan, visit: Visit, status: str, reason: str) -> dict[str, Any]:
    """Return a visit's line of the shard where nothing was timed: the case, its groups' ranks, and why."""
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
        "ranks": world_ranks(visit.case, plan.ngpus_per_node),
        "times_s": [],
    }


def drop_torn_line(shard: Path) -> None:
    """Cut off a last line that a kill left without its end, lest the next line be appended to it."""
    if shard.exists():
        os.truncate(shard, shard.read_bytes().rfind(b"\n") + 1)


def append(shard: Path, line: Mapping[str, Any]) -> None:
    """Append a line to a shard."""
    with shard.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")

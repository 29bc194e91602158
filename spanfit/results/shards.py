"""The lines that rank 0 appends while a launch runs, read back into measurements: edge, reads files."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanfit.errors import StoreError
from spanfit.results.schema import Measurement, Status

_ALL_GPUS = -1
"""The rail of what every GPU of a node takes part in; any other group has one local rank of each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One launch's file: what rank 0 said of the world at each start, and a line for each case that ended."""

    worlds: tuple[dict[str, Any], ...]
    cases: tuple[dict[str, Any], ...]

    def finished(self) -> set[tuple[int, str]]:
        """Return the (block, case_id) of every case that was measured, or that nothing will measure.

        One that failed or hung is tried again.
        """
        measured = (Status.OK, Status.WRONG_RESULT)
        return {
            (line["block"], line["case_id"]) for line in self.cases if line["status"] in measured or line.get("final")
        }


def read_shard(path: Path) -> Shard:
    """Return a shard; a last line that a kill cut short is dropped, since its case is measured again.

    Raises
    ------
    StoreError
        If any other line is no JSON.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise StoreError(
                f"{path}:{number}: not a JSON line ({error}); remove the file to measure it again"
            ) from None
    return Shard(
        worlds=tuple(line for line in lines if line["type"] == "world"),
        cases=tuple(line for line in lines if line["type"] == "case"),
    )


def append_failure(path: Path, line: dict[str, Any]) -> None:
    """Append the line of a case that failed, after dropping a line that was cut short."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    with path.open("r+" if path.exists() else "w", encoding="utf-8") as file:
        file.truncate(len(whole.encode()))
        file.seek(0, 2)
        file.write(json.dumps(line) + "\n")


def measurements(
    run_id: str, shards: Iterable[Shard], ngpus_per_node: int, switches: Mapping[str, Sequence[str]]
) -> Iterator[Measurement]:
    """Yield a row for each group and repetition of every case, and one row for each case that failed.

    A case that timed several things, such as a start-up, gives these rows for each of them. A launch that measured
    start-ups also gives a row for the making of its process group.

    Parameters
    ----------
    ngpus_per_node : int
    switches : mapping of str to sequence of str
        For each tier the switch above each node rank, from which each group's span is counted.
    """
    for shard in shards:
        if any(line["case"]["kind"] == "startup" for line in shard.cases):
            yield from (_process_group(run_id, shard, world, ngpus_per_node, switches) for world in shard.worlds)
        for line in shard.cases:
            for group, ranks in enumerate(line["ranks"]):
                nodes = tuple(dict.fromkeys(rank // ngpus_per_node for rank in ranks))
                span = len({switches[line["case"]["tier"]][node] for node in nodes})
                rail = _ALL_GPUS if line["case"]["rail"] == _ALL_GPUS else ranks[0] % ngpus_per_node
                for operation, by_group in _parts(line).items():
                    times_s = by_group[group] if line["status"] == Status.OK else []
                    yield from _rows(run_id, line, operation, group, ranks, nodes, span, times_s, rail)


def _process_group(
    run_id: str, shard: Shard, world: dict[str, Any], ngpus_per_node: int, switches: Mapping[str, Sequence[str]]
) -> Measurement:
    """Return how long the ranks of a launch took to meet; the first to come waits for the last."""
    init_s = world["init_s"]
    nodes = tuple(range(len(init_s) // ngpus_per_node))
    case = {
        "kind": "startup",
        "size_bytes": 0,
        "dtype": "",
        "redop": "none",
        "in_place": False,
        "tier": "minipod",
        "rank_order": "sorted",
        "concurrency": "alone",
        "draw": 0,
        "arm": "",
        "step": None,
    }
    line = {
        "launch": shard.cases[0]["launch"],
        "comm_id": world["comm_id"],
        "position": -1,
        "case_id": "process_group",
        "case": case,
        "status": Status.OK,
        "reason": "",
    }
    span = len({switches["minipod"][node] for node in nodes})
    by_rank = [[seconds] for seconds in init_s]
    ranks = list(range(len(init_s)))
    (row,) = _rows(run_id, line, "process_group", 0, ranks, nodes, span, by_rank, _ALL_GPUS)
    return row


def _parts(line: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of everything that a case timed, by what the rows call it; a failed case is one row."""
    whole = {line["case"]["operation"]: line["times_s"]}
    parts: dict[str, Any] = line.get("parts", whole)
    return parts if line["status"] == Status.OK else whole


def _rows(
    run_id: str,
    line: dict[str, Any],
    operation: str,
    group: int,
    ranks: list[int],
    nodes: tuple[int, ...],
    span: int,
    times_s: list[list[float]],
    rail: int,
) -> Iterator[Measurement]:
    case = line["case"]
    repetitions: list[list[float]] = [list(row) for row in zip(*times_s, strict=True)] or [[]]
    for repetition, by_rank in enumerate(repetitions):
        # A program prints the time of the slowest rank of a group alone, and not which rank that is.
        is_each = len(by_rank) == len(ranks) and not line.get("resolution_s")
        time_s = max(by_rank, default=math.nan)
        time_min_s = min(by_rank) if is_each else math.nan
        yield Measurement(
            run_id=run_id,
            launch=line["launch"],
            comm_id=line["comm_id"],
            position=line["position"],
            case_id=line["case_id"],
            kind=case["kind"],
            operation=operation,
            size_bytes=case["size_bytes"],
            dtype=case["dtype"],
            redop=case["redop"],
            in_place=case["in_place"],
            nranks=len(ranks),
            nnodes=len(nodes),
            tier=case["tier"],
            span=span,
            rank_order=case["rank_order"],
            concurrency=case["concurrency"],
            draw=case["draw"],
            arm=case["arm"],
            compute=case["step"]["compute"] if case["step"] else "",
            rail=rail,
            group=group,
            nodes=",".join(map(str, nodes)),
            repetition=repetition,
            time_s=time_s,
            time_min_s=time_min_s,
            time_resolution_s=line.get("resolution_s", 0.0),
            slowest_rank=ranks[by_rank.index(time_s)] if is_each else -1,
            fastest_rank=ranks[by_rank.index(time_min_s)] if is_each else -1,
            status=Status(line["status"]),
            reason=line["reason"],
        )

"""Logs of NCCL Inspector, the profiler plugin that notes each collective of a live job.

The plugin (``ext-profiler/inspector`` from NCCL 2.28, ``plugins/profiler/inspector`` from 2.30) makes a folder for each
job and in it a file ``HOST-pidPID.log`` for each process. Every line is a JSON object: ``header`` with the communicator
(``id``, the same on all of its ranks; ``rank``, ``n_ranks``, ``nnodes``), ``metadata`` (``hostname``, ``pid``,
``inspector_output_format_version``) and ``coll_perf``, or from 2.30 ``p2p_perf``. A collective is known by its
communicator and ``coll_sn``; ``coll_exec_time_us`` is a whole number of microseconds, this rank's kernel time unless
``coll_timing_source`` says otherwise. ``coll_msg_size_bytes`` is count times element size as the call had them, so one
rank's share for AllGather and ReduceScatter. The element type, the redop and the place are not there; calls under 8 KiB
are left out.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spanfit.collectives import Collective, is_shared
from spanfit.results.importers.imported import Imported, Timing, spelt_operation, spelt_redop, with_failure
from spanfit.results.importers.log import LogStatus

ENGINE = "nccl-inspector"
_RESOLUTION_S = 0.5e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One collective as one rank saw it."""

    communicator: str
    rank: int
    nranks: int
    host: str
    version: str
    operation: str
    serial: int
    size_bytes: int
    time_s: float
    timing_source: str


def is_inspector(text: str) -> bool:
    """Return whether a text is a log of the Inspector: its first line is an object with its head."""
    first = text.lstrip("\ufeff \t\r\n").partition("\n")[0]
    return first.startswith("{") and '"header"' in first and '"metadata"' in first


def read_records(text: str) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return the collectives of one process's log, and the lines that hold none, such as one that a kill cut."""
    records, foreign = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        record = _record(line)
        if record is None:
            foreign.append(line)
        else:
            records.append(record)
    return tuple(records), tuple(foreign)


def _record(line: str) -> Record | None:
    try:
        entry: Any = json.loads(line)
        head, meta, call = entry["header"], entry["metadata"], entry["coll_perf"]
        return Record(
            communicator=str(head["id"]),
            rank=int(head["rank"]),
            nranks=int(head["n_ranks"]),
            host=str(meta["hostname"]),
            version=str(meta.get("inspector_output_format_version", "")),
            operation=spelt_operation(str(call["coll"])),
            serial=int(call["coll_sn"]),
            size_bytes=int(call["coll_msg_size_bytes"]),
            time_s=float(call["coll_exec_time_us"]) * 1e-6,
            timing_source=str(call.get("coll_timing_source", "")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def join_records(records: Iterable[Record], foreign: Sequence[str] = ()) -> tuple[Imported, ...]:
    """Return a run for each communicator of a job from what its processes noted.

    A collective's time is that of the slowest of its ranks, and the fastest is kept beside it: a rank that comes late
    makes the others wait inside their kernels. What not every rank noted is left out, and a row says how much that is.
    """
    by_communicator: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_communicator[record.communicator].append(record)
    return tuple(with_failure(_run(found, tuple(foreign))) for found in by_communicator.values())


def _run(records: Sequence[Record], foreign: tuple[str, ...]) -> Imported:
    first = records[0]
    hosts = {record.rank: record.host for record in records}
    calls: dict[tuple[int, str, int], list[Record]] = defaultdict(list)
    for record in records:
        calls[record.serial, record.operation, record.size_bytes].append(record)
    whole = [call for call in calls.values() if len({record.rank for record in call}) == first.nranks]
    nleft_out = len(calls) - len(whole)
    note = f"{nleft_out} of {len(calls)} collectives of communicator {first.communicator} were not noted by all ranks"
    sources = sorted({record.timing_source for record in records} - {""})
    return Imported(
        engine=ENGINE,
        program=ENGINE,
        version=first.version,
        backend="nccl",
        nranks=first.nranks,
        hosts=tuple(hosts[rank] for rank in range(first.nranks)) if len(hosts) == first.nranks else None,
        timings=tuple(map(_timing, whole)),
        status=LogStatus.TRUNCATED if nleft_out else LogStatus.OK,
        error=note if nleft_out else "",
        settings={"timing source": ", ".join(sources)} if sources else {},
        communicator=first.communicator,
        is_cpu_time=any("cpu" in source for source in sources),
        foreign=foreign,
    )


def _timing(call: Sequence[Record]) -> Timing:
    times_s = [record.time_s for record in call]
    operation = call[0].operation
    return Timing(
        operation=operation,
        size_bytes=call[0].size_bytes,
        is_share=operation in set(Collective) and is_shared(Collective(operation)),
        redop=spelt_redop(operation, None),
        time_s=max(times_s),
        resolution_s=_RESOLUTION_S,
        time_min_s=min(times_s),
    )

"""From the runs of measuring programs to one run of the store.

A run of a program is a launch: its communicators are its own, so that what differs between runs is replication. Runs of
the same program that could be pooled in a curve, which have the same ranks, nodes and span, are counted as launch 0, 1,
... in the order of the files. The curves then pair the first run of one span with the first of another, and so on.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from spanfit import __version__, files
from spanfit.collectives import Collective
from spanfit.errors import ConfigError
from spanfit.results.importers.imported import WORLD, Imported
from spanfit.results.importers.likeness import check_alike
from spanfit.results.importers.seating import Seated, seat_runs
from spanfit.results.importers.sources import Source
from spanfit.results.schema import SCHEMA_VERSION, Measurement, RunInfo, Status
from spanfit.topology.model import Cluster

_TIER = "minipod"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What an import is told beside the files.

    Attributes
    ----------
    campaign : str
        The name under which the run is known.
    nodes : tuple of str
        For runs that print none: the host of each rank, or each host once where the run says how many ranks it has.
    origin : dict
        SHA-256 of each file, by name.
    started_at, ended_at : str
        ISO 8601, UTC.
    pool_unlike : bool
        Pool runs of unlike versions, settings or hardware.
    """

    campaign: str
    origin: dict[str, str]
    started_at: str
    ended_at: str
    nodes: tuple[str, ...] = ()
    pool_unlike: bool = False

    @property
    def run_id(self) -> str:
        """Return the id of the run: the same for the same files and nodes."""
        return f"{self.campaign}-{files.digest({'origin': self.origin, 'nodes': self.nodes})[:8]}"


def pool(
    sources: Sequence[Source], cluster: Cluster, request: ImportRequest
) -> tuple[RunInfo, tuple[Measurement, ...]]:
    """Return one run of the store from the runs of some files.

    Raises
    ------
    ConfigError
        If a run's operation or hosts are not known, or runs are unlike.
    """
    _check_operations(sources)
    runs = seat_runs(sources, cluster, request.nodes)
    check_alike(runs, pool_unlike=request.pool_unlike)
    used = {name for run in runs for name in run.nodes}
    by_minipod = cluster.minipods(node for node in cluster.nodes if node.name in used)
    names = tuple(node.name for nodes in by_minipod.values() for node in nodes)
    minipods = dict(zip(names, cluster.switch_names(names)[_TIER], strict=True))
    table = _Table(run_id=request.run_id, names=names, minipods=minipods)
    rows = tuple(row for number, run in enumerate(runs) for row in table.rows(number, run))
    return _info(runs, cluster, names, request, launches=1 + max((row.launch for row in rows), default=-1)), rows


def _check_operations(sources: Sequence[Source]) -> None:
    """Refuse times of what spanfit has no word for: no bandwidth can be made of them."""
    faults = [
        f"{source.name}: operation: found {timing.operation or 'none'}, expected one that spanfit knows; "
        "a log that does not name its program needs --operation"
        for source in sources
        for run in source.runs
        for timing in run.timings[:1]
        if timing.operation not in set(Collective) and any(each.status is Status.OK for each in run.timings)
    ]
    if faults:
        raise ConfigError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The rows of an import in the making; counts the launches and the draws of nodes."""

    run_id: str
    names: tuple[str, ...]
    minipods: Mapping[str, str]
    launches: dict[tuple[object, ...], dict[object, int]] = field(default_factory=dict)
    draws: dict[tuple[object, ...], dict[object, int]] = field(default_factory=dict)

    def rows(self, number: int, seated: Seated) -> Iterator[Measurement]:
        """Yield the row of each timing of a run."""
        run = seated.run
        group, ranks = self._widest(run, seated.nodes)
        span = len({self.minipods[name] for name in ranks})
        nodes = tuple(self.names.index(name) for name in dict.fromkeys(ranks))
        nranks = len(ranks) or run.nranks or 0
        place = (run.program, span, nranks, len(nodes))
        launch = _ordinal(self.launches, place, number if run.communicator == WORLD else f"job {seated.source}")
        repetitions: dict[tuple[object, ...], dict[object, int]] = {}
        for position, timing in enumerate(run.timings):
            size_bytes = timing.size_bytes * (nranks if timing.is_share else 1)
            what = (timing.operation, size_bytes, timing.dtype, timing.redop, timing.in_place)
            yield Measurement(
                run_id=self.run_id,
                launch=launch,
                comm_id=f"{launch}.{number}",
                position=position,
                case_id=_case_id(*what, nodes, nranks, bool(run.groups)),
                kind="collective",
                operation=timing.operation,
                size_bytes=size_bytes,
                dtype=timing.dtype,
                redop=timing.redop,
                in_place=timing.in_place,
                nranks=nranks,
                nnodes=len(nodes),
                tier=_TIER,
                span=span,
                rank_order=self._rank_order(ranks),
                concurrency="all" if run.groups else "alone",
                draw=_ordinal(self.draws, place, nodes),
                arm="",
                compute="",
                rail=-1,
                group=group,
                nodes=",".join(map(str, nodes)),
                repetition=_ordinal(repetitions, what, position),
                time_s=timing.time_s,
                time_min_s=timing.time_min_s,
                time_resolution_s=timing.resolution_s,
                slowest_rank=-1,
                fastest_rank=-1,
                status=timing.status,
                reason=timing.reason,
            )

    def _widest(self, run: Imported, nodes: Sequence[str]) -> tuple[int, tuple[str, ...]]:
        """Return the group that touches the most minipods, since one time is printed for all, and its ranks' nodes."""
        groups = [tuple(nodes[rank] for rank in ranks) for ranks in run.groups] if nodes else []
        spans = [len({self.minipods[name] for name in group}) for group in groups]
        group = spans.index(max(spans)) if spans else 0
        return group, groups[group] if groups else tuple(nodes)

    def _rank_order(self, ranks: Sequence[str]) -> str:
        """Return how ranks on these nodes go: minipod by minipod, to another at every hop, or as the job had them."""
        hops = [self.minipods[name] for name, _ in groupby(ranks)]
        changes = sum(left != right for left, right in pairwise(hops))
        if changes == max(0, len(set(hops)) - 1):
            return "sorted"
        return "alternating" if changes == len(hops) - 1 else "job"


def _ordinal(seen: dict[tuple[object, ...], dict[object, int]], key: tuple[object, ...], value: object) -> int:
    """Return as the how manieth of its key a value was first seen."""
    known = seen.setdefault(key, {})
    return known.setdefault(value, len(known))


def _case_id(*content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _info(
    runs: Sequence[Seated], cluster: Cluster, names: tuple[str, ...], request: ImportRequest, *, launches: int
) -> RunInfo:
    switches = cluster.switch_names(names)
    versions = {run.run.engine: run.run.version for run in runs if run.run.version}
    libraries = dict.fromkeys(library for run in runs if (library := run.run.settings.get("NCCL library")))
    printed = {run.run.gpu_model for run in runs} - {""}
    models = printed or {node.gpu_model for node in cluster.select(names) if node.gpu_model}
    clock = ", CPU times" if any(run.run.is_cpu_time for run in runs) else ""
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=request.run_id,
        campaign=request.campaign,
        cluster=cluster.name,
        cluster_hash=files.digest(cluster),
        started_at=request.started_at,
        ended_at=request.ended_at,
        engine=", ".join(dict.fromkeys(run.run.engine for run in runs if run.run.engine)),
        backend=", ".join(dict.fromkeys(run.run.backend for run in runs if run.run.backend)),
        transport=f"the network of {cluster.name} (imported{clock})",
        node_names=names,
        minipods=switches[_TIER],
        tiers=cluster.tiers,
        switches=switches,
        ngpus_per_node=max((run.nodes.count(name) for run in runs for name in set(run.nodes)), default=1),
        gpu_model=", ".join(sorted(models)) or "not printed",
        launches=launches,
        truth={},
        environment=_shared([run.run.environment or {} for run in runs]),
        versions=versions | ({"NCCL": ", ".join(libraries)} if libraries else {}) | {"spanfit": __version__},
        git_commit="",
        spec={},
        origin=request.origin,
    )


def _shared(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that no two runs have with different values."""
    values: dict[str, set[str]] = {}
    for environment in environments:
        for name, value in environment.items():
            values.setdefault(name, set()).add(value)
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}

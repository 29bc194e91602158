"""Nodes as Slurm lists them: ``scontrol show nodes`` (text, JSON of all generations), slurmrestd and ``sinfo``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.slurm_records import NONE
from spanfit.topology.readers.slurm_states import is_sliced, node_state, parse_gres, state_words, unknown_words
from spanfit.topology.reading import (
    Finding,
    NodeFacts,
    Reading,
    depth_findings,
    folded,
    gpu_count_findings,
    shown,
    unplaced_finding,
)

_NODE = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_STATE = re.compile(r"\sState=(\S+)\s+ThreadsPerCore=")  # OS= before it is free text too
_GRES = re.compile(r"\sGres=(\S+)")
_PARTITIONS = re.compile(r"\sPartitions=(\S+)")
_REASON = re.compile(r"\sReason=(.*?)(?:\s+\[[^\[\]]*\])?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    words: tuple[str, ...]
    gres: str
    reason: str
    partitions: tuple[str, ...]
    topology: str = ""
    has_gres: bool = True


def parse_show_nodes(text: str, origin: str) -> Reading:
    """Return what ``scontrol show nodes``, with or without ``-o``, says; ConfigError lists nodes without a state."""
    heads = list(_NODE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    rows, faults = [], []
    for head, end in zip(heads, ends, strict=False):  # without heads there is an end all the same
        record = text[head.start() : end]
        fields = record.partition(" Reason=")[0]  # the reason comes last and is free text
        state = _STATE.search(fields)
        if not state:
            faults.append(
                f"{origin}: node {shown(head[1])}: no State=; expected the whole output of scontrol show nodes"
            )
            continue
        rows.append(
            _Row(
                name=head[1],
                words=state_words(state[1]),
                gres=_field(_GRES, fields),
                reason=_field(_REASON, record),
                partitions=tuple(filter(None, _field(_PARTITIONS, fields).split(","))),
            )
        )
    if faults:
        raise ConfigError("\n".join(faults))
    return _reading(rows, origin, "scontrol-show-nodes")


def _field(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match and match[1] != NONE else ""


def parse_nodes_json(document: object, origin: str) -> Reading:
    """Return what the JSON of ``scontrol show nodes``, slurmrestd or an old ``sinfo`` says.

    States are a list of words, or in the old shape one word and ``state_flags``. Places come from the field
    ``topology`` (25.05 and later): of several topologies the one that holds most nodes, then the deepest.

    Raises
    ------
    ConfigError
        Says where the document has another shape.
    """
    items = list(Place(origin, "", document).get("nodes").items())
    rows = [_json_row(item) for item in items]
    if any(isinstance(item.get("state").value, str) for item in items):
        return _reading(rows, origin, "sinfo-json")
    if any(_units(row.topology) for row in rows):
        nodes, findings, chosen = _placed(rows)
        reading = _reading(rows, origin, "slurm-nodes-json", nodes, findings)
        topologies = dict.fromkeys(name for row in rows for name in _units(row.topology))
        return replace(reading, scheme=chosen, topologies=tuple(topologies))
    text = "no node says where it is in the topology; read topology.conf or scontrol show topology beside"
    return _reading(rows, origin, "slurm-nodes-json", findings=[Finding(code="no-topology-field", text=text)])


def _json_row(item: Place) -> _Row:
    state = item.get("state")
    old = isinstance(state.value, str)
    words = state_words(state.text()) + item.get("state_flags").texts() if old else state.texts()
    return _Row(
        name=item.get("name").name(),
        words=words,
        gres=_given(item.get("gres")),
        reason=_given(item.get("reason")),
        partitions=item.get("partitions").texts(),
        topology=_given(item.get("topology")),
    )


def choose_topology(reading: Reading, topology: str | None) -> Reading:
    """Return nodes as they are placed in another of Slurm's topologies; ConfigError where none has that name.

    None, and the topology that was read, leave the reading as it is, and so does a source that tells none.
    """
    if topology in (None, reading.scheme) or not reading.topologies:
        return reading
    if topology not in reading.topologies:
        known = shown(", ".join(reading.topologies))
        raise ConfigError(f"{reading.origin}: found no topology {topology!r}; expected one of {known}")
    placed = []
    for node in reading.nodes:
        units = dict(node.other).get(topology)
        placed.append(replace(node, fabric=tuple(reversed(units.split(":"))) if units else None))
    unplaced = [
        unplaced_finding(node.name, f"has no place in topology {topology}") for node in placed if not node.fabric
    ]
    kept = [one for one in reading.findings if one.code not in ("node-without-topology", "ragged-depth")]
    findings = (*kept, *unplaced, *depth_findings(placed))
    return replace(reading, nodes=tuple(placed), findings=findings, scheme=topology)


def _given(place: Place) -> str:
    return "" if place.value == NONE else place.text()


def parse_sinfo_json(document: object, origin: str) -> Reading:
    """Return what a new ``sinfo --json`` says: rows of nodes alike, a node once for each of its partitions."""
    rows: dict[str, _Row] = {}
    for item in Place(origin, "", document).get("sinfo").items():
        words = item.get("node").get("state").texts()
        partition = item.get("partition").get("name").text()
        gres, reason = _given(item.get("gres").get("total")), _reason(item.get("reason"))
        for name in item.get("nodes").get("nodes").texts():
            before = rows[name].partitions if name in rows else ()
            rows[name] = _Row(name=name, words=words, gres=gres, reason=reason, partitions=(*before, partition))
    return _reading(list(rows.values()), origin, "sinfo-json")


def _reason(place: Place) -> str:
    return place.get("description").text() if isinstance(place.value, dict) else _given(place)


def parse_sinfo(text: str, origin: str) -> Reading:
    """Return what ``sinfo`` prints: a heading with NODELIST and STATE, optional PARTITION, GRES and REASON (last).

    A node in several partitions has a row for each; ``sinfo -l`` prints the date before the heading. ConfigError says
    which columns are missing.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    lines = lines[1:] if lines and "NODELIST" not in lines[0] else lines
    heading = lines[0].split() if lines else []
    if "NODELIST" not in heading or "STATE" not in heading or "REASON" in heading[:-1]:
        found, expected = " ".join(heading)[:80], "NODELIST and STATE, REASON last if at all, as sinfo -N -l prints"
        raise ConfigError(f"{origin}: found columns {found!r}; expected {expected}")
    rows: dict[str, _Row] = {}
    for line in lines[1:]:
        cells = dict(zip(heading, line.split(maxsplit=len(heading) - 1), strict=False))
        if cells.get("STATE") == "n/a":  # a partition without nodes
            continue
        if len(cells) < len(heading) and set(heading[len(cells) :]) != {"REASON"}:
            raise ConfigError(f"{origin}: found {line[:80]!r}; expected {len(heading)} columns as in the heading")
        reason, gres = cells.get("REASON", "none").strip(), cells.get("GRES", "")
        for name in _names(cells["NODELIST"], origin):
            before = rows[name].partitions if name in rows else ()
            partitions = (*before, cells["PARTITION"].rstrip("*")) if "PARTITION" in cells else ()
            rows[name] = _Row(
                name=name,
                words=state_words(cells["STATE"]),
                gres="" if gres == NONE else gres,
                reason="" if reason == "none" else reason,
                partitions=partitions,
                has_gres="GRES" in cells,
            )
    return _reading(list(rows.values()), origin, "sinfo")


def _names(text: str, origin: str) -> tuple[str, ...]:
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: NODELIST: {error}") from None


def _placed(rows: Sequence[_Row]) -> tuple[dict[str, tuple[str, ...]], list[Finding], str]:
    """Return the path of each node in the topology that counts, findings, and the name of that topology."""
    places = {row.name: _units(row.topology) for row in rows}
    counts: dict[str, tuple[int, int]] = {}
    for units in places.values():
        for topology, path in units.items():
            number, depth = counts.get(topology, (0, 0))
            counts[topology] = (number + 1, max(depth, len(path)))
    chosen = max(counts, key=counts.__getitem__)
    findings = [
        unplaced_finding(row.name, "has no place in its field topology")
        for row in rows
        if chosen not in places[row.name]
    ]
    return {name: units[chosen] for name, units in places.items() if chosen in units}, findings, chosen


def _units(topology: str) -> dict[str, tuple[str, ...]]:
    """Return the units of each topology, closest first, from ``name:root:..:leaf,name:block``."""
    found = {}
    for part in filter(None, topology.split(",")):
        name, *path = part.split(":")
        if path and all(path):
            found[name] = tuple(reversed(path))
    return found


def _reading(
    rows: Sequence[_Row],
    origin: str,
    kind: str,
    paths: Mapping[str, tuple[str, ...]] | None = None,
    findings: Sequence[Finding] = (),
) -> Reading:
    nodes = tuple(_facts(row, (paths or {}).get(row.name)) for row in rows)
    more = (*findings, *depth_findings(nodes), *gpu_count_findings(nodes), *_gres_findings(rows, nodes))
    more += tuple(_word_findings(nodes))
    return Reading(origin=origin, kind=kind, nodes=nodes, findings=more)


def _facts(row: _Row, path: tuple[str, ...] | None) -> NodeFacts:
    return NodeFacts(
        name=row.name,
        fabric=path,
        gpus=parse_gres(row.gres) if row.has_gres else None,
        state=node_state(row.words),
        words=row.words,
        reason=row.reason,
        partitions=row.partitions,
        other=tuple((name, ":".join(reversed(units))) for name, units in _units(row.topology).items() if units != path),
    )


def _gres_findings(rows: Sequence[_Row], nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    with_gpus = {partition for node in nodes if node.ngpus for partition in node.partitions}
    for row, node in zip(rows, nodes, strict=True):
        if is_sliced(row.gres):
            text = (
                f"{shown(node.name)} offers slices of GPUs ({shown(row.gres)}); only its {node.ngpus} whole GPUs count"
            )
            yield Finding(code="mig-sliced", subject=node.name, text=text)
        elif node.ngpus == 0 and with_gpus.intersection(node.partitions):
            text = f"{shown(node.name)} has no GPUs in its Gres, unlike others of its partition"
            yield Finding(code="no-gres", subject=node.name, text=text)


def _word_findings(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    holders: dict[str, list[str]] = {}
    for node in nodes:
        for word in unknown_words(node.words):
            holders.setdefault(word, []).append(node.name)
    for word, names in holders.items():
        text = f"state {shown(word)} of {folded(names)} is not known: taken as down"
        yield Finding(code="unknown-state", subject=word, text=text)

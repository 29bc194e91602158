"""Several sources made into one cluster: the fabric of one, the states of another, every contradiction named."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanfit.errors import ConfigError
from spanfit.topology.model import Cluster, Node, NodeState, tier_names
from spanfit.topology.reading import (
    CLUSTER_FILE,
    PLACEHOLDERS,
    SEVERITY,
    Finding,
    NodeFacts,
    Reading,
    folded,
    is_usable_name,
    shown,
)

_UNPLACED = frozenset(
    {
        "node-without-topology",
        "empty-label",
        "multi-leaf-node",
        "multi-block-node",
        "empty-network-nodes",
        "no-neighbour",
        "host-above-leaves",
    }
)
_SCALARS = ("ngpus", "gpu_model", "accelerator_domain")
_Paths = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A cluster, and what is odd about its sources or among them."""

    cluster: Cluster
    findings: tuple[Finding, ...]


def merge(readings: Sequence[Reading], name: str) -> Merged:
    """Return one cluster of all that sources say.

    Places come from the first source that gives any, and from later ones of its kind for nodes that it lacks. GPUs and
    domains come from the first source that tells them; of states the most severe counts. A node without a place is
    left out; one that no source of states knows, though there is one, is down. Each is said, as is every contradiction.

    Raises
    ------
    ConfigError
        If no source gives any node a place.
    """
    base = next((reading for reading in readings if any(node.fabric for node in reading.nodes)), None)
    if base is None:
        raise ConfigError(_no_place(readings))
    paths, more = _places(base, readings)
    facts = _facts_by_node(readings)
    tellers = _tellers(readings)
    states = _states(tellers, readings)
    depth = max(map(len, paths.values()))
    nodes = [_node(name, path, facts[name], states.get(name), depth) for name, path in paths.items()]
    findings = [
        *_told(readings, paths),
        *more,
        *_placeholder_findings(readings, base, paths),
        *_unplaced(readings, base, paths),
        *_contradictions(readings, base, paths),
        *_differing(tellers, paths, "state", "the more severe counts"),
        *_stateless(tellers, paths),
        *_model_findings(facts, paths),
        *_reservation_findings(readings),
        *(_island_findings(nodes) if base.kind != CLUSTER_FILE else ()),
    ]
    tiers = base.tiers if len(base.tiers) == depth else _tiers(nodes, depth)
    cluster = Cluster(name=base.name or name, tiers=tiers, nodes=tuple(nodes))
    return Merged(cluster=cluster, findings=tuple(dict.fromkeys(findings)))


def _no_place(readings: Sequence[Reading]) -> str:
    lines = [f"{reading.origin}: gives no node a place ({reading.kind})" for reading in readings]
    for reading in readings:
        lines += [f"{reading.origin}: {finding}" for finding in reading.findings[:3]]
    return "\n".join([*lines, "expected a source of the fabric beside, such as topology.conf or nodes with labels"])


def _places(base: Reading, readings: Sequence[Reading]) -> tuple[_Paths, list[Finding]]:
    """Return the path of each usable node, and the contradictions of sources that name switches alike."""
    paths: _Paths = {}
    findings = []
    for reading in readings:
        for node in reading.nodes if _is_alike(reading, base) else ():
            if not node.fabric or not PLACEHOLDERS.isdisjoint(node.fabric):
                continue
            if not is_usable_name(node.name):
                text = f"{shown(node.name)} is no host name that hostfiles can carry; it is left out"
                findings.append(Finding(code="unusable-name", subject=shown(node.name), text=text))
            elif paths.setdefault(node.name, node.fabric) != node.fabric:
                here, there = shown("/".join(paths[node.name])), shown("/".join(node.fabric))
                text = f"{node.name} is at {here} and, in {reading.origin}, at {there}; the first counts"
                findings.append(Finding(code="conflict", subject=f"fabric:{node.name}", text=text))
    if not paths:
        raise ConfigError(
            f"{base.origin}: no node has a usable name and place; expected names of letters, digits and . _ -, "
            "and switches that are known"
        )
    return paths, findings


def _is_alike(reading: Reading, base: Reading) -> bool:
    """Return whether two sources call switches alike."""
    return (reading.kind, reading.scheme) == (base.kind, base.scheme)


def _facts_by_node(readings: Iterable[Reading]) -> dict[str, list[NodeFacts]]:
    facts: dict[str, list[NodeFacts]] = {}
    for reading in readings:
        for node in reading.nodes:
            facts.setdefault(node.name, []).append(node)
    return facts


def _tellers(readings: Sequence[Reading]) -> list[Reading]:
    """Return the sources whose states count: a cluster file's give way to those of any other."""
    telling = [reading for reading in readings if any(node.state is not None for node in reading.nodes)]
    return [reading for reading in telling if reading.kind != CLUSTER_FILE] or telling


def _states(tellers: Sequence[Reading], readings: Iterable[Reading]) -> dict[str, NodeState]:
    """Return the most severe state that sources tell of each node: at least reserved where a reservation holds it."""
    told = [(node.name, node.state) for reading in tellers for node in reading.nodes if node.state is not None]
    known = {name for name, _ in told}
    if tellers:
        everyone = (node.name for reading in readings for node in reading.nodes)
        told += [(name, NodeState.DOWN) for name in everyone if name not in known]
    held = (one for reading in readings for one in reading.reservations if one.is_active is not False)
    states: dict[str, NodeState] = {}
    for name, state in [*told, *((name, NodeState.RESERVED) for one in held for name in one.nodes)]:
        states[name] = max(states.get(name, state), state, key=SEVERITY.index)
    return states


def _node(name: str, path: tuple[str, ...], facts: Sequence[NodeFacts], state: NodeState | None, depth: int) -> Node:
    first: dict[str, Any] = {}
    for key in _SCALARS:
        for fact in facts:
            if (value := getattr(fact, key)) is not None:
                first[key] = value
                break
    return Node(name=name, fabric=path[:1] * (depth - len(path)) + path, state=state or NodeState.IDLE, **first)


def _tiers(nodes: Sequence[Node], depth: int) -> tuple[str, ...]:
    """Return names by depth; of two tiers without a common top the upper one is the minipod."""
    roots = {node.fabric[-1] for node in nodes}
    return ("leaf", "minipod") if depth == 2 and len(roots) > 1 else tier_names(depth)


def _told(readings: Iterable[Reading], paths: _Paths) -> Iterator[Finding]:
    """Yield what the sources found, but for places that they lack and another gives."""
    for reading in readings:
        for finding in reading.findings:
            is_mended = finding.code in _UNPLACED and finding.subject in paths
            if not is_mended and finding.code != "no-topology-field":
                yield finding


def _placeholder_findings(readings: Iterable[Reading], base: Reading, paths: _Paths) -> Iterator[Finding]:
    held: dict[str, dict[str, None]] = {}
    for reading in readings:
        for node in reading.nodes if _is_alike(reading, base) else ():
            for switch in PLACEHOLDERS.intersection(node.fabric or ()) if node.name not in paths else ():
                held.setdefault(switch, {})[node.name] = None
    for switch, names in sorted(held.items()):
        text = f"{folded(names)} are under {switch}, which stands for no switch; they are left out of the tree"
        yield Finding(code="placeholder-switch", subject=switch, text=text)


def _unplaced(readings: Iterable[Reading], base: Reading, paths: _Paths) -> Iterator[Finding]:
    """Yield the nodes that have no place in the fabric, where their own source gives no reason."""
    for reading in readings:
        if _is_alike(reading, base):
            continue
        has_places = any(node.fabric for node in reading.nodes)
        names = [node.name for node in reading.nodes if node.name not in paths and (node.fabric or not has_places)]
        if names:
            text = f"{folded(names)} of {reading.origin}: not in the fabric, left out of the tree"
            yield Finding(code="node-without-topology", subject=folded(names), text=text)


def _contradictions(readings: Sequence[Reading], base: Reading, paths: _Paths) -> Iterator[Finding]:
    for key in _SCALARS:
        yield from _differing(readings, paths, key, "the first counts")
    for reading in readings:
        if not _is_alike(reading, base):
            other = {node.name: node.fabric for node in reading.nodes if node.fabric and node.name in paths}
            if names := crossing({name: paths[name] for name in other}, other):
                text = f"{folded(names)}: {reading.origin} groups them otherwise than {base.origin}, which counts"
                yield Finding(code="conflict", subject=f"fabric:{folded(names)}", text=text)
        if reading.host:
            yield from _host_contradictions(reading, len(reading.host.gpus), readings, paths)


def _host_contradictions(host: Reading, ngpus: int, readings: Iterable[Reading], paths: _Paths) -> Iterator[Finding]:
    told = {
        node.name: node.ngpus for reading in readings for node in reading.nodes if node.ngpus and node.name in paths
    }
    names = [name for name, found in told.items() if found != ngpus]
    if names:
        text = f"{folded(names)}: {host.origin} describes a host of {ngpus} GPUs, these have another number"
        yield Finding(code="conflict", subject=f"ngpus:{folded(names)}", text=text)


def _differing(readings: Sequence[Reading], paths: _Paths, key: str, rule: str) -> Iterator[Finding]:
    """Yield what sources tell otherwise of a key; one source alone contradicts nobody."""
    if len(readings) == 1:
        return
    first: dict[str, tuple[str, object]] = {}
    differing: dict[tuple[str, object, str, object], list[str]] = {}
    for reading in readings:
        for node in reading.nodes:
            value = getattr(node, key)
            if value is None or node.name not in paths:
                continue
            origin, earlier = first.setdefault(node.name, (reading.origin, value))
            if earlier != value:
                differing.setdefault((origin, earlier, reading.origin, value), []).append(node.name)
    for (origin, earlier, other, value), names in differing.items():
        text = f"{folded(names)}: {key} is {shown(str(earlier))} in {origin}, {shown(str(value))} in {other}; {rule}"
        yield Finding(code="conflict", subject=f"{key}:{folded(names)}", text=text)


def crossing(one: Mapping[str, tuple[str, ...]], two: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the nodes by which two trees over the same nodes contradict each other, whatever switches are called.

    Trees agree where of any two groups one lies within the other, or they do not meet; the nodes returned are those
    fewest that break it, tier by tier.
    """
    crossed: dict[str, None] = {}
    for lower in _tier_groups(one):
        for upper in _tier_groups(two):
            inward, outward = _strays(lower, upper), _strays(upper, lower)
            crossed |= dict.fromkeys(inward if len(inward) <= len(outward) else outward)
    return [name for name in one if name in crossed]


def _tier_groups(paths: Mapping[str, tuple[str, ...]]) -> list[dict[str, tuple[str, ...]]]:
    depth = max(map(len, paths.values()), default=0)
    # Uneven paths are filled from below, so that the tops of all are on one tier.
    filled = {name: path[:1] * (depth - len(path)) + path for name, path in paths.items()}
    return [{name: path[tier:] for name, path in filled.items()} for tier in range(depth)]


def _strays(inner: Mapping[str, tuple[str, ...]], outer: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the nodes outside the outer group that holds most of their inner group."""
    counts: dict[tuple[str, ...], Counter[tuple[str, ...]]] = {}
    for name, group in inner.items():
        counts.setdefault(group, Counter())[outer[name]] += 1
    home = {group: found.most_common(1)[0][0] for group, found in counts.items()}
    return [name for name, group in inner.items() if outer[name] != home[group]]


def _stateless(tellers: Sequence[Reading], paths: _Paths) -> Iterator[Finding]:
    known = {node.name for reading in tellers for node in reading.nodes if node.state is not None}
    unknown = [name for name in paths if name not in known] if tellers else []
    if unknown:
        text = f"no source of states knows {folded(unknown)}: taken as down"
        yield Finding(code="node-without-state", subject=folded(unknown), text=text)


def _model_findings(facts: Mapping[str, Sequence[NodeFacts]], paths: _Paths) -> Iterator[Finding]:
    mixed = [name for name in paths if any("+" in (fact.gpu_model or "") for fact in facts[name])]
    if mixed:
        text = f"{folded(mixed)}: GPUs of several models in one host; weights of no single model apply"
        yield Finding(code="mixed-models-in-node", subject=folded(mixed), text=text)


def _reservation_findings(readings: Iterable[Reading]) -> Iterator[Finding]:
    for reading in readings:
        for one in reading.reservations:
            if one.is_active is False and one.nodes and not one.is_over:
                text = f"reservation {shown(one.name)} takes {folded(one.nodes)} from {one.start} to {one.end}"
                yield Finding(code="reservation-ahead", subject=one.name, text=text)


def _island_findings(nodes: Iterable[Node]) -> Iterator[Finding]:
    roots = list(dict.fromkeys(node.fabric[-1] for node in nodes))
    if len(roots) > 1:
        text = (
            f"no common root: {len(roots)} islands under {folded(roots)}; add a switch above them if they are connected"
        )
        yield Finding(code="islands", subject=str(len(roots)), text=text)

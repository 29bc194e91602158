"""Volcano's HyperNodes: which node or HyperNode is a member of which, by name, pattern or labels."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spanfit.errors import ConfigError
from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.kubernetes_labels import Labels
from spanfit.topology.reading import Finding, NodeFacts, Reading, depth_findings, shown, unplaced_finding

_QUANTIFIED_GROUP = re.compile(r"\)[*+?{]")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\d*\}")
_MAX_PATTERN = 253
_MAX_UNBOUNDED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _HyperNode:
    name: str
    tier: int
    nodes: tuple[str, ...]
    children: tuple[str, ...]


def parse_hypernodes(items: Sequence[Place], origin: str, labels: Mapping[str, Labels]) -> Reading:
    """Return where HyperNodes put nodes.

    Parameters
    ----------
    items : sequence of Place
        HyperNode objects.
    origin : str
        What messages call the source.
    labels : mapping of str to Labels
        The labels of the nodes that are known by name; selectors by pattern or labels pick among these.

    Raises
    ------
    ConfigError
        If an object has another shape, a member that is no HyperNode, a ring, or a pattern that may take forever.
    """
    names: dict[str, Labels] = {_name(item): {} for item in items}
    found = [_hypernode(item, labels, names) for item in items]
    parents: dict[str, list[str]] = {}
    homes: dict[str, list[str]] = {}
    for hypernode in found:
        for child in hypernode.children:
            parents.setdefault(child, []).append(hypernode.name)
        for node in hypernode.nodes:
            homes.setdefault(node, []).append(hypernode.name)
    _check(found, parents, origin)
    nodes = [
        NodeFacts(name=name, fabric=_path(leaves[0], parents) if len(leaves) == 1 else None, leaves=tuple(leaves))
        for name, leaves in homes.items()
    ]
    nodes += [NodeFacts(name=name) for name in labels if name not in homes]
    findings = (*_findings(nodes, parents), *_empty_findings(found), *depth_findings(nodes))
    return Reading(origin=origin, kind="volcano-hypernode", nodes=tuple(nodes), findings=findings)


def _name(item: Place) -> str:
    return item.get("metadata").get("name").name()


def _hypernode(item: Place, labels: Mapping[str, Labels], names: Mapping[str, Labels]) -> _HyperNode:
    spec = item.get("spec")
    tier = str(spec.get("tier").value)
    if not tier.isdecimal() or len(tier) > 4:
        raise spec.get("tier").fault("a tier such as 1")
    nodes: list[str] = []
    children: list[str] = []
    for member in spec.get("members").items():
        is_node = member.get("type").value == "Node"
        chosen = _select(member.get("selector"), labels if is_node else names, is_node)
        (nodes if is_node else children).extend(chosen)
    return _HyperNode(
        name=_name(item), tier=int(tier), nodes=tuple(dict.fromkeys(nodes)), children=tuple(dict.fromkeys(children))
    )


def _select(selector: Place, labels: Mapping[str, Labels], is_node: bool) -> list[str]:
    if (exact := selector.get("exactMatch")).value:
        name = exact.get("name").name()
        if not is_node and name not in labels:
            raise exact.get("name").fault("a HyperNode of these files")
        return [name]
    if (pattern := selector.get("regexMatch")).value:
        compiled = _compiled(pattern.get("pattern"))
        return [name for name in labels if compiled.search(name)]
    by_labels = selector.get("labelMatch")
    if by_labels.value and by_labels.get("matchExpressions").value:
        raise by_labels.get("matchExpressions").fault("matchLabels alone, as expressions are not read")
    wanted = by_labels.get("matchLabels").table() if by_labels.value else {}
    if not wanted:
        raise selector.fault("exactMatch, regexMatch or labelMatch with matchLabels")
    return [name for name, has in labels.items() if all(has.get(key) == value for key, value in wanted.items())]


def _compiled(place: Place) -> re.Pattern[str]:
    """Return a pattern from outside, refused where Python's matching could take exponential time."""
    pattern = place.name()
    if (
        len(pattern) > _MAX_PATTERN
        or _QUANTIFIED_GROUP.search(pattern)
        or len(_UNBOUNDED.findall(pattern)) > _MAX_UNBOUNDED
    ):
        raise place.fault(f"a pattern without repeated groups and at most {_MAX_UNBOUNDED} of * and +")
    try:
        return re.compile(pattern)
    except re.error:
        raise place.fault("a regular expression") from None


def _check(found: Sequence[_HyperNode], parents: Mapping[str, Sequence[str]], origin: str) -> None:
    tiers: dict[str, int] = {}
    faults = []
    for hypernode in found:
        if hypernode.name in tiers:
            faults.append(f"{origin}: HyperNode {shown(hypernode.name)} is there twice; expected it once")
        tiers[hypernode.name] = hypernode.tier
    # A child on a lower tier than its parent everywhere rules out rings.
    for child, listed in parents.items():
        for parent in listed:
            if tiers[child] >= tiers[parent]:
                pair = f"{shown(parent)} of tier {tiers[parent]} holds {shown(child)} of tier {tiers[child]}"
                faults.append(f"{origin}: HyperNode {pair}; expected members of lower tiers")
    if faults:
        raise ConfigError("\n".join(faults))


def _path(leaf: str, parents: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    path = [leaf]
    while path[-1] in parents:
        path.append(parents[path[-1]][-1])
    return tuple(path)


def _findings(nodes: Sequence[NodeFacts], parents: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for node in nodes:
        if not node.leaves:
            yield unplaced_finding(node.name, "is in no HyperNode")
        elif node.fabric is None:
            text = f"{shown(node.name)} is in HyperNodes {', '.join(node.leaves)}: it is left out of the tree"
            yield Finding(code="multi-leaf-node", subject=node.name, text=text)
    for child, listed in parents.items():
        if len(listed) > 1:
            text = f"HyperNode {child} is in {', '.join(listed)}; the last counts"
            yield Finding(code="leaf-with-two-parents", subject=child, text=text)


def _empty_findings(found: Sequence[_HyperNode]) -> Iterator[Finding]:
    for hypernode in found:
        if not hypernode.nodes and not hypernode.children:
            text = f"HyperNode {shown(hypernode.name)} has no member; patterns and labels need the nodes beside"
            yield Finding(code="empty-leaf", subject=hypernode.name, text=text)

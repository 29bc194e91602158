"""Trees of switches as Slurm names them, whichever file they come from: checked, merged and given to nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations

from spanfit.topology.components import components
from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.readers.slurm_records import Fault, refuse
from spanfit.topology.reading import Finding, NodeFacts, depth_findings, folded, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch with what it lists, and where in its file it stands."""

    name: str
    order: int
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


def tree_facts(
    switches: Sequence[Switch], faults: Sequence[Fault], origin: str, place: str
) -> tuple[tuple[NodeFacts, ...], tuple[Finding, ...]]:
    """Return the nodes of a tree, each with its path, and what is odd.

    Switches that list the same child are parallel and become one. A node in several leaves has no path.

    Parameters
    ----------
    switches : sequence of Switch
        In the order of the file.
    faults : sequence of (int, str)
        What is wrong with single switches already.
    origin, place : str
        What messages call the file, and a place in it, such as ``line {}``.

    Raises
    ------
    ConfigError
        Lists every mistake: those given, a switch defined twice, a child that is not defined, a ring, no nodes.
    """
    named: dict[str, Switch] = {}
    found = list(faults)
    for switch in switches:
        first = named.setdefault(switch.name, switch)
        if first is not switch:
            where = place.format(first.order)
            found.append((switch.order, f"switch {switch.name} is already defined in {where}; expected it once"))
    found += _child_faults(named)
    found += _ring_faults(named, _levels(named))
    if not found and not any(switch.nodes for switch in named.values()):
        found.append((1, "empty-topology: found no nodes; expected lines such as SwitchName=leaf0 Nodes=node[0-7]"))
    refuse(found, origin, place)
    groups = _parallel(named)
    paths = _paths(named, groups)
    nodes = tuple(_nodes(named, paths))
    findings = [*_switch_findings(named, groups, place), *_leaf_findings(nodes), *depth_findings(nodes)]
    return nodes, tuple(findings)


def _child_faults(switches: Mapping[str, Switch]) -> Iterator[Fault]:
    for switch in switches.values():
        missing = [child for child in dict.fromkeys(switch.children) if child not in switches]
        if missing:
            names = fold_hostlist(missing)
            text = (
                f"unknown-child-switch:{names}: switch {switch.name} lists {names}; expected switches that are defined"
            )
            yield switch.order, text


def _levels(switches: Mapping[str, Switch]) -> dict[str, int]:
    """Return how far each switch is above its lowest leaf; switches in rings, and above them, have no level."""
    waiting = {name: {child for child in switch.children if child in switches} for name, switch in switches.items()}
    parents = _parents(switches)
    levels: dict[str, int] = {}
    ready = [name for name, children in waiting.items() if not children]
    while ready:
        name = ready.pop()
        levels[name] = 1 + max((levels[child] for child in switches[name].children if child in switches), default=-1)
        for parent in parents.get(name, ()):
            waiting[parent].discard(name)
            if not waiting[parent]:
                ready.append(parent)
    return levels


def _parents(switches: Mapping[str, Switch]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for switch in switches.values():
        for child in dict.fromkeys(switch.children):
            parents[child] = (*parents.get(child, ()), switch.name)
    return parents


def _ring_faults(switches: Mapping[str, Switch], levels: Mapping[str, int]) -> Iterator[Fault]:
    told: set[str] = set()
    for name in switches:
        path: dict[str, None] = {}
        while name not in levels and name not in told and name not in path:
            path[name] = None
            # A switch without a level has a child without one: the walk ends in a ring or in one already told.
            name = next(child for child in switches[name].children if child in switches and child not in levels)
        if name in path:
            ring = list(path)[list(path).index(name) :]
            yield switches[name].order, f"switches {', '.join(ring)} lie above one another in a ring; expected a tree"
        told.update(path)


def _parallel(switches: Mapping[str, Switch]) -> dict[str, tuple[str, ...]]:
    """Return for each switch those that act as one with it, in the order of the file.

    Parents of one child are parallel where they are on one level and share more than half of the children of the one
    that has more, so that a single leaf listed twice joins no two minipods; parallel switches count as one child.
    """
    levels, parents = _levels(switches), _parents(switches)
    groups: list[tuple[str, ...]] = [(name,) for name in switches]
    links: dict[tuple[str, str], None] = {}
    while True:
        before, group_of = len(links), {name: group for group in groups for name in group}
        children = {name: {group_of[child] for child in switch.children} for name, switch in switches.items()}
        for group in groups:
            above = list(dict.fromkeys(parent for name in group for parent in parents.get(name, ())))
            pairs = ((one, two) for one, two in combinations(above, 2) if levels[one] == levels[two])
            links |= dict.fromkeys(pair for pair in pairs if pair not in links and _are_alike(children, *pair))
        if len(links) == before:
            return group_of
        groups = [tuple(group) for group in components(switches, links)]


def _are_alike(children: Mapping[str, Set[tuple[str, ...]]], one: str, two: str) -> bool:
    return 2 * len(children[one] & children[two]) > max(len(children[one]), len(children[two]))


def _paths(switches: Mapping[str, Switch], groups: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return for each leaf the names from it to its root; of unlike parents the last one counts, as in Slurm."""
    parents = _parents(switches)
    label = {name: joined(group) for name, group in groups.items()}
    above: dict[str, str] = {}
    for name, group in groups.items():
        listed = [parent for member in group for parent in parents.get(member, ())]
        if listed:
            above[name] = listed[-1]
    paths = {}
    for switch in switches.values():
        if switch.nodes:
            path = [switch.name]
            while path[-1] in above:
                path.append(above[path[-1]])
            paths[switch.name] = tuple(label[name] for name in path)
    return paths


def _nodes(switches: Mapping[str, Switch], paths: Mapping[str, tuple[str, ...]]) -> Iterator[NodeFacts]:
    leaves: dict[str, list[str]] = {}
    for switch in switches.values():
        for node in dict.fromkeys(switch.nodes):
            leaves.setdefault(node, []).append(switch.name)
    for node, found in leaves.items():
        yield NodeFacts(name=node, fabric=paths[found[0]] if len(found) == 1 else None, leaves=tuple(found))


def _switch_findings(
    switches: Mapping[str, Switch], groups: Mapping[str, tuple[str, ...]], place: str
) -> Iterator[Finding]:
    for group in dict.fromkeys(groups.values()):
        if len(group) > 1:
            names = ",".join(group)
            below = {frozenset(groups[child] for child in switches[name].children) for name in group}
            shared = "the same" if len(below) == 1 else "some of the same"
            text = f"switches {folded(group)} list {shared} children: read as one switch, {joined(group)}"
            yield Finding(code="parallel-spines", subject=names, text=text)
    for child, listed in _parents(switches).items():
        if len({groups[parent] for parent in listed}) > 1:
            text = f"switch {child} is listed under {', '.join(listed)}, which are not parallel; the last counts"
            yield Finding(code="unlike-parents", subject=child, text=text)
    for switch in switches.values():
        where = place.format(switch.order)
        if not switch.nodes and not switch.children:
            text = f"{where}: switch {switch.name} has neither nodes nor switches and is left out"
            yield Finding(code="empty-leaf", subject=switch.name, text=text)
        if len(set(switch.nodes)) < len(switch.nodes):
            text = f"{where}: switch {switch.name} lists a node twice; it counts once"
            yield Finding(code="repeated-node", subject=switch.name, text=text)


def _leaf_findings(nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    for node in nodes:
        if len(node.leaves) > 1:
            text = (
                f"node {node.name} is in leaves {', '.join(node.leaves)}: its place is unknown and it is left out of "
                "the tree; remove it from all but one"
            )
            yield Finding(code="multi-leaf-node", subject=node.name, text=text)

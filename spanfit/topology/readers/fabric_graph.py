"""Cables between hosts and switches turned into a tree: rails become one leaf, parallel spines one switch."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from spanfit.topology.components import components
from spanfit.topology.reading import Finding, NodeFacts, joined, shown

_HCA = re.compile(r"([^\s\"']+) +(?:HCA-?\d+|[a-z][a-z0-9_]*\d)")
_SWITCH = re.compile(r"MF\d+;([^:;]+):[^/]*/U\d+")
_AGGREGATION = "Mellanox Technologies Aggregation Node"
_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class Cables:
    """What is plugged into what, gathered line by line.

    Attributes
    ----------
    switches : dict
        The description of each switch by its id (a guid, or its name where there is none).
    hosts : dict
        The ids of the switches that each host is plugged into.
    uplinks : set
        Pairs of ids of switches that are joined.
    unnamed : dict
        Devices without a host name, by their id, and the switch that each is plugged into.
    """

    switches: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, set[str]] = field(default_factory=dict)
    uplinks: set[tuple[str, str]] = field(default_factory=set)
    unnamed: dict[str, str] = field(default_factory=dict)

    def plug_device(self, description: str, device: str, switch: str) -> None:
        """Note a port of a device on a switch; aggregation nodes inside switches are no devices."""
        if description == _AGGREGATION:
            return
        host = host_name(description)
        if host is None:
            self.unnamed[device] = switch
        else:
            self.hosts.setdefault(host, set()).add(switch)

    def join(self, one: str, two: str) -> None:
        """Note a cable between two switches."""
        if one != two:
            self.uplinks.add((min(one, two), max(one, two)))


def host_name(description: str) -> str | None:
    """Return the host that a device's description names, ``gpu-01 mlx5_0`` or ``gpu-01 HCA-1``, else None."""
    match = _HCA.fullmatch(description.strip())
    return match[1] if match and match[1] != "localhost" else None


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts n2 before n10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() and len(part) < 300 else (1, 0, part)
        for part in _DIGITS.split(name)
        if part
    )


def fabric_facts(cables: Cables) -> tuple[tuple[NodeFacts, ...], tuple[Finding, ...]]:
    """Return the hosts, each with its path of merged switches and the leaves it is plugged into, and findings.

    A switch with hosts is a leaf. Level by level, switches that share a switch (or a host) below are merged, so that
    one missing rail splits no leaf. A host on a switch above leaves has no path.
    """
    names = _names(cables.switches)
    order = {switch: number for number, switch in enumerate(sorted(names, key=lambda one: natural(names[one])))}
    leaves = _leaves(cables)
    paths = _paths(cables, leaves, names)
    nodes = []
    for host in sorted(cables.hosts, key=natural):
        mine = sorted(cables.hosts[host] & leaves, key=order.__getitem__)
        fabric = paths[mine[0]] if mine else None
        nodes.append(NodeFacts(name=host, fabric=fabric, leaves=tuple(names[switch] for switch in mine)))
    return tuple(nodes), tuple(_findings(cables, nodes))


def _names(switches: Mapping[str, str]) -> dict[str, str]:
    """Return what to call each switch: the name in its description; with its id where two have the same."""
    bare = {switch: switch_name(description) or switch for switch, description in switches.items()}
    counts = Counter(bare.values())
    return {switch: name if counts[name] == 1 else f"{name} ({switch})" for switch, name in bare.items()}


def switch_name(description: str) -> str:
    """Return the name in a switch's description, ``MF0;leaf-01:MQM9700/U1``, or the description itself."""
    match = _SWITCH.fullmatch(description.strip())
    return match[1] if match else description.strip()


def _leaves(cables: Cables) -> set[str]:
    """Return the switches with hosts, but for those that have few and lie above others (a manager on a spine)."""
    counts = Counter(switch for switches in cables.hosts.values() for switch in switches)
    counts.update(cables.unnamed.values())
    beside: dict[str, list[int]] = {}
    for one, two in cables.uplinks:
        if one in counts and two in counts:
            beside.setdefault(one, []).append(counts[two])
            beside.setdefault(two, []).append(counts[one])
    above = {switch for switch, others in beside.items() if len(others) > 1 and 2 * counts[switch] <= median(others)}
    return set(counts) - above


def _paths(cables: Cables, leaves: Collection[str], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each leaf the names of the merged switches from it to the top."""
    neighbours: dict[str, set[str]] = {switch: set() for switch in (*cables.switches, *leaves)}
    for one, two in cables.uplinks:
        neighbours[one].add(two)
        neighbours[two].add(one)
    tied = ([switch for switch in switches if switch in leaves] for switches in cables.hosts.values())
    links = {(mine[0], other) for mine in map(sorted, tied) for other in mine[1:]}
    groups = components(sorted(leaves), sorted(links))
    members = [list(group) for group in groups]  # the leaves below each group
    paths: dict[str, tuple[str, ...]] = dict.fromkeys(leaves, ())
    seen = set(leaves)
    while groups:
        for group, below in zip(groups, members, strict=True):
            label = joined(sorted((names[switch] for switch in group), key=natural))
            paths.update({leaf: (*paths[leaf], label) for leaf in below})
        groups, members = _above(groups, members, neighbours, seen)
        seen.update(switch for group in groups for switch in group)
    return paths


def _above(
    groups: list[list[str]], members: list[list[str]], neighbours: Mapping[str, set[str]], seen: Collection[str]
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the merged switches one level up and the leaves below each."""
    parents = [sorted({up for switch in group for up in neighbours[switch]} - set(seen)) for group in groups]
    links = [(ups[0], other) for ups in parents for other in ups[1:]]
    merged = components(dict.fromkeys(up for ups in parents for up in ups), links)
    index = {switch: number for number, group in enumerate(merged) for switch in group}
    below: list[list[str]] = [[] for _ in merged]
    for ups, leaves in zip(parents, members, strict=True):
        if ups:
            below[index[ups[0]]] += leaves
    return merged, below


def _findings(cables: Cables, nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    if cables.unnamed:
        count, listed = len(cables.unnamed), shown(", ".join(sorted(cables.unnamed)))
        text = f"{count} devices name no host of their own; their rails are unknown: {listed}"
        yield Finding(code="unnamed-hca", subject=str(count), text=text)
    for node in nodes:
        if node.fabric is None:
            text = f"{shown(node.name)} is plugged in above the leaves; it is left out of the tree"
            yield Finding(code="host-above-leaves", subject=node.name, text=text)


def rail_findings(nodes: Iterable[NodeFacts], spare: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding for each node that lacks a rail which others below its leaf have.

    ``spare`` counts the devices without a host name on each leaf: as many missing rails are theirs, and not told.
    """
    groups: dict[tuple[str, ...], list[NodeFacts]] = {}
    for node in nodes:
        if node.fabric:
            groups.setdefault(node.fabric, []).append(node)
    for members in groups.values():
        for leaf in sorted({leaf for node in members for leaf in node.leaves}, key=natural):
            missing = [node.name for node in members if leaf not in node.leaves]
            if len(missing) <= spare.get(leaf, 0):
                continue
            for name in missing:
                text = f"{shown(name)} has no link to {shown(leaf)}, unlike others near it: a rail is down"
                yield Finding(code="missing-rail", subject=f"{name}:{leaf}", text=text)


def spare_devices(cables: Cables) -> dict[str, int]:
    """Return how many devices without a host name are plugged into each switch, by the name of the switch."""
    names = _names(cables.switches)
    return dict(Counter(names[switch] for switch in cables.unnamed.values()))

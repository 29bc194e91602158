"""The links of a cluster and the path of a flow: every node's own, and the uplinks of every tier, both ways.

A node is one link up and one down, whatever NICs it has, and a switch below the top one link up and one down. A switch
that is alone under its parent adds none: what leaves it leaves the parent too, and the parent's uplink says it all.
"""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from spanfit.errors import ConfigError
from spanfit.profiler.predict.sharing import Use
from spanfit.topology.model import Cluster, RankMap, SwitchPath

HOST = "host"
"""The class of nodes' own links; those of uplinks are called after the tier of the switch at their lower end."""


class Way(StrEnum):
    """The direction in which a link carries."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable, or of all cables between two switches.

    Attributes
    ----------
    name : str
        The node, or the switch at the lower end.
    link_class : str
        ``host`` or a tier.
    way : Way
    """

    name: str
    link_class: str
    way: Way

    def label(self) -> str:
        """Return the link as people read it, such as ``minipod m0 up``."""
        return f"{self.link_class} {self.name} {self.way}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The links under the ranks of a placement.

    Attributes
    ----------
    ngpus_per_node : int
    links : tuple of Link
        Every link up is followed by the same one down.
    climbs : tuple of tuple of int
        Of each node the links up from it at each level: its own, then those of its switches, -1 where a switch has
        none of its own.
    switches : tuple of tuple of int
        Of each node the number of its switch at each tier, closest first.
    """

    ngpus_per_node: int
    links: tuple[Link, ...]
    climbs: tuple[tuple[int, ...], ...]
    switches: tuple[tuple[int, ...], ...]
    _uses: dict[tuple[int, int], Use] = field(default_factory=dict, compare=False, repr=False)

    def digest(self) -> bytes:
        """Return what placements have in common that differ in the names of nodes and switches only."""
        return hashlib.sha256(repr((self.ngpus_per_node, self.climbs, self.switches)).encode()).digest()

    def node(self, rank: int) -> int:
        """Return the node rank on which a rank sits."""
        return rank // self.ngpus_per_node

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links of a flow between two ranks, empty within a node."""
        source, target = self.node(source), self.node(target)
        level = self.joined(source, target)
        up = [link for link in self.climbs[source][:level] if link >= 0]
        down = [link + 1 for link in self.climbs[target][:level] if link >= 0]
        return (*up, *reversed(down))

    def route(self, source: int, target: int) -> tuple[Use, float]:
        """Return the use of one flow between two ranks."""
        nodes = self.node(source), self.node(target)
        found = self._uses.get(nodes)
        if found is None:
            found = self._uses[nodes] = tuple((link, 1.0) for link in self.path(source, target))
        return found, 1.0

    def joined(self, source: int, target: int) -> int:
        """Return the level at which two nodes meet: 0 the same node, 1 the same closest switch, 2 the next, ..."""
        if source == target:
            return 0
        pairs = zip(self.switches[source], self.switches[target], strict=True)
        return next((level for level, (a, b) in enumerate(pairs, 1) if a == b), len(self.switches[source]) + 1)


class Wiring:
    """The links of a whole cluster, read once for all the placements that are asked about.

    Parameters
    ----------
    cluster : Cluster

    Raises
    ------
    ConfigError
        If a tier is called as nodes' own links are here.
    """

    def __init__(self, cluster: Cluster) -> None:
        if HOST in cluster.tiers:
            raise ConfigError(
                f"cluster {cluster.name}: tiers: found {HOST!r}, which names nodes' own links here; expected another "
                "name, such as leaf"
            )
        self.cluster = cluster
        labels = {tier: cluster.switch_labels(tier) for tier in cluster.tiers}
        has_siblings = _with_siblings(cluster)
        self._paths: dict[str, tuple[SwitchPath, ...]] = {}
        self._climbs: dict[str, tuple[tuple[Link, Link] | None, ...]] = {}
        uplinks: dict[SwitchPath, tuple[Link, Link]] = {}
        for node in cluster.nodes:
            paths = tuple(cluster.switch(node, tier) for tier in cluster.tiers)
            for tier, path in zip(cluster.tiers, paths, strict=True):
                if path in has_siblings and path not in uplinks:
                    uplinks[path] = _both_ways(labels[tier][path], tier)
            self._paths[node.name] = paths
            self._climbs[node.name] = (_both_ways(node.name, HOST), *(uplinks.get(path) for path in paths))

    def network(self, rank_map: RankMap) -> Network:
        """Return the links that the ranks of a placement can load; ValueError names the nodes that the cluster lacks.

        Links and switches are numbered in the order in which nodes name them, so that two placements that differ in
        names only have networks of one shape.
        """
        names = rank_map.node_names
        if not all(name in self._paths for name in names):
            self.cluster.select(names)
        links: list[Link] = []
        numbers: dict[Link, int] = {}
        seen: tuple[dict[SwitchPath, int], ...] = tuple({} for _ in self.cluster.tiers)

        def number(cable: tuple[Link, Link] | None) -> int:
            if cable is None:
                return -1
            if cable[0] not in numbers:
                numbers[cable[0]] = len(links)
                links.extend(cable)
            return numbers[cable[0]]

        return Network(
            ngpus_per_node=rank_map.ngpus_per_node,
            climbs=tuple(tuple(map(number, self._climbs[name])) for name in names),
            switches=tuple(
                tuple(known.setdefault(path, len(known)) for known, path in zip(seen, self._paths[name], strict=True))
                for name in names
            ),
            links=tuple(links),
        )


def build_network(cluster: Cluster, rank_map: RankMap) -> Network:
    """Return the links under one placement; ValueError names the nodes that the cluster lacks."""
    return Wiring(cluster).network(rank_map)


def _both_ways(name: str, link_class: str) -> tuple[Link, Link]:
    up, down = (Link(name=name, link_class=link_class, way=way) for way in Way)
    return up, down


def _with_siblings(cluster: Cluster) -> set[SwitchPath]:
    """Return the switches that are not alone under their parent; several at the top have the world as parent."""
    children: dict[SwitchPath, set[SwitchPath]] = {}
    for node in cluster.nodes:
        for level in range(len(cluster.tiers)):
            children.setdefault(node.fabric[level + 1 :], set()).add(node.fabric[level:])
    return {path for siblings in children.values() if len(siblings) > 1 for path in siblings}

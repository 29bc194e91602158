"""The links of a cluster and the path of a flow: every node's own, and the uplinks of every tier, both ways.

A node is one link up and one down, whatever NICs it has, and a switch below the top one link up and one down. A switch
that is alone under its parent adds none: what leaves it leaves the parent too, and the parent's uplink says it all.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from spanfit.profiler.predict.sharing import Use
from spanfit.topology.model import Cluster, RankMap, SwitchPath
from spanfit.topology.tiers import tier_codes

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


def build_network(cluster: Cluster, rank_map: RankMap) -> Network:
    """Return the links that the ranks of a placement can load; ValueError names the nodes that the cluster lacks."""
    nodes = cluster.select(rank_map.node_names)
    codes = tier_codes(cluster, rank_map.node_names).tolist()
    links: list[Link] = []
    numbers: dict[tuple[str, SwitchPath], int] = {}

    def number(link_class: str, path: SwitchPath, name: str) -> int:
        if (link_class, path) not in numbers:
            numbers[link_class, path] = len(links)
            links.extend(Link(name=name, link_class=link_class, way=way) for way in Way)
        return numbers[link_class, path]

    has_siblings = _with_siblings(cluster)
    labels = {tier: cluster.switch_labels(tier) for tier in cluster.tiers}
    climbs = []
    for node in nodes:
        climb = [number(HOST, (node.name,), node.name)]
        for tier in cluster.tiers:
            path = cluster.switch(node, tier)
            climb.append(number(tier, path, labels[tier][path]) if path in has_siblings else -1)
        climbs.append(tuple(climb))
    return Network(
        ngpus_per_node=rank_map.ngpus_per_node,
        links=tuple(links),
        climbs=tuple(climbs),
        switches=tuple(tuple(row) for row in codes),
    )


def _with_siblings(cluster: Cluster) -> set[SwitchPath]:
    """Return the switches that are not alone under their parent; several at the top have the world as parent."""
    children: dict[SwitchPath, set[SwitchPath]] = {}
    for node in cluster.nodes:
        for level in range(len(cluster.tiers)):
            children.setdefault(node.fabric[level + 1 :], set()).add(node.fabric[level:])
    return {path for siblings in children.values() if len(siblings) > 1 for path in siblings}

"""Which hosts, links and switches the traffic of a group goes through, and how many flows share each: pure.

Traffic is taken as hops between nodes: a ring of the group's ranks, or the pairs that send. A hop uses the links of its
two hosts, and the uplinks of every switch that it leaves and enters. Where a fabric has several switches in parallel
they are seen as one, since rows do not say which a flow took. Where rails were measured by themselves a host has a link
for each, and is as busy as the busiest of them; a group with every GPU of its nodes is taken to use all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spanfit.bench.case import ALL_GPUS
from spanfit.collectives import Collective
from spanfit.topology.model import TIER_NAMES


class Hop(NamedTuple):
    """From a node rank to another, its share of the operation's size, and the rail that it takes."""

    here: int
    there: int
    share: float
    rail: int = ALL_GPUS


_KNOWN_ORDER = {tier: index for index, tier in enumerate(TIER_NAMES[max(TIER_NAMES)])}
"""Tells tiers apart that have as many switches, as where every minipod has one leaf."""


class PlaceKind(StrEnum):
    """What may be slow, the simplest first."""

    HOST = "host"
    RAIL = "rail"
    UPLINK = "uplink"
    CLASS = "class"
    PLANE = "plane"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Place:
    """A host with its links, its link on a rail, the uplink of a switch, a switch with all its links, all uplinks of a
    tier, or all hosts' links on a rail.
    """

    kind: PlaceKind
    tier: str
    name: str
    rail: int = ALL_GPUS

    def __str__(self) -> str:
        """Return the place in words."""
        match self.kind:
            case PlaceKind.HOST:
                return f"host {self.name}"
            case PlaceKind.RAIL:
                return f"rail {self.rail} of host {self.name}"
            case PlaceKind.PLANE:
                return f"rail {self.rail} of every host"
            case PlaceKind.UPLINK:
                return f"the uplink of {self.tier} {self.name}"
            case PlaceKind.SWITCH:
                return f"{self.tier} {self.name} (the switch with all its links)"
        return f"all uplinks of the {self.tier} tier"


def hops(operation: str, nodes: Sequence[int], rail: int = ALL_GPUS) -> tuple[Hop, ...]:
    """Return the hops of an operation over node ranks in rank order, each with its share of the size."""
    n = len(nodes)
    match operation:
        case Collective.SEND:
            return tuple(Hop(nodes[i], nodes[i + n // 2], 1.0, rail) for i in range(n // 2))
        case Collective.EXCHANGE:
            half = n // 2
            return tuple(Hop(nodes[i], nodes[(i + half) % n], 1.0, rail) for i in range(n))
        case Collective.ALL_TO_ALL | Collective.ALL_TO_ALL_V:
            return tuple(Hop(a, b, 1.0 / n, rail) for a in nodes for b in nodes if a != b)
    return tuple(Hop(nodes[i], nodes[(i + 1) % n], 1.0, rail) for i in range(n) if n > 1)


class Tree:
    """The switches above the nodes of a run, as ``RunInfo.switches`` names them, in any order of the tiers.

    ``rails`` are those that were measured by themselves.
    """

    def __init__(
        self, node_names: Sequence[str], switches: Mapping[str, Sequence[str]], rails: Sequence[int] = ()
    ) -> None:
        self.node_names = node_names
        self.rails = rails
        self.tiers = tuple(sorted(switches, key=lambda tier: (-len(set(switches[tier])), _KNOWN_ORDER.get(tier, 9))))
        self.switches = switches
        self._widths: Counter[Place] = Counter()
        self._ends: dict[Place, set[Place]] = defaultdict(set)
        for node, name in enumerate(node_names):
            below = Place(PlaceKind.HOST, "", name)
            self._widths[below] += 1
            for tier in self.tiers:
                uplink = Place(PlaceKind.UPLINK, tier, switches[tier][node])
                self._widths[uplink] += 1
                self._ends[Place(PlaceKind.SWITCH, tier, switches[tier][node])] |= {below, uplink}
                self._ends[Place(PlaceKind.CLASS, tier, "")].add(uplink)
                below = uplink

    def links(self) -> tuple[Place, ...]:
        """Return every host, or its link on each rail, and every uplink that traffic may pass, closest tier first."""
        found = [
            place
            for node, name in enumerate(self.node_names)
            for place in (tuple(self.ends(node, ALL_GPUS)) or (Place(PlaceKind.HOST, "", name),))
        ]
        for tier in self.tiers:
            names = dict.fromkeys(self.switches[tier])
            found += [Place(PlaceKind.UPLINK, tier, name) for name in names if len(names) > 1]
        return tuple(found)

    def ends(self, node: int, rail: int) -> Iterable[Place]:
        """Yield the links of a node on the rails that a hop takes, none where no rail was measured by itself."""
        for each in self.rails if rail == ALL_GPUS else (rail,):
            yield Place(PlaceKind.RAIL, "", self.node_names[node], each)

    def uplinks(self, here: int, there: int) -> Iterable[Place]:
        """Yield what a hop passes on its way up from a node, lowest first: the host, then each uplink."""
        yield Place(PlaceKind.HOST, "", self.node_names[here])
        for tier in self.tiers:
            if self.switches[tier][here] == self.switches[tier][there]:
                return
            yield Place(PlaceKind.UPLINK, tier, self.switches[tier][here])

    def passed(self, here: int, there: int) -> Iterable[Place]:
        """Yield the switches that a hop passes, and the classes of links that it crosses."""
        for tier in self.tiers:
            for node in (here, there):
                yield Place(PlaceKind.SWITCH, tier, self.switches[tier][node])
            if self.switches[tier][here] == self.switches[tier][there]:
                return
            yield Place(PlaceKind.CLASS, tier, "")

    def loads(self, groups: Sequence[Sequence[Hop]]) -> tuple[dict[Place, float], ...]:
        """Return for each of the groups that run at once what its hops pass, with the flows that share it.

        The flows of a link are counted in the busier direction, over all groups. A class counts as the busiest of its
        uplinks that the group uses. So does a switch, whose links are taken to be as wide as the nodes below them ask:
        flows of a wide one count less, in units of the narrowest.
        """
        up: dict[Place, float] = defaultdict(float)
        down: dict[Place, float] = defaultdict(float)
        for here, there, share, rail in (hop for group in groups for hop in group):
            for place in (*self.ends(here, rail), *self.uplinks(here, there)):
                up[place] += share
            for place in (*self.ends(there, rail), *self.uplinks(there, here)):
                down[place] += share
        for flows in (up, down):
            self._share_hosts(flows)
        return tuple(self._loads(group, up, down) for group in groups)

    def _share_hosts(self, flows: dict[Place, float]) -> None:
        """Replace the flows of each host by those of its busiest rail, since each has a link of its own."""
        busiest: dict[Place, float] = defaultdict(float)
        for place, count in flows.items():
            if place.kind is PlaceKind.RAIL:
                host = Place(PlaceKind.HOST, "", place.name)
                busiest[host] = max(busiest[host], count)
        flows.update(busiest)

    def _loads(
        self, group: Sequence[Hop], up: Mapping[Place, float], down: Mapping[Place, float]
    ) -> dict[Place, float]:
        found: dict[Place, float] = defaultdict(float)
        for here, there, _, rail in group:
            links = {*self.uplinks(here, there), *self.uplinks(there, here)}
            ends = {*self.ends(here, rail), *self.ends(there, rail)}
            for link in links | ends:
                found[link] = max(up.get(link, 0.0), down.get(link, 0.0))
            for end in ends:
                plane = Place(PlaceKind.PLANE, "", "", end.rail)
                found[plane] = max(found[plane], found[end])
            for place in self.passed(here, there):
                shared = links & self._ends[place]
                unit = min(self._widths[link] for link in shared) if place.kind is PlaceKind.SWITCH else 0
                found[place] = max(
                    found[place], *(found[link] * (unit / self._widths[link] if unit else 1.0) for link in shared)
                )
        return dict(found)

"""Simulating few ranks in place of many that do the same: what makes a step over 1,200 nodes quick to predict.

Two ranks are alike if they do the same in places that are the same: their programs differ only in whom they name, they
sit under the same switches, and whom they name and who shares their node are alike too, as far as any chain leads. Of
each class one rank is simulated. Its flows have the links of its node to themselves, as each of the others has, but
load uplinks as often as there are ranks in the class; a collective is one flow along all its edges, and stands for all
groups alike.

Where a placement has no order, hardly any two ranks are alike so strictly. Then switches are forgotten but for the
level at which partners meet, and the uplinks of a class are taken as one: its busiest, with the share of the traffic
that this one has. Mostly such a step comes out short, since the busiest uplink waits for the others at times: from 31%
short to 9% long at 16 and 32 nodes (``tests/slow/profiler/test_predict.py``).

Which ranks are alike is found over arrays, before any program is written out for a rank. What all this leaves out: a
ring moves at the speed of its slowest edge, without segments.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt

from spanfit.profiler.predict.collectives import Library, Whole, whole
from spanfit.profiler.predict.network import HOST, Network
from spanfit.profiler.predict.ranks import Cast, Meeting
from spanfit.profiler.predict.sharing import Use
from spanfit.profiler.predict.traffic import link_loads
from spanfit.topology.tiers import pairwise_tier
from spanfit.workload.script import Kind, Script

Labels = npt.NDArray[np.int64]

MOST_COPIES, MOST_SIMULATED = 4, 128


def representatives(script: Script, network: Network, library: Library, *, is_unfair: bool) -> Cast:
    """Return the cast in which the first rank of each class is simulated in place of all.

    Where shares are unfair, chains alike run out of step and wait for each other; so a few of them are simulated, each
    for its part of the class, as far as ``MOST_SIMULATED`` ranks allow.
    """
    roles = Roles(script, network)
    places = roles.switches
    labels = roles.classes(places, MOST_SIMULATED)
    is_coarse = _count(labels) > MOST_SIMULATED
    if is_coarse:
        places = np.zeros_like(places)
        labels = roles.classes(places)
    ncopies = min(MOST_COPIES, MOST_SIMULATED // _count(labels)) if is_unfair else 1
    if ncopies > 1:
        labels = roles.classes(_joined([places, roles.chains % ncopies]))
    return _Crowd(script, network, library, labels, _pooled(script, network, library) if is_coarse else {}).cast()


def lanes(script: Script, network: Network, library: Library) -> Cast:
    """Return the cast in which ranks of one node that do the same are simulated once: all else stays as it is."""
    roles = Roles(script, network)
    return _Crowd(script, network, library, roles.classes(roles.nodes), {}).cast()


class Roles:
    """What each rank is to others, as arrays over ranks.

    Attributes
    ----------
    nodes, switches, stages, chains : array of int
        Of each rank its node, its closest switch, its stage, and the ranks that messages lead to, by number.
    neighbours : array of int
        The ranks of each node, shape (nnodes, ngpus_per_node).
    peers : list of array of int
        Of each rank whom it names at a stage, -1 for nobody; one array a stage.
    groups : list of (array of int, array of bool)
        The groups of each axis, and whether each rank names its own.
    """

    def __init__(self, script: Script, network: Network) -> None:
        self.codes = np.array(network.switches, dtype=np.int32)
        self.nodes: Labels = np.arange(script.nranks) // network.ngpus_per_node
        self.neighbours: Labels = np.arange(script.nranks).reshape(-1, network.ngpus_per_node)
        self.switches: Labels = self.codes[self.nodes, 0]
        chains = np.array(script.chains)
        self.stages = _by_rank(chains, np.broadcast_to(np.arange(chains.shape[1]), chains.shape))
        number = _by_rank(chains, np.broadcast_to(np.arange(len(chains))[:, None], chains.shape))
        outlines = script.outlines
        self.chains = number if any(each.peers for each in outlines) else np.arange(script.nranks)
        self.peers = [
            _masked(chains[number, peer], np.array([peer in each.peers for each in outlines])[self.stages])
            for peer in sorted(set().union(*(each.peers for each in outlines)))
        ]
        self.groups = [
            (
                np.array(groups),
                np.array([any(kind.axis == axis for kind in each.calls) for each in outlines])[self.stages],
            )
            for axis, groups in script.groups.items()
        ]

    def classes(self, places: Labels, limit: int | None = None) -> Labels:
        """Return the class of each rank, numbered in the order of first appearance.

        Ranks in one class share their ``places``. Above ``limit`` classes no more are told apart.
        """
        labels = _joined([self.stages, places, *self._distances()])
        while limit is None or _count(labels) <= limit:
            finer = _joined([labels, *self._partners(labels)])
            if _count(finer) == _count(labels):
                break
            labels = finer
        return labels

    def _distances(self) -> Iterable[Labels]:
        """Yield at which level each peer is met, and how many neighbours of each group meet at each."""
        for peers in self.peers:
            yield _masked(pairwise_tier(self.codes, self.nodes, self.nodes[peers]), peers >= 0)
        for groups, names_it in self.groups:
            nodes = self.nodes[groups]
            hops = np.sort(pairwise_tier(self.codes, nodes, np.roll(nodes, 1, axis=1)), axis=1)
            yield _masked(_of_group(groups, hops), names_it)

    def _partners(self, labels: Labels) -> Iterable[Labels]:
        """Yield the class of each peer, of each group, and of the ranks of each node, which share its link."""
        yield _of_group(self.neighbours, np.sort(labels[self.neighbours], axis=1))
        for peers in self.peers:
            yield _masked(labels[peers], peers >= 0)
        for groups, names_it in self.groups:
            yield _masked(_of_group(groups, np.sort(labels[groups], axis=1)), names_it)


def _by_rank(ranks: Labels, values: Labels) -> Labels:
    """Return the values in the order of ranks."""
    found = np.empty(ranks.size, dtype=np.int64)
    found[ranks.ravel()] = values.ravel()
    return found


def _masked(values: Labels, is_there: npt.NDArray[np.bool_]) -> Labels:
    return np.where(is_there, values, -1)


def _of_group(groups: Labels, rows: Labels) -> Labels:
    """Return for each rank which row its group has, by number."""
    rows = np.ascontiguousarray(rows)
    numbers: dict[bytes, int] = {}
    found = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
    return _by_rank(groups, np.broadcast_to(found[:, None], groups.shape))


def _joined(columns: Iterable[Labels]) -> Labels:
    """Return one label for each different row of some columns of numbers from -1 up, in order of first appearance."""
    joined: Labels | None = None
    for column in columns:
        key = column if joined is None else joined * (int(column.max()) + 2) + column + 1
        _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
        joined = np.argsort(np.argsort(first))[numbers]
    assert joined is not None
    return joined


def _count(labels: Labels) -> int:
    return int(labels.max()) + 1


def _pooled(script: Script, network: Network, library: Library) -> dict[int, tuple[int, float]]:
    """Return for each uplink the busiest of its class and way, and the share of all their bytes that it carries."""
    loads = link_loads(script, network, library).tolist()
    busiest: dict[Hashable, int] = {}
    totals: dict[Hashable, float] = {}
    kinds = {link: (each.link_class, each.way) for link, each in enumerate(network.links) if each.link_class != HOST}
    for link, kind in kinds.items():
        totals[kind] = totals.get(kind, 0.0) + loads[link]
        if loads[link] >= loads[busiest.setdefault(kind, link)]:
            busiest[kind] = link
    return {link: (busiest[kind], loads[busiest[kind]] / (totals[kind] or 1.0)) for link, kind in kinds.items()}


class _Crowd:
    """The ranks of each class, and how much of it each link sees."""

    def __init__(
        self,
        script: Script,
        network: Network,
        library: Library,
        labels: Labels,
        pooled: dict[int, tuple[int, float]],
    ) -> None:
        self.script = script
        self.network = network
        self.library = library
        self.pooled = pooled
        self.labels: list[int] = labels.tolist()
        self.sizes = Counter(self.labels)
        self.first: dict[int, int] = {}
        for rank, label in enumerate(self.labels):
            self.first.setdefault(label, rank)
        self.beside = Counter((label, network.node(rank)) for rank, label in enumerate(self.labels))
        self.programs = {rank: script.programs[script.stage(rank)] for rank in self.first.values()}
        self.peers = {(rank, self.stands_in(peer)): peer for rank in self.programs for peer in self._peers(rank)}
        self._routes: dict[tuple[int, int], tuple[Use, float]] = {}
        self._meetings: dict[Hashable, Meeting] = {}

    def cast(self) -> Cast:
        """Return the cast of the first ranks."""
        return Cast(
            script=self.script,
            programs=self.programs,
            stands_in=self.stands_in,
            route=self.route,
            meeting=self.meeting,
        )

    def stands_in(self, rank: int) -> int:
        """Return the rank that is simulated for a rank."""
        return self.first[self.labels[rank]]

    def _peers(self, rank: int) -> set[int]:
        """Return whom a rank sends to or receives from."""
        return {self.script.at(rank, stage) for stage in self.script.outlines[self.script.stage(rank)].peers}

    def route(self, source: int, target: int) -> tuple[Use, float]:
        """Return the use of a flow between two simulated ranks that stands for those of their classes."""
        if (source, target) not in self._routes:
            path = self.network.path(source, self.peers[source, target])
            number = float(self.sizes[self.labels[source]])
            shares: dict[int, float] = {}
            for link in path[1:-1]:
                self._load(shares, link, number)
            if path:
                shares[path[0]] = float(self._beside(source))
                shares[self._link(target) + 1] = float(self._beside(target))
            self._routes[source, target] = tuple(shares.items()), number
        return self._routes[source, target]

    def meeting(self, kind: Kind, group: tuple[int, ...]) -> Meeting:
        """Return the one flow of a collective and of all those that groups alike run."""
        if (kind, group) not in self._meetings:
            self._meetings[kind, group] = self._meet(kind, group)
        return self._meetings[kind, group]

    def _meet(self, kind: Kind, group: tuple[int, ...]) -> Meeting:
        members = Counter(self.labels[rank] for rank in group)
        rarest = min(members, key=lambda label: self.sizes[label] / members[label])
        ngroups = self.sizes[rarest] / members[rarest]
        flow = whole(self.network, self.library, kind.collective, group, kind.size_bytes)
        return Meeting(
            key=(kind.axis, frozenset(members.items())),
            narrivals=len(members),
            flow=Whole(self._shared(flow.use, group, ngroups), flow.edge_bytes, flow.hops),
            count=ngroups,
        )

    def _shared(self, use: Use, group: tuple[int, ...], ngroups: float) -> Use:
        """Return the use of groups alike: uplinks carry them all, a node's links those of the node."""
        owners = {self._link(rank): rank for rank in group}
        inside = Counter((self.labels[rank], self.network.node(rank)) for rank in group)
        shares: dict[int, float] = {}
        for link, share in use:
            if self.network.links[link].link_class != HOST:
                self._load(shares, link, share * ngroups)
                continue
            member = owners[link & ~1]
            mine = self._link(self.stands_in(member)) + (link & 1)
            here = self.labels[member], self.network.node(member)
            shares[mine] = max(shares.get(mine, 0.0), share * self.beside[here] / inside[here])
        return tuple(shares.items())

    def _load(self, shares: dict[int, float], link: int, share: float) -> None:
        """Add what an uplink carries, to the one that stands for its class where they are taken as one."""
        pool, part = self.pooled.get(link, (link, 1.0))
        shares[pool] = shares.get(pool, 0.0) + share * part

    def _link(self, rank: int) -> int:
        return self.network.climbs[self.network.node(rank)][0]

    def _beside(self, rank: int) -> int:
        """Return how many ranks of a rank's class share its node."""
        return self.beside[self.labels[rank], self.network.node(rank)]

"""Simulating few ranks in place of many that do the same: what makes a step over 1,200 nodes quick to predict.

Two ranks are alike if they do the same in places that are the same: their programs differ only in whom they name, they
sit under the same switches, and whom they name are alike too, as far as any chain of partners leads. Of each class one
rank is simulated. Its flows have the links of its node to themselves, as each of the others has, but load uplinks as
often as there are ranks in the class; a collective is one flow along all its edges, and stands for all groups alike.

Where a placement has no order, hardly any two ranks are alike so strictly. Then switches are forgotten but for the
level at which partners meet, and the uplinks of a class are taken as one: its busiest, with the share of the traffic
that this one has. Such a step comes out a few percent short, since the busiest uplink waits for the others at times.

What all this leaves out: a ring moves at the speed of its slowest edge, without segments.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from spanfit.collectives import Collective
from spanfit.profiler.predict.collectives import Library, Whole, whole
from spanfit.profiler.predict.network import HOST, Network
from spanfit.profiler.predict.ranks import Cast, Meeting
from spanfit.profiler.predict.sharing import Use
from spanfit.workload.program import Collect, Operation, Program, Receive, Send

Labels = list[int]

MOST_COPIES, MOST_SIMULATED = 4, 128


def classes(programs: Sequence[Program], network: Network, *, ncopies: int = 1, is_coarse: bool = False) -> Labels:
    """Return the class of each rank, numbered in the order of first appearance.

    Ranks that lead to one another by messages are a chain; chains alike are dealt out to ``ncopies`` classes each.
    Coarse classes do not tell switches apart.
    """
    outlines = [_Outline(rank, program, network) for rank, program in enumerate(programs)]
    labels = _numbered(
        (outline.shape, () if is_coarse else network.switches[network.node(outline.rank)], chain % ncopies)
        for outline, chain in zip(outlines, _chains(outlines), strict=True)
    )
    while True:
        groups: dict[tuple[int, ...], Hashable] = {}
        finer = _numbered((labels[outline.rank], outline.partners(labels, groups)) for outline in outlines)
        if max(finer) == max(labels):
            return labels
        labels = finer


def representatives(programs: Sequence[Program], network: Network, library: Library, *, is_unfair: bool) -> Cast:
    """Return the cast in which the first rank of each class is simulated in place of all.

    Where shares are unfair, chains alike run out of step, which is worth up to a quarter of a step; so a few of them
    are simulated, each for its part of the class, as far as ``MOST_SIMULATED`` ranks allow.
    """
    labels = classes(programs, network)
    is_coarse = max(labels) >= MOST_SIMULATED
    if is_coarse:
        labels = classes(programs, network, is_coarse=True)
    ncopies = min(MOST_COPIES, MOST_SIMULATED // (max(labels) + 1)) if is_unfair else 1
    if ncopies > 1:
        labels = classes(programs, network, ncopies=ncopies, is_coarse=is_coarse)
    crowd = _Crowd(programs, network, library, labels, _pooled(programs, network, library) if is_coarse else {})
    return Cast(programs=crowd.programs, stands_in=crowd.stands_in, route=crowd.route, meeting=crowd.meeting)


def _pooled(programs: Sequence[Program], network: Network, library: Library) -> dict[int, tuple[int, float]]:
    """Return for each uplink the busiest of its class and way, and the share of all their bytes that it carries."""
    loads = _loads(programs, network, library)
    busiest: dict[Hashable, int] = {}
    totals: dict[Hashable, float] = {}
    kinds = {link: (each.link_class, each.way) for link, each in enumerate(network.links) if each.link_class != HOST}
    for link, kind in kinds.items():
        totals[kind] = totals.get(kind, 0.0) + loads[link]
        if loads[link] >= loads[busiest.setdefault(kind, link)]:
            busiest[kind] = link
    return {link: (busiest[kind], loads[busiest[kind]] / (totals[kind] or 1.0)) for link, kind in kinds.items()}


def _loads(programs: Sequence[Program], network: Network, library: Library) -> list[float]:
    """Return the bytes that each link carries in a step."""
    loads = [0.0] * len(network.links)
    sent: Counter[tuple[int, int]] = Counter()
    calls: Counter[tuple[Collective, tuple[int, ...], int]] = Counter()
    for rank, program in enumerate(programs):
        for each in program:
            if isinstance(each, Send):
                sent[rank, each.peer] += each.size_bytes
            elif isinstance(each, Collect) and rank == each.group[0]:
                calls[each.collective, each.group, each.size_bytes] += 1
    for (source, target), size_bytes in sent.items():
        for link in network.path(source, target):
            loads[link] += size_bytes
    for (collective, group, size_bytes), ncalls in calls.items():
        flow = whole(network, library, collective, group, size_bytes)
        for link, share in flow.use:
            loads[link] += share * flow.edge_bytes * ncalls
    return loads


def _numbered(keys: Iterable[Hashable]) -> Labels:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _chains(outlines: "Sequence[_Outline]") -> Labels:
    """Return the number of each rank's chain."""
    chains = [-1] * len(outlines)
    nchains = 0
    for start in range(len(outlines)):
        if chains[start] >= 0:
            continue
        found = [start]
        while found:
            rank = found.pop()
            if chains[rank] < 0:
                chains[rank] = nchains
                found.extend(outlines[rank].peers)
        nchains += 1
    return chains


class _Outline:
    """A program without the ranks that it names, and those ranks in the order in which it first names them."""

    def __init__(self, rank: int, program: Program, network: Network) -> None:
        self.rank = rank
        self.network = network
        self.peers: dict[int, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.shape = hash(tuple(map(self._stripped, program)))

    def _stripped(self, operation: Operation) -> Hashable:
        if isinstance(operation, Send | Receive):
            place = self.peers.setdefault(operation.peer, len(self.peers))
            return type(operation), place, operation.count, operation.dtype, operation.timer.direction
        if isinstance(operation, Collect):
            place = self.groups.setdefault(operation.group, len(self.groups))
            return operation.collective, place, operation.axis, operation.count, operation.dtype, operation.handle
        return operation

    def partners(self, labels: Labels, groups: dict[tuple[int, ...], Hashable]) -> Hashable:
        """Return what tells this rank from others of its class: its peers and groups as far as they are known."""
        here = self.network.node(self.rank)
        peers = tuple((labels[peer], self.network.joined(here, self.network.node(peer))) for peer in self.peers)
        for group in self.groups:
            if group not in groups:
                groups[group] = frozenset(Counter(labels[rank] for rank in group).items()), self.hops(group)
        return peers, tuple(groups[group] for group in self.groups)

    def hops(self, group: tuple[int, ...]) -> Hashable:
        """Return how many neighbours of a ring meet at each level."""
        nodes = [self.network.node(rank) for rank in group]
        return frozenset(
            Counter(self.network.joined(node, nodes[place - 1]) for place, node in enumerate(nodes)).items()
        )


class _Crowd:
    """The ranks of each class, and how much of it each link sees."""

    def __init__(
        self,
        programs: Sequence[Program],
        network: Network,
        library: Library,
        labels: Labels,
        pooled: dict[int, tuple[int, float]],
    ) -> None:
        self.network = network
        self.pooled = pooled
        self.library = library
        self.labels = labels
        self.sizes = Counter(labels)
        self.first: dict[int, int] = {}
        for rank, label in enumerate(labels):
            self.first.setdefault(label, rank)
        self.programs = {rank: programs[rank] for rank in self.first.values()}
        self.beside = Counter((label, network.node(rank)) for rank, label in enumerate(labels))
        self.peers = {
            (rank, self.stands_in(each.peer)): each.peer
            for rank, program in self.programs.items()
            for each in program
            if isinstance(each, Send | Receive)
        }
        self._routes: dict[tuple[int, int], tuple[Use, float]] = {}
        self._meetings: dict[Hashable, Meeting] = {}

    def stands_in(self, rank: int) -> int:
        """Return the rank that is simulated for a rank."""
        return self.first[self.labels[rank]]

    def route(self, source: int, target: int) -> tuple[Use, float]:
        """Return the use of a flow between two simulated ranks that stands for those of their classes."""
        if (source, target) not in self._routes:
            path = self.network.path(source, self.peers[source, target])
            ends = {path[0]: path[0], path[-1]: self._link(target) + 1} if path else {}
            number, beside = float(self.sizes[self.labels[source]]), float(self._beside(source))
            shares: dict[int, float] = {}
            for link in path:
                if link in ends:
                    shares[ends[link]] = beside
                else:
                    self._load(shares, link, number)
            self._routes[source, target] = tuple(shares.items()), number
        return self._routes[source, target]

    def meeting(self, operation: Collect) -> Meeting:
        """Return the one flow of a collective and of all those that groups alike run."""
        key = (operation.axis, operation.group, operation.collective, operation.size_bytes)
        if key not in self._meetings:
            self._meetings[key] = self._meet(operation)
        return self._meetings[key]

    def _meet(self, operation: Collect) -> Meeting:
        group = operation.group
        members = Counter(self.labels[rank] for rank in group)
        rarest = min(members, key=lambda label: self.sizes[label] / members[label])
        ngroups = self.sizes[rarest] / members[rarest]
        flow = whole(self.network, self.library, operation.collective, group, operation.size_bytes)
        return Meeting(
            key=(operation.axis, frozenset(members.items())),
            narrivals=len(members),
            flow=Whole(self._shared(flow.use, group, ngroups), flow.edge_bytes, flow.hops),
            count=ngroups,
        )

    def _shared(self, use: Use, group: tuple[int, ...], ngroups: float) -> Use:
        """Return the use of groups alike: uplinks carry them all, a node's links those of the node."""
        owners = {self._link(rank): rank for rank in group}
        shares: dict[int, float] = {}
        for link, share in use:
            if self.network.links[link].link_class != HOST:
                self._load(shares, link, share * ngroups)
                continue
            member = owners[link & ~1]
            mine = self._link(self.stands_in(member)) + (link & 1)
            shares[mine] = max(shares.get(mine, 0.0), share * self._beside(member))
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

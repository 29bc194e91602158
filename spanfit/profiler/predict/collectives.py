"""How a collective moves its bytes: gloo's algorithms message by message, NCCL's as one flow along all their edges.

gloo (third_party/gloo in torch, files of the same names):

- all_reduce (``allreduce.cc``, ring): the buffer is cut into segments of at most 1 MiB, at least two a rank. Rank r
  sends to r - 1 and receives from r + 1, two segments in flight: first a reduce-scatter, then an all-gather. Two ranks
  do the same, so that both directions of one connection are busy at once.
- all_gather (``allgather.cc``, ring): each rank's share goes round in two halves, two in flight.
- reduce_scatter: torch's back end makes it an all_reduce of the whole buffer, so that it moves twice the bytes needed.
- broadcast (``broadcast.cc``, binomial tree): rank r > 0 receives from r less its highest bit, then sends to all its
  children at once.
- all_to_all (``alltoall.cc``): every rank sends to all others at once.

NCCL (nccl-tests' PERFORMANCE.md for the volumes, src/graph/rings.cc and trees.cc for the edges):

- Rings follow the rank order and are pipelined in small chunks, so that all edges move at the slowest one's speed.
  An edge carries 2 (n - 1) / n S for all_reduce, (n - 1) / n S for all_gather and reduce_scatter, S for broadcast (but
  the edge into the root). What starts it up is a latency for each hop.
- Trees (all_reduce only): two binary trees, each with half of the buffer, up and then down; an edge carries S / 2 each
  way, and what starts it up grows with log2 n.
- all_to_all: n - 1 shares of S / n from each rank at once.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, permutations

from spanfit.collectives import Collective
from spanfit.errors import ConfigError
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.sharing import Use, use_of
from spanfit.profiler.predict.simulation import Event, Process, Simulation

SEGMENT_BYTES = 1 << 20
"""gloo's largest segment."""
_IN_FLIGHT = 2


class Library(StrEnum):
    """What moves the bytes; ``nccl-tree`` is NCCL with all_reduce over its trees."""

    GLOO = "gloo"
    NCCL = "nccl"
    NCCL_TREE = "nccl-tree"

    @property
    def posts_early(self) -> bool:
        """Whether receives are posted at the start of a step, as the CPU proxies do, and not when they are needed."""
        return self is Library.GLOO

    @property
    def at_once(self) -> int:
        """How many operations of one communicator run at the same time."""
        return 2 if self is Library.GLOO else 1


class Part:
    """One rank's part in a gloo collective.

    Parameters
    ----------
    ranks : tuple of int
    me : int
        This rank's place among them.
    call : hashable
        Which of the group's collectives it is.
    reduction_s_per_byte : float
    """

    def __init__(
        self, simulation: Simulation, ranks: tuple[int, ...], me: int, call: int, reduction_s_per_byte: float
    ) -> None:
        self.simulation = simulation
        self.ranks = ranks
        self.me = me
        self.call = call
        self.reduction_s_per_byte = reduction_s_per_byte

    def run(self, collective: Collective, size_bytes: float) -> Process:
        """Return the process of this rank; ConfigError for a collective that is not modelled."""
        n = len(self.ranks)
        match collective:
            case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
                nsegments = ring_segments(n, size_bytes)
                segment_bytes, nsteps = size_bytes / nsegments, nsegments - nsegments // n
                yield from self._ring(nsteps, segment_bytes, segment_bytes * self.reduction_s_per_byte)
                yield from self._ring(nsteps, segment_bytes, 0.0)
            case Collective.ALL_GATHER:
                yield from self._ring(2 * (n - 1), size_bytes / n / 2, 0.0)
            case Collective.BROADCAST:
                yield from self._tree(size_bytes)
            case Collective.ALL_TO_ALL:
                yield from self._all(size_bytes / n)
            case _:
                raise _unknown(collective, Library.GLOO)

    def _send(self, place: int, size_bytes: float) -> Event:
        return self.simulation.send(self.ranks, self.ranks[self.me], self.ranks[place], size_bytes, self.call)

    def _receive(self, place: int) -> Event:
        return self.simulation.receive(self.ranks, self.ranks[place], self.ranks[self.me], self.call)

    def _ring(self, nsteps: int, segment_bytes: float, reduction_s: float) -> Process:
        n = len(self.ranks)
        inbox: list[Event] = []
        outbox: list[Event] = []
        for step in range(nsteps + _IN_FLIGHT):
            if step >= _IN_FLIGHT:
                yield inbox[step - _IN_FLIGHT]
                yield reduction_s
                yield outbox[step - _IN_FLIGHT]
            if step < nsteps:
                inbox.append(self._receive((self.me + 1) % n))
                outbox.append(self._send((self.me - 1) % n, segment_bytes))

    def _tree(self, size_bytes: float) -> Process:
        first = 1
        if self.me:
            highest = 1 << self.me.bit_length() - 1
            yield self._receive(self.me - highest)
            first = 2 * highest
        sends = []
        while self.me + first < len(self.ranks):
            sends.append(self._send(self.me + first, size_bytes))
            first *= 2
        yield from sends

    def _all(self, share_bytes: float) -> Process:
        others = [(self.me + offset) % len(self.ranks) for offset in range(1, len(self.ranks))]
        waits = [event for place in others for event in (self._receive(place), self._send(place, share_bytes))]
        yield from waits


def ring_segments(n: int, size_bytes: float) -> int:
    """Return into how many segments gloo cuts a buffer that n ranks reduce: a multiple of n, two a rank at least."""
    wanted = max(math.ceil(size_bytes / SEGMENT_BYTES), 2 * n)
    return -(-wanted // n) * n


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Along which edges a collective moves at once, and how much.

    Attributes
    ----------
    edges : tuple of (int, int)
        Places in the group from which and to which bytes go.
    edge_bytes : float
        What each edge carries.
    hops : float
        Latencies that pass before it runs at full speed.
    """

    edges: tuple[tuple[int, int], ...]
    edge_bytes: float
    hops: float


def shape(library: Library, collective: Collective, n: int, size_bytes: float) -> Shape:
    """Return how a collective of n ranks moves its bytes; ConfigError for one that is not modelled.

    gloo's rings are taken as NCCL's where many groups are represented by one: two segments in flight keep every edge
    busy, and its reduce_scatter moves what its all_reduce does. Its broadcast moves along its tree, all edges at once.
    """
    factor = {Collective.ALL_REDUCE: 2.0, Collective.ALL_GATHER: 1.0, Collective.REDUCE_SCATTER: 1.0}
    if library is Library.GLOO:
        factor[Collective.REDUCE_SCATTER] = 2.0
    if collective is Collective.ALL_REDUCE and library is Library.NCCL_TREE:
        down = [edge for tree in double_tree(n) for edge in tree]
        both = tuple(way for a, b in down for way in ((a, b), (b, a)))
        return Shape(edges=both, edge_bytes=size_bytes / 2, hops=2 * math.log2(n))
    if collective in factor:
        ring = tuple((place, (place - 1) % n) for place in range(n))
        times = factor[collective] * (n - 1)
        return Shape(edges=ring, edge_bytes=times / n * size_bytes, hops=times)
    if collective is Collective.BROADCAST and library is Library.GLOO:
        tree = tuple((rank ^ 1 << rank.bit_length() - 1, rank) for rank in range(1, n))
        return Shape(edges=tree, edge_bytes=size_bytes, hops=(n - 1).bit_length())
    if collective is Collective.BROADCAST:
        return Shape(edges=tuple(pairwise(range(n))), edge_bytes=size_bytes, hops=n - 1)
    if collective is Collective.ALL_TO_ALL:
        return Shape(edges=tuple(permutations(range(n), 2)), edge_bytes=size_bytes / n, hops=1)
    raise _unknown(collective, library)


class Whole:
    """A collective as one flow along all its edges: how many bytes an edge carries, over which links, and how late.

    Attributes
    ----------
    use : Use
        Bytes on each link for a byte on an edge.
    edge_bytes : float
    hops : float
        Latencies that pass before it runs at full speed.
    """

    __slots__ = ("edge_bytes", "hops", "use")

    def __init__(self, use: Use, edge_bytes: float, hops: float) -> None:
        self.use = use
        self.edge_bytes = edge_bytes
        self.hops = hops


def whole(
    network: Network, library: Library, collective: Collective, ranks: tuple[int, ...], size_bytes: float
) -> Whole:
    """Return a collective as one flow; ConfigError for one that is not modelled."""
    found = shape(library, collective, len(ranks), size_bytes)
    use = use_of([network.path(ranks[a], ranks[b]) for a, b in found.edges])
    return Whole(use, found.edge_bytes, found.hops)


def double_tree(n: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the edges (child, parent) of NCCL's two binary trees over n ranks.

    Notes
    -----
    ``ncclGetBtree``: 0 is the root; rank r with lowest bit b has the parent ``(r ^ b) | (b << 1)``, or ``r ^ b`` where
    that is no rank. ``ncclGetDtree``: the second tree is the first, mirrored for an even n, shifted by one for an odd.
    """
    first = []
    for rank in range(1, n):
        bit = rank & -rank
        parent = (rank ^ bit) | (bit << 1)
        first.append((rank, parent if parent < n else rank ^ bit))
    if n % 2:
        return first, [((a + 1) % n, (b + 1) % n) for a, b in first]
    return first, [(n - 1 - a, n - 1 - b) for a, b in first]


def _unknown(collective: Collective, library: Library) -> ConfigError:
    return ConfigError(
        f"collective: found {collective}, whose traffic with {library} is not modelled; "
        "expected all_reduce, all_gather, reduce_scatter, broadcast or all_to_all"
    )

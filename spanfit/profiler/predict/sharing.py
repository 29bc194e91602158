"""How flows share links at a moment: weighted max-min fairness over links that hold token buckets.

A link carries its rate, and more for as long as its bucket holds tokens. The bucket fills at the rate while less is
carried, so a link that is slower fills it more slowly. Where a link is loaded both ways by ``BOTH_WAYS_FROM`` flows or
more, both directions carry a share less, since acknowledgements queue behind data.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random

BOTH_WAYS_FROM = 3
"""So many flows on a link, the two directions together and both of them loaded, cost its efficiency."""

_DRY = 1.0
_BURST_FROM = 4096.0
"""A bucket that ran dry lends no burst before it holds so many bytes again, about two full frames."""
_SOON_S = 1e-9
_LEAST_RATE = 1e-3
_NO_WEIGHT = 1e-9

Use = tuple[tuple[int, float], ...]
"""The links of a flow, each with the bytes that it carries for a byte of the flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How links and flows behave.

    Attributes
    ----------
    rates_bytes_per_s : tuple of float
        Of each link; each link up is followed by the same one down.
    burst_bytes : float
        What a full bucket holds.
    peak_bytes_per_s : float
        How fast a link is while its bucket lasts, and a flow that loads no link.
    both_ways_efficiency : float
        Share of its rate that a link keeps where it is loaded both ways.
    spread : float
        Standard deviation of the logarithm of a connection's weight; 0: all shares are fair.
    redraw_s : float
        Mean time for which a connection keeps a weight [s].
    """

    rates_bytes_per_s: tuple[float, ...]
    burst_bytes: float
    peak_bytes_per_s: float
    both_ways_efficiency: float = 1.0
    spread: float = 0.0
    redraw_s: float = 0.1


class Flow:
    """Bytes on their way: over a path, or over all edges of a collective, which then move at one speed.

    Parameters
    ----------
    use : Use
    size_bytes : float
        What each edge carries.
    connection : hashable
        Flows of one connection have its weight.
    count : float
        How many flows alike this one stands for; links that they share have it in ``use`` already.
    on_end : callable
    """

    __slots__ = ("connection", "count", "left_bytes", "level", "on_end", "rate", "use", "weight")

    def __init__(
        self, use: Use, size_bytes: float, connection: Hashable, on_end: Callable[[], None], count: float = 1.0
    ) -> None:
        self.use = use
        self.left_bytes = size_bytes
        self.connection = connection
        self.on_end = on_end
        self.count = count
        self.weight = 1.0
        self.rate = 0.0
        self.level = 0.0


class Sharing:
    """The flows that are on their way, and what each link's bucket holds.

    Parameters
    ----------
    conduct : Conduct
    seed : int
        Draws the weights of connections.
    """

    def __init__(self, conduct: Conduct, seed: int) -> None:
        self.conduct = conduct
        self.now_s = 0.0
        self.flows: list[Flow] = []
        nlinks = len(conduct.rates_bytes_per_s)
        self.tokens = [conduct.burst_bytes] * nlinks
        self.carried_bytes = [0.0] * nlinks
        self._bursts = [conduct.burst_bytes > _BURST_FROM] * nlinks
        self._rests_since_s = [0.0] * nlinks
        self._loads: dict[int, float] = {}
        self._fills: dict[int, float] = {}
        self._weights: dict[Hashable, tuple[float, float]] = {}
        self._random = Random(seed)

    def start(self, flow: Flow) -> None:
        """Add a flow; the next :meth:`settle` gives it a rate."""
        self.flows.append(flow)

    def settle(self) -> float:
        """Give every flow its rate and return when the first of them ends or a bucket runs dry, inf without flows."""
        self._weigh()
        loads = self._share()
        self._rest(loads)
        return self._next_s()

    def advance(self, now_s: float) -> list[Flow]:
        """Carry bytes until ``now_s`` at the settled rates and return the flows that end there."""
        lasted_s = now_s - self.now_s
        self.now_s = now_s
        ended: list[Flow] = []
        going: list[Flow] = []
        for flow in self.flows:
            flow.left_bytes -= flow.rate * lasted_s
            (ended if flow.left_bytes <= flow.rate * _SOON_S else going).append(flow)
        self.flows = going
        burst_bytes = self.conduct.burst_bytes
        for link, load in self._loads.items():
            self.carried_bytes[link] += load * lasted_s
            tokens = self.tokens[link] + (self._fills[link] - load) * lasted_s
            if tokens <= _DRY:
                self._bursts[link] = False
            self.tokens[link] = min(burst_bytes, max(0.0, tokens))
        return ended

    def _weigh(self) -> None:
        if not self.conduct.spread:
            return
        draw, now_s = self._random, self.now_s
        for flow in self.flows:
            weight, until_s = self._weights.get(flow.connection, (1.0, now_s))
            if until_s <= now_s:
                weight = draw.lognormvariate(0.0, self.conduct.spread)
                self._weights[flow.connection] = weight, now_s + draw.expovariate(1 / self.conduct.redraw_s)
            flow.weight = weight

    def _share(self) -> dict[int, float]:
        """Set the rates so that each flow has a link that is full, and return the load of each link in use.

        In each round the links are filled whose flows could not be held up sooner by any other.
        """
        members: dict[int, list[Flow]] = {}
        weights: dict[int, float] = {}
        for flow in self.flows:
            flow.rate = 0.0
            for link, share in flow.use:
                if link in weights:
                    weights[link] += share * flow.weight
                    members[link].append(flow)
                else:
                    weights[link] = share * flow.weight
                    members[link] = [flow]
        rooms = self._capacities(members)
        capacities = dict(rooms)
        counts = {link: len(flows) for link, flows in members.items()}
        going = [flow for flow in self.flows if flow.use]
        while going:
            levels = {link: rooms[link] / weight for link, weight in weights.items()}
            lowest = dict.fromkeys(levels, float("inf"))
            for flow in going:
                flow.level = level = min([levels[link] for link, _ in flow.use])
                for link, _ in flow.use:
                    if level < lowest[link]:
                        lowest[link] = level
            left = []
            for flow in going:
                level = flow.level
                if any(levels[link] == level == lowest[link] for link, _ in flow.use):
                    self._fix(flow, max(level * flow.weight, _LEAST_RATE), rooms, weights, counts)
                else:
                    left.append(flow)
            going = left
        for flow in self.flows:
            flow.rate = flow.rate or self.conduct.peak_bytes_per_s
        return {link: max(0.0, capacities[link] - rooms[link]) for link in members}

    @staticmethod
    def _fix(
        flow: Flow, rate: float, rooms: dict[int, float], weights: dict[int, float], counts: dict[int, int]
    ) -> None:
        """Give a flow its rate and take it out of the weights of its links, which end with their last flow."""
        flow.rate = rate
        for link, share in flow.use:
            rooms[link] -= rate * share
            counts[link] -= 1
            if counts[link]:
                # What is left of very unlike weights may cancel out.
                weights[link] = max(weights[link] - share * flow.weight, _NO_WEIGHT)
            else:
                del weights[link]

    def _capacities(self, members: dict[int, list[Flow]]) -> dict[int, float]:
        """Return what each link in use can carry now, and note at what rate its bucket fills."""
        conduct = self.conduct
        counts = {link: sum(flow.count for flow in flows) for link, flows in members.items()}
        capacities = {}
        self._fills = {}
        for link, count in counts.items():
            rate = conduct.rates_bytes_per_s[link]
            if counts.get(link ^ 1, 0) and count + counts[link ^ 1] >= BOTH_WAYS_FROM:
                rate *= conduct.both_ways_efficiency
            self._fills[link] = rate
            if link not in self._loads:
                rested_s = self.now_s - self._rests_since_s[link]
                self.tokens[link] = min(
                    conduct.burst_bytes, self.tokens[link] + rested_s * conduct.rates_bytes_per_s[link]
                )
            if self.tokens[link] > _BURST_FROM:
                self._bursts[link] = True
            capacities[link] = max(rate, conduct.peak_bytes_per_s) if self._bursts[link] else rate
        return capacities

    def _rest(self, loads: dict[int, float]) -> None:
        """Note the links that carry nothing from now on: their buckets fill unwatched."""
        for link in self._loads:
            if link not in loads:
                self._rests_since_s[link] = self.now_s
        self._loads = loads

    def _next_s(self) -> float:
        soonest = min((flow.left_bytes / flow.rate for flow in self.flows), default=float("inf"))
        for link, load in self._loads.items():
            drain = load - self._fills[link]
            if self._bursts[link] and drain > 0:
                soonest = min(soonest, (self.tokens[link] - _DRY / 2) / drain)
        return self.now_s + max(0.0, soonest)


def use_of(paths: Sequence[tuple[int, ...]]) -> Use:
    """Return the use of a flow that moves along several paths at once, as a collective does."""
    shares: dict[int, float] = {}
    for path in paths:
        for link in path:
            shares[link] = shares.get(link, 0.0) + 1.0
    return tuple(shares.items())

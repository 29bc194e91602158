"""How flows share links at a moment: weighted max-min fairness over links that hold token buckets.

A link carries its rate, and more for as long as its bucket holds tokens. The bucket fills at the rate while less is
carried, so a link that is slower fills it more slowly. Where a link is loaded both ways by ``BOTH_WAYS_FROM`` flows or
more, both directions carry a share less, since acknowledgements queue behind data.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
        How fast a link is while its bucket lasts, and what loads no link.
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
        At least one link, where it is to share.
    size_bytes : float
        What each edge carries.
    connection : hashable
        Flows of one connection have its weight.
    count : float
        How many flows alike this one stands for; links that they share have it in ``use`` already.
    on_end : callable
    """

    __slots__ = ("connection", "count", "kind", "left_bytes", "on_end", "rate", "use", "weight")

    def __init__(
        self, use: Use, size_bytes: float, connection: Hashable, on_end: Callable[[], None], count: float = 1.0
    ) -> None:
        self.use = use
        self.left_bytes = size_bytes
        self.connection = connection
        self.on_end = on_end
        self.count = count
        self.kind = -1
        self.weight = 1.0
        self.rate = 0.0


class _Mix:
    """What is the same whenever flows of the same kinds are on their way.

    Attributes
    ----------
    fills : dict of int to float
        Of each link in use what it carries without its bucket.
    rates : dict of tuple of int to dict of int to float
        By the links that burst, the fair rate of each kind.
    loads : dict of tuple of int to dict of int to float
        By the links that burst, what each link then carries, where links have buckets.
    """

    __slots__ = ("fills", "loads", "rates")

    def __init__(self, flows: Sequence[Flow], conduct: Conduct) -> None:
        rates, efficiency = conduct.rates_bytes_per_s, conduct.both_ways_efficiency
        self.fills = {link: rates[link] for flow in flows for link, _ in flow.use}
        if efficiency < 1:
            counts = dict.fromkeys(self.fills, 0.0)
            for flow in flows:
                for link, _ in flow.use:
                    counts[link] += flow.count
            for link, count in counts.items():
                if link ^ 1 in counts and count + counts[link ^ 1] >= BOTH_WAYS_FROM:
                    self.fills[link] *= efficiency
        self.rates: dict[tuple[int, ...], dict[int, float]] = {}
        self.loads: dict[tuple[int, ...], dict[int, float]] = {}


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
        self._has_buckets = conduct.burst_bytes > _BURST_FROM
        self.tokens = [conduct.burst_bytes] * nlinks
        self._bursts = [self._has_buckets] * nlinks
        self._rests_since_s = [0.0] * nlinks
        self._loads: dict[int, float] = {}
        self._fills: dict[int, float] = {}
        self._kinds: dict[tuple[Use, float], int] = {}
        self._mixes: dict[tuple[int, ...], _Mix] = {}
        self._weights: dict[Hashable, tuple[float, float]] = {}
        self._random = Random(seed)

    def start(self, flow: Flow) -> None:
        """Add a flow; the next :meth:`settle` gives it a rate."""
        flow.kind = self._kinds.setdefault((flow.use, flow.count), len(self._kinds))
        self.flows.append(flow)

    def settle(self) -> float:
        """Give every flow its rate and return when the first of them ends or a bucket runs dry, inf without flows."""
        key = tuple(sorted([flow.kind for flow in self.flows]))
        mix = self._mixes.get(key)
        if mix is None:
            mix = self._mixes[key] = _Mix(self.flows, self.conduct)
        bursting = self._bursting(mix.fills) if self._has_buckets else ()
        if self.conduct.spread:
            self._weigh()
            loads = self._share(mix, bursting)
        else:
            loads = self._share_fairly(mix, bursting)
        self._rest(loads)
        self._fills = mix.fills
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
            tokens = self.tokens[link] + (self._fills[link] - load) * lasted_s
            if tokens <= _DRY:
                self._bursts[link] = False
            self.tokens[link] = min(burst_bytes, max(0.0, tokens))
        return ended

    def _weigh(self) -> None:
        draw, now_s = self._random, self.now_s
        for flow in self.flows:
            weight, until_s = self._weights.get(flow.connection, (1.0, now_s))
            if until_s <= now_s:
                weight = draw.lognormvariate(0.0, self.conduct.spread)
                self._weights[flow.connection] = weight, now_s + draw.expovariate(1 / self.conduct.redraw_s)
            flow.weight = weight

    def _share_fairly(self, mix: _Mix, bursting: tuple[int, ...]) -> dict[int, float]:
        """Set the rates as they were when flows of the same kinds shared links in the same state, or find them."""
        rates = mix.rates.get(bursting)
        if rates is None:
            mix.loads[bursting] = self._share(mix, bursting)
            mix.rates[bursting] = {flow.kind: flow.rate for flow in self.flows}
        else:
            for flow in self.flows:
                flow.rate = rates[flow.kind]
        return mix.loads[bursting]

    def _share(self, mix: _Mix, bursting: tuple[int, ...]) -> dict[int, float]:
        """Set the rates so that each flow has a link that is full, and return the load of each link with a bucket."""
        peak = self.conduct.peak_bytes_per_s
        capacities = mix.fills | {link: max(mix.fills[link], peak) for link in bursting}
        rates, rooms = water_filling([(flow.use, flow.weight) for flow in self.flows], capacities)
        for flow, rate in zip(self.flows, rates, strict=True):
            flow.rate = rate
        if not self._has_buckets:
            return {}
        return {link: max(0.0, capacity - rooms[link]) for link, capacity in capacities.items()}

    def _bursting(self, links: Iterable[int]) -> tuple[int, ...]:
        """Return which links in use carry more than their rate now; those that rested have filled their buckets."""
        burst_bytes, rates = self.conduct.burst_bytes, self.conduct.rates_bytes_per_s
        found = []
        for link in links:
            if link not in self._loads:
                rested_s = self.now_s - self._rests_since_s[link]
                self.tokens[link] = min(burst_bytes, self.tokens[link] + rested_s * rates[link])
            if self.tokens[link] > _BURST_FROM:
                self._bursts[link] = True
            if self._bursts[link]:
                found.append(link)
        return tuple(found)

    def _rest(self, loads: dict[int, float]) -> None:
        """Note the links that carry nothing from now on: their buckets fill unwatched."""
        for link in self._loads:
            if link not in loads:
                self._rests_since_s[link] = self.now_s
        self._loads = loads

    def _next_s(self) -> float:
        soonest = min([flow.left_bytes / flow.rate for flow in self.flows], default=float("inf"))
        for link, load in self._loads.items():
            drain = load - self._fills[link]
            if self._bursts[link] and drain > 0:
                soonest = min(soonest, (self.tokens[link] - _DRY / 2) / drain)
        return self.now_s + max(0.0, soonest)


def water_filling(
    flows: Sequence[tuple[Use, float]], capacities: Mapping[int, float]
) -> tuple[list[float], dict[int, float]]:
    """Return the max-min fair rate of each flow, given by its use and its weight, and what each link has left.

    In each round the links are filled whose flows could not be held up sooner by any other.
    """
    rooms, weights, counts = dict(capacities), dict.fromkeys(capacities, 0.0), dict.fromkeys(capacities, 0)
    for use, weight in flows:
        for link, share in use:
            weights[link] += share * weight
            counts[link] += 1
    rates = [0.0] * len(flows)
    going = [(number, use, weight) for number, (use, weight) in enumerate(flows)]
    while going:
        levels = {link: rooms[link] / weight for link, weight in weights.items()}
        lowest = dict.fromkeys(levels, float("inf"))
        aims = []
        for _, use, _ in going:
            level = min([levels[link] for link, _ in use])
            aims.append(level)
            for link, _ in use:
                if level < lowest[link]:
                    lowest[link] = level
        left = []
        for level, flow in zip(aims, going, strict=True):
            number, use, weight = flow
            if any(levels[link] == level == lowest[link] for link, _ in use):
                rates[number] = rate = max(level * weight, _LEAST_RATE)
                _taken(use, rate, weight, rooms, weights, counts)
            else:
                left.append(flow)
        going = left
    return rates, rooms


def _taken(
    use: Use, rate: float, weight: float, rooms: dict[int, float], weights: dict[int, float], counts: dict[int, int]
) -> None:
    """Take a flow that has its rate out of the weights of its links, which end with their last flow."""
    for link, share in use:
        rooms[link] -= rate * share
        counts[link] -= 1
        if counts[link]:
            # What is left of very unlike weights may cancel out.
            weights[link] = max(weights[link] - share * weight, _NO_WEIGHT)
        else:
            del weights[link]


def use_of(paths: Sequence[tuple[int, ...]]) -> Use:
    """Return the use of a flow that moves along several paths at once, as a collective does."""
    shares: dict[int, float] = {}
    for path in paths:
        for link in path:
            shares[link] = shares.get(link, 0.0) + 1.0
    return tuple(shares.items())

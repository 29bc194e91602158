"""What links can carry, from the times of flows that shared them: the bottleneck model, fitted.

A flow runs at the max-min fair share of the links on its path. A link is told where it was full: then all that its
flows carried, until the last flow that it held back had ended, is its rate. That holds whatever share each flow got,
so unfair sharing does not bias it. A link that was never full is known to carry what it did, and no more is claimed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.profiler.statistics import FloatArray

IntArray = npt.NDArray[np.intp]

FULL = 0.98
"""A link that the model loads to this share counts as full; links on a path that tie within it all do."""
TELLING = 1.1
"""A link is told from those around it if without it its flows would carry at least this much more."""

_ITERATIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Flows that started at once.

    Attributes
    ----------
    paths : array of int, flows × hops
        Ways that each flow takes; way ``2 * link`` leads up over a link and ``2 * link + 1`` down; -1 pads.
    volume_bytes : float
        What each flow moves, along every way of its path.
    """

    paths: IntArray
    volume_bytes: float

    def carried(self, ways: int, rates: FloatArray) -> FloatArray:
        """Return the sum of the flows' rates over each way."""
        return self._summed(ways, np.broadcast_to(rates[:, None], self.paths.shape))

    def _summed(self, ways: int, values: FloatArray) -> FloatArray:
        taken = self.paths >= 0
        return np.bincount(self.paths[taken], weights=values[taken], minlength=ways).astype(float)

    def fair_rates(self, capacities: FloatArray) -> FloatArray:
        """Return the max-min fair rate of each flow [bytes/s] for the capacity of each way [bytes/s].

        Notes
        -----
        Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2); every way whose share is the least that any
        of its flows sees is filled in the same step, which is the same in the end.
        """
        rates = np.full(len(self.paths), np.nan)
        while np.isnan(rates).any():
            active = np.isnan(rates)
            given = self.carried(len(capacities), np.where(active | np.isinf(rates), 0.0, rates))
            left = capacities - given
            counts = self.carried(len(capacities), active.astype(float))
            shares = np.where(counts > 0, np.maximum(left, 0.0) / np.maximum(counts, 1), np.inf)
            seen = np.append(shares, np.inf)[self.paths]
            least = seen.min(axis=1)
            contested = np.zeros(len(capacities), dtype=bool)
            flows, hops = np.nonzero((self.paths >= 0) & active[:, None])
            ways = self.paths[flows, hops]
            contested[ways[least[flows] < shares[ways] * (1 - 1e-12)]] = True
            is_free = np.append(contested, True)[self.paths]
            held = active & ((seen <= least[:, None] * (1 + 1e-12)) & ~is_free).any(axis=1)
            rates[held] = least[held]
        return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A way that was full.

    Attributes
    ----------
    load, way : int
        Of which load, and which way.
    flows, held : array of int
        The flows on the way, and those of them that it held back.
    common, beside : frozenset of int
        Links that were full as well: on the path of every flow that was held back, and of any of them.
    """

    load: int
    way: int
    flows: IntArray
    held: IntArray
    common: frozenset[int]
    beside: frozenset[int]

    @property
    def link(self) -> int:
        """Return the link that the way leads over."""
        return self.way // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """What the model says of every link.

    Attributes
    ----------
    capacities : array of float, links
        Rate of each link [bytes/s], NaN where no flow crossed it.
    evidence : tuple of Evidence
    is_bound : array of bool, links
        The link was never what held flows back, so its rate is the least that it can carry.
    ties : tuple of tuple of int
        For each link those that were full whenever it was, and the other way round: one of them is slow.
    """

    capacities: FloatArray
    evidence: tuple[Evidence, ...]
    is_bound: npt.NDArray[np.bool_]
    ties: tuple[tuple[int, ...], ...]


def fit_links(loads: Sequence[Load], times_s: Sequence[FloatArray], classes: Sequence[str]) -> LinkFit:
    """Return the capacities of links that explain how long flows took.

    Parameters
    ----------
    loads : sequence of Load
    times_s : sequence of array of float
        For each load the time of each flow in seconds, samples × flows.
    classes : sequence of str
        The class of each link. Of two links of one class that meet on a path the slower is told by it; the fastest of
        all may be faster than any flow shows.
    """
    nways = 2 * len(classes)
    rates = [load.volume_bytes / np.median(times, axis=0) for load, times in zip(loads, times_s, strict=True)]
    carried = [load.carried(nways, own) for load, own in zip(loads, rates, strict=True)]
    crossed = sum((load.carried(nways, np.ones(len(load.paths))) for load in loads), np.zeros(nways))
    floor = _by_link(np.max([_surely(load, times, nways) for load, times in zip(loads, times_s, strict=True)], axis=0))
    capacities = floor.copy()
    evidence: tuple[Evidence, ...] = ()
    for _ in range(_ITERATIONS):
        found = tuple(_full_ways(loads, np.repeat(capacities, 2)))
        updated = _updated(found, loads, times_s, floor)
        evidence, settled = found, np.allclose(updated, capacities, rtol=1e-6)
        capacities = updated
        if settled:
            break
    ties = _ties(evidence, len(classes))
    is_bound = _bounds(loads, carried, evidence, capacities, ties, classes)
    capacities[_by_link(crossed) == 0] = np.nan
    return LinkFit(capacities=capacities, evidence=evidence, is_bound=is_bound, ties=ties)


def _by_link(by_way: FloatArray) -> FloatArray:
    return np.maximum(by_way[::2], by_way[1::2])


def _surely(load: Load, times: FloatArray, nways: int) -> FloatArray:
    """Return what each way surely carried: all that crossed it until the last of its flows had ended."""
    total = load.volume_bytes * load.carried(nways, np.ones(len(load.paths)))
    taken = load.paths >= 0
    last = np.zeros((len(times), nways))
    for sample, row in enumerate(times):
        np.maximum.at(last[sample], load.paths[taken], np.broadcast_to(row[:, None], load.paths.shape)[taken])
    typical = np.median(last, axis=0)
    return np.divide(total, typical, out=np.zeros(nways), where=typical > 0)


def _full_ways(loads: Sequence[Load], capacities: FloatArray) -> list[Evidence]:
    found = []
    for number, load in enumerate(loads):
        rates = load.fair_rates(capacities)
        is_full = (load.carried(len(capacities), rates) >= FULL * capacities) & (capacities > 0)
        on_full = np.append(is_full, False)[load.paths]
        for way in np.flatnonzero(is_full).tolist():
            flows = np.flatnonzero((load.paths == way).any(axis=1))
            held = flows[rates[flows] >= FULL * rates[flows].max()]
            links = [frozenset((load.paths[flow][on_full[flow]] // 2).tolist()) for flow in held.tolist()]
            common, beside = frozenset.intersection(*links), frozenset.union(*links)
            found.append(Evidence(load=number, way=way, flows=flows, held=held, common=common, beside=beside))
    return found


def seen_rates(evidence: Evidence, load: Load, times_s: FloatArray) -> FloatArray:
    """Return for each sample what a full way carried [bytes/s] until the last flow that it held back had ended."""
    end = times_s[:, evidence.held].max(axis=1)
    moved = load.volume_bytes * np.minimum(1.0, end[:, None] / times_s[:, evidence.flows]).sum(axis=1)
    rates: FloatArray = moved / end
    return rates


def _updated(
    found: Sequence[Evidence], loads: Sequence[Load], times_s: Sequence[FloatArray], floor: FloatArray
) -> FloatArray:
    seen: dict[int, list[FloatArray]] = {}
    for each in found:
        seen.setdefault(each.link, []).append(seen_rates(each, loads[each.load], times_s[each.load]))
    capacities = floor.copy()
    for link, rates in seen.items():
        capacities[link] = np.median(np.concatenate(rates))
    return capacities


def _ties(evidence: Sequence[Evidence], nlinks: int) -> tuple[tuple[int, ...], ...]:
    always: dict[int, frozenset[int]] = {}
    for each in evidence:
        always[each.link] = always.get(each.link, each.common) & each.common
    return tuple(
        tuple(sorted(other for other in always.get(link, ()) if other != link and link in always.get(other, ())))
        for link in range(nlinks)
    )


def _bounds(
    loads: Sequence[Load],
    carried: Sequence[FloatArray],
    evidence: Sequence[Evidence],
    capacities: FloatArray,
    ties: Sequence[Sequence[int]],
    classes: Sequence[str],
) -> npt.NDArray[np.bool_]:
    """Return the links that held no flow back: without them and their like, the flows would not have been faster.

    Their like are the links that were full whenever they were, and those of their class that are as fast or faster.
    """
    is_bound = np.ones(len(capacities), dtype=bool)
    for each in evidence:
        if is_bound[each.link]:
            own = capacities[each.link]
            like = [link for link in each.beside if classes[link] == classes[each.link] and capacities[link] >= own]
            without = capacities.copy()
            without[[each.link, *ties[each.link], *like]] = np.inf
            free = loads[each.load].fair_rates(np.repeat(without, 2))[each.flows].sum()
            is_bound[each.link] = free < TELLING * carried[each.load][each.way]
    return is_bound

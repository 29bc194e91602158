"""When and where a job that cannot start now will be able to, if all that runs ends as expected."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from spanfit.queue.model.nodes import NodeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Nodes that are taken for a time to come.

    Attributes
    ----------
    nodes : int
        A NodeSet.
    start_s, end_s : float
        Unix time [s].
    """

    nodes: NodeSet
    start_s: float
    end_s: float


Ends = Sequence[tuple[float, NodeSet]]
"""When running jobs are expected to end, soonest first, with the nodes that they leave."""


class Timeline:
    """Which nodes are free from when on, as far as it is known.

    Parameters
    ----------
    now_s : float
        Unix time [s].
    free : int
        Nodes free now, a NodeSet.
    ends : Ends
    windows : iterable of Window
        What takes nodes again.
    """

    def __init__(self, now_s: float, free: NodeSet, ends: Ends, windows: Iterable[Window]) -> None:
        self.times, self.free = [now_s], [free]
        for end_s, nodes in ends:
            if end_s == math.inf:
                break
            free |= nodes
            if end_s == self.times[-1]:
                self.free[-1] = free
            else:
                self.times.append(end_s)
                self.free.append(free)
        self.counts = [each.bit_count() for each in self.free]
        for window in windows:
            self.take(window)

    def take(self, window: Window) -> None:
        """Have nodes taken over a window."""
        first = self._cut(window.start_s)
        last = self._cut(window.end_s) if window.end_s < math.inf else len(self.times)
        kept = ~window.nodes
        left = [free & kept for free in self.free[first:last]]
        self.free[first:last] = left
        self.counts[first:last] = map(int.bit_count, left)

    def _cut(self, at_s: float) -> int:
        """Have a stretch of time begin at a moment, and return its place; what is before now begins now."""
        place = bisect_left(self.times, at_s)
        if place and (place == len(self.times) or self.times[place] != at_s):
            self.times.insert(place, at_s)
            self.free.insert(place, self.free[place - 1])
            self.counts.insert(place, self.counts[place - 1])
        return place

    def earliest(self, nnodes: int, lasts_s: float, usable: NodeSet) -> tuple[float, NodeSet]:
        """Return the earliest time at which enough nodes stay free for long enough, and all such nodes.

        Infinity and no nodes where that time does not come.
        """
        times, counts, place = self.times, self.counts, 0
        while True:
            place = next((each for each in range(place, len(times)) if counts[each] >= nnodes), len(times))
            if place == len(times):
                return math.inf, 0
            last = bisect_right(times, times[place] + lasts_s)
            short = next((each for each in range(place + 1, last) if counts[each] < nnodes), None)
            if short is None:
                left = reduce(and_, self.free[place:last], usable)
                if left.bit_count() >= nnodes:
                    return times[place], left
            place = place + 1 if short is None else short + 1


def overlapping(windows: Iterable[Window], start_s: float, end_s: float) -> NodeSet:
    """Return the nodes of the windows that overlap a time, or begin when it ends: what is predicted may be late."""
    nodes = 0
    for window in windows:
        if window.start_s <= end_s and start_s < window.end_s:
            nodes |= window.nodes
    return nodes


def lowest(nodes: NodeSet, count: int) -> NodeSet:
    """Return the ``count`` lowest nodes of a set, all of them where it has fewer.

    >>> bin(lowest(0b110101, 2))
    '0b101'
    """
    if count <= 0:
        return 0
    if nodes.bit_count() <= count:
        return nodes
    low, high = 0, nodes.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if (nodes & ((1 << middle) - 1)).bit_count() < count:
            low = middle
        else:
            high = middle
    return nodes & ((1 << high) - 1)


def prefer(first: NodeSet, nodes: NodeSet, count: int) -> NodeSet:
    """Return ``count`` nodes of a set, those of ``first`` before others."""
    wanted = lowest(nodes & first, count)
    return wanted | lowest(nodes & ~first, count - wanted.bit_count())

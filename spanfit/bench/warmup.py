"""Warming up: an operation is run until its time settles, at most so often and so long; all ranks stop together."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from time import perf_counter

WINDOW = 3
TOLERANCE = 0.10
ENOUGH_S = 0.2
"""A warm-up that has lasted so long is over, though too few iterations fit in to judge it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How an operation was warmed up.

    Attributes
    ----------
    iterations : int
    is_stable : bool
        Whether its time had settled; False where the most iterations or seconds allowed came first.
    time_s : float
        Of the slowest rank, the median of the last iterations [s]; NaN where there was none.
    """

    iterations: int
    is_stable: bool
    time_s: float


def is_stable(times_s: Sequence[float]) -> bool:
    """Return whether the median of the last three is within 10% of the median of the three before."""
    if len(times_s) < 2 * WINDOW:
        return False
    before, last = median(times_s[-2 * WINDOW : -WINDOW]), median(times_s[-WINDOW:])
    return abs(last - before) <= TOLERANCE * before


def warm_up(
    runs: Sequence[Callable[[], object]],
    barrier: Callable[[], None],
    slowest: Callable[[list[float]], list[float]],
    most: int,
) -> WarmUp:
    """Run an operation, on its buffer sets in turn, until it is warm; every rank of the world calls this.

    Parameters
    ----------
    runs : sequence of callable
        Each ends when the operation has ended on this rank.
    slowest : callable
        Returns the largest of each value over all ranks, so that all decide alike.
    most : int
        Iterations at most; under twice three there is nothing to judge stability by.
    """
    times_s: list[float] = []
    began = perf_counter()
    for run in islice(cycle(runs), most):
        barrier()
        start = perf_counter()
        run()
        end = perf_counter()
        time_s, lasted_s = slowest([end - start, end - began])
        times_s.append(time_s)
        if is_stable(times_s) or lasted_s >= ENOUGH_S:
            break
    last_s = median(times_s[-WINDOW:]) if times_s else math.nan
    return WarmUp(iterations=len(times_s), is_stable=is_stable(times_s), time_s=last_s)

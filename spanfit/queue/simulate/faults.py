"""Failures of nodes for a replay: each node runs and is mended in turn, by a seeded clock of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from spanfit.queue.model.events import NodesDown, NodesUp


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How often nodes fail and how long they are away.

    Attributes
    ----------
    between_s : float
        Mean time in service of a node before it fails, exponential [s].
    repair_s : float
        Mean time out of service, exponential [s].

    Raises
    ------
    ValueError
        If one of them is not positive.
    """

    between_s: float
    repair_s: float

    def __post_init__(self) -> None:
        """Refuse times without which nodes would fail at once for ever."""
        if not (self.between_s > 0 and self.repair_s > 0):
            raise ValueError(f"between_s is {self.between_s}, repair_s is {self.repair_s}; expected both above 0")


def faults(nnodes: int, rates: FaultRates, *, start_s: float, seed: int) -> Iterator[NodesDown | NodesUp]:
    """Yield without end which node leaves or comes back into service, in the order of time.

    Parameters
    ----------
    nnodes : int
        All are in service at ``start_s``.
    rates : FaultRates
    start_s : float
        Unix time [s].
    seed : int
    """
    rng = np.random.default_rng(seed)
    first = (start_s + rng.exponential(rates.between_s, nnodes)).tolist()
    clocks = [(at_s, node, True) for node, at_s in enumerate(first)]
    heapify(clocks)
    while clocks:
        at_s, node, is_up = clocks[0]
        yield NodesDown(at_s=at_s, nodes=1 << node) if is_up else NodesUp(at_s=at_s, nodes=1 << node)
        mean_s = rates.repair_s if is_up else rates.between_s
        heapreplace(clocks, (at_s + float(rng.exponential(mean_s)), node, not is_up))

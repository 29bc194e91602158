"""Nodes for a job whose grid does not matter: from as few minipods as possible."""

from collections.abc import Sequence

from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.model.nodes import Ground, NodeSet, indices


def pack(job: QueueJob, ground: Ground, allowed: NodeSet) -> tuple[int, ...]:
    """Return a job's nodes out of the allowed ones, minipod by minipod; an empty tuple where there are too few."""
    parts = [mask & allowed for mask in ground.masks]
    free = [part.bit_count() for part in parts]
    if sum(free) < job.nnodes:
        return ()
    return tuple(node for minipod, count in fewest(job.nnodes, free) for node in indices(parts[minipod])[:count])


def fewest(nnodes: int, free: Sequence[int]) -> list[tuple[int, int]]:
    """Return (minipod, nodes) in the order of minipods, from as few minipods as possible.

    A job that fits one minipod gets the one with the least room that holds it. Else minipods are used up, the one with
    the most room first, and what is left goes to the one with the least room that holds it.

    >>> fewest(5, (4, 2, 9, 6))
    [(3, 5)]
    >>> fewest(11, (4, 2, 9, 6))
    [(1, 2), (2, 9)]

    Raises
    ------
    ValueError
        If the minipods hold too few nodes.
    """
    left, taken = nnodes, []
    unused = [minipod for minipod, nodes in enumerate(free) if nodes]
    while left:
        enough = [minipod for minipod in unused if free[minipod] >= left]
        if enough:
            taken.append((min(enough, key=free.__getitem__), left))
            break
        largest = max(unused, key=free.__getitem__)
        unused.remove(largest)
        taken.append((largest, free[largest]))
        left -= free[largest]
    return sorted(taken)

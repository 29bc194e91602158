"""The collectives that spanfit measures, their bandwidth factors and the sizes that they really move."""

import math
from enum import StrEnum


class Collective(StrEnum):
    """A communication operation, under the name that torch.distributed gives it."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    ALL_TO_ALL_V = "all_to_all_v"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send_recv"
    SEND = "send"
    EXCHANGE = "exchange"
    HYPERCUBE = "hypercube"
    BARRIER = "barrier"


_SHARED = {
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_TO_ALL,
    Collective.ALL_TO_ALL_V,
    Collective.HYPERCUBE,
    Collective.GATHER,
    Collective.SCATTER,
}


HAS_BOTH_PLACES = {Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.HYPERCUBE}
"""Collectives whose result may overwrite the input or not; torch fixes it for all others."""

REDUCES = {Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER}
"""Collectives that combine values, and so have a redop."""


def misfit(collective: Collective, nranks: int) -> str:
    """Return what a group must have for this collective where ``nranks`` is not that, "" where it fits."""
    if collective is Collective.HYPERCUBE and nranks & (nranks - 1):
        return "2, 4, 8, ... ranks, since it doubles what is known in each step"
    if collective in (Collective.SEND, Collective.EXCHANGE) and nranks % 2:
        return "an even number of ranks, since it works in pairs"
    return ""


def uneven_shares(nranks: int, size_bytes: int, itemsize: int, skew: float) -> tuple[int, ...]:
    """Return the elements that each rank of an all_to_all_v sends to rank 0, 1, ..., the same for every sender.

    Shares fall evenly from rank 0, which receives ``skew`` times the mean (1: even; 2: the last receives nothing), each
    rounded down to 16 bytes. What rank 0 receives of all ranks is ``size_bytes``: the busiest direction of the busiest
    rank, which nccl-tests takes as the size.
    """
    granule = max(1, 16 // itemsize)
    largest = buffer_elements(Collective.ALL_TO_ALL_V, nranks, size_bytes, itemsize)
    weights = [1 - (skew - 1) / skew * 2 * rank / max(1, nranks - 1) for rank in range(nranks)]
    return tuple(int(largest * weight) // granule * granule for weight in weights)


def is_shared(collective: Collective) -> bool:
    """Return whether each rank holds one nranks-th of the buffer, whose whole size is ``size_bytes``."""
    return collective in _SHARED


def busbw_factor(collective: Collective, nranks: int) -> float:
    """Return busbw / algbw for a group of ``nranks`` ranks; NaN for a barrier, which moves nothing.

    Notes
    -----
    The factors of nccl-tests: all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather and scatter
    (n-1)/n; broadcast, reduce and send_recv (a ring: send to rank + 1, receive from rank - 1) 1. all_to_all_v has
    (n-1)/n of what the busiest rank receives. nccl-tests counts S(n-1)/n in the algbw of its hypercube and then takes
    the factor 1; here algbw is S / t for every collective and the factor (n-1)/n, which gives the same busbw. send
    and exchange have 1: what moves in one direction between the two ranks of a pair.
    """
    if collective is Collective.BARRIER:
        return math.nan
    if collective is Collective.ALL_REDUCE:
        return 2 * (nranks - 1) / nranks
    return (nranks - 1) / nranks if is_shared(collective) else 1.0


def busbw(collective: Collective, nranks: int, size_bytes: int, time_s: float) -> float:
    """Return the bus bandwidth [bytes/s] of one operation; ``size_bytes`` is the S of nccl-tests. NaN for a barrier."""
    return size_bytes / time_s * busbw_factor(collective, nranks)


def buffer_elements(collective: Collective, nranks: int, size_bytes: int, itemsize: int) -> int:
    """Return the elements that one rank contributes, a multiple of 16 bytes where ranks share the buffer."""
    count = size_bytes // itemsize
    if not is_shared(collective):
        return count
    granule = max(1, 16 // itemsize)
    return count // nranks // granule * granule


def real_size_bytes(collective: Collective, nranks: int, size_bytes: int, itemsize: int) -> int:
    """Return the whole size that is really moved once shares are rounded down, the size nccl-tests prints."""
    count = buffer_elements(collective, nranks, size_bytes, itemsize)
    return count * itemsize * (nranks if is_shared(collective) else 1)

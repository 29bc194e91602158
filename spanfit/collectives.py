"""The collectives that spanfit measures and their bandwidth factors."""

from enum import StrEnum


class Collective(StrEnum):
    """A communication operation, under the name that torch.distributed gives it."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send_recv"


_SHARED = {
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_TO_ALL,
    Collective.GATHER,
    Collective.SCATTER,
}


HAS_BOTH_PLACES = {Collective.ALL_GATHER, Collective.REDUCE_SCATTER}
"""Collectives whose result may overwrite the input or not; torch fixes it for all others."""


def is_shared(collective: Collective) -> bool:
    """Return whether each rank holds one nranks-th of the buffer, whose whole size is ``size_bytes``."""
    return collective in _SHARED


def busbw_factor(collective: Collective, nranks: int) -> float:
    """Return busbw / algbw for a group of ``nranks`` ranks.

    Notes
    -----
    The factors of nccl-tests: all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather and scatter
    (n-1)/n; broadcast, reduce and send_recv (a ring: send to rank + 1, receive from rank - 1) 1.
    """
    if collective is Collective.ALL_REDUCE:
        return 2 * (nranks - 1) / nranks
    return (nranks - 1) / nranks if is_shared(collective) else 1.0


def busbw(collective: Collective, nranks: int, size_bytes: int, time_s: float) -> float:
    """Return the bus bandwidth [bytes/s] of one operation; ``size_bytes`` is the S of nccl-tests."""
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

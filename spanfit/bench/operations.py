"""Collectives on buffers: each prepared once, then called in the timed loop, and checked outside it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from spanfit.collectives import Collective, buffer_elements, is_shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A collective that is ready to run.

    Attributes
    ----------
    run : callable
        Runs it once; on GPUs it only enqueues.
    fill : callable
        Gives the buffers values from which the result follows.
    holds : callable
        Returns whether this rank's result is what arithmetic says, after ``fill`` and ``run``.
    """

    run: Callable[[], object]
    fill: Callable[[], object]
    holds: Callable[[], bool]

    def is_right(self) -> bool:
        """Fill the buffers, run once and return whether the result is right."""
        self.fill()
        self.run()
        return self.holds()


def prepare(
    collective: Collective,
    group: dist.ProcessGroup,
    ranks: tuple[int, ...],
    size_bytes: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    in_place: bool = False,
) -> Prepared:
    """Return a collective over the world ranks ``ranks`` of ``group``, of which this process is one."""
    me, n = ranks.index(dist.get_rank()), len(ranks)
    count = buffer_elements(collective, n, size_bytes, dtype.itemsize)
    mine = torch.zeros(count, dtype=dtype, device=device)
    if is_shared(collective):
        return _prepare_shared(collective, group, ranks, me, mine, in_place=in_place)
    return _prepare_whole(collective, group, ranks, me, mine)


def _prepare_whole(
    collective: Collective, group: dist.ProcessGroup, ranks: tuple[int, ...], me: int, mine: torch.Tensor
) -> Prepared:
    """Return a collective in which every rank holds the whole buffer."""
    n, root = len(ranks), ranks[0]
    total = n * (n + 1) // 2
    match collective:
        case Collective.ALL_REDUCE:
            return Prepared(
                run=lambda: dist.all_reduce(mine, group=group),
                fill=lambda: mine.fill_(me + 1),
                holds=lambda: _is_all(mine, total),
            )
        case Collective.REDUCE:
            return Prepared(
                run=lambda: dist.reduce(mine, dst=root, group=group),
                fill=lambda: mine.fill_(me + 1),
                holds=lambda: me != 0 or _is_all(mine, total),
            )
        case Collective.BROADCAST:
            return Prepared(
                run=lambda: dist.broadcast(mine, src=root, group=group),
                fill=lambda: mine.fill_(n if me == 0 else 0),
                holds=lambda: _is_all(mine, n),
            )
    received = torch.zeros_like(mine)
    return Prepared(
        run=lambda: _pass_on(mine, received, ranks, me, group),
        fill=lambda: mine.fill_(me + 1),
        holds=lambda: _is_all(received, (me - 1) % n + 1),
    )


def _prepare_shared(
    collective: Collective,
    group: dist.ProcessGroup,
    ranks: tuple[int, ...],
    me: int,
    mine: torch.Tensor,
    *,
    in_place: bool,
) -> Prepared:
    """Return a collective in which every rank holds one share of the buffer on one side."""
    n, root = len(ranks), ranks[0]
    whole = mine.new_zeros(mine.numel() * n)
    shares = _slices(whole, n)
    mine = shares[me] if in_place else mine
    match collective:
        case Collective.ALL_GATHER:
            return Prepared(
                run=lambda: dist.all_gather(shares, mine, group=group),
                fill=lambda: mine.fill_(me + 1),
                holds=lambda: _are(shares, range(1, n + 1)),
            )
        case Collective.REDUCE_SCATTER:
            return Prepared(
                run=lambda: dist.reduce_scatter(mine, shares, group=group),
                fill=lambda: whole.fill_(me + 1),
                holds=lambda: _is_all(mine, n * (n + 1) // 2),
            )
        case Collective.GATHER:
            return Prepared(
                run=lambda: dist.gather(mine, shares if me == 0 else None, dst=root, group=group),
                fill=lambda: mine.fill_(me + 1),
                holds=lambda: me != 0 or _are(shares, range(1, n + 1)),
            )
        case Collective.SCATTER:
            return Prepared(
                run=lambda: dist.scatter(mine, shares if me == 0 else None, src=root, group=group),
                fill=lambda: _fill(shares, range(1, n + 1)),
                holds=lambda: _is_all(mine, me + 1),
            )
    received = torch.zeros_like(whole)
    return Prepared(
        run=lambda: dist.all_to_all_single(received, whole, group=group),
        fill=lambda: _fill(shares, range(me * n, me * n + n)),
        holds=lambda: _are(_slices(received, n), range(me, n * n, n)),
    )


def _slices(whole: torch.Tensor, n: int) -> list[torch.Tensor]:
    size = whole.numel() // n
    return [whole[rank * size : (rank + 1) * size] for rank in range(n)]


def _pass_on(
    sent: torch.Tensor, received: torch.Tensor, ranks: tuple[int, ...], me: int, group: dist.ProcessGroup
) -> None:
    """Send to the next rank and receive from the previous one at once, as nccl-tests' sendrecv does."""
    transfers = [
        dist.P2POp(dist.isend, sent, ranks[(me + 1) % len(ranks)], group),
        dist.P2POp(dist.irecv, received, ranks[(me - 1) % len(ranks)], group),
    ]
    for work in dist.batch_isend_irecv(transfers):
        work.wait()


def _is_all(tensor: torch.Tensor, value: int) -> bool:
    return bool((tensor == value).all().item())


def _are(shares: Iterable[torch.Tensor], values: Iterable[int]) -> bool:
    return all(_is_all(share, value) for share, value in zip(shares, values, strict=True))


def _fill(shares: Iterable[torch.Tensor], values: Iterable[int]) -> None:
    for share, value in zip(shares, values, strict=True):
        share.fill_(value)

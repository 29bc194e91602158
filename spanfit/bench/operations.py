"""Collectives on buffers: each prepared once, then called in the timed loop, and checked outside it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from spanfit.bench.prepared import Prepared
from spanfit.bench.values import contribution, mark, reduced
from spanfit.collectives import Collective, buffer_elements, uneven_shares

Allocate = Callable[[int], torch.Tensor]
"""Gives a buffer of so many elements, whose values are of no account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where this process sits in a group: its group rank among the world ranks of the others.

    With ``is_async`` the operations of a training step only start, and what they return is to be waited for.
    """

    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    me: int
    is_async: bool = False

    @property
    def n(self) -> int:
        """Return the size of the group."""
        return len(self.ranks)

    def other(self, offset: int) -> int:
        """Return the world rank that sits so many places further, round the ring."""
        return self.ranks[(self.me + offset) % self.n]


def prepare(
    collective: Collective,
    group: dist.ProcessGroup,
    ranks: tuple[int, ...],
    size_bytes: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    in_place: bool = False,
    redop: str = "sum",
    skew: float = 1.0,
    allocate: Allocate | None = None,
) -> Prepared:
    """Return a collective over the world ranks ``ranks`` of ``group``, of which this process is one.

    Parameters
    ----------
    redop : str
        Of collectives that reduce; no other heeds it.
    skew : float
        Of all_to_all_v, see :func:`spanfit.collectives.uneven_shares`.
    allocate : callable, optional
        Where buffers come from; fresh memory unless said.
    """

    def fresh(count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    take = allocate or fresh
    seat = Seat(group=group, ranks=ranks, me=ranks.index(dist.get_rank()))
    count = buffer_elements(collective, seat.n, size_bytes, dtype.itemsize)
    match collective:
        case Collective.BARRIER:
            devices = [device.index] if device.type == "cuda" else None
            return Prepared(
                run=lambda: dist.barrier(group=group, device_ids=devices), fill=lambda: None, holds=lambda: True
            )
        case Collective.ALL_TO_ALL | Collective.ALL_TO_ALL_V:
            is_uneven = collective is Collective.ALL_TO_ALL_V
            shares = uneven_shares(seat.n, size_bytes, dtype.itemsize, skew if is_uneven else 1.0)
            return _prepare_all_to_all(seat, shares, take, is_uneven=is_uneven)
        case Collective.HYPERCUBE:
            return _prepare_hypercube(seat, take, count, in_place=in_place)
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.GATHER | Collective.SCATTER:
            return _prepare_shared(collective, seat, take, count, redop, in_place=in_place)
        case Collective.SEND_RECV | Collective.SEND | Collective.EXCHANGE:
            return _prepare_point_to_point(collective, seat, take(count), take(count))
    return _prepare_whole(collective, seat, take(count), redop)


def prepare_start(collective: Collective, seat: Seat, count: int, take: Allocate) -> Prepared:
    """Return a collective of a training step, of exactly ``count`` elements (nccl-tests' S), that ``run`` starts.

    Raises
    ------
    ValueError
        If training steps do not call this collective.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return _prepare_whole(collective, seat, take(count), "sum")
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            return _prepare_shared(collective, seat, take, count // seat.n, "sum", in_place=False)
        case Collective.ALL_TO_ALL:
            return _prepare_all_to_all(seat, [count // seat.n] * seat.n, take, is_uneven=False)
    raise ValueError(f"training steps call no {collective}")


def _operator(redop: str) -> dist.ReduceOp:
    operator: dist.ReduceOp = getattr(dist.ReduceOp, redop.upper())
    return operator


def _prepare_whole(collective: Collective, seat: Seat, mine: torch.Tensor, redop: str) -> Prepared:
    """Return a collective in which every rank holds the whole buffer."""
    root = seat.ranks[0]
    if collective is Collective.BROADCAST:
        return Prepared(
            run=lambda: dist.broadcast(mine, src=root, group=seat.group),
            fill=lambda: mine.fill_(mark(seat.n) if seat.me == 0 else 0),
            holds=lambda: _is_all(mine, mark(seat.n)),
        )
    operator = _operator(redop)
    fill = lambda: mine.fill_(contribution(redop, seat.me))  # noqa: E731
    if collective is Collective.REDUCE:
        return Prepared(
            run=lambda: dist.reduce(mine, dst=root, op=operator, group=seat.group),
            fill=fill,
            holds=lambda: seat.me != 0 or _is_reduced(mine, redop, seat.n),
        )
    return Prepared(
        run=lambda: dist.all_reduce(mine, op=operator, group=seat.group, async_op=seat.is_async),
        fill=fill,
        holds=lambda: _is_reduced(mine, redop, seat.n),
    )


def _prepare_shared(
    collective: Collective, seat: Seat, take: Allocate, count: int, redop: str, *, in_place: bool
) -> Prepared:
    """Return a collective in which every rank holds one share of the buffer on one side."""
    n, me, root, group = seat.n, seat.me, seat.ranks[0], seat.group
    whole = take(count * n)
    shares = _slices(whole, [count] * n)
    mine = shares[me] if in_place else take(count)
    marks = [mark(rank) for rank in range(n)]
    match collective:
        case Collective.ALL_GATHER:
            return Prepared(
                run=lambda: dist.all_gather(shares, mine, group=group, async_op=seat.is_async),
                fill=lambda: (whole.zero_(), mine.fill_(mark(me))),
                holds=lambda: _are(shares, marks),
            )
        case Collective.REDUCE_SCATTER:
            operator = _operator(redop)
            return Prepared(
                run=lambda: dist.reduce_scatter(mine, shares, op=operator, group=group, async_op=seat.is_async),
                fill=lambda: (mine.zero_(), whole.fill_(contribution(redop, me))),
                holds=lambda: _is_reduced(mine, redop, n),
            )
        case Collective.GATHER:
            return Prepared(
                run=lambda: dist.gather(mine, shares if me == 0 else None, dst=root, group=group),
                fill=lambda: (whole.zero_(), mine.fill_(mark(me))),
                holds=lambda: me != 0 or _are(shares, marks),
            )
    return Prepared(
        run=lambda: dist.scatter(mine, shares if me == 0 else None, src=root, group=group),
        fill=lambda: (mine.zero_(), _fill(shares, marks)),
        holds=lambda: _is_all(mine, mark(me)),
    )


def _prepare_all_to_all(seat: Seat, shares: Sequence[int], take: Allocate, *, is_uneven: bool) -> Prepared:
    n, me = seat.n, seat.me
    sent, received = take(sum(shares)), take(shares[me] * n)
    parts = _slices(sent, shares)
    arrived = _slices(received, [shares[me]] * n)
    incoming, outgoing = ([shares[me]] * n, list(shares)) if is_uneven else (None, None)
    return Prepared(
        run=lambda: dist.all_to_all_single(received, sent, incoming, outgoing, seat.group, seat.is_async),
        fill=lambda: (received.zero_(), _fill(parts, [mark(me * n + rank) for rank in range(n)])),
        holds=lambda: _are(arrived, [mark(rank * n + me) for rank in range(n)]),
    )


def _prepare_hypercube(seat: Seat, take: Allocate, count: int, *, in_place: bool) -> Prepared:
    """Return an all-gather by pairwise doubling, as nccl-tests' hypercube does it; the group is a power of two."""
    whole = take(count * seat.n)
    shares = _slices(whole, [count] * seat.n)
    mine = shares[seat.me] if in_place else take(count)
    steps, mask = [], 1
    while mask < seat.n:
        peer = seat.me ^ mask
        known, wanted = (start // mask * mask * count for start in (seat.me, peer))
        size = mask * count
        steps.append(
            [
                dist.P2POp(dist.isend, whole[known : known + size], seat.ranks[peer], seat.group),
                dist.P2POp(dist.irecv, whole[wanted : wanted + size], seat.ranks[peer], seat.group),
            ]
        )
        mask *= 2

    def run() -> None:
        if not in_place:
            shares[seat.me].copy_(mine)
        for transfers in steps:
            _move(transfers)

    return Prepared(
        run=run,
        fill=lambda: (whole.zero_(), mine.fill_(mark(seat.me))),
        holds=lambda: _are(shares, [mark(rank) for rank in range(seat.n)]),
    )


def _prepare_point_to_point(collective: Collective, seat: Seat, sent: torch.Tensor, received: torch.Tensor) -> Prepared:
    """Return a ring (send_recv, as in nccl-tests), or pairs of rank i with i + n/2, one way (send) or both (exchange).

    A group over two minipods in sorted order has every pair cross between them.
    """
    half, n, me = seat.n // 2, seat.n, seat.me
    to, source = (1, -1) if collective is Collective.SEND_RECV else (half, half)
    sends = collective is not Collective.SEND or me < half
    receives = collective is not Collective.SEND or me >= half
    transfers = []
    if sends:
        transfers.append(dist.P2POp(dist.isend, sent, seat.other(to), seat.group))
    if receives:
        transfers.append(dist.P2POp(dist.irecv, received, seat.other(source), seat.group))
    return Prepared(
        run=lambda: _move(transfers),
        fill=lambda: (received.zero_(), sent.fill_(mark(me))),
        holds=lambda: not receives or _is_all(received, mark((me + source) % n)),
    )


def _move(transfers: list[dist.P2POp]) -> None:
    """Start transfers at once and wait for them all."""
    for work in dist.batch_isend_irecv(transfers):
        work.wait()


def _slices(whole: torch.Tensor, sizes: Iterable[int]) -> list[torch.Tensor]:
    return list(torch.split(whole, list(sizes)))


def _is_all(tensor: torch.Tensor, value: float, slack: float = 0.0) -> bool:
    """Return whether every element is ``value`` as the dtype holds it, or within ``slack`` of it as a share."""
    expected = torch.tensor(value).to(tensor.dtype)
    if not slack:
        return bool((tensor == expected.to(tensor.device)).all().item())
    return bool(((tensor.double() - value).abs() <= slack * abs(value)).all().item())


def _is_reduced(tensor: torch.Tensor, redop: str, n: int) -> bool:
    """Return whether a reduction is right: exactly, unless the dtype cannot hold it so."""
    value, slack = reduced(redop, n), 0.0
    if tensor.dtype.is_floating_point:
        epsilon = torch.finfo(tensor.dtype).eps
        slack = n * epsilon if redop == "avg" or value * epsilon > 1 else 0.0
    return _is_all(tensor, value, slack)


def _are(shares: Iterable[torch.Tensor], values: Iterable[int]) -> bool:
    return all(_is_all(share, value) for share, value in zip(shares, values, strict=True))


def _fill(shares: Iterable[torch.Tensor], values: Iterable[int]) -> list[torch.Tensor]:
    return [share.fill_(value) for share, value in zip(shares, values, strict=True)]

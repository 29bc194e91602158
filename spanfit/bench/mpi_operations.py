"""Collectives over MPI buffers: each prepared once, then called in the timed loop, and checked outside it."""

from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import mpi4py

from spanfit.bench.case import BenchCase
from spanfit.bench.prepared import Prepared, Ring
from spanfit.bench.rotation import aligned, layout
from spanfit.bench.values import contribution, mark, reduced
from spanfit.collectives import Collective, buffer_elements, is_shared, uneven_shares

mpi4py.rc.threads = False  # one thread: no locks in what is timed
_began = perf_counter()
from mpi4py import MPI as MPI  # noqa: E402

INIT_S = perf_counter() - _began
"""What it took to load and to initialise MPI [s]."""

TYPES = {
    "float32": ("f", MPI.FLOAT),
    "float64": ("d", MPI.DOUBLE),
    "int8": ("b", MPI.INT8_T),
    "uint8": ("B", MPI.UINT8_T),
    "int32": ("i", MPI.INT32_T),
    "int64": ("q", MPI.INT64_T),
}
REDOPS = {"sum": MPI.SUM, "product": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}

Allocate = Callable[[int], memoryview]
"""Gives so many bytes of memory, whose values are of no account."""


class Buffer:
    """Elements of one type in one piece of memory, in shares."""

    def __init__(self, dtype: str, counts: Sequence[int], allocate: Allocate) -> None:
        self.code, self.type = TYPES[dtype]
        self.counts = tuple(counts)
        nbytes = sum(counts) * array(self.code).itemsize
        self.memory: memoryview[Any] = allocate(nbytes).cast(self.code)  # type: ignore[call-overload]

    def fill(self, *values: float) -> None:
        """Give each share its value, or all of them the only one."""
        self.memory[:] = self._of(values)

    def holds(self, *values: float) -> bool:
        """Return whether each share has its value everywhere, to the bit: the values are small whole numbers."""
        return self.memory.tobytes() == self._of(values).tobytes()

    def starts_with(self, count: int, value: float) -> bool:
        """Return whether the first ``count`` elements are of this value."""
        return self.memory[:count].tobytes() == self._repeat(value, count).tobytes()

    def _of(self, values: tuple[float, ...]) -> "array[float]":
        whole: array[float] = array(self.code)
        each = values * len(self.counts) if len(values) == 1 else values
        for count, value in zip(self.counts, each, strict=True):
            whole += self._repeat(value, count)
        return whole

    def _repeat(self, value: float, count: int) -> "array[float]":
        # All values are whole numbers, which floats take as well as integers.
        one: array[float] = array(self.code, [int(value)])
        return one * count

    def part(self, first: int, count: int) -> tuple[memoryview, MPI.Datatype]:
        """Return ``count`` elements from ``first`` on as mpi4py takes them."""
        return self.memory[first : first + count], self.type

    def whole(self) -> tuple[memoryview, MPI.Datatype]:
        """Return the buffer as mpi4py takes it."""
        return self.memory, self.type

    def uneven(self) -> tuple[memoryview, tuple[tuple[int, ...], None], MPI.Datatype]:
        """Return the buffer as mpi4py takes it where shares differ."""
        return self.memory, (self.counts, None), self.type


class Arena:
    """Memory of a rank that all its cases share, so that a case costs no allocation.

    Parameters
    ----------
    rotation_bytes : int
        What the buffer sets of an operation exceed together; 0 gives one set.
    """

    def __init__(self, rotation_bytes: int) -> None:
        self.rotation_bytes = rotation_bytes
        self._memory = memoryview(bytearray())

    def ring(self, case: BenchCase, comm: MPI.Comm) -> Ring:
        """Return the collective of a case on as many buffer sets as exceed ``rotation_bytes``."""
        sizes: list[int] = []

        def count(nbytes: int) -> memoryview:
            sizes.append(aligned(nbytes))
            return memoryview(bytearray(nbytes))

        prepare(case, comm, count)
        nsets, stride = layout(sum(sizes), self.rotation_bytes)
        if len(self._memory) < nsets * stride:
            self._memory = memoryview(bytearray(nsets * stride))
        return Ring(sets=tuple(prepare(case, comm, self._taker(index * stride)) for index in range(nsets)))

    def _taker(self, start: int) -> Allocate:
        offset = start

        def take(nbytes: int) -> memoryview:
            nonlocal offset
            first, offset = offset, offset + aligned(nbytes)
            return self._memory[first : first + nbytes]

        return take


def prepare(case: BenchCase, comm: MPI.Comm, allocate: Allocate) -> Prepared:
    """Return the collective of a case over a communicator that this process belongs to."""
    collective, n = Collective(case.operation), comm.size
    itemsize = array(TYPES[case.dtype][0]).itemsize
    count = buffer_elements(collective, n, case.size_bytes, itemsize)

    def buffer(*counts: int) -> Buffer:
        return Buffer(case.dtype, counts, allocate)

    match collective:
        case Collective.BARRIER:
            return Prepared(run=comm.Barrier, fill=lambda: None, holds=lambda: True)
        case Collective.ALL_TO_ALL | Collective.ALL_TO_ALL_V:
            is_uneven = collective is Collective.ALL_TO_ALL_V
            shares = uneven_shares(n, case.size_bytes, itemsize, case.skew if is_uneven else 1.0)
            sent, received = buffer(*shares), buffer(*[shares[comm.rank]] * n)
            return _prepare_all_to_all(comm, sent, received, is_uneven=is_uneven)
        case Collective.SEND_RECV | Collective.SEND | Collective.EXCHANGE:
            return _prepare_point_to_point(collective, comm, buffer(count), buffer(count))
        case Collective.HYPERCUBE:
            return _prepare_hypercube(comm, None if case.in_place else buffer(count), buffer(*[count] * n))
    if is_shared(collective):
        return _prepare_shared(case, comm, buffer(count), buffer(*[count] * n))
    return _prepare_whole(case, comm, buffer(count))


def _prepare_whole(case: BenchCase, comm: MPI.Comm, mine: Buffer) -> Prepared:
    """Return a collective in which every rank holds the whole buffer."""
    n, me = comm.size, comm.rank
    if case.operation == Collective.BROADCAST:
        return Prepared(
            run=lambda: comm.Bcast(mine.whole()),
            fill=lambda: mine.fill(mark(n) if me == 0 else 0),
            holds=lambda: mine.holds(mark(n)),
        )
    redop, given, total = REDOPS[case.redop], contribution(case.redop, me), reduced(case.redop, n)
    if case.operation == Collective.ALL_REDUCE:
        return Prepared(
            run=lambda: comm.Allreduce(MPI.IN_PLACE, mine.whole(), redop),
            fill=lambda: mine.fill(given),
            holds=lambda: mine.holds(total),
        )
    sent, received = (MPI.IN_PLACE, mine.whole()) if me == 0 else (mine.whole(), None)
    return Prepared(
        run=lambda: comm.Reduce(sent, received, redop),
        fill=lambda: mine.fill(given),
        holds=lambda: me != 0 or mine.holds(total),
    )


def _prepare_shared(case: BenchCase, comm: MPI.Comm, mine: Buffer, whole: Buffer) -> Prepared:
    """Return a collective in which every rank holds one share of the buffer on one side."""
    n, me, root = comm.size, comm.rank, comm.rank == 0
    marks = [mark(rank) for rank in range(n)]

    def fill_own() -> None:
        mine.fill(mark(me))
        whole.fill(*(value if rank == me else 0 for rank, value in enumerate(marks)))

    match Collective(case.operation):
        case Collective.ALL_GATHER:
            sent = MPI.IN_PLACE if case.in_place else mine.whole()
            return Prepared(
                run=lambda: comm.Allgather(sent, whole.whole()), fill=fill_own, holds=lambda: whole.holds(*marks)
            )
        case Collective.REDUCE_SCATTER:
            source, target = (MPI.IN_PLACE, whole) if case.in_place else (whole.whole(), mine)
            return Prepared(
                run=lambda: comm.Reduce_scatter_block(source, target.whole(), REDOPS[case.redop]),
                fill=lambda: whole.fill(contribution(case.redop, me)),
                holds=lambda: target.starts_with(mine.counts[0], reduced(case.redop, n)),
            )
        case Collective.GATHER:
            return Prepared(
                run=lambda: comm.Gather(mine.whole(), whole.whole() if root else None),
                fill=fill_own,
                holds=lambda: not root or whole.holds(*marks),
            )
    return Prepared(
        run=lambda: comm.Scatter(whole.whole() if root else None, mine.whole()),
        fill=lambda: whole.fill(*marks),
        holds=lambda: mine.holds(mark(me)),
    )


def _prepare_all_to_all(comm: MPI.Comm, sent: Buffer, received: Buffer, *, is_uneven: bool) -> Prepared:
    """Return an all-to-all in which every rank sends share i to rank i."""
    n, me = comm.size, comm.rank
    return Prepared(
        run=(lambda: comm.Alltoallv(sent.uneven(), received.uneven()))
        if is_uneven
        else (lambda: comm.Alltoall(sent.whole(), received.whole())),
        fill=lambda: sent.fill(*(mark(me * n + rank) for rank in range(n))),
        holds=lambda: received.holds(*(mark(rank * n + me) for rank in range(n))),
    )


def _prepare_point_to_point(collective: Collective, comm: MPI.Comm, sent: Buffer, received: Buffer) -> Prepared:
    """Return a ring (send_recv), or pairs of rank i with i + n/2, one way (send) or both (exchange)."""
    n, me, half = comm.size, comm.rank, comm.size // 2
    ahead, behind = (1, -1) if collective is Collective.SEND_RECV else (half, half)
    to, source = (me + ahead) % n, (me + behind) % n
    sends, receives = True, True
    if collective is Collective.SEND:
        sends, receives = me < half, me >= half

    def fill() -> None:
        received.fill(0)
        sent.fill(mark(me))

    def run() -> None:
        if sends and receives:
            comm.Sendrecv(sent.whole(), to, recvbuf=received.whole(), source=source)
        elif sends:
            comm.Send(sent.whole(), to)
        else:
            comm.Recv(received.whole(), source)

    return Prepared(run=run, fill=fill, holds=lambda: not receives or received.holds(mark(source)))


def _prepare_hypercube(comm: MPI.Comm, own: Buffer | None, whole: Buffer) -> Prepared:
    """Return an all-gather by pairwise doubling: in step i ranks whose numbers differ in bit i exchange all they have.

    A rank's own share comes from ``own``, or is in its place already.
    """
    n, me, count = comm.size, comm.rank, whole.counts[0]
    steps, held = [], 1
    while held < n:
        peer = me ^ held
        known, wanted = (start // held * held * count for start in (me, peer))
        steps.append((peer, whole.part(known, held * count), whole.part(wanted, held * count)))
        held *= 2

    def fill() -> None:
        whole.fill(*(mark(rank) if rank == me and own is None else 0 for rank in range(n)))
        if own is not None:
            own.fill(mark(me))

    def run() -> None:
        if own is not None:
            whole.memory[me * count : (me + 1) * count] = own.memory
        for peer, sent, received in steps:
            comm.Sendrecv(sent, peer, recvbuf=received, source=peer)

    return Prepared(run=run, fill=fill, holds=lambda: whole.holds(*(mark(rank) for rank in range(n))))

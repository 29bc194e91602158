"""The vocabulary of a training step: what one rank computes, sends, receives, reduces and waits for, in order.

A rank's program is a tuple of operations. Programs name ranks 0 to n - 1 of the job, so that whoever runs or predicts
them needs nothing else. The rules by which they run:

- Operations start in order. A ``Compute`` and a ``Receive`` end before the next operation starts.
- A ``Send`` never blocks: it starts and leaves a handle. Messages of one direction between two ranks arrive in order.
- A ``Collect`` without a handle ends before the next operation starts; with one it starts, and runs beside what follows
  until its ``Wait``. Members of a group meet in the order in which their programs name it.
- A ``Wait`` ends when the operation of its handle has.

Every operation names its timer. Timers are append-only: an operation that runs adds one entry, and several of one name,
stage, microbatch and direction (the layers of a stage, say) add one each.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from spanfit.collectives import Collective, is_shared
from spanfit.workload.dtypes import Dtype

LARGEST_COUNT = 2**31 - 1
"""Most elements that a call takes where a back end counts in C's int."""


class Direction(StrEnum):
    """Whether an operation belongs to a forward pass, a backward pass or neither."""

    FORWARD = "forward"
    BACKWARD = "backward"
    NEITHER = "neither"


class Axis(StrEnum):
    """The kind of group in which bytes move.

    ``dp`` are the ranks that hold the same weights (dp x cp), ``edp`` those that hold the same experts; ``fsdp-shard``
    and ``fsdp-replica`` split the ranks of ``dp``.
    """

    DP = "dp"
    EXPERT_DP = "edp"
    SHARD = "fsdp-shard"
    REPLICA = "fsdp-replica"
    PP = "pp"
    TP = "tp"
    CP = "cp"
    EP = "ep"


class ComputeMode(StrEnum):
    """How the time of compute is spent; results of two modes are never mixed.

    With ``torch`` no program is run: torch trains the model itself.
    """

    PRODUCTS = "products"
    WAIT = "wait"
    NONE = "none"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Timer:
    """What the time of an operation is filed under; ``microbatch`` is -1 where it has none."""

    name: str
    stage: int
    microbatch: int = -1
    direction: Direction = Direction.NEITHER


@dataclass(frozen=True, slots=True)
class Product:
    """``count`` matrix products of (rows x inner) and (inner x columns)."""

    rows: int
    inner: int
    columns: int
    count: int = 1

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiplication and an addition each."""
        return 2 * self.rows * self.inner * self.columns * self.count

    def backward(self) -> tuple["Product", "Product"]:
        """Return the products that give the gradients of both factors."""
        return (
            Product(self.rows, self.columns, self.inner, self.count),
            Product(self.inner, self.rows, self.columns, self.count),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Work of the rank alone.

    Attributes
    ----------
    products : tuple of Product
        Empty where only its time is known.
    time_s : float or None
        What a calibrated wait takes [s]; None where no rate of compute is known.
    """

    timer: Timer
    products: tuple[Product, ...] = ()
    time_s: float | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of all products."""
        return sum(product.flops for product in self.products)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    timer: Timer
    count: int
    dtype: Dtype

    @property
    def size_bytes(self) -> int:
        """Bytes of ``count`` elements of the dtype that is sent."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_Message):
    """Start to send ``count`` elements to ``peer``; a ``Wait`` for ``handle`` ends it."""

    peer: int
    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_Message):
    """Receive ``count`` elements from ``peer``."""

    peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(_Message):
    """A collective over a group.

    Attributes
    ----------
    collective : Collective
    axis : Axis
    group : tuple of int
        Ranks of the job, in the order of the communicator.
    count : int
        Elements of the buffer that nccl-tests calls S: the whole buffer where ranks share it, a multiple of their
        number.
    handle : str or None
        None where the rank waits at once.
    """

    collective: Collective
    axis: Axis
    group: tuple[int, ...]
    handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait for what left ``handle``."""

    timer: Timer
    handle: str


Operation = Compute | Send | Receive | Collect | Wait
Program = tuple[Operation, ...]


def split(count: int, limit: int = LARGEST_COUNT) -> tuple[int, ...]:
    """Return the counts of the calls that move ``count`` elements, none above ``limit`` and as even as can be.

    Examples
    --------
    >>> split(2_204_803_328)
    (1102401664, 1102401664)
    """
    ncalls = max(1, -(-count // limit))
    share, rest = divmod(count, ncalls)
    return (share + 1,) * rest + (share,) * (ncalls - rest)


def divided(operations: Iterable[Operation], divisor: int) -> Iterator[Operation]:
    """Yield the operations with counts of elements divided, rounded up to what the ranks of a group can share."""
    for operation in operations:
        if isinstance(operation, Send | Receive):
            yield replace(operation, count=-(-operation.count // divisor))
        elif isinstance(operation, Collect):
            nranks = len(operation.group) if is_shared(operation.collective) else 1
            yield replace(operation, count=-(-operation.count // (divisor * nranks)) * nranks)
        else:
            yield operation


def merged(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the operations with computes of one timer that follow one another made one."""
    for (is_compute, _), run in groupby(operations, key=lambda each: (isinstance(each, Compute), each.timer)):
        if is_compute:
            yield _sum([each for each in run if isinstance(each, Compute)])
        else:
            yield from run


def _sum(computes: list[Compute]) -> Compute:
    counts: dict[tuple[int, int, int], int] = {}
    for product in (product for compute in computes for product in compute.products):
        shape = (product.rows, product.inner, product.columns)
        counts[shape] = counts.get(shape, 0) + product.count
    times_s = [compute.time_s for compute in computes if compute.time_s is not None]
    return Compute(
        timer=computes[0].timer,
        products=tuple(Product(*shape, count) for shape, count in counts.items()),
        time_s=sum(times_s) if times_s else None,
    )

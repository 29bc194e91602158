"""One rank's program, bound to communicators and buffers, so that running a step only starts and waits.

On CPUs every receive is posted when the step starts, as gloo moves what it is asked for in any order. On GPUs each is
posted when it is needed, since operations of a communicator run in the order in which they are posted.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist

from spanfit.bench.operations import Seat, prepare_start
from spanfit.bench.prepared import Prepared
from spanfit.bench.proxies.channels import Channels
from spanfit.bench.proxies.compute import Act, Computer
from spanfit.bench.proxies.timers import Mark, Timers, marker
from spanfit.bench.values import mark
from spanfit.collectives import is_shared
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import Job, StepJob
from spanfit.workload.program import (
    LARGEST_COUNT,
    Collect,
    Compute,
    ComputeMode,
    Direction,
    Operation,
    Program,
    Receive,
    Send,
    Wait,
    split,
)

Works = list[dist.Work]
_FEW = 4


def miniature(program: Program) -> Program:
    """Return a program with the same operations on a few elements each."""
    return tuple(map(_small, program))


def _small(operation: Operation) -> Operation:
    if isinstance(operation, Send | Receive):
        return replace(operation, count=min(operation.count, _FEW))
    if isinstance(operation, Collect):
        nranks = len(operation.group) if is_shared(operation.collective) else 1
        return replace(operation, count=nranks * min(operation.count // nranks, _FEW))
    return operation


class Pool:
    """Buffers that a step takes and gives back, of ones; with ``is_kept`` every one is used once."""

    def __init__(self, device: torch.device, *, is_kept: bool) -> None:
        self.device = device
        self.is_kept = is_kept
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}

    def take(self, count: int, dtype: Dtype) -> torch.Tensor:
        """Return a buffer of so many elements."""
        kind = getattr(torch, dtype)
        free = self._free.get((count, kind))
        return free.pop() if free else torch.ones(count, dtype=kind, device=self.device)

    def give(self, buffers: Iterable[torch.Tensor]) -> None:
        """Take buffers back for what comes later in the step."""
        for buffer in buffers:
            if not self.is_kept:
                self._free.setdefault((buffer.numel(), buffer.dtype), []).append(buffer)


class Execution:
    """A rank's part in a step.

    Parameters
    ----------
    program : Program
    rank : int
        This process's rank of the job.
    channels : Channels
    computer : Computer
    pool : Pool
    limit : int
        Elements that one call moves at most; what has more is moved by several calls.
    timers : Timers, optional
        Those of the program, which are given the times of every run; what runs without end has none.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        channels: Channels,
        computer: Computer,
        pool: Pool,
        limit: int = LARGEST_COUNT,
        timers: Timers | None = None,
    ) -> None:
        self.rank = rank
        self.channels = channels
        self.computer = computer
        self.pool = pool
        self.limit = limit
        self._timers = timers
        self._now = marker(pool.device)
        self._is_gpu = pool.device.type == "cuda"
        self._numbers = Counter[tuple[int, int, Direction]]()
        self._works: dict[str, Works] = {}
        self._held: dict[str, list[torch.Tensor]] = {}
        self._posts: list[Act] = []
        self._checked: list[Prepared] = []
        self._acts = [self._bound(operation) for operation in program]

    def run(self) -> None:
        """Run the step to its end on this rank; on GPUs it may only be enqueued."""
        for post in self._posts:
            post()
        if self._timers is None:
            for act in self._acts:
                act()
        else:
            self._timers.add(self._marked(self._now))

    def _marked(self, now: Callable[[], Mark]) -> list[Mark]:
        """Run the operations and return the mark of their start, and one as each ended."""
        marks = [now()]
        for act in self._acts:
            act()
            marks.append(now())
        return marks

    def fill(self) -> None:
        """Give every buffer small known values."""
        for each in self._checked:
            each.fill()

    def holds(self) -> bool:
        """Return whether each receive holds what its sender sent, and each collective what arithmetic says."""
        return all(each.holds() for each in self._checked)

    def _bound(self, operation: Operation) -> Act:
        match operation:
            case Compute():
                return self.computer.act(operation)
            case Send():
                return self._send(operation)
            case Receive():
                return self._receive(operation)
            case Collect():
                return self._collect(operation)
            case Wait():
                self.pool.give(self._held.pop(operation.handle, ()))
                return partial(self._wait, operation.handle)

    def _send(self, send: Send) -> Act:
        buffer = self.pool.take(send.count, send.dtype)
        self._held[send.handle] = [buffer]
        calls, value = self._message(send, buffer, self.rank, send.peer)
        self._checked.append(Prepared(run=lambda: None, fill=lambda: buffer.fill_(value), holds=lambda: True))

        def start() -> None:
            self._works[send.handle] = [_started(call()) for call in calls]

        return start

    def _receive(self, receive: Receive) -> Act:
        buffer = self.pool.take(receive.count, receive.dtype)
        calls, value = self._message(receive, buffer, receive.peer, self.rank)
        self._checked.append(
            Prepared(run=lambda: None, fill=buffer.zero_, holds=lambda: bool((buffer == value).all().item()))
        )
        works: Works = []

        def post() -> None:
            works.extend(_started(call()) for call in calls)

        def finish() -> None:
            self._finish(works)
            works.clear()

        if not self._is_gpu:
            self._posts.append(post)
            return finish
        self.pool.give([buffer])

        def post_and_finish() -> None:
            post()
            finish()

        return post_and_finish

    def _message(
        self, message: Send | Receive, buffer: torch.Tensor, source: int, target: int
    ) -> tuple[list[Callable[[], dist.Work | None]], int]:
        """Return the calls that move a message, and the value that fills it where it is checked.

        Both ends number the messages of a direction between them alike.
        """
        direction = message.timer.direction
        number = self._numbers[source, target, direction]
        self._numbers[source, target, direction] += 1
        group = self.channels.ways[direction, target > source]
        call, peer = (dist.isend, target) if isinstance(message, Send) else (dist.irecv, source)
        parts = torch.split(buffer, list(split(message.count, self.limit)))
        calls: list[Callable[[], dist.Work | None]] = [
            partial(call, part, self.channels.ranks[peer], group=group, tag=number * len(parts) + index)
            for index, part in enumerate(parts)
        ]
        return calls, mark(31 * source + 7 * number + 50 * (direction is Direction.BACKWARD))

    def _collect(self, collect: Collect) -> Act:
        group = self.channels.groups[collect.axis, collect.group]
        ranks = self.channels.seated(collect.group)
        seat = Seat(group=group, ranks=ranks, me=collect.group.index(self.rank), is_async=True)
        nranks = len(ranks) if is_shared(collect.collective) else 1
        taken: list[torch.Tensor] = []

        def take(count: int) -> torch.Tensor:
            taken.append(self.pool.take(count, collect.dtype))
            return taken[-1]

        calls = [
            prepare_start(collect.collective, seat, nranks * count, take)
            for count in split(collect.count // nranks, max(1, self.limit // nranks))
        ]
        self._checked += calls
        handle = collect.handle
        if handle is None:
            self.pool.give(taken)
            return lambda: self._finish([_started(call.run()) for call in calls])
        self._held[handle] = taken

        def start() -> None:
            self._works[handle] = [_started(call.run()) for call in calls]

        return start

    def _wait(self, handle: str) -> None:
        self._finish(self._works.pop(handle))

    def _finish(self, works: Works) -> None:
        for work in works:
            work.wait()
        if self._is_gpu and self.computer.mode is ComputeMode.WAIT:
            # On GPUs wait() holds back the stream only, and the calibrated wait runs on the host.
            torch.cuda.current_stream().synchronize()


def whole_step(
    job: Job, program: Program, rank: int, channels: Channels, device: torch.device, timers: Timers | None = None
) -> Execution:
    """Return a rank's part in a step of a job at its full size, with its compute."""
    dtype = torch.float32 if isinstance(job, StepJob) else getattr(torch, job.dtype)
    computer = Computer(job.compute, program, dtype, device)
    return Execution(program, rank, channels, computer, Pool(device, is_kept=False), timers=timers)


def _started(work: object) -> dist.Work:
    assert isinstance(work, dist.Work), "this rank belongs to the group"
    return work

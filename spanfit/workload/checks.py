"""Whether the programs of all ranks fit together: messages, collectives, handles, and that the step ends."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from spanfit.workload.program import Axis, Collect, Operation, Program, Receive, Send, Wait


def faults(programs: Sequence[Program]) -> tuple[str, ...]:
    """Return everything that keeps the programs of ranks 0, 1, ... from being one step; empty where they are."""
    return (*message_faults(programs), *collective_faults(programs), *handle_faults(programs), *stuck(programs))


def message_faults(programs: Sequence[Program]) -> Iterator[str]:
    """Yield each pair of ranks between which sends and receives differ in number, order, count or dtype."""
    sent: dict[tuple[int, int, str], list[tuple[object, ...]]] = defaultdict(list)
    received: dict[tuple[int, int, str], list[tuple[object, ...]]] = defaultdict(list)
    for rank, program in enumerate(programs):
        for operation in program:
            if isinstance(operation, Send | Receive):
                content = (operation.timer.microbatch, operation.count, operation.dtype)
                is_send = isinstance(operation, Send)
                ends = (rank, operation.peer) if is_send else (operation.peer, rank)
                (sent if is_send else received)[*ends, operation.timer.direction].append(content)
    for channel in sorted(sent.keys() | received.keys()):
        if sent[channel] != received[channel]:
            source, target, direction = channel
            yield (
                f"{direction} messages from rank {source} to {target}: {len(sent[channel])} sent and "
                f"{len(received[channel])} received, or of other microbatches or sizes"
            )


def collective_faults(programs: Sequence[Program]) -> Iterator[str]:
    """Yield each group whose members do not call the same collectives in the same order."""
    calls: dict[tuple[Axis, tuple[int, ...]], dict[int, list[tuple[object, ...]]]] = defaultdict(dict)
    for rank, program in enumerate(programs):
        for operation in program:
            if isinstance(operation, Collect):
                call = (operation.collective, operation.count, operation.dtype, operation.timer)
                calls[operation.axis, operation.group].setdefault(rank, []).append(call)
    for (axis, group), members in calls.items():
        strangers = sorted(members.keys() ^ set(group))
        if strangers:
            yield f"{axis} group {group}: ranks {strangers} call and are no members, or are members and never call"
        elif any(found != members[group[0]] for found in members.values()):
            yield f"{axis} group {group}: members do not call the same collectives in the same order"


def handle_faults(programs: Sequence[Program]) -> Iterator[str]:
    """Yield each rank that leaves a handle twice, waits for one that it has not left, or never waits for one."""
    for rank, program in enumerate(programs):
        left = Counter[str]()
        for operation in program:
            handle = operation.handle if isinstance(operation, Send | Collect) else None
            if isinstance(operation, Wait):
                left[operation.handle] -= 1
                if left[operation.handle] < 0:
                    yield f"rank {rank} waits for {operation.handle!r}, which it has not started"
            elif handle is not None:
                if handle in left:
                    yield f"rank {rank} starts {handle!r} twice"
                left[handle] += 1
        yield from (f"rank {rank} never waits for {handle!r}" for handle, count in left.items() if count > 0)


def stuck(programs: Sequence[Program]) -> tuple[str, ...]:
    """Return which ranks wait for ever, and where, if each message and collective waits for its other side.

    A wait for a send ends when its receiver has come to the receive, so no message is buffered.
    """
    simulation = _Simulation(programs)
    while simulation.advance():
        pass
    return simulation.stopped()


class _Simulation:
    """All ranks side by side, each at the operation that it cannot end yet."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self.at = [0] * len(programs)
        self.is_open = [False] * len(programs)
        self.sends = Counter[tuple[int, int, str]]()
        self.receives = Counter[tuple[int, int, str]]()
        self.calls = Counter[tuple[int, Axis]]()
        self.arrived = Counter[tuple[Axis, tuple[int, ...], int]]()
        self.handles: dict[tuple[int, str], tuple[object, ...]] = {}

    def advance(self) -> bool:
        """Take every rank as far as it comes; return whether any moved."""
        before = sum(self.at) + sum(self.is_open)
        for rank in range(len(self.programs)):
            while self.at[rank] < len(self.programs[rank]) and self._ends(rank):
                self.at[rank] += 1
                self.is_open[rank] = False
        return sum(self.at) + sum(self.is_open) > before

    def stopped(self) -> tuple[str, ...]:
        """Return the ranks that have not come to their end, and at which operation they are."""
        return tuple(
            f"rank {rank} waits for ever at operation {at}: {_told(program[at])}"
            for rank, (at, program) in enumerate(zip(self.at, self.programs, strict=True))
            if at < len(program)
        )

    def _ends(self, rank: int) -> bool:
        """Start the operation that a rank is at, if it has not been, and return whether it has ended."""
        operation = self.programs[rank][self.at[rank]]
        if not self.is_open[rank]:
            self.is_open[rank] = True
            self._start(rank, operation)
        if isinstance(operation, Receive):
            channel = (operation.peer, rank, operation.timer.direction)
            return self.sends[channel] >= self.receives[channel]
        if isinstance(operation, Collect) and operation.handle is None:
            return self._has_met(operation.axis, operation.group, self.calls[rank, operation.axis])
        if isinstance(operation, Wait):
            return self._has_ended(rank, operation.handle)
        return True

    def _start(self, rank: int, operation: Operation) -> None:
        if isinstance(operation, Send):
            channel = (rank, operation.peer, operation.timer.direction)
            self.sends[channel] += 1
            self.handles[rank, operation.handle] = (*channel, self.sends[channel])
        elif isinstance(operation, Receive):
            self.receives[operation.peer, rank, operation.timer.direction] += 1
        elif isinstance(operation, Collect):
            self.calls[rank, operation.axis] += 1
            meeting = (operation.axis, operation.group, self.calls[rank, operation.axis])
            self.arrived[meeting] += 1
            if operation.handle is not None:
                self.handles[rank, operation.handle] = meeting

    def _has_met(self, axis: Axis, group: tuple[int, ...], call: int) -> bool:
        return self.arrived[axis, group, call] >= len(group)

    def _has_ended(self, rank: int, handle: str) -> bool:
        match self.handles.get((rank, handle)):
            case (Axis() as axis, tuple() as group, int() as call):
                return self._has_met(axis, group, call)
            case (int() as source, int() as target, str() as direction, int() as number):
                return self.receives[source, target, direction] >= number
        return False


def _told(operation: Operation) -> str:
    timer = operation.timer
    return f"{type(operation).__name__.lower()} {timer.name} of stage {timer.stage}, microbatch {timer.microbatch}"

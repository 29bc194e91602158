"""Processes that compute, send, receive and wait, in simulated time, over links that they share.

A process is a generator: it yields seconds to spend, or an :class:`Event` to wait for. Messages of a connection go one
after the other in the order in which both sides had asked for them, as on a socket.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable
from heapq import heappop, heappush

from spanfit.profiler.predict.sharing import Flow, Sharing, Use

Process = Generator["float | Event", None, None]
Route = Callable[[int, int], tuple[Use, float]]
"""What a flow between two ranks uses, and how many flows it stands for."""


class Event:
    """Something that happens once; processes wait for it."""

    __slots__ = ("has_happened", "waiting")

    def __init__(self) -> None:
        self.has_happened = False
        self.waiting: list[Process] = []


class _Message:
    """A message that one side has asked for, or both."""

    __slots__ = ("event", "has_receiver", "size_bytes")

    def __init__(self) -> None:
        self.event = Event()
        self.size_bytes: float | None = None
        self.has_receiver = False


class Simulation:
    """Processes over links.

    Parameters
    ----------
    route : Route
    sharing : Sharing
    latency_s : float
        From the last byte of a message to the end of its wait [s].
    """

    def __init__(self, route: Route, sharing: Sharing, latency_s: float) -> None:
        self.route = route
        self.sharing = sharing
        self.latency_s = latency_s
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Process | Event]] = []
        self._number = 0
        self._ready: deque[Process] = deque()
        self._sent: dict[Hashable, int] = {}
        self._received: dict[Hashable, int] = {}
        self._messages: dict[Hashable, _Message] = {}
        self._connections: dict[Hashable, deque[Flow]] = {}

    def spawn(self, process: Process) -> None:
        """Let a process begin now."""
        self._ready.append(process)

    def happen(self, event: Event) -> None:
        """Let an event happen now."""
        event.has_happened = True
        self._ready.extend(event.waiting)
        event.waiting.clear()

    def happen_in(self, event: Event, delay_s: float) -> None:
        """Let an event happen after a while."""
        self._push(self.now_s + delay_s, event)

    def send(self, connection: Hashable, source: int, target: int, size_bytes: float, stream: Hashable = None) -> Event:
        """Ask to send to a rank; the event is the message's arrival.

        Parameters
        ----------
        connection : hashable
            What shares a socket in one direction; with ``source`` and ``target`` it names the socket.
        stream : hashable
            Messages of a stream are matched with its receives in order.
        """
        message = self._message(self._sent, (connection, source, target, stream))
        message.size_bytes = size_bytes
        self._match(message, (connection, source, target))
        return message.event

    def receive(self, connection: Hashable, source: int, target: int, stream: Hashable = None) -> Event:
        """Ask to receive from a rank; the event is the message's arrival."""
        message = self._message(self._received, (connection, source, target, stream))
        message.has_receiver = True
        self._match(message, (connection, source, target))
        return message.event

    def carry(self, connection: Hashable, use: Use, size_bytes: float, event: Event, count: float = 1.0) -> None:
        """Let bytes go over links as soon as the connection is free; the event happens when they have arrived."""
        waiting = self._connections.setdefault(connection, deque())

        def end() -> None:
            waiting.popleft()
            if waiting:
                self._begin(waiting[0])
            self.happen_in(event, self.latency_s)

        waiting.append(Flow(use, size_bytes, connection, end, count))
        if len(waiting) == 1:
            self._begin(waiting[0])

    def _begin(self, flow: Flow) -> None:
        """Let a flow share its links; one that loads none only takes its time."""
        if flow.use:
            self.sharing.start(flow)
            return

        def process() -> Process:
            yield flow.left_bytes / self.sharing.conduct.peak_bytes_per_s
            flow.on_end()

        self.spawn(process())

    def run(self) -> float:
        """Run until nothing is left to happen and return that time [s]."""
        sharing, queue = self.sharing, self._queue
        self._resume()
        flows_s = sharing.settle()
        # Rates hold until a flow comes or goes or a bucket runs dry, so bytes are counted then only.
        while queue or sharing.flows:
            self.now_s = min(flows_s, queue[0][0]) if queue else flows_s
            nflows = len(sharing.flows)
            if self.now_s >= flows_s:
                self._end_flows()
            while queue and queue[0][0] <= self.now_s:
                self._wake(heappop(queue)[2])
            self._resume()
            if self.now_s < flows_s and len(sharing.flows) > nflows:
                self._end_flows()
                self._resume()
            if self.now_s >= flows_s or len(sharing.flows) != nflows:
                flows_s = sharing.settle()
        return self.now_s

    def _end_flows(self) -> None:
        """Bring the flows up to now, and end those that have carried all their bytes."""
        for flow in self.sharing.advance(self.now_s):
            flow.on_end()

    def _wake(self, sleeper: "Process | Event") -> None:
        if isinstance(sleeper, Event):
            self.happen(sleeper)
        else:
            self._ready.append(sleeper)

    def _resume(self) -> None:
        """Take every process that can go on as far as it comes."""
        ready = self._ready
        while ready:
            process = ready.popleft()
            for step in process:
                if isinstance(step, Event):
                    if not step.has_happened:
                        step.waiting.append(process)
                        break
                elif step > 0:
                    self._push(self.now_s + step, process)
                    break

    def _push(self, time_s: float, sleeper: "Process | Event") -> None:
        self._number += 1
        heappush(self._queue, (time_s, self._number, sleeper))

    def _message(self, counts: dict[Hashable, int], stream: tuple[Hashable, ...]) -> _Message:
        number = counts.get(stream, 0)
        counts[stream] = number + 1
        return self._messages.setdefault((stream, number), _Message())

    def _match(self, message: _Message, connection: tuple[Hashable, int, int]) -> None:
        if message.size_bytes is not None and message.has_receiver:
            use, count = self.route(connection[1], connection[2])
            self.carry(connection, use, message.size_bytes, message.event, count)

"""Running the programs of a step's ranks in simulated time."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from spanfit.errors import ConfigError
from spanfit.profiler.predict.collectives import Library, Part, Whole, whole
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.parameters import Parameters
from spanfit.profiler.predict.sharing import Sharing
from spanfit.profiler.predict.simulation import Event, Process, Route, Simulation
from spanfit.workload.program import Collect, Compute, Program, Receive, Send, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A collective that is simulated as one flow.

    Attributes
    ----------
    key : hashable
        The group, or all groups alike that one stands for.
    narrivals : int
        How many of the simulated ranks must have come before it starts.
    flow : Whole
    count : float
        How many groups it stands for.
    """

    key: Hashable
    narrivals: int
    flow: Whole
    count: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The ranks that are simulated.

    Attributes
    ----------
    programs : mapping of int to Program
        Of each rank that is simulated.
    stands_in : callable
        Which of them is simulated in place of a rank.
    route : Route
    meeting : callable or None
        The one flow of a collective; None where gloo's collectives run message by message.
    """

    programs: Mapping[int, Program]
    stands_in: Callable[[int], int]
    route: Route
    meeting: Callable[[Collect], Meeting] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One simulated step: when it ends [s], and what each link has carried."""

    time_s: float
    carried_bytes: tuple[float, ...]


def everyone(programs: Mapping[int, Program], network: Network, library: Library) -> Cast:
    """Return the cast in which every rank is simulated."""
    known: dict[Hashable, Meeting] = {}

    def meeting(operation: Collect) -> Meeting:
        key = (operation.axis, operation.group, operation.collective, operation.size_bytes)
        if key not in known:
            flow = whole(network, library, operation.collective, operation.group, operation.size_bytes)
            known[key] = Meeting(key=key[:2], narrivals=len(operation.group), flow=flow)
        return known[key]

    return Cast(
        programs=programs,
        stands_in=lambda rank: rank,
        route=network.route,
        meeting=None if library is Library.GLOO else meeting,
    )


def run_step(cast: Cast, network: Network, parameters: Parameters, library: Library, seed: int) -> StepRun:
    """Return one simulated step; ``seed`` draws the shares of connections.

    Raises
    ------
    ConfigError
        If a program has compute of unknown time, a collective that is not modelled, or ranks that wait for ever.
    """
    sharing = Sharing(parameters.conduct(network), seed)
    simulation = Simulation(cast.route, sharing, parameters.latency_s)
    running = [_Rank(rank, cast, simulation, parameters, library) for rank in cast.programs]
    meetings: dict[Hashable, _Arrivals] = {}
    for rank in running:
        rank.meetings = meetings
        simulation.spawn(rank.run())
    time_s = simulation.run()
    if stuck := [str(rank.number) for rank in running if not rank.has_ended]:
        raise ConfigError(
            f"ranks {', '.join(stuck[:8])}: found programs that wait for ever, expected each message and collective "
            "to have its other side; plan the programs of all ranks from one job"
        )
    return StepRun(time_s=time_s, carried_bytes=tuple(sharing.carried_bytes))


class _Arrivals:
    """A collective that ranks wait for together."""

    __slots__ = ("event", "narrived")

    def __init__(self) -> None:
        self.event = Event()
        self.narrived = 0


class _Rank:
    """One rank as it goes through its program."""

    def __init__(
        self, number: int, cast: Cast, simulation: Simulation, parameters: Parameters, library: Library
    ) -> None:
        self.number = number
        self.cast = cast
        self.simulation = simulation
        self.parameters = parameters
        self.library = library
        self.meetings: dict[Hashable, _Arrivals] = {}
        self.handles: dict[str, Event] = {}
        self.calls: dict[Hashable, list[Event]] = {}
        self.posted: deque[Event] = deque()
        self.has_ended = False

    def run(self) -> Process:
        """Go through the program; receives are posted at once where the library's proxies do so."""
        program = self.cast.programs[self.number]
        if self.library.posts_early:
            self.posted.extend(self._receive(each) for each in program if isinstance(each, Receive))
        yield self.parameters.start_s
        for operation in program:
            if isinstance(operation, Compute):
                yield operation.time_s or 0.0
            elif isinstance(operation, Receive):
                yield self.posted.popleft() if self.library.posts_early else self._receive(operation)
            elif isinstance(operation, Send):
                self.handles[operation.handle] = self._send(operation)
            elif isinstance(operation, Wait):
                yield self.handles[operation.handle]
            elif operation.handle is None:
                yield from self._collect(operation)
            else:
                self._start(operation, operation.handle)
        self.has_ended = True

    def _receive(self, operation: Receive) -> Event:
        source = self.cast.stands_in(operation.peer)
        return self.simulation.receive(operation.timer.direction, source, self.number)

    def _send(self, operation: Send) -> Event:
        target = self.cast.stands_in(operation.peer)
        return self.simulation.send(operation.timer.direction, self.number, target, operation.size_bytes)

    def _start(self, operation: Collect, handle: str) -> None:
        ended = self.handles[handle] = Event()

        def process() -> Process:
            yield from self._collect(operation)
            self.simulation.happen(ended)

        self.simulation.spawn(process())

    def _collect(self, operation: Collect) -> Process:
        """Take part in a collective, after those of the group that must have ended before it starts."""
        if len(operation.group) == 1:
            return
        earlier = self.calls.setdefault((operation.axis, operation.group), [])
        call, ended = len(earlier), Event()
        earlier.append(ended)
        if call >= self.library.at_once:
            yield earlier[call - self.library.at_once]
        if self.cast.meeting is None:
            me = operation.group.index(self.number)
            part = Part(self.simulation, operation.group, me, call, self.parameters.reduction_s_per_byte)
            yield from part.run(operation.collective, operation.size_bytes)
        else:
            yield from self._meet(self.cast.meeting(operation), call)
        yield self.parameters.call_s
        self.simulation.happen(ended)

    def _meet(self, meeting: Meeting, call: int) -> Process:
        arrivals = self.meetings.setdefault((meeting.key, call), _Arrivals())
        arrivals.narrived += 1
        if arrivals.narrived == meeting.narrivals:
            yield meeting.flow.hops * self.parameters.latency_s
            flow = meeting.flow
            self.simulation.carry(meeting.key, flow.use, flow.edge_bytes, arrivals.event, meeting.count)
        yield arrivals.event

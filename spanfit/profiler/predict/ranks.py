"""Running the programs of a step's ranks in simulated time."""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from spanfit.errors import ConfigError
from spanfit.profiler.predict.collectives import Library, Part, Whole, whole
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.parameters import Parameters
from spanfit.profiler.predict.sharing import Sharing
from spanfit.profiler.predict.simulation import Event, Process, Route, Simulation
from spanfit.workload.program import Collect, Compute, Operation, Program, Receive, Send, Wait
from spanfit.workload.script import Kind, Script, kind_of

Shortened = dict[Hashable, Program]
"""Programs of one script as :func:`shortened` left them."""


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
    script : Script
        Says whom the programs name.
    programs : mapping of int to Program
        Of each rank that is simulated, in the names of its stage.
    stands_in : callable
        Which of them is simulated in place of a rank.
    route : Route
    meeting : callable or None
        The one flow of a collective of a group; None where gloo's collectives run message by message.
    """

    script: Script
    programs: Mapping[int, Program]
    stands_in: Callable[[int], int]
    route: Route
    meeting: Callable[[Kind, tuple[int, ...]], Meeting] | None


def everyone(script: Script, network: Network, library: Library) -> Cast:
    """Return the cast in which every rank is simulated."""
    known: dict[Hashable, Meeting] = {}

    def meeting(kind: Kind, group: tuple[int, ...]) -> Meeting:
        if (kind, group) not in known:
            flow = whole(network, library, kind.collective, group, kind.size_bytes)
            known[kind, group] = Meeting(key=(kind.axis, group), narrivals=len(group), flow=flow)
        return known[kind, group]

    return Cast(
        script=script,
        programs={rank: script.programs[script.stage(rank)] for rank in range(script.nranks)},
        stands_in=lambda rank: rank,
        route=network.route,
        meeting=None if library is Library.GLOO else meeting,
    )


def shortened(cast: Cast, parameters: Parameters, known: Shortened) -> Cast:
    """Return the cast with programs in which what concerns one simulated rank only is one wait.

    Such are compute and collectives that load no link and need no other rank that is simulated. What was shortened is
    kept in ``known``, to be used again for other casts of one script.
    """
    found = {}
    for rank in cast.programs:
        stage = cast.script.stage(rank)
        waits = _waits_alone(rank, cast, parameters)
        key = stage, frozenset(waits.items())
        if key not in known:
            known[key] = tuple(_waiting(cast.script.programs[stage], waits))
        found[rank] = known[key]
    return replace(cast, programs=found)


def _waits_alone(rank: int, cast: Cast, parameters: Parameters) -> dict[Kind, float]:
    """Return how long each kind of collective takes that concerns one simulated rank only."""
    waits: dict[Kind, float] = {}
    if cast.meeting is None:
        return waits
    outline = cast.script.outlines[cast.script.stage(rank)]
    for kind in outline.calls:
        if kind.axis in outline.beside:
            continue
        meeting = cast.meeting(kind, cast.script.group(rank, kind.axis))
        if meeting.narrivals == 1 and not meeting.flow.use:
            hops_s = (meeting.flow.hops + 1) * parameters.latency_s
            waits[kind] = hops_s + meeting.flow.edge_bytes / parameters.peak_bytes_per_s + parameters.call_s
    return waits


def _waiting(program: Program, waits: Mapping[Kind, float]) -> Iterator[Operation]:
    """Yield a program with each run of operations that only take time as one compute."""
    for time_only, run in groupby(program, key=lambda each: _time_s(each, waits) is not None):
        if time_only:
            operations = list(run)
            time_s = sum(_time_s(each, waits) or 0.0 for each in operations)
            yield Compute(timer=operations[0].timer, time_s=time_s)
        else:
            yield from run


def _time_s(operation: Operation, waits: Mapping[Kind, float]) -> float | None:
    """Return what an operation takes whatever others do; None where it waits for others."""
    if isinstance(operation, Compute):
        return operation.time_s or 0.0
    return waits.get(kind_of(operation)) if isinstance(operation, Collect) else None


def run_step(cast: Cast, network: Network, parameters: Parameters, library: Library, seed: int) -> float:
    """Return when a simulated step ends [s]; ``seed`` draws the shares of connections.

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
    return time_s


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
        source = self._simulated(operation.peer)
        return self.simulation.receive(operation.timer.direction, source, self.number)

    def _send(self, operation: Send) -> Event:
        target = self._simulated(operation.peer)
        return self.simulation.send(operation.timer.direction, self.number, target, operation.size_bytes)

    def _simulated(self, named: int) -> int:
        """Return the rank that is simulated for one that the program names."""
        return self.cast.stands_in(self.cast.script.peer(self.number, named))

    def _start(self, operation: Collect, handle: str) -> None:
        ended = self.handles[handle] = Event()

        def process() -> Process:
            yield from self._collect(operation)
            self.simulation.happen(ended)

        self.simulation.spawn(process())

    def _collect(self, operation: Collect) -> Process:
        """Take part in a collective, after those of the group that must have ended before it starts."""
        group = self.cast.script.group(self.number, operation.axis)
        earlier = self.calls.setdefault(operation.axis, [])
        call, ended = len(earlier), Event()
        earlier.append(ended)
        if call >= self.library.at_once:
            yield earlier[call - self.library.at_once]
        if self.cast.meeting is None:
            part = Part(self.simulation, group, group.index(self.number), call, self.parameters.reduction_s_per_byte)
            yield from part.run(operation.collective, operation.size_bytes)
        else:
            yield from self._meet(self.cast.meeting(kind_of(operation), group), call)
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

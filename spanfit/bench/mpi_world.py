"""The world of a rank that moves bytes by MPI instead of torch: edge; the same cases, the same lines, the same store.

Standard library and mpi4py. To import this is to start MPI, which reads its settings then.
"""

import math
import os
import socket
import sys
import traceback
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, groupby, islice
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import mpi4py

from spanfit.bench.case import BenchCase, CaseKind, LaunchPlan, Visit
from spanfit.bench.environ import by_local_rank
from spanfit.bench.heartbeat import Heartbeat, Phase
from spanfit.bench.lines import (
    append,
    drop_torn_line,
    misplaced,
    render_visit,
    render_world,
    startup_parts,
    world_ranks,
)
from spanfit.bench.mpi_operations import INIT_S, MPI, Arena, prepare
from spanfit.bench.prepared import Ring
from spanfit.bench.rotation import cpu_rotation_bytes
from spanfit.bench.stacks import Stacks
from spanfit.bench.warmup import warm_up


class World:
    """The ranks of a launch, with communicators made once a block for each set of ranks."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        # Barriers and bookkeeping never share a communicator with what is timed.
        self.control = MPI.COMM_WORLD.Dup()
        self.rank, self.nranks = self.control.rank, self.control.size
        self.position = -1
        self.arena = Arena(cpu_rotation_bytes())
        self._heartbeat: Heartbeat | None = None
        if plan.heartbeats:
            self._heartbeat = Heartbeat(Path(plan.heartbeats), self.rank)
            self._stacks = Stacks(Path(plan.heartbeats), self.rank, plan.stacks_after_s)
        self._groups: dict[tuple[int, ...], MPI.Comm] = {}
        self.beat(Phase.START)

    def beat(self, phase: Phase) -> None:
        """Say that this rank begins a phase of the visit in hand."""
        if self._heartbeat is not None:
            self._heartbeat.beat(self.position, phase)
            self._stacks.watch()

    def slowest(self, values: list[float]) -> list[float]:
        """Return the largest of each value over all ranks."""
        largest = array("d", values)
        self.control.Allreduce(MPI.IN_PLACE, (largest, MPI.DOUBLE), MPI.MAX)
        return list(largest)

    def group(self, ranks: tuple[int, ...]) -> MPI.Comm:
        """Return the communicator of these world ranks in this order; every rank must ask in the same order."""
        if ranks not in self._groups:
            self._groups[ranks] = self.new_group(ranks)
        return self._groups[ranks]

    def new_group(self, ranks: tuple[int, ...]) -> MPI.Comm:
        """Return a communicator of these world ranks that nothing else uses; whoever asks frees it."""
        members = self.control.group.Incl(ranks)
        made = self.control.Create(members)
        members.Free()
        return made

    def make_anew(self) -> None:
        """Free every communicator of a block of cases, so that the next block makes its own."""
        for group in self._groups.values():
            if group != MPI.COMM_NULL:
                group.Free()
        self._groups.clear()

    def check_places(self) -> tuple[str, ...]:
        """Return the host of each rank; RuntimeError on every rank unless they are those that the plan names."""
        hosts = tuple(self.control.allgather(socket.gethostname()))
        if fault := misplaced(self.plan, hosts):
            raise RuntimeError(fault)
        return hosts


def _prepare(world: World, case: BenchCase) -> Ring | None:
    mine = None
    for ranks in world_ranks(case, world.plan.ngpus_per_node):
        group = world.group(ranks)
        if world.rank in ranks:
            mine = world.arena.ring(case, group)
    return mine


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rank found in a case: of each thing that was timed its seconds, NaN where this rank takes no part."""

    is_right: bool
    parts: dict[str, list[float]]
    notes: dict[str, Any] = field(default_factory=dict)


def measure(world: World, case: BenchCase) -> Outcome:
    """Return what this rank found in a case; every rank of the world calls this."""
    return (_measure_startup if case.kind is CaseKind.STARTUP else _measure_operation)(world, case)


def _measure_operation(world: World, case: BenchCase) -> Outcome:
    world.beat(Phase.PREPARE)
    ring = _prepare(world, case)
    runs: Sequence[Callable[[], object]] = ring.runs if ring else (lambda: None,)
    world.control.Barrier()
    world.beat(Phase.CHECK)
    right = ring.is_right() if ring else True
    world.beat(Phase.WARMUP)
    warmed = warm_up(runs, world.control.Barrier, world.slowest, case.warmup)
    world.beat(Phase.TIMED)
    times_s = _time(runs, world.control.Barrier, case.repetitions)
    return Outcome(
        is_right=right,
        parts={case.operation: times_s if ring else [math.nan] * case.repetitions},
        notes={"warmup": warmed.iterations, "is_warm": warmed.is_stable},
    )


def _measure_startup(world: World, case: BenchCase) -> Outcome:
    """Return the seconds of making a communicator anew in each repetition, and of its first operations."""
    (ranks,) = world_ranks(case, world.plan.ngpus_per_node)
    world.beat(Phase.TIMED)
    starts = [_start(world, case, ranks) for _ in range(case.repetitions)]
    parts = zip(*(seconds for _, seconds in starts), strict=True)
    return Outcome(
        is_right=all(right for right, _ in starts),
        parts={name: list(part) for name, part in zip(startup_parts(case), parts, strict=True)},
    )


def _start(world: World, case: BenchCase, ranks: tuple[int, ...]) -> tuple[bool, tuple[float, float, float]]:
    """Return whether the result was right, and the seconds of the parts, NaN on a rank that takes no part."""
    world.control.Barrier()
    start = perf_counter()
    group = world.new_group(ranks)
    made_s = perf_counter() - start
    if world.rank not in ranks:
        world.control.Barrier()
        world.control.Barrier()
        return True, (math.nan, math.nan, math.nan)
    one = prepare(case, group, lambda nbytes: memoryview(bytearray(nbytes)))
    one.fill()
    first_s, second_s = _time([one.run], world.control.Barrier, 2)
    right = one.is_right()
    group.Free()
    return right, (made_s + first_s, first_s, second_s)


def _time(runs: Sequence[Callable[[], object]], barrier: Callable[[], None], repetitions: int) -> list[float]:
    times_s = []
    for run in list(islice(cycle(runs), repetitions)):
        barrier()
        start = perf_counter()
        run()
        times_s.append(perf_counter() - start)
    return times_s


def run_launch(plan: LaunchPlan) -> None:
    """Measure every case of a launch; every rank of the world calls this."""
    world = World(plan)
    hosts = world.check_places()
    shard = Path(plan.shard)
    pids, init_s = world.control.gather(os.getpid()), world.control.gather(INIT_S)
    if world.rank == 0:
        drop_torn_line(shard)
        library = " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())
        versions = {"engine": "mpi", "mpi": library, "mpi4py": mpi4py.__version__}
        where = {"hosts": hosts, "pids": pids, "init_s": init_s, "rotation_bytes": world.arena.rotation_bytes}
        append(shard, render_world(plan, by_local_rank(os.environ, plan.local_environment), versions) | where)
    for _, visits in groupby(plan.visits, key=lambda visit: visit.block):
        for visit in visits:
            _visit(world, visit, shard)
        world.make_anew()
    world.control.Barrier()


def _visit(world: World, visit: Visit, shard: Path) -> None:
    plan = world.plan
    world.position = visit.position
    outcome = measure(world, plan.seat(visit.case))
    world.beat(Phase.GATHER)
    gathered = world.control.gather([float(outcome.is_right), *chain(*outcome.parts.values())])
    world.beat(Phase.IDLE)
    if gathered is not None:
        line = render_visit(plan, visit, plan.unseat(gathered), parts=tuple(outcome.parts), notes=outcome.notes)
        append(shard, line)


def abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say what went wrong and end the whole world; the other ranks would wait for this one for ever."""
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)

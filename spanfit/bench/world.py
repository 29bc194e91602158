"""The world of a rank: who is in it and where, its communicators, and the memory that its cases share; edge."""

import inspect
import json
import math
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from spanfit.bench import postmortem
from spanfit.bench.buffers import Arena, rotation_bytes
from spanfit.bench.case import LaunchPlan
from spanfit.bench.device import choose_device, device_name, handle_errors, shared_devices
from spanfit.bench.heartbeat import Heartbeat, Phase
from spanfit.bench.lines import misplaced
from spanfit.bench.stacks import Stacks

_KEEPS_ORDER = "sort_ranks" in inspect.signature(dist.new_group).parameters
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank runs.

    Attributes
    ----------
    host : str
    pid : int
    machine : str
        The same for hosts that are namespaces of one machine.
    ncores : int
        Cores of the machine that the rank may use.
    device : str
        Name of its GPU, "" where it has none.
    init_s : float
        Seconds in which the process group was made, waiting for late ranks included.
    """

    host: str
    pid: int
    machine: str
    ncores: int
    device: str
    init_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rank found in a case.

    Attributes
    ----------
    is_right : bool
        Whether its result was right.
    parts : dict
        Of each thing that was timed, its seconds for each repetition; NaN where this rank takes no part.
    notes : dict
        What is stored with the case; the same on every rank.
    fault : str
        Why nothing was timed, "" where it was; the same on every rank.
    """

    is_right: bool
    parts: dict[str, list[float]]
    notes: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


def no_part(names: Sequence[str], repetitions: int) -> dict[str, list[float]]:
    """Return the parts of a rank that takes no part."""
    return {name: [math.nan] * repetitions for name in names}


class World:
    """The ranks of a launch, with communicators made once a block for each set of ranks."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.position = -1
        self.limit = timedelta(seconds=plan.timeout_s)
        rank = int(os.environ["RANK"])
        self.device = choose_device(plan.backend, int(os.environ["LOCAL_RANK"]), torch.cuda.device_count())
        if self.device.type == "cuda":
            handle_errors(os.environ)
            torch.cuda.set_device(self.device)
        self._heartbeat: Heartbeat | None = None
        if plan.heartbeats:
            self._heartbeat = Heartbeat(Path(plan.heartbeats), rank)
            self._stacks = Stacks(Path(plan.heartbeats), rank, plan.stacks_after_s)
            postmortem.arm(Path(plan.heartbeats), rank)
        self.beat(Phase.START)
        start = perf_counter()
        dist.init_process_group(plan.backend, timeout=self.limit)
        self.init_s = perf_counter() - start
        self.rank, self.nranks = dist.get_rank(), dist.get_world_size()
        # Barriers and bookkeeping go over gloo, so that they never share a communicator with what is timed.
        self.control = new_group(tuple(range(self.nranks)), self.limit, "gloo")
        self.arena = Arena(self.device, rotation_bytes(self.device))
        self._groups: dict[tuple[tuple[int, ...], int, str, str | None], dist.ProcessGroup] = {}

    def beat(self, phase: Phase) -> None:
        """Say that this rank begins a phase of the visit in hand."""
        if self._heartbeat is not None:
            self._heartbeat.beat(self.position, phase)
            self._stacks.watch()

    def barrier(self) -> None:
        """Wait until every rank of the world is here."""
        dist.barrier(group=self.control)

    def slowest(self, values: list[float]) -> list[float]:
        """Return the largest of each value over all ranks."""
        largest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.control)
        return list(map(float, largest.tolist()))

    def everyone(self, text: str) -> list[str]:
        """Return the text of each rank, none of which ends in NUL; torch's own gathering of objects needs numpy."""
        mine = torch.tensor(list(text.encode()), dtype=torch.uint8)
        length = int(self.slowest([float(len(mine))])[0])
        mine = torch.cat([mine, mine.new_zeros(length - len(mine))])
        found = [torch.empty_like(mine) for _ in range(self.nranks)]
        dist.all_gather(found, mine, group=self.control)
        return [bytes(one.tolist()).decode().rstrip("\0") for one in found]

    def group(
        self, ranks: tuple[int, ...], cta: int = 0, use: str = "", backend: str | None = None
    ) -> dist.ProcessGroup:
        """Return the communicator of these world ranks in this order; every rank must ask in the same order.

        ``cta`` limits its thread blocks on each GPU where it is not 0. Communicators of different uses are apart, so
        that none waits for another. The backend is that of the world unless said.
        """
        key = (ranks, cta, use, backend)
        if key not in self._groups:
            self._groups[key] = new_group(ranks, self.limit, backend, cta=cta)
        return self._groups[key]

    def make_anew(self) -> None:
        """Destroy every communicator of a block of cases, so that the next block makes its own."""
        for group in self._groups.values():
            dist.destroy_process_group(group)
        self._groups.clear()

    def check_places(self) -> tuple[Place, ...]:
        """Return where each rank runs.

        Raises
        ------
        RuntimeError
            On every rank, unless rank i runs on the host that the plan names for it and no two share a GPU.
        """
        mine = Place(
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else socket.gethostname(),
            ncores=len(os.sched_getaffinity(0)),
            device=device_name(self.device),
            init_s=self.init_s,
        )
        places = tuple(Place(**json.loads(text)) for text in self.everyone(json.dumps(asdict(mine))))
        hosts = [place.host for place in places]
        faults = misplaced(self.plan, hosts), shared_devices(hosts, [place.device for place in places])
        if any(faults):
            raise RuntimeError("; ".join(filter(None, faults)))
        return places


def new_group(
    ranks: tuple[int, ...], limit: timedelta, backend: str | None = None, *, cta: int = 0
) -> dist.ProcessGroup:
    """Return a new communicator of these world ranks in this order; every rank of the world must call this."""
    options = None
    if cta:
        options = dist.ProcessGroupNCCL.Options()
        options.config.min_ctas = options.config.max_ctas = cta
    order: dict[str, Any] = {} if list(ranks) == sorted(ranks) else {"sort_ranks": False}
    group: dist.ProcessGroup = dist.new_group(list(ranks), timeout=limit, backend=backend, pg_options=options, **order)
    return group


def unorderable(groups: Iterable[Sequence[int]], keeps_order: bool = _KEEPS_ORDER) -> str:
    """Return why this torch cannot number the ranks of groups in their order, "" where it can."""
    if keeps_order or all(list(ranks) == sorted(ranks) for ranks in groups):
        return ""
    return (
        f"torch {torch.__version__} sorts the ranks of a group; orders other than the nodes' need torch 2.12 or newer"
    )


def crowded(places: Sequence[Place]) -> str:
    """Return which machine has fewer cores than ranks, "" where none has; ranks with a GPU need none."""
    ranks: dict[str, list[Place]] = {}
    for place in places:
        ranks.setdefault(place.machine, []).append(place)
    return "; ".join(
        f"{len(here)} ranks share {here[0].ncores} cores on {here[0].host}, expected a core a rank: products would "
        "only wait for each other; use fewer ranks a machine, or GPUs"
        for here in ranks.values()
        if not here[0].device and here[0].ncores < len(here)
    )

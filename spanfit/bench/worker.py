"""A rank of a campaign: edge; joins the world, measures the cases it is given, and rank 0 appends a line for each.

Run as ``python -m spanfit.bench.worker LAUNCH.json`` under torchrun or anything that sets RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR and MASTER_PORT. It needs the standard library and torch, nothing else.
"""

import ctypes
import json
import math
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from spanfit.bench import timing
from spanfit.bench.case import BenchCase, CaseKind, LaunchPlan, Visit, load_launch
from spanfit.bench.operations import prepare
from spanfit.bench.proxies.step import StepProxy, columns, lanes
from spanfit.collectives import Collective

_SET_PARENT_DEATH_SIGNAL = 1
_KEPT_PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "UCX_", "FI_")
_KEPT_NAMES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS")
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "KEY")


class World:
    """The ranks of a launch, with communicators made once for each set of ranks."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        limit = timedelta(seconds=plan.timeout_s)
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cpu")
        if plan.backend == "nccl":
            self.device = torch.device("cuda", self.local_rank)
            torch.cuda.set_device(self.device)
        dist.init_process_group(plan.backend, timeout=limit)
        self.rank, self.nranks = dist.get_rank(), dist.get_world_size()
        # Barriers and bookkeeping go over gloo, so that they never share a communicator with what is timed.
        self.control = _new_group(tuple(range(self.nranks)), limit, "gloo")
        self.limit = limit
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._pipeline: tuple[dist.ProcessGroup, dist.ProcessGroup] | None = None

    def barrier(self) -> None:
        """Wait until every rank of the world is here."""
        dist.barrier(group=self.control)

    def group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """Return the communicator of these world ranks in this order; every rank must ask in the same order."""
        if ranks not in self._groups:
            self._groups[ranks] = _new_group(ranks, self.limit)
        return self._groups[ranks]

    def make_anew(self) -> None:
        """Destroy every communicator of a block of cases, so that the next block makes its own."""
        for group in (*self._groups.values(), *(self._pipeline or ())):
            dist.destroy_process_group(group)
        self._groups.clear()
        self._pipeline = None

    def pipeline(self) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
        """Return the communicators of activations and of their gradients."""
        if self._pipeline is None:
            everyone = tuple(range(self.nranks))
            self._pipeline = _new_group(everyone, self.limit), _new_group(everyone, self.limit)
        return self._pipeline

    def check_hosts(self) -> None:
        """Raise RuntimeError on every rank unless rank i runs on the host that the plan names for it."""
        found: list[str] = [""] * self.nranks
        dist.all_gather_object(found, socket.gethostname(), group=self.control)
        names = self.plan.node_names
        expected = [name for name in names for _ in range(self.plan.ngpus_per_node)]
        if len(expected) != self.nranks:
            raise RuntimeError(f"the world has {self.nranks} ranks; expected {len(expected)}")
        wrong = [
            f"rank {rank} runs on {host}, expected {name}"
            for rank, (host, name) in enumerate(zip(found, expected, strict=True))
            if host.partition(".")[0] != name.partition(".")[0]
        ]
        if wrong:
            raise RuntimeError("; ".join(wrong))


def _new_group(ranks: tuple[int, ...], limit: timedelta, backend: str | None = None) -> dist.ProcessGroup:
    group: dist.ProcessGroup = dist.new_group(list(ranks), timeout=limit, backend=backend, sort_ranks=False)
    return group


def world_ranks(case: BenchCase, ngpus_per_node: int) -> tuple[tuple[int, ...], ...]:
    """Return the world ranks of each group of a case, every GPU of a node taking part.

    A step has a group for each local rank, whose ranks are the cells of the grid, row by row.
    """
    if case.kind is CaseKind.STEP:
        return tuple(lanes(case.groups[0], ngpus_per_node, local) for local in range(ngpus_per_node))
    return tuple(
        tuple(node * ngpus_per_node + local for node in group for local in range(ngpus_per_node))
        for group in case.groups
    )


def _prepare_collective(world: World, case: BenchCase) -> tuple[Callable[[], object], Callable[[], bool]] | None:
    mine = None
    for ranks in world_ranks(case, world.plan.ngpus_per_node):
        group = world.group(ranks)
        if world.rank in ranks:
            dtype = getattr(torch, case.dtype)
            mine = prepare(
                Collective(case.operation), group, ranks, case.size_bytes, dtype, world.device, in_place=case.in_place
            )
    return (mine.run, mine.is_right) if mine else None


def _prepare_step(world: World, case: BenchCase) -> tuple[Callable[[], object], Callable[[], bool]] | None:
    assert case.step is not None
    forward, backward = world.pipeline()
    mine = None
    for cells in world_ranks(case, world.plan.ngpus_per_node):
        dp_group = None
        for ranks in columns(case.step, cells) if case.step.dp > 1 else ():
            group = world.group(ranks)
            dp_group = group if world.rank in ranks else dp_group
        if world.rank in cells:
            mine = StepProxy(case.step, cells, dp_group, forward, backward, world.device)
    return (mine.run, lambda: True) if mine else None


def measure(world: World, case: BenchCase) -> tuple[bool, list[float]]:
    """Return whether this rank's result is right, and its seconds for each repetition (NaN where it takes no part)."""
    prepared = (_prepare_step if case.kind is CaseKind.STEP else _prepare_collective)(world, case)
    run, is_right = prepared or (lambda: None, lambda: True)
    world.barrier()
    right = is_right()
    for _ in range(case.warmup):
        world.barrier()
        run()
    times_s = timing.timer(world.device)(run, world.barrier, case.repetitions)
    return right, times_s if prepared else [math.nan] * case.repetitions


def gather(world: World, right: bool, times_s: list[float]) -> list[list[float]]:
    """Return for each rank 1 or 0 for a right or wrong result, then its seconds."""
    mine = torch.tensor([float(right), *times_s], dtype=torch.float64)
    everyone = [torch.empty_like(mine) for _ in range(world.nranks)]
    dist.all_gather(everyone, mine, group=world.control)
    return [row.tolist() for row in everyone]


def render_visit(plan: LaunchPlan, visit: Visit, gathered: list[list[float]]) -> dict[str, Any]:
    """Return a visit's line of the shard: the case, its groups' ranks, and seconds by group, rank and repetition."""
    groups = world_ranks(visit.case, plan.ngpus_per_node)
    wrong = [rank for ranks in groups for rank in ranks if not gathered[rank][0]]
    return {
        "type": "case",
        "launch": plan.launch,
        "comm_id": f"{plan.comm_id}.{visit.block}",
        "position": visit.position,
        "block": visit.block,
        "case_id": visit.case.case_id,
        "case": asdict(visit.case),
        "status": "wrong_result" if wrong else "ok",
        "reason": f"wrong values on ranks {', '.join(map(str, wrong))}" if wrong else "",
        "ranks": groups,
        "times_s": [[gathered[rank][1:] for rank in ranks] for ranks in groups],
    }


def kept_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that explain a measurement, by allow-list, and none that may hold a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name.startswith(_KEPT_PREFIXES) or name in _KEPT_NAMES)
        and not any(part in name.upper() for part in _SECRET_PARTS)
    }


def describe_world(world: World) -> dict[str, Any]:
    """Return the shard's first line: versions, settings and hardware as rank 0 sees them."""
    versions = {"torch": torch.__version__, "python": platform.python_version(), "kernel": platform.release()}
    gpu_model = ""
    if world.device.type == "cuda":
        gpu_model = torch.cuda.get_device_name(world.device)
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        versions |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, nccl))}
    return {
        "type": "world",
        "comm_id": world.plan.comm_id,
        "environment": kept_environment(dict(os.environ)),
        "versions": versions,
        "gpu_model": gpu_model,
    }


def drop_torn_line(shard: Path) -> None:
    """Cut off a last line that a kill left without its end, lest the next line be appended to it."""
    if shard.exists():
        os.truncate(shard, shard.read_bytes().rfind(b"\n") + 1)


def _append(shard: Path, line: dict[str, Any]) -> None:
    with shard.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_launch(plan: LaunchPlan) -> None:
    """Measure every case of a launch; every rank of the world calls this."""
    world = World(plan)
    world.check_hosts()
    shard = Path(plan.shard)
    if world.rank == 0:
        drop_torn_line(shard)
        _append(shard, describe_world(world))
    block = plan.visits[0].block
    for visit in plan.visits:
        if visit.block != block:
            world.make_anew()
            block = visit.block
        gathered = gather(world, *measure(world, visit.case))
        if world.rank == 0:
            _append(shard, render_visit(plan, visit, gathered))
    world.barrier()
    dist.destroy_process_group()


def die_with_parent() -> None:
    """Ask the kernel to end this rank when the process that started it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main() -> None:
    """Run the rank that the environment describes."""
    die_with_parent()
    torch.set_num_threads(1)
    run_launch(load_launch(Path(sys.argv[1]).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()

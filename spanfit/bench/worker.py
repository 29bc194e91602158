"""A rank of a campaign: edge; joins the world, measures the cases it is given, and rank 0 appends a line for each.

Run as ``python -m spanfit.bench.worker LAUNCH.json`` under torchrun, mpirun or srun, with MASTER_ADDR and MASTER_PORT
set. It needs the standard library and torch, nothing else.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from spanfit.bench.case import BenchCase, CaseKind, LaunchPlan, Visit, load_launch
from spanfit.bench.device import captured, read_device
from spanfit.bench.environ import by_local_rank, die_with_parent, rank_environment, set_local
from spanfit.bench.heartbeat import Phase
from spanfit.bench.lines import append, drop_torn_line, render_visit, render_world, world_ranks
from spanfit.bench.operations import Allocate, prepare
from spanfit.bench.overlap import measure_overlap
from spanfit.bench.prepared import Prepared, Ring
from spanfit.bench.proxies.channels import axis_groups
from spanfit.bench.proxies.measure import measure_step
from spanfit.bench.startup import measure_startup
from spanfit.bench.timing import Run, batch_size, ended, time_on_cpu, time_on_gpu
from spanfit.bench.warmup import warm_up
from spanfit.bench.world import Outcome, Place, World, no_part, unorderable
from spanfit.collectives import Collective


def _prepare_collective(world: World, case: BenchCase) -> Ring | None:
    mine = None
    for ranks in world_ranks(case, world.plan.ngpus_per_node):
        group = world.group(ranks)
        if world.rank in ranks:
            mine = world.arena.ring(partial(_on_buffers, world, case, group, ranks), getattr(torch, case.dtype))
    return mine


def _on_buffers(
    world: World, case: BenchCase, group: dist.ProcessGroup, ranks: tuple[int, ...], allocate: Allocate
) -> Prepared:
    return prepare(
        Collective(case.operation),
        group,
        ranks,
        case.size_bytes,
        getattr(torch, case.dtype),
        world.device,
        in_place=case.in_place,
        redop=case.redop,
        skew=case.skew,
        allocate=allocate,
    )


def _orders(world: World, case: BenchCase) -> Iterator[tuple[int, ...]]:
    """Yield the ranks of every communicator that a case needs, in order."""
    for ranks in world_ranks(case, world.plan.ngpus_per_node):
        if case.step is None:
            yield ranks
        else:
            yield from (tuple(ranks[rank] for rank in group) for _, group in axis_groups(case.step))


def measure(world: World, case: BenchCase, places: Sequence[Place]) -> Outcome:
    """Return what this rank found in a case; every rank of the world calls this."""
    world.beat(Phase.PREPARE)
    if fault := unorderable(_orders(world, case)):
        return Outcome(is_right=True, parts=no_part((case.operation,), case.repetitions), fault=fault)
    if case.kind is CaseKind.STARTUP:
        return measure_startup(world, case)
    if case.kind is CaseKind.OVERLAP:
        return measure_overlap(world, case, places)
    if case.kind is CaseKind.STEP:
        return measure_step(world, case, places)
    return _measure_operation(world, case)


def _measure_operation(world: World, case: BenchCase) -> Outcome:
    """Return the seconds of a collective: prepared, checked, warmed up, then timed."""
    ring = _prepare_collective(world, case)
    runs: Sequence[Run] = ring.runs if ring else (lambda: None,)
    world.barrier()
    world.beat(Phase.CHECK)
    right = ring.is_right() if ring else True
    if case.graph and ring:
        runs = [captured(run, world.device) for run in runs]
    world.beat(Phase.WARMUP)
    warmed = warm_up([ended(run, world.device) for run in runs], world.barrier, world.slowest, case.warmup)
    world.beat(Phase.TIMED)
    batch = 1
    if world.device.type != "cuda":
        times_s = time_on_cpu(runs, world.barrier, case.repetitions)
    else:
        batch = batch_size(warmed.time_s)
        times_s = time_on_gpu(runs, world.barrier, case.repetitions, batch)
    return Outcome(
        is_right=right,
        parts={case.operation: times_s} if ring else no_part((case.operation,), case.repetitions),
        notes={"warmup": warmed.iterations, "is_warm": warmed.is_stable, "batch": batch},
    )


def gather(world: World, outcome: Outcome) -> list[list[float]]:
    """Return for each rank 1 or 0 for a right or wrong result, then its seconds, part after part."""
    mine = torch.tensor([float(outcome.is_right), *chain(*outcome.parts.values())], dtype=torch.float64)
    everyone = [torch.empty_like(mine) for _ in range(world.nranks)]
    dist.all_gather(everyone, mine, group=world.control)
    return [row.tolist() for row in everyone]


def read_devices(world: World, block: int) -> dict[str, Any]:
    """Return a line with the clocks, temperature and throttle reasons of every GPU, as a block of cases leaves them."""
    readings = [json.loads(text) for text in world.everyone(json.dumps(read_device(world.device)))]
    return {"type": "device", "comm_id": f"{world.plan.comm_id}.{block}", "block": block, "readings": readings}


def describe_world(world: World, places: Sequence[Place]) -> dict[str, Any]:
    """Return the shard's first line: versions, settings and hardware as rank 0 sees them, and where each rank runs."""
    versions: dict[str, str] = {"torch": torch.__version__}
    gpu_model = ""
    if world.device.type == "cuda":
        gpu_model = torch.cuda.get_device_name(world.device)
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        versions |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, nccl))}
    where = {
        "hosts": [place.host for place in places],
        "pids": [place.pid for place in places],
        "init_s": [place.init_s for place in places],
        "rotation_bytes": world.arena.rotation_bytes,
    }
    environment = by_local_rank(os.environ, world.plan.local_environment)
    return render_world(world.plan, environment, versions, gpu_model) | where


def run_launch(plan: LaunchPlan) -> None:
    """Measure every case of a launch; every rank of the world calls this."""
    world = World(plan)
    places = world.check_places()
    shard = Path(plan.shard)
    if world.rank == 0:
        drop_torn_line(shard)
        append(shard, describe_world(world, places))
    for block, visits in groupby(plan.visits, key=lambda visit: visit.block):
        for visit in visits:
            _visit(world, visit, places, shard)
        world.make_anew()
        if world.device.type == "cuda":
            line = read_devices(world, block)
            if world.rank == 0:
                append(shard, line)
    world.barrier()
    dist.destroy_process_group()


def _visit(world: World, visit: Visit, places: Sequence[Place], shard: Path) -> None:
    plan = world.plan
    world.position = visit.position
    outcome = measure(world, plan.seat(visit.case), places)
    world.beat(Phase.GATHER)
    gathered = gather(world, outcome)
    world.beat(Phase.IDLE)
    if world.rank == 0:
        line = render_visit(
            plan, visit, plan.unseat(gathered), parts=tuple(outcome.parts), notes=outcome.notes, fault=outcome.fault
        )
        append(shard, line)


def main() -> None:
    """Run the rank that the environment describes."""
    die_with_parent()
    torch.set_num_threads(1)
    os.environ.update(rank_environment(os.environ))
    plan = load_launch(Path(sys.argv[1]).read_text(encoding="utf-8"))
    set_local(os.environ, plan.local_environment)
    run_launch(plan)


if __name__ == "__main__":
    main()

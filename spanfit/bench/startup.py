"""What it costs to begin: making a communicator, its first operation and its second."""

from time import perf_counter

import torch
import torch.distributed as dist

from spanfit.bench.case import BenchCase
from spanfit.bench.heartbeat import Phase
from spanfit.bench.lines import startup_parts, world_ranks
from spanfit.bench.operations import prepare
from spanfit.bench.timing import ended
from spanfit.bench.world import Outcome, World, new_group, no_part
from spanfit.collectives import Collective


def measure_startup(world: World, case: BenchCase) -> Outcome:
    """Return the seconds of making a communicator anew in each repetition; every rank of the world calls this.

    Libraries connect when a communicator is made (gloo) or at its first operation (nccl), so the time of the
    communicator is both together.
    """
    (ranks,) = world_ranks(case, world.plan.ngpus_per_node)
    names, is_right = startup_parts(case), True
    times_s = []
    world.beat(Phase.TIMED)
    for _ in range(case.repetitions):
        right, seconds = _start(world, case, ranks)
        is_right = is_right and right
        times_s.append(seconds)
    if world.rank not in ranks:
        return Outcome(is_right=True, parts=no_part(names, case.repetitions))
    return Outcome(
        is_right=is_right,
        parts={name: list(part) for name, part in zip(names, zip(*times_s, strict=True), strict=True)},
    )


def _start(world: World, case: BenchCase, ranks: tuple[int, ...]) -> tuple[bool, tuple[float, float, float]]:
    """Return whether the result was right, and the seconds of the parts."""
    world.barrier()
    start = perf_counter()
    group = new_group(ranks, world.limit)
    made_s = perf_counter() - start
    if world.rank not in ranks:
        world.barrier()
        world.barrier()
        return True, (0.0, 0.0, 0.0)
    one = prepare(Collective(case.operation), group, ranks, case.size_bytes, getattr(torch, case.dtype), world.device)
    one.fill()
    run = ended(one.run, world.device)
    seconds = []
    for _ in range(2):
        world.barrier()
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    right = one.is_right()
    dist.destroy_process_group(group)
    return right, (made_s + seconds[0], seconds[0], seconds[1])

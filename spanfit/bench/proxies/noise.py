"""The jobs beside a step: on the ranks of each its steps follow one another on a thread until the step is timed."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from spanfit.bench.case import BenchCase
from spanfit.bench.proxies.channels import Channels
from spanfit.bench.proxies.execution import whole_step
from spanfit.bench.timing import Run, ended
from spanfit.bench.world import World
from spanfit.workload.job import seat_ranks
from spanfit.workload.strategies import plan_job


class _Noise:
    """The part of a rank in a job beside the step.

    Parameters
    ----------
    step : callable
        Runs a step of the job to its end on this rank.
    talk : torch.distributed.ProcessGroup
        Over which its ranks agree that they end, so that none waits for one that has.
    """

    def __init__(self, step: Run, talk: dist.ProcessGroup) -> None:
        self.step = step
        self._talk = talk
        self.is_over = False

    def repeat(self) -> int:
        """Run steps until a rank of the job is told that it is over, and return how many that were."""
        nsteps = 0
        while not self._is_over_anywhere():
            self.step()
            nsteps += 1
        return nsteps

    def _is_over_anywhere(self) -> bool:
        told = torch.tensor([float(self.is_over)])
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._talk)
        return bool(told.item())


@contextmanager
def running_noise(world: World, case: BenchCase) -> Iterator[list[float]]:
    """Run the jobs beside a case for as long as the block lasts; every rank of the world enters it.

    Gives the steps of each job that this rank ran in the block, infinity for those that it is not of, which are known
    when the block has ended. Each job has run a step before the block begins, so that its connections stand.
    """
    nsteps = [math.inf] * len(case.noise)
    found = _part(world, case)
    if found is None:
        world.barrier()
        yield nsteps
        return
    index, part = found
    part.step()
    world.barrier()
    # A thread has a current GPU of its own.
    threads: dict[str, Any] = {}
    if world.device.type == "cuda":
        threads = {"initializer": torch.cuda.set_device, "initargs": (world.device,)}
    with ThreadPoolExecutor(max_workers=1, **threads) as pool:
        running = pool.submit(part.repeat)
        try:
            yield nsteps
        finally:
            part.is_over = True
            nsteps[index] = float(running.result())


def fewest_steps(world: World, nsteps: Sequence[float]) -> list[float]:
    """Return the fewest steps of each job that any of its ranks ran; every rank of the world calls this."""
    return [-fewest for fewest in world.slowest([-own for own in nsteps])]


def silent_jobs(case: BenchCase, nsteps: Sequence[float]) -> str:
    """Return which jobs beside a case ran no step, "" where each ran some."""
    silent = [job.name for job, count in zip(case.noise, nsteps, strict=True) if not count]
    return "; ".join(f"noise {name} ran no step" for name in silent)


def _part(world: World, case: BenchCase) -> tuple[int, _Noise] | None:
    """Return which job beside the case this rank is of, and its part; every rank helps to make the communicators."""
    mine = None
    for index, (job, nodes) in enumerate(zip(case.noise, case.groups[1:], strict=True)):
        for ranks in seat_ranks(job, nodes, world.plan.ngpus_per_node):
            channels = Channels(world, job, ranks)
            talk = world.group(ranks, use="noise", backend="gloo")
            if world.rank in ranks:
                rank = ranks.index(world.rank)
                execution = whole_step(job, plan_job(job, rank), rank, channels, world.device)
                mine = index, _Noise(ended(execution.run, world.device), talk)
    return mine

"""The jobs beside a step: on the ranks of each its steps follow one another on a thread until the step is timed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from spanfit.bench.case import BenchCase
from spanfit.bench.proxies.channels import Channels
from spanfit.bench.proxies.compute import Computer
from spanfit.bench.proxies.execution import Execution, Pool
from spanfit.bench.timing import ended
from spanfit.bench.world import World
from spanfit.workload.job import Job, seat_ranks
from spanfit.workload.strategies import plan_job


class _Noise:
    """The part of a rank in a job beside the step.

    Parameters
    ----------
    job : Job
    ranks : tuple of int
        World ranks of the job.
    channels : Channels
    talk : torch.distributed.ProcessGroup
        Over which its ranks agree that they end, so that none waits for one that has.
    """

    def __init__(
        self, world: World, job: Job, ranks: tuple[int, ...], channels: Channels, talk: dist.ProcessGroup
    ) -> None:
        rank, device = ranks.index(world.rank), world.device
        program = plan_job(job, rank)
        computer = Computer(job.compute, program, torch.float32, device)
        execution = Execution(program, rank, channels, computer, Pool(device, is_kept=False))
        self._step = ended(execution.run, device)
        self._talk = talk
        self.is_over = False

    def repeat(self) -> int:
        """Run steps until a rank of the job is told that it is over, and return how many that were."""
        nsteps = 0
        while not self._is_over_anywhere():
            self._step()
            nsteps += 1
        return nsteps

    def _is_over_anywhere(self) -> bool:
        told = torch.tensor([float(self.is_over)])
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._talk)
        return bool(told.item())


@contextmanager
def running_noise(world: World, case: BenchCase) -> Iterator[list[float]]:
    """Run the jobs beside a case for as long as the block lasts; every rank of the world enters it.

    Gives the steps that this rank ran of each job, which are known when the block has ended.
    """
    nsteps = [0.0] * len(case.noise)
    found = _part(world, case)
    if found is None:
        yield nsteps
        return
    index, part = found
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


def _part(world: World, case: BenchCase) -> tuple[int, _Noise] | None:
    """Return which job beside the case this rank is of, and its part; every rank helps to make the communicators."""
    mine = None
    for index, (job, nodes) in enumerate(zip(case.noise, case.groups[1:], strict=True)):
        for ranks in seat_ranks(job, nodes, world.plan.ngpus_per_node):
            channels = Channels(world, job, ranks)
            talk = world.group(ranks, use="noise", backend="gloo")
            if world.rank in ranks:
                mine = index, _Noise(world, job, ranks, channels, talk)
    return mine

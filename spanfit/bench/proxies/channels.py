"""The communicators of a job: one for each group of an axis, and for messages one for each way that they go."""

import torch.distributed as dist

from spanfit.bench.world import World
from spanfit.workload.job import Job, TrainingJob
from spanfit.workload.program import Axis, Collect, Direction
from spanfit.workload.strategies import plan_job

AxisGroup = tuple[Axis, tuple[int, ...]]
Way = tuple[Direction, bool]
"""The direction of a message, and whether it goes to a rank of a higher number."""


def axis_groups(job: Job) -> tuple[AxisGroup, ...]:
    """Return every group whose ranks call collectives together, in ranks of the job; all of an axis follow each other.

    One rank of each stage says which axes those are, since ranks of a stage do the same.
    """
    stages = job.layout.group_of("pp", 0)
    programs = [plan_job(job, rank) for rank in stages]
    axes = dict.fromkeys(each.axis for program in programs for each in program if isinstance(each, Collect))
    return tuple(dict.fromkeys((axis, job.group(axis, rank)) for axis in axes for rank in range(job.layout.nranks)))


def ways(job: Job) -> tuple[Way, ...]:
    """Return the ways that messages go; where stages are interleaved, each direction also goes back to the start."""
    if job.layout.pp == 1:
        return ()
    straight = ((Direction.FORWARD, True), (Direction.BACKWARD, False))
    if isinstance(job, TrainingJob) and job.virtual_stages > 1:
        return (*straight, (Direction.FORWARD, False), (Direction.BACKWARD, True))
    return straight


class Channels:
    """The communicators of a job whose rank i is ``ranks[i]`` of the world; every rank of the world makes them.

    Messages that go different ways have communicators of their own, since on GPUs those of one wait for each other.
    Each communicator is limited to ``cta`` thread blocks on a GPU where that is not 0.
    """

    def __init__(self, world: World, job: Job, ranks: tuple[int, ...], cta: int = 0) -> None:
        everyone = tuple(range(world.nranks))
        self.ranks = ranks
        self.groups: dict[AxisGroup, dist.ProcessGroup] = {
            (axis, group): world.group(self.seated(group), cta, axis.value) for axis, group in axis_groups(job)
        }
        self.ways: dict[Way, dist.ProcessGroup] = {
            (direction, is_up): world.group(everyone, cta, f"{direction} {'up' if is_up else 'down'}")
            for direction, is_up in ways(job)
        }

    def seated(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """Return the world ranks of a group of the job."""
        return tuple(self.ranks[rank] for rank in group)

"""A training step by torch's own DDP, FSDP2 and pipelines, on a mesh laid out by the ranks that a case names.

The metrics and the arms are those of the proxies; nothing is optimized, so that every step does the same.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from spanfit.bench.prepared import Prepared
from spanfit.bench.training.reference import agrees, is_finite
from spanfit.bench.training.shapes import mesh_groups, mesh_sizes, small
from spanfit.bench.training.transformer import Batch, Layer, build_layers, draw_batch, learn, loss_of
from spanfit.bench.world import World
from spanfit.workload.job import TrainingJob
from spanfit.workload.schedules import Schedule

_SCHEDULES = {
    Schedule.GPIPE: ScheduleGPipe,
    Schedule.ONE_F_ONE_B: Schedule1F1B,
    Schedule.INTERLEAVED: ScheduleInterleaved1F1B,
}


class Training(Protocol):
    """One rank's part in the steps of a job.

    Attributes
    ----------
    layers : mapping of int to Layer
        The layers that this rank trains, with their gradients after a step.
    losses : list of Tensor
        Of each microbatch of the last step, on ranks that hold the last layer.
    """

    layers: Mapping[int, Layer]
    losses: list[Tensor]

    def run(self) -> None:
        """Run one step, from no gradients to those of all replicas; on GPUs it is only enqueued."""
        ...


def prepare_training(job: TrainingJob, cells: tuple[int, ...], world: World) -> Prepared | None:
    """Return this rank's part in a job whose grid is laid over the world, None where it has none.

    Parameters
    ----------
    job : TrainingJob
        One in which ``shapes.faults`` finds nothing. The order of its layout has no say here.
    cells : tuple of int
        World rank of each cell of the grid, row by row: row r, stage s is ``cells[r * pp + s]``.
    world : World
        Every rank of it calls this, with the same job and cells.

    Notes
    -----
    ``holds`` looks for gradients that are not finite, then runs a step of the same job with a small model and compares
    its losses and gradients with those of one process.
    """
    mesh = lay_out(job, cells, world)
    if mesh is None:
        return None
    row = cells.index(world.rank) // job.layout.pp
    training = start(job, mesh, row, world.device)
    return Prepared(
        run=training.run,
        fill=lambda: None,
        # Both on every rank, whatever it finds: the second runs collectives.
        holds=lambda: all([is_finite(training.layers), is_right(small(job), mesh, row, world.device)]),
    )


def lay_out(job: TrainingJob, cells: tuple[int, ...], world: World) -> DeviceMesh | None:
    """Return the job's mesh over the ranks of its cells, None where this rank is no cell; every rank calls this."""
    sizes = mesh_sizes(job)
    mine = []
    for lines in mesh_groups(job, cells):
        for ranks in lines:
            group = world.group(ranks)
            if world.rank in ranks:
                mine.append(group)
    if world.rank not in cells:
        return None
    grid = torch.tensor(cells).view(*sizes.values())
    return DeviceMesh.from_group(mine, world.device.type, mesh=grid, mesh_dim_names=tuple(sizes))


def start(job: TrainingJob, mesh: DeviceMesh, row: int, device: torch.device) -> Training:
    """Return the training that the degrees of a job ask for."""
    batch = draw_batch(job, row, device)
    if job.layout.pp > 1:
        return Pipeline(job, batch, mesh, device)
    layers = build_layers(job, job.layers(0), device)
    return Shares(job, batch, layers, mesh) if job.fsdp > 1 else Copies(job, batch, layers, mesh)


def is_right(job: TrainingJob, mesh: DeviceMesh, row: int, device: torch.device) -> bool:
    """Return whether a step gives the losses and gradients that one process computes; all ranks of the mesh call this.

    It is the second step, since DDP settles its buckets after the first.
    """
    training = start(job, mesh, row, device)
    training.run()
    training.run()
    return agrees(job, row, training.layers, training.losses, device)


class Copies:
    """A copy of the whole model on each rank, by DDP; gradients are reduced in the last microbatch's backward pass."""

    def __init__(self, job: TrainingJob, batch: Batch, layers: Mapping[int, Layer], mesh: DeviceMesh) -> None:
        self.job, self.layers = job, layers
        self.losses: list[Tensor] = []
        self.module = wrap(job, 0, nn.Sequential(*layers.values()), mesh.get_group("dp"))
        self.microbatches = batch.split(job.nmicrobatches)

    def run(self) -> None:
        """Run one step."""
        self.module.zero_grad()
        with self.module.no_sync():
            self.losses = [learn(self.job, self.module, each) for each in self.microbatches[:-1]]
        self.losses.append(learn(self.job, self.module, self.microbatches[-1]))


class Shares:
    """A share of the weights on each rank, by FSDP2: each microbatch gathers units of layers and scatters gradients.

    Replicas agree on their shares in the last microbatch's backward pass. On CPUs torch does all of this in line, not
    beside compute. It pads the rows of each matrix to a multiple of the shares.
    """

    def __init__(self, job: TrainingJob, batch: Batch, layers: Mapping[int, Layer], mesh: DeviceMesh) -> None:
        self.job, self.layers = job, layers
        self.losses: list[Tensor] = []
        units = [nn.Sequential(*(layers[layer] for layer in unit)) for unit in job.buckets_of(0)]
        for unit in units:
            # Backward begins with the last unit, so its weights stay.
            fully_shard(unit, mesh=mesh, reshard_after_forward=unit is not units[-1])
        self.module = nn.Sequential(*units)
        self.sharding = fully_shard(self.module, mesh=mesh)
        self.microbatches = batch.split(job.nmicrobatches)

    def run(self) -> None:
        """Run one step."""
        self.module.zero_grad()
        self.losses = []
        for each in self.microbatches:
            self.sharding.set_requires_all_reduce(each is self.microbatches[-1])
            self.losses.append(learn(self.job, self.module, each))


class Pipeline:
    """Some virtual stages of the model on each rank, by torch's schedules, with copies of each by DDP."""

    def __init__(self, job: TrainingJob, batch: Batch, mesh: DeviceMesh, device: torch.device) -> None:
        self.losses: list[Tensor] = []
        self.layers: Mapping[int, Layer] = {}
        self.later = Later(mesh.get_group("dp")) if job.layout.dp > 1 else None
        stages = []
        for stage in range(mesh.get_local_rank("pp"), job.nstages, job.layout.pp):
            layers = build_layers(job, job.layers(stage), device)
            self.layers = {**self.layers, **layers}
            module: nn.Module = nn.Sequential(*layers.values())
            if self.later is not None:
                module = wrap(job, stage, module, self.later.group)
                module.register_comm_hook(None, self.later.start)
            stages.append(_stage(job, stage, module, mesh.get_group("pp"), device))
        self.targets = batch.targets if stages[-1].is_last else None
        self.tokens = (batch.tokens,) if stages[0].is_first else ()
        self.modules = [stage.submod for stage in stages]
        self.schedule = _schedule(job, stages)

    def run(self) -> None:
        """Run one step."""
        for module in self.modules:
            module.zero_grad()
        self.losses = []
        self.schedule.step(*self.tokens, target=self.targets, losses=self.losses, return_outputs=False)
        if self.later is not None:
            self.later.end()


class Later:
    """Reductions that DDP starts and the end of the step waits for.

    DDP itself waits at the end of a backward pass. In a pipeline that would hold back the gradient of the activations,
    which the stage before waits for: the stages would reduce one after the other.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.works: list[dist.Work] = []

    def start(
        self,
        state: None,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        """Start to reduce a bucket, in place, and tell DDP that it is done."""
        gradients = bucket.buffer().div_(self.group.size())
        work = dist.all_reduce(gradients, group=self.group, async_op=True)
        assert work is not None, "this rank belongs to the group"
        self.works.append(work)
        devices = [gradients.device] if gradients.is_cuda else []
        done: torch.futures.Future[Tensor] = torch.futures.Future(devices=devices)
        done.set_result(gradients)
        return done

    def end(self) -> None:
        """Wait for all of them."""
        for work in self.works:
            work.wait()
        self.works.clear()


def wrap(job: TrainingJob, stage: int, module: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
    """Return a virtual stage of which each rank of a group has a copy.

    A bucket ends with the parameter that makes it as large as the largest of the job's buckets.
    """
    itemsize = job.gradient_dtype.itemsize
    largest = max(sum(sum(job.model.weights(layer)) for layer in bucket) for bucket in job.buckets_of(stage)) * itemsize
    return DistributedDataParallel(
        module,
        process_group=group,
        bucket_cap_mb=largest / 2**20,
        # Gradients stay in the buckets, so that they are reduced where they are.
        gradient_as_bucket_view=True,
    )


def _stage(
    job: TrainingJob, stage: int, module: nn.Module, group: dist.ProcessGroup, device: torch.device
) -> PipelineStage:
    """Return a virtual stage that is told the shapes of its messages, so that nothing else is sent."""
    shape, dtype = (job.microbatch, job.model.sequence), getattr(torch, job.dtype)
    tokens = torch.empty(shape, dtype=torch.int64, device="meta")
    features, logits = (
        torch.empty(*shape, width, dtype=dtype, device="meta", requires_grad=True)
        for width in (job.model.hidden, job.model.vocabulary)
    )
    return PipelineStage(
        module,
        stage,
        job.nstages,
        device,
        input_args=tokens if stage == 0 else features,
        output_args=logits if stage == job.nstages - 1 else features,
        group=group,
    )


def _schedule(job: TrainingJob, stages: list[PipelineStage]) -> Any:
    make: Any = _SCHEDULES[job.schedule]
    given = stages if job.schedule is Schedule.INTERLEAVED else stages[0]
    return make(given, job.nmicrobatches, loss_fn=partial(loss_of, job), scale_grads=False)

"""A training job: how it is spread over ranks and how a step goes, by a model's shapes or by volumes alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanfit.workload.dtypes import Dtype
from spanfit.workload.layout import MEGATRON_PP_FIRST, ParallelLayout
from spanfit.workload.models import Experts, Latent, Model, stage_layers
from spanfit.workload.program import Axis, ComputeMode
from spanfit.workload.schedules import Schedule
from spanfit.workload.volumes import microbatches_per_step

_KINDS = {Axis.DP: "dp-cp", Axis.EXPERT_DP: "edp", Axis.PP: "pp", Axis.TP: "tp", Axis.CP: "cp", Axis.EP: "ep"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training job; its degrees say which strategy it is.

    Attributes
    ----------
    name : str
    model : Model
    layout : ParallelLayout
    global_batch, microbatch : int
        Sequences of a step, and of one pass of a replica.
    fsdp : int
        Ranks that share the weights out, a block of neighbours among the dp x cp ranks that would else each hold them.
    dtype, gradient_dtype : Dtype
        What activations (and the weights that FSDP gathers) and gradients are sent as.
    schedule : Schedule
    virtual_stages : int
        Chunks of the model on each rank; more than one with the interleaved schedule only.
    buckets : int
        Parts in which a chunk's gradients are reduced, at most one a layer. With FSDP the units that are gathered.
    compute : ComputeMode
    flops_per_s : float or None
        Rate of a rank's compute; a calibrated wait needs it.
    message_divisor : int
        Messages and collectives have so many times fewer elements than the model's, so that a fabric that is slower in
        this ratio keeps the shares of compute and communication; compute is as it is.

    Raises
    ------
    ValueError
        With a line for everything that contradicts itself.
    """

    name: str
    model: Model
    layout: ParallelLayout
    global_batch: int
    microbatch: int = 1
    fsdp: int = 1
    dtype: Dtype = Dtype.BFLOAT16
    gradient_dtype: Dtype = Dtype.BFLOAT16
    schedule: Schedule = Schedule.ONE_F_ONE_B
    virtual_stages: int = 1
    buckets: int = 1
    compute: ComputeMode = ComputeMode.PRODUCTS
    flops_per_s: float | None = None
    message_divisor: int = 1

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if faults := [*_batch_faults(self), *_model_faults(self), *_pipeline_faults(self), *_fsdp_faults(self)]:
            raise ValueError("\n".join(faults))

    @property
    def nmicrobatches(self) -> int:
        """Microbatches of a step, Eq. 11."""
        return microbatches_per_step(self.global_batch, self.microbatch, self.layout.dp)

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch on a rank."""
        return self.microbatch * self.model.sequence // self.layout.cp

    @property
    def nstages(self) -> int:
        """Virtual stages: chunks that a microbatch passes on its way."""
        return self.layout.pp * self.virtual_stages

    def layers(self, stage: int) -> range:
        """Return the layers of a virtual stage."""
        return stage_layers(self.model.layers, self.nstages)[stage]

    def buckets_of(self, stage: int) -> tuple[range, ...]:
        """Return the layers of each bucket (or unit of FSDP) of a virtual stage, first layers first."""
        layers = self.layers(stage)
        return tuple(
            layers[part.start : part.stop] for part in stage_layers(len(layers), min(self.buckets, len(layers)))
        )

    def group(self, axis: Axis, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's group along an axis."""
        if axis not in (Axis.SHARD, Axis.REPLICA):
            return self.layout.group_of(_KINDS[axis], rank)
        copies = self.layout.group_of("dp-cp", rank)
        block, position = divmod(copies.index(rank), self.fsdp)
        if axis is Axis.SHARD:
            return copies[block * self.fsdp : (block + 1) * self.fsdp]
        return copies[position :: self.fsdp]

    def groups(self, axis: Axis) -> tuple[tuple[int, ...], ...]:
        """Return all groups of ranks along an axis."""
        if axis not in (Axis.SHARD, Axis.REPLICA):
            return self.layout.groups(_KINDS[axis])
        copies = self.layout.groups("dp-cp")
        if axis is Axis.SHARD:
            firsts = range(0, len(copies[0]), self.fsdp)
            return tuple(each[first : first + self.fsdp] for each in copies for first in firsts)
        return tuple(each[position :: self.fsdp] for each in copies for position in range(self.fsdp))


def _batch_faults(job: TrainingJob) -> Iterator[str]:
    dp = job.layout.dp
    if job.microbatch < 1:
        yield f"microbatch: found {job.microbatch}, expected at least 1"
    elif job.global_batch < 1 or job.global_batch % (job.microbatch * dp):
        yield (
            f"global_batch: found {job.global_batch}, expected a multiple of microbatch x dp = "
            f"{job.microbatch} x {dp} = {job.microbatch * dp}"
        )
    if job.compute is ComputeMode.WAIT and not job.flops_per_s:
        yield "flops_per_s: missing; a calibrated wait needs the rate of a rank's compute, such as 4e14"
    if job.flops_per_s is not None and not 0 < job.flops_per_s < math.inf:
        yield f"flops_per_s: found {job.flops_per_s}, expected a finite number more than 0"
    if job.message_divisor < 1:
        yield f"message_divisor: found {job.message_divisor}, expected at least 1"
    elif job.message_divisor > 1 and job.compute in (ComputeMode.PRODUCTS, ComputeMode.TORCH):
        yield (
            f"message_divisor: found {job.message_divisor} with whole products, which would hide all communication; "
            "expected 1, or compute wait or none"
        )


def _model_faults(job: TrainingJob) -> Iterator[str]:
    model, layout = job.model, job.layout
    if model.heads % layout.tp:
        yield f"tp: found {layout.tp}, expected a divisor of the {model.heads} heads of {model.name}"
    if model.sequence % layout.cp:
        yield f"cp: found {layout.cp}, expected a divisor of the {model.sequence} positions of {model.name}"
    if layout.ep > 1 and model.experts is None:
        yield f"ep: found {layout.ep}, expected 1, since {model.name} has no experts"
    elif model.experts is not None and model.experts.number % layout.ep:
        yield f"ep: found {layout.ep}, expected a divisor of the {model.experts.number} experts of {model.name}"


def _pipeline_faults(job: TrainingJob) -> Iterator[str]:
    pp, chunks = job.layout.pp, job.virtual_stages
    if chunks < 1:
        yield f"virtual_stages: found {chunks}, expected at least 1"
    elif job.nstages > job.model.layers:
        yield f"pp: found {pp} x {chunks} stages, expected at most the {job.model.layers} layers of {job.model.name}"
    if job.buckets < 1:
        yield f"buckets: found {job.buckets}, expected at least 1"
    if (chunks > 1) != (job.schedule is Schedule.INTERLEAVED):
        yield f"virtual_stages: found {chunks} with {job.schedule!s}; expected 2 or more where interleaved, else 1"
    if chunks > 1 and pp < 2:
        yield f"pp: found {pp}, expected at least 2 with the interleaved schedule"
    elif chunks > 1 and not [*_batch_faults(job)] and job.nmicrobatches % pp:
        yield f"global_batch: gives {job.nmicrobatches} microbatches, expected a multiple of pp = {pp} to interleave"


def _fsdp_faults(job: TrainingJob) -> Iterator[str]:
    copies = job.layout.dp * job.layout.cp
    if job.fsdp < 1 or copies % job.fsdp:
        yield f"fsdp: found {job.fsdp}, expected a divisor of dp x cp = {copies}"
    if job.fsdp > 1 and (job.layout.pp > 1 or job.layout.ep > 1):
        yield f"fsdp: found {job.fsdp} with pp = {job.layout.pp} and ep = {job.layout.ep}; expected both 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJob:
    """A DP + PP training step over a grid of nodes, by its volumes and its compute.

    Attributes
    ----------
    name : str
    dp, pp : int
        Rows (PP groups) and columns (DP groups, one a stage) of nodes.
    nmicrobatches : int
    activation_bytes : int
        Sent between neighbouring stages, for each microbatch and direction.
    gradient_bytes : int
        All-reduced in each DP group at the end of the step.
    forward_s, backward_s : float
        Compute of a microbatch on a stage [s].
    schedule : Schedule
    compute : ComputeMode
    """

    name: str
    dp: int
    pp: int
    nmicrobatches: int
    activation_bytes: int
    gradient_bytes: int
    forward_s: float
    backward_s: float
    schedule: Schedule = Schedule.GPIPE
    compute: ComputeMode = ComputeMode.WAIT

    @property
    def layout(self) -> ParallelLayout:
        """Ranks along the rows of the grid: rank = row x pp + stage."""
        return ParallelLayout(dp=self.dp, pp=self.pp, order=MEGATRON_PP_FIRST)

    def group(self, axis: Axis, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's group along an axis."""
        return self.layout.group_of(_KINDS[axis], rank)

    def groups(self, axis: Axis) -> tuple[tuple[int, ...], ...]:
        """Return all groups of ranks along an axis."""
        return self.layout.groups(_KINDS[axis])


Job = TrainingJob | StepJob


def node_grid(job: Job, ngpus_per_node: int) -> tuple[int, int]:
    """Return the rows and columns of nodes of a job; ValueError where its ranks do not fill nodes evenly."""
    return job.layout.grid(1 if isinstance(job, StepJob) else ngpus_per_node)


def seat_ranks(job: Job, nodes: Sequence[int], ngpus_per_node: int) -> tuple[tuple[int, ...], ...]:
    """Return the world rank of each rank of a job, given the world's node in each cell of its grid, row by row.

    A job that is known by its volumes only has one rank a node, and runs once for each local rank.
    """
    rows_and_columns = node_grid(job, ngpus_per_node)
    per_node = 1 if isinstance(job, StepJob) else ngpus_per_node
    seated = [nodes[row * rows_and_columns[1] + column] for row, column in job.layout.node_cells(per_node)]
    if isinstance(job, StepJob):
        return tuple(tuple(node * ngpus_per_node + local for node in seated) for local in range(ngpus_per_node))
    return (tuple(node * ngpus_per_node + local for node in seated for local in range(ngpus_per_node)),)


def load_job(document: Mapping[str, Any]) -> Job:
    """Return the job that ``dataclasses.asdict`` made plain data of, with JSON between or not."""
    enums: dict[str, Any] = {
        "schedule": Schedule(document["schedule"]),
        "compute": ComputeMode(document["compute"]),
    }
    if "model" not in document:
        return StepJob(**{**document, **enums})
    enums |= {key: Dtype(document[key]) for key in ("dtype", "gradient_dtype")}
    layout = ParallelLayout(**document["layout"])
    return TrainingJob(**{**document, **enums, "model": _load_model(document["model"]), "layout": layout})


def _load_model(document: Mapping[str, Any]) -> Model:
    experts, latent = document["experts"], document["latent"]
    return Model(
        **{
            **document,
            "experts": Experts(**experts) if experts else None,
            "latent": Latent(**latent) if latent else None,
        }
    )

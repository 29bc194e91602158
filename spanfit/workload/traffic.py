"""What a step moves in the groups of each kind: counted over programs, and by the volume model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spanfit.collectives import REDUCES
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.program import Axis, Collect, Direction, Program, Send
from spanfit.workload.strategies import plan_step
from spanfit.workload.volumes import pp_volume_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What all ranks move in the groups of a kind in one step.

    Attributes
    ----------
    calls : int
        Messages that ranks send, or collectives that ranks take part in, summed over ranks.
    size_bytes : int
        What they are about: bytes of messages, S of nccl-tests for collectives, summed over ranks.
    """

    calls: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(calls=self.calls + other.calls, size_bytes=self.size_bytes + other.size_bytes)

    def __mul__(self, times: int) -> "Traffic":
        return Traffic(calls=self.calls * times, size_bytes=self.size_bytes * times)


def counted(programs: Iterable[Program]) -> dict[Axis, Traffic]:
    """Return the traffic of programs by the kind of group."""
    found: dict[Axis, Traffic] = {}
    for axis, traffic in (each for program in programs for each in _moves(program)):
        found[axis] = found.get(axis, Traffic()) + traffic
    return found


def counted_by_stage(job: TrainingJob) -> dict[Axis, Traffic]:
    """Return the traffic of a whole job from one rank of each stage, since all ranks of a stage move the same."""
    found: dict[Axis, Traffic] = {}
    for rank in job.layout.group_of("pp", 0):
        for axis, traffic in counted([plan_step(job, rank)]).items():
            found[axis] = found.get(axis, Traffic()) + traffic * (job.layout.nranks // job.layout.pp)
    return found


def _moves(program: Program) -> Iterator[tuple[Axis, Traffic]]:
    for operation in program:
        if isinstance(operation, Send):
            yield Axis.PP, Traffic(calls=1, size_bytes=operation.size_bytes)
        elif isinstance(operation, Collect):
            yield operation.axis, Traffic(calls=1, size_bytes=operation.size_bytes)


def modelled(job: TrainingJob) -> dict[Axis, float]:
    """Return ``size_bytes`` of a step by the kind of group, by the volume model: no program is looked at.

    Notes
    -----
    Eq. 11 gives the microbatches, Eq. 13 the messages between stages; gradients are the parameters that the model's
    shapes give, where Eq. 12 knows GPTs only. Nothing is rounded, so programs may move a few padded elements more.
    """
    found = {
        Axis.PP: _pipeline_bytes(job),
        Axis.TP: _layer_bytes(job, 4 * job.model.layers, job.tokens * job.model.hidden) * (job.layout.tp > 1),
        Axis.CP: _layer_bytes(job, 2 * job.model.layers, _keys_and_values(job)) * (job.layout.cp > 1),
        Axis.EP: _expert_bytes(job) * (job.layout.ep > 1),
        **(_sharded_bytes(job) if job.fsdp > 1 else _reduced_bytes(job)),
    }
    return {axis: size_bytes / job.message_divisor for axis, size_bytes in found.items() if size_bytes}


def gradient_bytes(job: Job) -> int:
    """Return the gradient bytes that a rank reduces over its copies in a step, of the stage that reduces most."""
    if isinstance(job, StepJob):
        return job.gradient_bytes
    axes = (Axis.SHARD,) if job.fsdp > 1 else (Axis.DP, Axis.EXPERT_DP)
    return max(_reduced_by(plan_step(job, rank), axes) for rank in job.layout.group_of("pp", 0))


def boundary_bytes(job: Job) -> int:
    """Return what a rank of the first stage sends forward in a step and gets back, all microbatches together."""
    if isinstance(job, StepJob):
        return 2 * job.nmicrobatches * job.activation_bytes
    return 2 * sum(
        operation.size_bytes
        for operation in plan_step(job, 0)
        if isinstance(operation, Send) and operation.timer.direction is Direction.FORWARD
    )


def _reduced_by(program: Program, axes: Sequence[Axis]) -> int:
    return sum(
        operation.size_bytes
        for operation in program
        if isinstance(operation, Collect) and operation.axis in axes and operation.collective in REDUCES
    )


def _ranks_per_stage(job: TrainingJob) -> int:
    return job.layout.nranks // job.layout.pp


def _pipeline_bytes(job: TrainingJob) -> float:
    message = pp_volume_bytes(
        job.model,
        microbatch=job.microbatch,
        tp=job.layout.tp,
        cp=job.layout.cp,
        activation_itemsize=job.dtype.itemsize,
    )
    return float(2 * job.nmicrobatches * (job.nstages - 1) * message * _ranks_per_stage(job))


def _layer_bytes(job: TrainingJob, times: int, count: float) -> float:
    """Return the bytes of ``count`` activations, moved so many times for each microbatch by the ranks of a stage."""
    return job.nmicrobatches * times * count * job.dtype.itemsize * _ranks_per_stage(job)


def _keys_and_values(job: TrainingJob) -> int:
    model = job.model
    heads = -(-model.kv_heads // job.layout.tp)
    return 2 * heads * model.head_width * job.microbatch * model.sequence


def _expert_bytes(job: TrainingJob) -> float:
    model = job.model
    if model.experts is None:
        return 0.0
    nmixtures = sum(model.is_mixture(layer) for layer in range(model.layers))
    return _layer_bytes(job, 4 * nmixtures, job.tokens * model.experts.top_k * model.hidden / job.layout.tp)


def _reduced_bytes(job: TrainingJob) -> dict[Axis, float]:
    layout = job.layout
    weights = [job.model.weights(layer) for layer in range(job.model.layers)]
    copies = _ranks_per_stage(job) / layout.tp * job.gradient_dtype.itemsize
    shared, experts = (sum(column) * copies for column in zip(*weights, strict=True))
    ncopies = layout.dp * layout.cp
    if layout.ep == 1:
        return {Axis.DP: (shared + experts) * (ncopies > 1)}
    return {Axis.DP: shared, Axis.EXPERT_DP: experts / layout.ep * (ncopies > layout.ep)}


def _sharded_bytes(job: TrainingJob) -> dict[Axis, float]:
    layout, all_weights = job.layout, job.model.nparameters
    kept = sum(sum(job.model.weights(layer)) for layer in job.buckets_of(0)[-1])
    gathered = (2 * all_weights - kept) * job.dtype.itemsize
    scattered = all_weights * job.gradient_dtype.itemsize
    ranks = layout.nranks / layout.tp
    replicas = scattered / job.fsdp * ranks * (layout.dp * layout.cp > job.fsdp)
    return {Axis.SHARD: job.nmicrobatches * (gathered + scattered) * ranks, Axis.REPLICA: replicas}

"""The program of each rank: passes of a pipeline, layers within them, gradients reduced beside or behind them.

All strategies are one composition. The degrees of a job switch its parts on: stages send and receive where there are
several, layers call collectives where their groups have several ranks, and gradients are reduced in buckets, each
started when the last backward pass has left it, or the weights are gathered and shared out again (FSDP).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spanfit.collectives import Collective
from spanfit.workload.dtypes import Dtype
from spanfit.workload.fsdp import Units
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.layers import Layers
from spanfit.workload.program import (
    Axis,
    Collect,
    Compute,
    ComputeMode,
    Direction,
    Operation,
    Program,
    Receive,
    Send,
    Timer,
    Wait,
    divided,
    merged,
)
from spanfit.workload.schedules import Pass, pass_order

Work = Callable[[Pass, bool], Iterable[Operation]]
"""What a rank does in a pass; the flag says that it is the last backward pass of its chunk."""


def plan_job(job: Job, rank: int) -> Program:
    """Return what a rank of a job does in one step, however the job is described; compute none takes no time."""
    program = plan_volumes(job, rank) if isinstance(job, StepJob) else plan_step(job, rank)
    if job.compute is not ComputeMode.NONE:
        return program
    return tuple(replace(each, time_s=0.0) if isinstance(each, Compute) else each for each in program)


def plan_step(job: TrainingJob, rank: int) -> Program:
    """Return what a rank of a training job does in one step."""
    stage = job.layout.coordinate(rank)["pp"]
    passes = pass_order(
        job.schedule,
        stage=stage,
        nstages=job.layout.pp,
        nmicrobatches=job.nmicrobatches,
        nchunks=job.virtual_stages,
    )
    ring = Ring(
        ranks=job.layout.group_of("pp", rank),
        stage=stage,
        nstages=job.nstages,
        count=-(-job.tokens * job.model.hidden // job.layout.tp),
        dtype=job.dtype,
    )
    if job.fsdp > 1:
        operations = compose(passes, ring, Units(job, rank).run, ())
    else:
        gradients = Gradients(job, rank)
        operations = compose(passes, ring, gradients.run, gradients.waits())
    whole = merged(operations)
    return tuple(whole if job.message_divisor == 1 else divided(whole, job.message_divisor))


def plan_volumes(job: StepJob, rank: int) -> Program:
    """Return what a rank does in a step that is known by its volumes and times only.

    Ranks run along the rows of the job's grid: rank = row x pp + stage. Gradients are reduced behind the last pass.
    """
    layout, stage = job.layout, rank % job.pp
    passes = pass_order(job.schedule, stage=stage, nstages=job.pp, nmicrobatches=job.nmicrobatches)
    ring = Ring(
        ranks=layout.group_of("pp", rank),
        stage=stage,
        nstages=job.pp,
        count=_elements(job.activation_bytes),
        dtype=Dtype.FLOAT32,
    )
    times_s = {Direction.FORWARD: job.forward_s, Direction.BACKWARD: job.backward_s}

    def work(step: Pass, is_last: bool) -> Iterator[Operation]:
        timer = Timer("compute", stage, step.microbatch, step.direction)
        yield Compute(timer=timer, time_s=times_s[step.direction])

    reduced = Collect(
        timer=Timer("dp_comm", stage),
        collective=Collective.ALL_REDUCE,
        axis=Axis.DP,
        group=layout.group_of("dp", rank),
        count=_elements(job.gradient_bytes),
        dtype=Dtype.FLOAT32,
    )
    return tuple(compose(passes, ring, work, [reduced] if job.dp > 1 else []))


def _elements(size_bytes: int) -> int:
    return max(1, size_bytes // Dtype.FLOAT32.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ranks that hold the stages of one replica, and what moves between neighbours.

    Attributes
    ----------
    ranks : tuple of int
        By stage; virtual stage v is with ``ranks[v % len(ranks)]``.
    stage : int
        This rank's place.
    nstages : int
        Virtual stages.
    count : int
        Elements of a message.
    dtype : Dtype
    """

    ranks: tuple[int, ...]
    stage: int
    nstages: int
    count: int
    dtype: Dtype

    def virtual_stage(self, step: Pass) -> int:
        """Return the virtual stage of a pass."""
        return step.chunk * len(self.ranks) + self.stage

    def receive(self, step: Pass) -> Iterator[Receive]:
        """Yield the message that a pass needs, if it needs one."""
        stage = self.virtual_stage(step)
        source = stage - 1 if step.direction is Direction.FORWARD else stage + 1
        if 0 <= source < self.nstages:
            yield Receive(
                timer=Timer("pp_comm", stage, step.microbatch, step.direction),
                peer=self.ranks[source % len(self.ranks)],
                count=self.count,
                dtype=self.dtype,
            )

    def send(self, step: Pass) -> Iterator[Send]:
        """Yield the message that a pass leaves, if it leaves one."""
        stage = self.virtual_stage(step)
        target = stage + 1 if step.direction is Direction.FORWARD else stage - 1
        if 0 <= target < self.nstages:
            yield Send(
                timer=Timer("pp_comm", stage, step.microbatch, step.direction),
                peer=self.ranks[target % len(self.ranks)],
                count=self.count,
                dtype=self.dtype,
                handle=f"send {step.direction} of stage {stage}, microbatch {step.microbatch}",
            )


def compose(passes: Sequence[Pass], ring: Ring, work: Work, finish: Iterable[Operation]) -> Iterator[Operation]:
    """Yield each pass between its receive and its send, then what ends the step, then the waits for the sends."""
    last = {step.chunk: step for step in passes if step.direction is Direction.BACKWARD}
    sent: list[Send] = []
    for step in passes:
        yield from ring.receive(step)
        yield from work(step, step == last[step.chunk])
        sends = [*ring.send(step)]
        yield from sends
        sent += sends
    yield from finish
    for send in sent:
        timer = Timer("pp_wait", send.timer.stage, send.timer.microbatch, send.timer.direction)
        yield Wait(timer=timer, handle=send.handle)


class Gradients:
    """The passes of a rank that holds its weights whole, with its gradients reduced in buckets."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        self.job = job
        self.layers = Layers(job, rank)
        self.groups = {axis: job.group(axis, rank) for axis in (Axis.DP, Axis.EXPERT_DP)}
        self.reductions = {
            (stage, bucket): [*self._reductions(stage, bucket, layers)]
            for stage in self.layers.stages
            for bucket, layers in enumerate(job.buckets_of(stage))
        }

    def run(self, step: Pass, is_last: bool) -> Iterator[Operation]:
        """Yield a pass; in the last backward pass the reduction of each bucket starts when its layers are done."""
        stage = self.layers.stages[step.chunk]
        if not is_last:
            yield from self.layers.run(step, stage, self.job.layers(stage))
            return
        for bucket, layers in reversed([*enumerate(self.job.buckets_of(stage))]):
            yield from self.layers.run(step, stage, layers)
            yield from self.reductions[stage, bucket]

    def waits(self) -> Iterator[Wait]:
        """Yield the waits for all reductions, in the order in which they start."""
        for stage, bucket in reversed(self.reductions):
            for reduction in self.reductions[stage, bucket]:
                assert reduction.handle is not None
                yield Wait(timer=Timer(f"{reduction.axis}_wait", stage), handle=reduction.handle)

    def _reductions(self, stage: int, bucket: int, layers: range) -> Iterator[Collect]:
        for axis, count in bucket_counts(self.job, layers).items():
            if count and len(self.groups[axis]) > 1:
                yield Collect(
                    timer=Timer(f"{axis}_comm", stage),
                    collective=Collective.ALL_REDUCE,
                    axis=axis,
                    group=self.groups[axis],
                    count=count,
                    dtype=self.job.gradient_dtype,
                    handle=f"{axis} of stage {stage}, bucket {bucket}",
                )


def bucket_counts(job: TrainingJob, layers: Iterable[int]) -> dict[Axis, int]:
    """Return the gradients of some layers on a rank, by the ranks that hold the same weights."""
    weights = [job.model.weights(layer) for layer in layers]
    tp, ep = job.layout.tp, job.layout.ep
    shared = sum(-(-each.non_expert // tp) for each in weights)
    experts = sum(-(-each.expert // (tp * ep)) for each in weights)
    # Without expert parallelism experts have copies on the same ranks as all else: one reduction for both.
    return {Axis.DP: shared, Axis.EXPERT_DP: experts} if ep > 1 else {Axis.DP: shared + experts}

"""Fully sharded data parallelism: weights are gathered unit by unit beside the compute of the unit before.

Forward, a unit's weights are gathered while the one before computes. Backward, they are gathered again (the last unit
still has them), and a unit's gradients are reduced and scattered while the next one computes; the shards are then
reduced over the replicas, once a step, behind the last microbatch. Each microbatch gathers and scatters anew.
"""

from collections.abc import Iterator

from spanfit.collectives import Collective
from spanfit.workload.job import TrainingJob
from spanfit.workload.layers import Layers
from spanfit.workload.program import Axis, Collect, Direction, Operation, Timer, Wait
from spanfit.workload.schedules import Pass


class Units:
    """The passes of a rank that holds one share of every unit's weights."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        self.job = job
        self.layers = Layers(job, rank)
        self.groups = {axis: job.group(axis, rank) for axis in (Axis.SHARD, Axis.REPLICA)}
        self.units = job.buckets_of(0)
        self.shards = [shard_count(job, unit) for unit in self.units]

    def run(self, step: Pass, is_last: bool) -> Iterator[Operation]:
        """Yield a pass through all units; ``is_last`` says that replicas agree on the gradients behind it."""
        if step.direction is Direction.FORWARD:
            return self._forward(step)
        return self._backward(step, is_last)

    def _forward(self, step: Pass) -> Iterator[Operation]:
        yield self._start(Collective.ALL_GATHER, step, 0)
        yield self._wait(Collective.ALL_GATHER, step, 0)
        for unit, layers in enumerate(self.units):
            following = [unit + 1] if unit + 1 < len(self.units) else []
            yield from (self._start(Collective.ALL_GATHER, step, each) for each in following)
            yield from self.layers.run(step, 0, layers)
            yield from (self._wait(Collective.ALL_GATHER, step, each) for each in following)

    def _backward(self, step: Pass, is_last: bool) -> Iterator[Operation]:
        units = range(len(self.units) - 1, -1, -1)
        for unit in units:
            if unit:
                yield self._start(Collective.ALL_GATHER, step, unit - 1)
            yield from self.layers.run(step, 0, self.units[unit])
            if unit < units[0]:
                yield from self._scattered(step, unit + 1, is_last)
            yield self._start(Collective.REDUCE_SCATTER, step, unit)
            if unit:
                yield self._wait(Collective.ALL_GATHER, step, unit - 1)
        yield from self._scattered(step, 0, is_last)
        if is_last and self.has_replicas:
            yield from (self._wait(Collective.ALL_REDUCE, step, unit) for unit in units)

    @property
    def has_replicas(self) -> bool:
        """Whether other ranks hold the same shards."""
        return len(self.groups[Axis.REPLICA]) > 1

    def _scattered(self, step: Pass, unit: int, is_last: bool) -> Iterator[Operation]:
        """Yield the end of a unit's reduce-scatter and the start of its all-reduce over replicas."""
        yield self._wait(Collective.REDUCE_SCATTER, step, unit)
        if is_last and self.has_replicas:
            yield self._start(Collective.ALL_REDUCE, step, unit)

    def _start(self, collective: Collective, step: Pass, unit: int) -> Collect:
        axis = Axis.REPLICA if collective is Collective.ALL_REDUCE else Axis.SHARD
        is_weights = collective is Collective.ALL_GATHER
        return Collect(
            timer=Timer(collective, 0, step.microbatch, step.direction),
            collective=collective,
            axis=axis,
            group=self.groups[axis],
            count=self.shards[unit] * (self.job.fsdp if axis is Axis.SHARD else 1),
            dtype=self.job.dtype if is_weights else self.job.gradient_dtype,
            handle=_handle(collective, step, unit),
        )

    def _wait(self, collective: Collective, step: Pass, unit: int) -> Wait:
        timer = Timer(f"{collective}_wait", 0, step.microbatch, step.direction)
        return Wait(timer=timer, handle=_handle(collective, step, unit))


def shard_count(job: TrainingJob, layers: range) -> int:
    """Return the elements of a unit that each rank of a shard group holds, the last padded."""
    held = sum(-(-sum(job.model.weights(layer)) // job.layout.tp) for layer in layers)
    return -(-held // job.fsdp)


def _handle(collective: Collective, step: Pass, unit: int) -> str:
    return f"{collective} {step.direction} of unit {unit}, microbatch {step.microbatch}"

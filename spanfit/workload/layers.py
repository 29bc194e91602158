"""What a rank does in the layers of its chunk: products, and the collectives that tensor, context and expert
parallelism put between them.

Forward: queries, keys and values; keys and values gathered over CP; attention; all-reduce over TP; the MLP, with tokens
sent to their experts and back (all-to-all over EP) in a mixture; all-reduce over TP. Backward: each half in reverse,
then its all-reduce over TP, with a reduce-scatter over CP where forward gathers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from spanfit.collectives import Collective
from spanfit.workload.job import TrainingJob
from spanfit.workload.program import Axis, Collect, Compute, Direction, Operation, Product, Timer
from spanfit.workload.schedules import Pass


@dataclass(frozen=True, slots=True)
class _Move:
    """A collective between products: what forward and what backward calls."""

    axis: Axis
    forward: Collective
    backward: Collective
    count: int


_Step = tuple[Product, ...] | _Move


class Layers:
    """The layers of a training job as one rank works through them.

    Parameters
    ----------
    job : TrainingJob
    rank : int
    """

    def __init__(self, job: TrainingJob, rank: int) -> None:
        self.job = job
        self.groups = {axis: job.group(axis, rank) for axis in (Axis.TP, Axis.CP, Axis.EP)}
        self.stages = range(job.layout.coordinate(rank)["pp"], job.nstages, job.layout.pp)
        self.halves = {
            layer: (self._attention(), self._mlp(layer)) for stage in self.stages for layer in job.layers(stage)
        }

    def run(self, step: Pass, stage: int, layers: Sequence[int]) -> Iterator[Operation]:
        """Yield the operations of a pass through some layers of a virtual stage."""
        if step.direction is Direction.FORWARD:
            halves = chain.from_iterable(self.halves[layer] for layer in layers)
        else:
            halves = chain.from_iterable(reversed(self.halves[layer]) for layer in reversed(layers))
        for half in halves:
            for part in half if step.direction is Direction.FORWARD else reversed(half):
                if isinstance(part, _Move):
                    yield from self._move(part, step, stage)
                else:
                    yield self._compute(part, step, stage)
            count = self.job.tokens * self.job.model.hidden
            yield from self._move(_Move(Axis.TP, Collective.ALL_REDUCE, Collective.ALL_REDUCE, count), step, stage)

    def _attention(self) -> tuple[_Step, ...]:
        job, layout = self.job, self.job.layout
        model, tokens = job.model, job.tokens
        keys_values = 2 * -(-model.kv_heads // layout.tp) * model.head_width * job.microbatch * model.sequence
        return (
            tuple(matrix.product(tokens, layout.tp) for matrix in model.projections()),
            _Move(Axis.CP, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, keys_values),
            (*model.attention(job.microbatch, layout.tp, layout.cp), model.output().product(tokens, layout.tp)),
        )

    def _mlp(self, layer: int) -> tuple[_Step, ...]:
        job, layout = self.job, self.job.layout
        model, tokens = job.model, job.tokens
        steps: list[_Step] = [tuple(matrix.product(tokens, layout.tp) for matrix in model.mlps(layer))]
        if model.is_mixture(layer):
            assert model.experts is not None
            exchange = _Move(Axis.EP, Collective.ALL_TO_ALL, Collective.ALL_TO_ALL, _routed_count(job))
            visitors = -(-tokens * layout.ep * model.experts.top_k // model.experts.number)
            experts = tuple(matrix.product(visitors, layout.tp) for matrix in model.routed(layout.ep))
            steps += [exchange, experts, exchange]
        if layer == model.layers - 1:
            steps.append((model.head().product(tokens, layout.tp),))
        return tuple(steps)

    def _compute(self, products: tuple[Product, ...], step: Pass, stage: int) -> Compute:
        if step.direction is Direction.BACKWARD:
            products = tuple(chain.from_iterable(product.backward() for product in products))
        rate = self.job.flops_per_s
        time_s = sum(product.flops for product in products) / rate if rate else None
        timer = Timer("compute", stage, step.microbatch, step.direction)
        return Compute(timer=timer, products=products, time_s=time_s)

    def _move(self, move: _Move, step: Pass, stage: int) -> Iterator[Collect]:
        if len(self.groups[move.axis]) == 1:
            return
        yield Collect(
            timer=Timer(f"{move.axis}_comm", stage, step.microbatch, step.direction),
            collective=move.forward if step.direction is Direction.FORWARD else move.backward,
            axis=move.axis,
            group=self.groups[move.axis],
            count=move.count,
            dtype=self.job.dtype,
        )


def _routed_count(job: TrainingJob) -> int:
    """Return the elements of the copies of a rank's tokens on their way to the experts, a multiple of ep.

    Like activations between stages they are shared out over TP.
    """
    assert job.model.experts is not None
    count = -(-job.tokens * job.model.experts.top_k * job.model.hidden // job.layout.tp)
    return -(-count // job.layout.ep) * job.layout.ep

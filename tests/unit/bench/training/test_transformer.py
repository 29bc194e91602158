"""The transformer has the parameters that its shapes say and looks back only; a wrong step is told from a right one."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from spanfit.bench.training.reference import agrees, alone
from spanfit.bench.training.shapes import small
from spanfit.bench.training.transformer import build_layers, draw_batch, learn
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.models import Model

CPU = torch.device("cpu")
PLAIN = Model(
    name="plain",
    layers=3,
    hidden=24,
    mlp=40,
    heads=4,
    kv_heads=4,
    head_width=6,
    vocabulary=13,
    sequence=7,
    gated=False,
    tied=False,
    positions=True,
    biases=True,
    source="made up",
)
GATED = replace(PLAIN, kv_heads=2, head_width=8, gated=True, positions=False, biases=False)


def job(model: Model) -> TrainingJob:
    return TrainingJob(
        name="job",
        model=model,
        layout=ParallelLayout(dp=2, pp=1),
        global_batch=4,
        dtype=Dtype.FLOAT32,
        gradient_dtype=Dtype.FLOAT32,
    )


@pytest.mark.parametrize("model", [PLAIN, GATED, small(job(PLAIN)).model, small(job(GATED)).model])
def test_every_layer_has_the_parameters_that_its_shapes_say(model: Model) -> None:
    for index, layer in build_layers(job(model), range(model.layers), CPU).items():
        assert sum(parameter.numel() for parameter in layer.parameters()) == sum(model.weights(index))


@pytest.mark.parametrize("model", [PLAIN, GATED])
def test_logits_depend_on_the_tokens_before_and_on_no_later_one(model: Model) -> None:
    whole = nn.Sequential(*build_layers(job(model), range(model.layers), CPU).values())
    tokens = torch.arange(model.sequence)[None] % model.vocabulary
    other = tokens.clone()
    other[0, 4] += 1
    with torch.no_grad():
        differs = (whole(tokens) - whole(other)).abs().amax(dim=(0, 2))
    assert bool((differs[:4] < 1e-6).all())
    assert bool((differs[4:] > 1e-6).all())


def test_layers_are_the_same_wherever_they_are_built_and_leave_no_trace() -> None:
    torch.default_generator.manual_seed(5)
    state = torch.get_rng_state()
    (alone_there,) = build_layers(job(PLAIN), [2], CPU).values()
    together = build_layers(job(PLAIN), range(3), CPU)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(alone_there.parameters(), together[2].parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(together[0].mlp[1].up.weight, together[1].mlp[1].up.weight)  # type: ignore[union-attr,arg-type]


def test_each_replica_has_its_own_sequences() -> None:
    first, again, second = (draw_batch(job(PLAIN), row, CPU).tokens for row in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_a_step_of_all_replicas_is_right_and_one_that_lacks_any_is_not() -> None:
    layers, losses = alone(job(GATED), CPU)
    assert agrees(job(GATED), 1, layers, losses[1], CPU)
    assert agrees(job(GATED), 1, {2: layers[2]}, [], CPU)
    assert not agrees(job(GATED), 1, layers, losses[0], CPU)
    lonely = build_layers(job(GATED), range(3), CPU)
    for microbatch in draw_batch(job(GATED), 0, CPU).split(2):
        learn(job(GATED), nn.Sequential(*lonely.values()), microbatch)
    assert not agrees(job(GATED), 0, lonely, losses[0], CPU)

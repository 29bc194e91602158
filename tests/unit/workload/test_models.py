import pytest

from spanfit.workload.models import Model, stage_layers
from spanfit.workload.program import Product
from tests.unit.workload.factory import MODELS

PUBLISHED = {
    "gpt-2": 124.4e6,
    "gpt-2-xl": 1.558e9,
    "llama-3-8b": 8.03e9,
    "llama-3-70b": 70.55e9,
    "mixtral-8x7b": 46.70e9,
    "deepseek-v3": 671e9,
    "gpt-7b": 7e9,
    "gpt-14b": 14e9,
    "gpt-24b": 24e9,
}


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_shapes_give_the_published_totals(name: str, total: float) -> None:
    tolerance = 0.03 if name in ("gpt-14b", "gpt-7b") else 0.02
    assert MODELS[name].nparameters == pytest.approx(total, rel=tolerance)


def test_a_mixture_is_split_into_experts_and_what_every_rank_holds() -> None:
    weights = [MODELS["mixtral-8x7b"].weights(layer) for layer in range(32)]
    assert sum(each.expert for each in weights) == 32 * 8 * 3 * 4096 * 14336
    assert sum(each.non_expert for each in weights) == pytest.approx(1.6e9, rel=0.01)
    assert MODELS["mixtral-8x7b"].active_parameters == pytest.approx(12.9e9, rel=0.01)
    assert MODELS["deepseek-v3"].active_parameters == pytest.approx(37e9, rel=0.02)
    assert MODELS["deepseek-v3"].weights(2).expert == 0 < MODELS["deepseek-v3"].weights(3).expert


def test_flops_of_a_gpt_are_those_of_the_books() -> None:
    model, batch = MODELS["gpt-2-xl"], 16
    n, d, h = model.sequence, model.hidden, model.mlp
    layer = 8 * batch * n * d**2 + 4 * batch * n**2 * d + 4 * batch * n * d * h
    assert model.forward_flops(0, batch) == layer
    assert model.forward_flops(47, batch) == layer + 2 * batch * n * d * model.vocabulary


def test_flops_of_a_mixture_are_those_of_the_experts_that_tokens_visit() -> None:
    model = MODELS["mixtral-8x7b"]
    tokens, d = 2 * model.sequence, model.hidden
    attention = 2 * tokens * (d * (d + 2 * 1024) + d * d) + 4 * 2 * model.sequence**2 * d
    assert model.forward_flops(0, 2) == attention + 2 * tokens * d * 8 + 2 * tokens * 2 * 3 * d * model.mlp


def test_a_rank_of_tensor_parallelism_has_its_share_of_each_product() -> None:
    model = MODELS["tiny"]
    (projection,) = (matrix.product(64, 4) for matrix in model.projections())
    assert projection == Product(64, 64, 3 * 64 // 4)
    assert model.output().product(64, 4) == Product(64, 64 // 4, 64)
    assert model.attention(3, 2, 2)[0] == Product(32, 16, 64, 3 * 2)


@pytest.mark.parametrize(
    ("nlayers", "nstages", "sizes"), [(8, 2, [4, 4]), (8, 3, [3, 3, 2]), (61, 8, None), (3, 3, [1, 1, 1])]
)
def test_layers_are_shared_out_evenly_in_order(nlayers: int, nstages: int, sizes: list[int] | None) -> None:
    stages = stage_layers(nlayers, nstages)
    assert [layer for stage in stages for layer in stage] == list(range(nlayers))
    found = [len(stage) for stage in stages]
    assert max(found) - min(found) <= 1
    assert sizes is None or found == sizes


def test_a_model_of_nothing_is_refused_with_every_reason() -> None:
    with pytest.raises(ValueError, match="layers: found 0, expected at least 1\nhidden: found -1, expected"):
        Model(
            name="none",
            layers=0,
            hidden=-1,
            mlp=1,
            heads=1,
            kv_heads=1,
            head_width=1,
            vocabulary=1,
            sequence=1,
            gated=False,
            tied=False,
            positions=False,
            biases=False,
            source="here",
        )

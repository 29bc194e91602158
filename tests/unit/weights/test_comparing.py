from dataclasses import replace

import pytest

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.comparing import compare
from spanfit.weights.model import SCHEMA_VERSION, Source, WeightEntry, WeightSet
from tests.unit.weights.test_scaling import bare, entry

MEASURED = entry(0.3, 0.3)


def of(*entries: WeightEntry) -> WeightSet:
    return WeightSet(schema_version=SCHEMA_VERSION, entries=entries)


def predicted(alpha: float) -> WeightEntry:
    bounds = Estimate(value=alpha, ci_low=alpha - 0.02, ci_high=alpha + 0.02)
    return replace(MEASURED, source=Source.PREDICTED, alpha=bounds, beta=bare(1 - alpha))


@pytest.mark.parametrize(("alpha", "is_apart"), [(0.5, False), (0.61, False), (0.63, True), (0.3, True)])
def test_sources_disagree_where_their_intervals_have_nothing_in_common(alpha: float, is_apart: bool) -> None:
    found = compare(of(MEASURED), of(predicted(alpha)))
    assert [each.quantity for each in found.differences] == ["alpha", "gain_dp", "gain_pp"]
    assert [each.quantity for each in found.apart] == ["alpha"] * is_apart
    assert (found.differences[0].source_a, found.differences[0].source_b) == (Source.MEASURED, Source.PREDICTED)


@pytest.mark.parametrize("model", ["NVIDIA H800 80GB", "h800", ""])
def test_measured_and_predicted_meet_by_either_spelling_of_their_gpus(model: str) -> None:
    found = compare(of(MEASURED), of(replace(predicted(0.5), gpu_model=model)))
    assert len(found.differences) == 3 and {each.gpu_model for each in found.differences} == {"H800"}
    assert compare(of(replace(predicted(0.5), gpu_model=model)), of(MEASURED)).only_b == ()


def test_a_value_by_hand_disagrees_where_the_interval_does_not_hold_it() -> None:
    by_hand = replace(MEASURED, source=Source.HAND, alpha=bare(0.45), beta=bare(0.55), gain_dp=None, volumes=None)
    found = compare(of(MEASURED), of(by_hand))
    assert [each.quantity for each in found.differences] == ["alpha", "gain_pp"]
    assert not found.apart
    far = replace(by_hand, alpha=bare(0.8), beta=bare(0.2))
    assert len(compare(of(MEASURED), of(far)).apart) == 1


def test_jobs_that_one_set_lacks_are_named() -> None:
    other = replace(MEASURED, job="other")
    wider = replace(MEASURED, dp=12)
    found = compare(of(MEASURED, other), of(MEASURED, wider))
    assert found.only_a == ("other on H800 (6 x 2 nodes)",)
    assert found.only_b == ("moe on H800 (12 x 2 nodes)",)


def test_sets_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"found moe on H800 .* in one and none in the other"):
        compare(of(MEASURED), of())

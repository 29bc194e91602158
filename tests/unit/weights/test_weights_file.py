import json
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.io import read_weights, write_weights
from spanfit.weights.model import SCHEMA_VERSION, WeightEntry, WeightSet

ENTRY = WeightEntry(
    job="balanced",
    gpu_model="emulated",
    dp=4,
    pp=2,
    alpha=Estimate(value=0.186, ci_low=0.162, ci_high=0.21),
    beta=Estimate(value=0.814, ci_low=0.79, ci_high=0.838),
    gain_dp=Estimate(value=0.079, ci_low=None, ci_high=None),
    gain_pp=Estimate(value=0.346, ci_low=0.328, ci_high=0.364),
    is_flat=False,
    is_provisional=False,
    base_arms=("misaligned-00", "misaligned-01"),
    compute="wait",
    launches=6,
    dp_to_pp_volume=1.0,
)
WEIGHTS = WeightSet(
    schema_version=SCHEMA_VERSION,
    run_ids=("20260102-demo",),
    cluster="demo",
    transport="testbed demo",
    created_at="2026-01-03T00:00:00+00:00",
    spanfit_version="0.1.0",
    entries=(ENTRY,),
)


def test_weights_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.json", WEIGHTS)
    assert read_weights(tmp_path / "weights.json") == WEIGHTS


def test_another_version_is_refused_with_the_cure(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.json", replace(WEIGHTS, schema_version=99))
    with pytest.raises(ConfigError, match="schema_version: found 99, expected 1; write the file again"):
        read_weights(tmp_path / "weights.json")


def test_weights_that_are_no_shares_of_one_are_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.json", WEIGHTS)
    document = json.loads((tmp_path / "weights.json").read_text())
    document["entries"][0]["alpha"]["value"] = 0.5
    (tmp_path / "weights.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"entries\[0\]: job balanced: alpha is 0.5, beta is 0.814"):
        read_weights(tmp_path / "weights.json")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_impossible_alpha_is_refused(value: float) -> None:
    other = Estimate(value=1 - value, ci_low=None, ci_high=None)
    with pytest.raises(ValueError, match="expected shares of one"):
        replace(ENTRY, alpha=Estimate(value=value, ci_low=None, ci_high=None), beta=other)

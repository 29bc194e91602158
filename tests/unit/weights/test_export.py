import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.export import render_configmap, render_csv, render_yaml
from spanfit.weights.io import read_weights, sealed
from spanfit.weights.model import WeightSet
from tests.unit.weights.factory import BY_HAND, ENTRY, WEIGHTS

SEALED = sealed(replace(WEIGHTS, entries=(ENTRY, replace(ENTRY, job="yes: no # 'x' \"y\" \u2028 \x7f 日本 😀"))))
HOSTILE = ("no", "1e3", "~", "- a", "{{ x }}", "a: b", "\n---\n", "*x", "&x", "!!python/object:x", "", "\x85", "\ufeff")


@pytest.mark.parametrize("weights", [SEALED, BY_HAND])
def test_yaml_is_read_back_as_the_file(weights: WeightSet) -> None:
    assert yaml.safe_load(render_yaml(weights)) == json.loads(files.render_json(weights))
    assert files.parse(WeightSet, yaml.safe_load(render_yaml(weights)), "yaml") == weights


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(HOSTILE))
def test_any_name_stays_text_in_yaml(name: str) -> None:
    named = replace(BY_HAND, entries=(replace(BY_HAND.entries[0], job=name),))
    assert yaml.safe_load(render_yaml(named))["entries"][0]["job"] == name


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_stays_that_number_in_yaml(value: float) -> None:
    entry = replace(ENTRY, gain_dp=Estimate(value=value, ci_low=None, ci_high=None))
    read = yaml.safe_load(render_yaml(replace(WEIGHTS, entries=(entry,))))
    found = read["entries"][0]["gain_dp"]["value"]
    assert isinstance(found, float) and found == value


def test_a_configmap_holds_the_file_with_its_seal(tmp_path: Path) -> None:
    manifest = yaml.safe_load(render_configmap(SEALED, name="spanfit-weights", namespace="kube-system"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("v1", "ConfigMap")
    assert manifest["metadata"] == {"name": "spanfit-weights", "namespace": "kube-system"}
    (tmp_path / "weights.json").write_text(manifest["data"]["weights.json"])
    assert read_weights(tmp_path / "weights.json") == SEALED
    assert "namespace" not in yaml.safe_load(render_configmap(SEALED, name="w", namespace=None))["metadata"]


def test_what_kubernetes_would_refuse_is_named_at_once() -> None:
    many = replace(WEIGHTS, entries=(ENTRY,) * 1000)
    with pytest.raises(ConfigError) as refused:
        render_configmap(many, name="Weights_1", namespace="a.b")
    for text in ("--name: found 'Weights_1'", "--namespace: found 'a.b'", "expected at most the 1048576"):
        assert text in str(refused.value)


def test_csv_is_read_back_with_every_number_as_it_was() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(SEALED))))
    assert [row["job"] for row in rows] == [entry.job for entry in SEALED.entries]
    for row, entry in zip(rows, SEALED.entries, strict=True):
        for name in ("alpha", "beta", "gain_dp", "gain_pp", "base_time_s"):
            bounds = [row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"]]
            value, low, high = (float(text) if text else None for text in bounds)
            assert value is not None and Estimate(value=value, ci_low=low, ci_high=high) == getattr(entry, name)
        assert entry.volumes is not None
        assert [float(row[key]) for key in ("dp_bytes", "pp_bytes", "r1", "r2")] == [
            *(entry.volumes.dp_bytes, entry.volumes.pp_bytes, entry.volumes.r1, entry.volumes.r2)
        ]
        assert (row["source"], row["content_hash"]) == ("measured", SEALED.content_hash)


def test_csv_leaves_empty_what_a_person_did_not_say() -> None:
    (row,) = csv.DictReader(io.StringIO(render_csv(BY_HAND)))
    assert (row["alpha"], row["gain_dp"], row["r1"], row["valid_until"]) == ("0.186", "", "", "")
    assert render_csv(replace(BY_HAND, entries=())) == "job\n"

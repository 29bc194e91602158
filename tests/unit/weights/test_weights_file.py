import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.io import content_hash, read_weights, sealed, write_weights
from spanfit.weights.model import Source, WeightSet, remarks
from tests.unit.weights.factory import BY_HAND, ENTRY, WEIGHTS

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "weights.json"


def changed(path: Path, change: Callable[[Any], object]) -> Path:
    """Write the weights, then change what they say."""
    write_weights(path, WEIGHTS)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("weights", [WEIGHTS, BY_HAND])
def test_weights_come_back_as_they_were_written(tmp_path: Path, weights: WeightSet) -> None:
    write_weights(tmp_path / "weights.json", weights)
    assert read_weights(tmp_path / "weights.json") == sealed(weights)


def test_measured_weights_are_sealed_and_those_by_hand_are_not() -> None:
    assert re.fullmatch("[0-9a-f]{64}", sealed(WEIGHTS).content_hash)
    assert sealed(BY_HAND).content_hash == ""
    predicted = replace(WEIGHTS, entries=(replace(ENTRY, source=Source.PREDICTED),))
    assert sealed(predicted).content_hash not in ("", sealed(WEIGHTS).content_hash)
    assert sealed(sealed(WEIGHTS)) == sealed(WEIGHTS)


def test_the_hash_is_that_of_the_text_with_none_in_its_place(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.json", WEIGHTS)
    text = (tmp_path / "weights.json").read_text()
    blank = re.sub(r'"content_hash": "[0-9a-f]+"', '"content_hash": ""', text)
    assert hashlib.sha256(blank.encode()).hexdigest() == content_hash(WEIGHTS)


def test_another_layout_of_the_same_content_is_no_change(tmp_path: Path) -> None:
    assert read_weights(changed(tmp_path / "weights.json", lambda document: None)) == sealed(WEIGHTS)


def set_alpha(document: Any) -> None:
    document["entries"][0]["alpha"]["value"], document["entries"][0]["beta"]["value"] = 0.5, 0.5


def unseal(document: Any) -> None:
    document["content_hash"] = ""


def test_a_file_that_was_changed_is_refused_with_the_cure(tmp_path: Path) -> None:
    for change in (set_alpha, unseal):
        with pytest.raises(ConfigError, match=r"content_hash: found .*, expected .* was changed since .* fit .* again"):
            read_weights(changed(tmp_path / "weights.json", change))


def test_a_seal_on_weights_by_hand_must_hold_too(tmp_path: Path) -> None:
    files.write_json(tmp_path / "weights.json", replace(BY_HAND, content_hash="0" * 64))
    with pytest.raises(ConfigError, match="content_hash: found 0000"):
        read_weights(tmp_path / "weights.json")


def test_weights_by_hand_need_little(tmp_path: Path) -> None:
    share = {"value": 0.25, "ci_low": None, "ci_high": None}
    entry = {"job": "mine", "gpu_model": "H100", "dp": 6, "pp": 2, "alpha": share, "source": "hand"}
    entry["beta"] = {**share, "value": 0.75}
    (tmp_path / "weights.json").write_text(json.dumps({"schema_version": 2, "entries": [entry]}))
    found = read_weights(tmp_path / "weights.json")
    assert (found.entries[0].alpha.value, found.valid_until, found.fabric) == (0.25, None, None)
    assert remarks(found.entries[0]) == ("given by hand, not measured",)


def test_other_versions_are_refused_each_with_its_cure(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    cures = {99: "found 99, expected 2: a newer spanfit wrote it; install", 1: "found 1, expected 2; fit .* again"}
    for version, message in cures.items():
        files.write_json(path, replace(WEIGHTS, schema_version=version))
        with pytest.raises(ConfigError, match=f"schema_version: {message}"):
            read_weights(path)


def test_what_is_no_json_or_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    for text, message in (
        ("{", "not valid JSON"),
        ('{"schema_version": NaN}', "NaN, expected a number"),
        ("[]", "None"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_weights(path)


def spoil(document: Any) -> None:
    entry = document["entries"][0]
    entry["alpha"]["value"], entry["gain_dp"] = 0.5, None
    document["entries"].append({**entry, "dp": 0, "job": "other", "beta": {**entry["beta"], "value": 0.5}})


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_weights(changed(tmp_path / "weights.json", spoil))
    for text in (
        "entries[0]: job balanced: alpha is 0.5, beta is 0.814",
        "entries[0]: job balanced: gain_dp: missing; weights whose source is measured need it",
        "entries[1]: job other: the grid is 0 x 2 nodes",
    ):
        assert text in str(refused.value)


def test_unknown_keys_are_refused_at_every_depth(tmp_path: Path) -> None:
    def colour(document: Any) -> None:
        document["colour"] = document["entries"][0]["alpha"]["colour"] = "red"

    with pytest.raises(ConfigError) as refused:
        read_weights(changed(tmp_path / "weights.json", colour))
    for key in ("colour", "entries[0].alpha.colour"):
        assert f"weights.json: {key}: unknown key" in str(refused.value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_impossible_alpha_is_refused(value: float) -> None:
    other = Estimate(value=1 - value, ci_low=None, ci_high=None)
    with pytest.raises(ValueError, match="expected shares of one"):
        replace(ENTRY, alpha=Estimate(value=value, ci_low=None, ci_high=None), beta=other)


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="valid_until: found 'soon', expected a time"):
        replace(WEIGHTS, valid_until="soon")


def test_the_published_schema_is_current() -> None:
    current = files.render_json(files.json_schema(WeightSet, "weights.json of spanfit"))
    assert SCHEMA.read_text(encoding="utf-8") == current, f"run the lines of this test to write {SCHEMA}"

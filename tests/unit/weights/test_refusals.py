"""What ``spanfit place`` refuses of weights, each with its own message and cure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit import files
from spanfit.cli.place import place
from spanfit.cli.weights_sensitivity import sensitivity
from spanfit.errors import ConfigError, ExitCode
from spanfit.weights.io import content_hash, sealed, write_weights
from spanfit.weights.model import WeightSet
from tests.unit.weights.factory import FABRIC, WEIGHTS
from tests.unit.weights.test_scaling import entry

DATA = Path(__file__).parents[2] / "data" / "place"
GOOD = replace(WEIGHTS, valid_until="2999-01-01T00:00:00+00:00")
EXPIRED = replace(GOOD, valid_until="2026-04-03T00:00:00+00:00")
OTHER_ENTRY = replace(GOOD, entries=(replace(GOOD.entries[0], gpu_model="L20"),))
OTHER_GPUS = replace(GOOD, fabric=replace(FABRIC, gpu_model="NVIDIA A100-SXM4-80GB"))


def placed(path: Path, *arguments: str) -> Result:
    options = ("--cluster", str(DATA / "cluster.toml"), "--weights", str(path), "--json", *arguments)
    return CliRunner().invoke(place, [str(DATA / "job.toml"), *options])


def tampered(path: Path) -> None:
    files.write_json(path, replace(sealed(GOOD), cluster="another"))


def test_weights_that_hold_place_the_job(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.json", GOOD)
    done = placed(tmp_path / "w.json")
    assert done.exit_code == ExitCode.GOOD
    content = json.loads(done.stdout)
    assert content["accepted_stale"] == []
    assert content["weights_hash"] == content_hash(GOOD)


@pytest.mark.parametrize(
    ("weights", "arguments", "messages"),
    [
        (None, (), ("content_hash: found ", "the file was changed since it was written; fit the weights again")),
        (
            replace(GOOD, schema_version=3),
            (),
            ("schema_version: found 3, expected 2: a newer spanfit wrote it; install",),
        ),
        (EXPIRED, (), ("valid_until: expired on 2026-04-03", "--accept-stale uses them all the same")),
        (OTHER_GPUS, (), ("fabric.gpu_model: found NVIDIA A100-SXM4-80GB, expected H100", "--accept-stale")),
        (OTHER_ENTRY, (), ("entry balanced: gpu_model: found L20, expected H100", "--accept-stale")),
        (GOOD, ("--entry", "gone"), ("no entry named gone; they have balanced (NVIDIA H100 80GB HBM3)", "--entry")),
    ],
)
def test_each_refusal_has_its_own_message_and_cure(
    tmp_path: Path, weights: WeightSet | None, arguments: tuple[str, ...], messages: tuple[str, ...]
) -> None:
    path = tmp_path / "w.json"
    if weights is None:
        tampered(path)
    else:
        write_weights(path, weights)
    done = placed(path, *arguments)
    assert isinstance(done.exception, ConfigError) and done.exception.exit_code == ExitCode.BAD_INPUT
    for message in messages:
        assert message in str(done.exception)


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (EXPIRED, "valid_until: expired"),
        (OTHER_GPUS, "fabric.gpu_model"),
        (OTHER_ENTRY, "entry balanced: gpu_model"),
    ],
)
def test_what_was_accepted_is_recorded_in_the_placement(tmp_path: Path, weights: WeightSet, reason: str) -> None:
    write_weights(tmp_path / "w.json", weights)
    done = placed(tmp_path / "w.json", "--accept-stale")
    assert done.exit_code == ExitCode.GOOD
    (accepted,) = json.loads(done.stdout)["accepted_stale"]
    assert accepted.startswith(reason)
    assert reason in done.stderr


JOB = """name = "new"
dp = 12
pp = 2
tp = 4
ngpus_per_node = 8
gpu_model = "H100"
[step]
model = "gpt-2"
global_batch = 48
"""


@pytest.mark.parametrize("scaling", ["volumes", "paper"])
def test_placing_and_asking_how_far_it_hangs_on_alpha_take_the_same_alpha(tmp_path: Path, scaling: str) -> None:
    measured = replace(entry(0.1, 0.2, dp=4), gpu_model="H100")
    write_weights(tmp_path / "w.json", replace(GOOD, entries=(measured,)))
    (tmp_path / "job.toml").write_text(JOB)
    options = ("--cluster", str(DATA / "cluster.toml"), "--weights", str(tmp_path / "w.json"), "--json")
    runner, arguments = CliRunner(), [str(tmp_path / "job.toml"), *options, "--scaling", scaling]
    alphas = [
        json.loads(runner.invoke(command, arguments, catch_exceptions=False).stdout)["alpha"]
        for command in (place, sensitivity)
    ]
    assert alphas[0] == pytest.approx(alphas[1]["value"])
    assert (alphas[0] == pytest.approx(measured.alpha.value)) is (scaling == "paper")


def test_what_was_tampered_with_cannot_be_accepted(tmp_path: Path) -> None:
    tampered(tmp_path / "w.json")
    assert "content_hash" in str(placed(tmp_path / "w.json", "--accept-stale").exception)

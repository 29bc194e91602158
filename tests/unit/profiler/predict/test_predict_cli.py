import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from spanfit import files
from spanfit.cli.profile import profile
from spanfit.errors import ConfigError
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import read_parameters, write_parameters
from spanfit.topology.readers.cluster_toml import render_cluster
from tests.unit.profiler.predict.curves import document
from tests.unit.profiler.predict.factory import PLAIN, cluster, fabric

CAMPAIGN = """name = "steps"
cluster = "cluster.toml"
[launch]
launcher = "ssh"
"""
JOBS = """[[jobs]]
name = "small"
dp = 4
pp = 2
microbatches = 1
activation = "64K"
gradient = "128K"
forward = "6ms"
backward = "12ms"
"""
SWEEP = """[collectives]
operations = ["send"]
sizes = ["1M"]
nodes_per_group = 2
spans = [1]
"""


def write(folder: Path, tables: str = JOBS) -> list[str]:
    (folder / "cluster.toml").write_text(render_cluster(cluster()))
    (folder / "campaign.toml").write_text(CAMPAIGN + tables)
    write_parameters(folder / "fabric.json", fabric(replace(PLAIN, spread=0.2), Library.GLOO))
    return ["predict", str(folder / "campaign.toml")]


def test_every_arm_has_a_predicted_step_with_its_interval(tmp_path: Path) -> None:
    shown = CliRunner().invoke(profile, [*write(tmp_path), "--fabric", str(tmp_path / "fabric.json"), "--draws", "1"])
    assert shown.exit_code == 0, shown.output
    for text in ("dp-aligned", "pp-aligned", "misaligned-00", "ms [", "minipod m0 up", "fitted to 0 micro-patterns"):
        assert text in shown.output


def test_json_holds_what_the_table_shows_and_the_seed_decides_it(tmp_path: Path) -> None:
    arguments = [*write(tmp_path), "--fabric", str(tmp_path / "fabric.json"), "--draws", "1", "--json"]
    first, again = (CliRunner().invoke(profile, arguments) for _ in range(2))
    assert first.stdout == again.stdout
    found = json.loads(first.stdout)
    assert found["schema_version"] == 1 and found["run_ids"] == ["flows", "rings"] and found["error"] == 0.02
    arm = next(each for each in found["arms"] if each["arm"] == "pp-aligned")
    assert arm["nodes"] == [f"m{pod}h{host}" for pod in (0, 1) for host in range(4)]
    time_s = arm["prediction"]["time_s"]
    assert time_s["ci_low"] < time_s["value"] < time_s["ci_high"]


def test_curves_that_hold_too_little_are_told(tmp_path: Path) -> None:
    arguments = write(tmp_path)
    files.write_json(tmp_path / "curves.json", document(cluster(), ()))
    shown = CliRunner().invoke(profile, [*arguments, "--curves", str(tmp_path / "curves.json")])
    assert "found 0 patterns" in str(shown.exception)
    assert read_parameters(tmp_path / "fabric.json").library is Library.GLOO


@pytest.mark.parametrize("options", [[], ["--curves", "a.json", "--fabric", "b.json"]])
def test_one_source_of_parameters_is_needed(tmp_path: Path, options: list[str]) -> None:
    shown = CliRunner().invoke(profile, [*write(tmp_path), *options])
    assert isinstance(shown.exception, ConfigError) and "expected one of them" in str(shown.exception)


def test_what_was_not_fitted_is_said_in_the_table_and_for_programs(tmp_path: Path) -> None:
    arguments = [*write(tmp_path), "--fabric", str(tmp_path / "fabric.json"), "--draws", "1"]
    guessed = {"rate of minipod": "the most that was seen", "spread": "assumed"}
    write_parameters(tmp_path / "fabric.json", replace(fabric(), not_fitted=guessed))
    shown = CliRunner().invoke(profile, arguments)
    assert "host 1 MB/s, minipod 1 MB/s (not fitted)" in shown.output
    assert "rate of minipod = 1e+06 (the most that was seen); spread = 0 (assumed)" in shown.output
    assert json.loads(CliRunner().invoke(profile, [*arguments, "--json"]).stdout)["not_fitted"] == guessed


def test_trees_of_nccl_are_asked_for_and_are_another_step(tmp_path: Path) -> None:
    arguments = [*write(tmp_path), "--fabric", str(tmp_path / "fabric.json"), "--json", "--nccl-algorithm"]
    write_parameters(tmp_path / "fabric.json", fabric(library=Library.NCCL))
    ring, tree = (json.loads(CliRunner().invoke(profile, [*arguments, each]).stdout) for each in ("ring", "tree"))
    assert (ring["library"], tree["library"]) == ("nccl", "nccl-tree")
    assert ring["arms"] != tree["arms"]
    write_parameters(tmp_path / "fabric.json", fabric(library=Library.GLOO))
    refused = CliRunner().invoke(profile, [*arguments, "tree"])
    assert "found tree with a fabric of gloo, expected NCCL" in str(refused.exception)


def test_a_campaign_without_jobs_has_nothing_to_predict(tmp_path: Path) -> None:
    shown = CliRunner().invoke(profile, [*write(tmp_path, SWEEP), "--fabric", str(tmp_path / "fabric.json")])
    assert isinstance(shown.exception, ConfigError) and "add a [[jobs]] table" in str(shown.exception)


NOISE = """[[noise]]
name = "busy"
mix = "equal"
nodes = [2]
placement = ["leaf"]
utilisation = 1.0
gradient = "1M"
"""


def test_steps_beside_noise_are_not_predicted_and_named(tmp_path: Path) -> None:
    arguments = write(tmp_path, JOBS.replace("dp = 4", "dp = 2") + NOISE)
    shown = CliRunner().invoke(
        profile, [*arguments, "--fabric", str(tmp_path / "fabric.json"), "--draws", "1", "--json"]
    )
    assert shown.exit_code == 0, shown.output
    assert "not predicted, but measured: small+busy" in shown.stderr
    assert {arm["job"] for arm in json.loads(shown.stdout)["arms"]} == {"small"}

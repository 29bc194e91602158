"""The value of waiting, asked of a live queue by the command line."""

import json
from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile, write_parameters
from spanfit.weights.io import write_weights
from tests.integration.typed import typed
from tests.unit.report.factory import entry, estimate, weight_set

CLUSTER = """
name = "three"
tiers = ["minipod", "core"]
""" + "".join(
    f'[[nodes]]\nnames = "{name}[0-3]"\nswitches = ["{name}", "core"]\nngpus = 8\n' for name in ("a", "b", "c")
)
JOB = 'name = "llm"\ndp = 2\npp = 2\ntp = 8\n'


STEP = """
[step]
model = "gpt-7b"
global_batch = 16
gradient_dtype = "float32"
compute = "wait"
flops_per_s = 4e14
"""


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """Give the folder of a queue whose jobs leave 1, 1 and 2 nodes of three minipods; the first ends in 40 minutes."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "job.toml").write_text(JOB)
    gains = entry(job="llm", gain_dp=estimate(0.12, 0.03), gain_pp=estimate(0.08, 0.02))
    write_weights(tmp_path / "weights.json", weight_set(gains))
    state = ("--state", str(tmp_path / "queue.sqlite"))
    typed("queue", "init", str(tmp_path / "cluster.toml"), *state)
    for name, nodes, runtime in (("x", "3", "40m"), ("y", "3", "14h"), ("z", "2", "25h")):
        typed("queue", "submit", name, "--nodes", nodes, "--runtime", runtime, *state)
    return tmp_path


def test_weights_advise_to_wait_for_one_minipod_and_a_short_job_to_start(busy: Path) -> None:
    state = ("--state", str(busy / "queue.sqlite"))
    asked = ("queue", "advise", "--job", str(busy / "job.toml"), *state)
    weighed = ("--weights", str(busy / "weights.json"))
    advice = json.loads(typed(*asked, *weighed, "--runtime", "10h", "--json").stdout)
    assert (advice["best"], [option["minipods"] for option in advice["options"]]) == (1, [3, 1])
    assert advice["options"][1]["wait_s"]["value"] == pytest.approx(2400, abs=120)
    assert "wait about" in typed(*asked, *weighed, "--runtime", "10h").stdout
    assert "start as soon as it can" in typed(*asked, *weighed, "--runtime", "20m").stdout
    assert "give one of --weights FILE and --fabric" in typed(*asked, "--runtime", "1h", code=2).stderr
    with pytest.raises(ConfigError, match="neither waits nor runs"):
        typed("queue", "advise", "who", *weighed, *state)
    with pytest.raises(ConfigError, match="runs already"):
        typed("queue", "advise", "x", *weighed, *state)


def test_a_fabric_advises_by_predicted_steps(busy: Path) -> None:
    (busy / "job.toml").write_text(JOB + STEP)
    fabric = ParametersFile(
        schema_version=PARAMETERS_VERSION, run_ids=(), curves_hashes=(), cluster="three", cluster_hash="",
        library=Library.NCCL, error=0.02, residuals=(), not_fitted={},
        parameters=Parameters(rates_bytes_per_s={"host": 5e10, "minipod": 3e9}),
    )  # fmt: skip
    write_parameters(busy / "fabric.json", fabric)
    options = ("--fabric", str(busy / "fabric.json"), "--cluster", str(busy / "cluster.toml"), "--draws", "40")
    asked = ("queue", "advise", "--job", str(busy / "job.toml"), "--state", str(busy / "queue.sqlite"))
    advice = json.loads(typed(*asked, *options, "--runtime", "10d", "--json").stdout)
    now, later = advice["options"]
    assert now["step"]["value"] > 1.1 > later["step"]["value"]
    assert advice["best"] == 1
    assert "± 3.9%" in advice["remarks"][0]

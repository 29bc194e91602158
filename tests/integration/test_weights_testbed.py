"""Weights of measured steps on a testbed: jobs of opposite volumes have their alphas on opposite sides of a half."""

import json
from pathlib import Path

from click.testing import CliRunner

from spanfit.cli.weights import weights
from spanfit.errors import ExitCode
from spanfit.profiler.campaign import Campaign
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign

RATE = 4e8
LAUNCHES = 6
KEPT = {"dp-aligned", "pp-aligned", "misaligned-00", "misaligned-01", "misaligned-02"}
"""A few arms of those that a campaign runs: the base needs no more to tell jobs apart that differ by so much."""


def table(name: str, activation: str, gradient: str) -> str:
    return f"""[[jobs]]
name = "{name}"
dp = 4
pp = 2
microbatches = 4
activation = "{activation}"
gradient = "{gradient}"
forward = "3ms"
backward = "6ms"
warmup = 1
repetitions = 2
"""


def test_opposite_volumes_have_alphas_on_opposite_sides_of_a_half(namespaces: None, tmp_path: Path) -> None:
    jobs = table("pp-heavy", "512K", "512K") + table("dp-heavy", "64K", "4M")
    fabric = make_fabric("weights", hosts_per_leaf=4, host=RATE, uplink=RATE)
    campaign = Campaign(write_campaign(tmp_path, fabric, f"launches = {LAUNCHES}\n{jobs}"), tmp_path / "runs")
    campaign.cases = tuple(case for case in campaign.cases if case.arm in KEPT)
    campaign.run(lambda _: None)
    output = tmp_path / "weights.json"
    done = CliRunner().invoke(weights, ["fit", "latest", "--store", str(tmp_path / "runs"), "-o", str(output)])
    assert done.exit_code == ExitCode.GOOD, done.output
    alphas = {entry["job"]: entry["alpha"] for entry in json.loads(output.read_text())["entries"]}
    assert alphas["pp-heavy"]["ci_high"] < 0.5 < alphas["dp-heavy"]["ci_low"]

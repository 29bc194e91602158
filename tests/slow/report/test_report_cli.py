import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit import files
from spanfit.cli.report import report
from spanfit.errors import ConfigError
from spanfit.results.store import Store
from spanfit.weights.io import write_weights
from tests.unit.profiler.factory import RUN
from tests.unit.report.factory import placed, rows, weight_set

CLUSTER = """
name = "demo"
tiers = ["minipod", "core"]
[[nodes]]
names = "n0-[0-2]"
switches = ["m0", "core"]
ngpus = 1
[[nodes]]
names = "n1-[0-1]"
switches = ["m1", "core"]
ngpus = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store(tmp_path / "runs").write(RUN, rows(launches=2))
    write_weights(tmp_path / "weights.json", weight_set())
    placement = placed([["m0", "m0"], ["m1", "m1"]])
    files.write_json(tmp_path / "placement.json", placement)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    return tmp_path


def ran(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(report, ["--store", str(folder / "runs"), "-o", str(folder / "page.html"), *arguments])


def test_a_page_is_written_and_said_on_stderr(folder: Path) -> None:
    shown = ran(folder)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert f"page.html: report of run {RUN.run_id}" in shown.stderr
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert RUN.run_id in page and 'id="weights"' not in page and 'id="placement"' not in page


def test_weights_placement_and_cluster_are_shown(folder: Path) -> None:
    names = ("weights", "placement")
    paths = [option for name in names for option in (f"--{name}", str(folder / f"{name}.json"))]
    shown = ran(folder, *paths, "--cluster", str(folder / "cluster.toml"), "--label", "recorded campaign")
    assert shown.exit_code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    for text in ('id="weights"', 'id="placement"', "2 of 3", "2 of 2", "recorded campaign"):
        assert text in page


def test_a_cluster_that_is_not_the_placements_is_refused(folder: Path) -> None:
    (folder / "cluster.toml").write_text(CLUSTER.replace("n1-", "x1-"))
    options = ("--placement", str(folder / "placement.json"), "--cluster", str(folder / "cluster.toml"))
    error = ran(folder, *options).exception
    assert isinstance(error, ConfigError) and "nodes n1-0, n1-1 are not free" in str(error)
    assert ran(folder, "--cluster", str(folder / "cluster.toml")).exit_code == 2
    assert not (folder / "page.html").exists()


def test_a_placement_of_another_version_is_refused(folder: Path) -> None:
    path = folder / "placement.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    error = ran(folder, "--placement", str(path)).exception
    assert isinstance(error, ConfigError) and "schema_version: found 99" in str(error)

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.profile import profile
from spanfit.cli.results import results
from spanfit.errors import ConfigError, ExitCode
from spanfit.results.store import Store
from tests.unit.results.importers.reports import REPORT
from tests.unit.results.importers.test_pooling import NARROW, WIDE

CLUSTER = """
name = "demo"
[[nodes]]
names = "n[0-1]"
switches = ["pod0", "core"]
[[nodes]]
names = "n[2-3]"
switches = ["pod1", "core"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    for name, hosts in (("narrow", NARROW), ("wide", WIDE)):
        (tmp_path / f"{name}.json").write_text(replace(REPORT, hosts=hosts, environment=["MY_TOKEN=s3cret"]).render())
    return tmp_path


def imported(folder: Path, *names: str) -> Result:
    files = [str(folder / name) for name in names]
    options = ["--cluster", str(folder / "cluster.toml"), "--store", str(folder / "runs"), "--campaign", "night"]
    return CliRunner().invoke(results, ["import", *files, *options])


def test_an_import_of_two_spans_gives_curves(folder: Path) -> None:
    shown = imported(folder, "narrow.json", "wide.json")
    assert shown.exit_code == 0 and "all_reduce_perf" in shown.stdout
    store = Store(folder / "runs")
    info, frame = store.read(store.resolve("latest"))
    assert set(info.origin) == {str(folder / "narrow.json"), str(folder / "wide.json")}
    assert len(frame) == 8 and "s3cret" not in json.dumps(info.origin | info.environment)
    curves = CliRunner().invoke(profile, ["curves", "latest", "--store", str(folder / "runs"), "--json"])
    assert curves.exit_code == 0
    assert {point["span"] for point in json.loads(curves.stdout)["points"]} == {1, 2}


def test_a_run_that_failed_is_imported_and_a_finding(folder: Path) -> None:
    (folder / "cut.json").write_text(REPORT.head())
    shown = imported(folder, "narrow.json", "cut.json")
    assert shown.exit_code == ExitCode.FINDING and "truncated" in shown.stdout
    assert len(Store(folder / "runs").read(Store(folder / "runs").resolve("latest"))[1]) == 5


def test_a_file_that_is_no_log_is_refused_and_nothing_is_stored(folder: Path) -> None:
    (folder / "poem.txt").write_text("a rose is a rose\n")
    shown = imported(folder, "narrow.json", "poem.txt")
    assert isinstance(shown.exception, ConfigError) and "poem.txt: found no run" in str(shown.exception)
    assert not (folder / "runs").exists()

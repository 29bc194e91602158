import json
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from spanfit.cli.results import results
from spanfit.errors import ConfigError, ExitCode, StoreError
from spanfit.results.store import Store
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(results, arguments)


@pytest.fixture
def store(tmp_path: Path) -> str:
    Store(tmp_path / "runs").write(RUN, [MEASUREMENT, failed(MEASUREMENT)])
    return str(tmp_path / "runs")


def test_list_shows_finished_and_unfinished_runs(store: str) -> None:
    (Path(store) / "half").mkdir()
    (Path(store) / "half" / "plan.json").write_text("{}")
    shown = ran("list", "--store", store)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert any(RUN.run_id in line and "finished" in line and "gloo" in line for line in lines)
    assert any("half" in line and "unfinished" in line for line in lines)
    document = json.loads(ran("list", "--store", store, "--json").stdout)
    assert document["runs"][0]["run_id"] == RUN.run_id and document["unfinished"] == ["half"]


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    shown = ran("list", "--store", str(tmp_path))
    assert shown.exit_code == 0 and shown.stdout == ""
    assert "holds no run; measure one with: spanfit campaign run" in shown.stderr


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("show", "nonsense")])
def test_a_missing_store_is_a_mistake_that_a_person_can_mend(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shown = ran(*arguments, "--store", str(tmp_path / "no"))
    assert isinstance(shown.exception, StoreError)
    assert shown.exception.exit_code == ExitCode.BAD_INPUT


def test_an_unknown_run_is_refused_with_those_there_are(store: str) -> None:
    shown = ran("show", "nonsense", "--store", store)
    assert isinstance(shown.exception, StoreError)
    assert f"found 'nonsense', expected latest or one of {RUN.run_id}" in str(shown.exception)


def test_show_tells_how_the_run_went(store: str) -> None:
    shown = ran("show", "--store", store)
    assert shown.exit_code == 0
    for text in ("400 Mbit/s", "m0 (2), m1 (2)", "Rows: 2, cases: 1", "rank 3 died", "testbed demo"):
        assert text in shown.stdout
    document = json.loads(ran("show", RUN.run_id, "--store", store, "--json").stdout)
    assert document["run"]["transport"] == RUN.transport
    assert document["rows_by_status"] == {"ok": 1, "failed": 1} and document["reasons"] == {"rank 3 died": 1}


def test_an_engine_that_no_imported_log_names_is_shown_as_unknown(tmp_path: Path) -> None:
    Store(tmp_path).write(replace(RUN, engine=""), [MEASUREMENT])
    for command in ("list", "show"):
        assert "unknown" in ran(command, "--store", str(tmp_path)).stdout
        assert '"engine": ""' in ran(command, "--store", str(tmp_path), "--json").stdout


def test_exports_hold_every_row(store: str, tmp_path: Path) -> None:
    for form in ("csv", "json", "parquet"):
        done = ran("export", "latest", "--store", store, "--format", form, "-o", str(tmp_path / f"out.{form}"))
        assert done.exit_code == 0 and done.stdout == "" and "2 rows" in done.stderr
    csv = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert csv["status"].tolist() == ["ok", "failed"] and csv["size_bytes"].tolist() == [1 << 20, 1 << 20]
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["run"]["run_id"] == RUN.run_id
    assert document["measurements"][0] == {**asdict(MEASUREMENT)}
    assert document["measurements"][1]["time_s"] is None
    (tmp_path / f"{RUN.run_id}.parquet").write_bytes((tmp_path / "out.parquet").read_bytes())
    assert Store(tmp_path).read(RUN.run_id)[0] == RUN


def test_text_is_exported_to_stdout_unless_a_file_is_named_and_parquet_needs_one(store: str, tmp_path: Path) -> None:
    for form in ("csv", "json", "prometheus"):
        shown = ran("export", "--store", store, "--format", form)
        ran("export", "--store", store, "--format", form, "-o", str(tmp_path / "out"))
        assert shown.exit_code == 0 and shown.stdout == (tmp_path / "out").read_text() != ""
    assert isinstance(ran("export", "--store", store, "--format", "parquet").exception, ConfigError)
    assert ran("export", "--store", store, "--format", "xml", "-o", "x").exit_code == ExitCode.BAD_INPUT


def test_prometheus_has_a_short_spelling(store: str) -> None:
    short, long = (
        ran("export", "--prometheus", "--store", store),
        ran("export", "--format", "prometheus", "--store", store),
    )
    assert short.exit_code == 0 and short.stdout == long.stdout
    assert "spanfit_failed_rows{" in short.stdout and "# TYPE spanfit_time_seconds gauge" in short.stdout


def test_imported_runs_say_which_program_and_which_files(store: str) -> None:
    imported = replace(RUN, run_id="imported", engine="nccl-tests", origin={"a.log": "0123abcd" * 8})
    Store(Path(store)).write(imported, [replace(MEASUREMENT, run_id="imported")])
    lines = ran("list", "--store", store).stdout.splitlines()
    assert any("imported" in line and "nccl-tests" in line for line in lines)
    assert any(RUN.run_id in line and "finished" in line and "spanfit" in line for line in lines)
    shown = ran("show", "imported", "--store", store).stdout
    assert "nccl-tests" in shown and "imported from a.log" in shown and "0123abcd" * 8 in shown


def test_latest_is_the_run_that_started_last(store: str) -> None:
    later = replace(RUN, run_id="0-later", started_at="2026-02-01T00:00:00+00:00")
    Store(Path(store)).write(later, [replace(MEASUREMENT, run_id="0-later")])
    assert json.loads(ran("show", "--store", store, "--json").stdout)["run"]["run_id"] == "0-later"

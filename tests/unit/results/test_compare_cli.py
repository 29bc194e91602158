import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from spanfit.cli.results import results
from spanfit.errors import ConfigError, ExitCode, FitError
from spanfit.results.schema import Measurement
from spanfit.results.store import Store
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, measured

CASES = [(MEASUREMENT, 0.02), (replace(MEASUREMENT, span=2), 0.08)]


def stored(folder: Path, run_id: str, rows: list[Measurement], **changes: object) -> None:
    info = replace(RUN, run_id=run_id, **changes)  # type: ignore[arg-type]
    Store(folder).write(info, [replace(row, run_id=run_id) for row in rows])


def rows(seed: int, factor: float = 1.0, launches: int = 6) -> list[Measurement]:
    noise = Noise(launch=0.01, unit=0.005, row=0.01)
    cases = [(case, time_s * (factor if case.span == 2 else 1)) for case, time_s in CASES]
    return measured(np.random.default_rng(seed), cases, launches=launches, noise=noise)


def ran(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(results, ["compare", *arguments, "--store", str(folder)])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    stored(tmp_path, "before", rows(1))
    stored(tmp_path, "after", rows(2, factor=1.2), environment={"NCCL_ALGO": "Ring"})
    stored(tmp_path, "again", rows(3))
    return tmp_path


def test_a_regression_ends_with_a_finding_and_what_differs_is_said_above_it(store: Path) -> None:
    shown = ran(store, "before", "after")
    assert shown.exit_code == ExitCode.FINDING
    above, _, table = shown.stdout.partition("B: after against A: before")
    assert "environment: NCCL_ALGO" in above and "Ring" in above
    first, second = (line for line in table.splitlines() if "all_reduce" in line)
    assert "79.7 ms" in first and "slower: 2" in first
    assert "the same within 3.0%" in second
    assert shown.stdout.splitlines()[-1] == "2 cases compared: 1 slower, 1 same"


@pytest.mark.parametrize(
    "arguments", [("before", "again"), ("after", "before"), ("before", "after", "--threshold", "50%")]
)
def test_what_is_as_fast_or_faster_or_matters_too_little_is_no_finding(store: Path, arguments: tuple[str, ...]) -> None:
    assert ran(store, *arguments).exit_code == ExitCode.GOOD


def test_one_launch_a_side_cannot_tell_and_is_no_finding(tmp_path: Path) -> None:
    stored(tmp_path, "before", rows(1, launches=1))
    stored(tmp_path, "after", rows(2, factor=2.0, launches=1))
    shown = ran(tmp_path, "before", "after")
    assert shown.exit_code == ExitCode.GOOD
    document = json.loads(ran(tmp_path, "before", "after", "--json").stdout)
    assert document["summary"]["cannot tell"] == 2
    assert all("one launch in A and B cannot say how" in case["sentence"] for case in document["cases"])


def test_failures_that_are_new_and_cases_of_one_run_are_in_the_document(tmp_path: Path) -> None:
    stored(tmp_path, "before", rows(1))
    wide = [failed(row) if row.span == 2 else row for row in rows(2)]
    stored(tmp_path, "after", [*wide, replace(MEASUREMENT, operation="reduce")])
    shown = ran(tmp_path, "before", "after", "--json")
    assert shown.exit_code == ExitCode.FINDING
    document = json.loads(shown.stdout)
    assert (document["schema_version"], document["run_a"], document["run_b"]) == (1, "before", "after")
    assert document["has_findings"] and document["differing"] == []
    broken = document["cases"][0]
    assert broken["is_newly_failing"] and broken["case"]["span"] == 2 and broken["time_b_s"] is None
    assert [case["operation"] for case in document["only_b"]] == ["reduce"]
    assert "Cases that only B has" in ran(tmp_path, "before", "after").stdout


def test_what_cannot_be_compared_is_refused(store: Path) -> None:
    stored(store, "strange", [replace(MEASUREMENT, operation="reduce")])
    nothing = ran(store, "before", "strange")
    assert isinstance(nothing.exception, FitError)
    assert "found no case that both measured" in str(nothing.exception) and "B: reduce (" in str(nothing.exception)
    assert isinstance(ran(store, "before", "before").exception, ConfigError)
    for threshold in ("3", "0%", "100%", "x%"):
        wrong = ran(store, "before", "after", "--threshold", threshold)
        assert wrong.exit_code == ExitCode.BAD_INPUT and "expected a percentage" in wrong.output

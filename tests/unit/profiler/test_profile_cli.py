import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from spanfit.cli.profile import profile
from spanfit.errors import FitError
from spanfit.results.schema import Measurement
from spanfit.results.store import Store
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed, measured, step_cases

COLLECTIVES = [(MEASUREMENT, 0.02), (replace(MEASUREMENT, span=2), 0.08)]
STEPS = step_cases({"dp-aligned": 0.486, "pp-aligned": 0.39, "misaligned-00": 0.5, "misaligned-01": 0.55})


def ran(tmp_path: Path, rows: list[Measurement], *arguments: str) -> Result:
    if not tmp_path.joinpath(f"{RUN.run_id}.parquet").exists():
        Store(tmp_path).write(RUN, rows)
    return CliRunner().invoke(profile, [*arguments, "--store", str(tmp_path)])


def test_curves_show_intervals_and_what_each_span_loses(tmp_path: Path) -> None:
    rows = measured(np.random.default_rng(1), COLLECTIVES)
    shown = ran(tmp_path, rows, "curves")
    assert shown.exit_code == 0
    for text in ("all_reduce (float32), 4 ranks on 4 nodes", "1 MiB", "MB/s [", "is the reference", "slower: loses 7"):
        assert text in shown.stdout
    assert "over testbed demo" in shown.stderr and "6*" not in shown.stdout
    document = json.loads(ran(tmp_path, rows, "curves", "--json").stdout)
    assert (document["schema_version"], document["run_id"]) == (1, RUN.run_id)
    wide = next(point for point in document["points"] if point["span"] == 2)
    assert wide["loss"]["estimate"]["ci_low"] < 0.75 < wide["loss"]["estimate"]["ci_high"]


def test_curves_mark_what_is_provisional_and_say_why_there_is_no_interval(tmp_path: Path) -> None:
    rows = measured(np.random.default_rng(2), COLLECTIVES, launches=1)
    shown = ran(tmp_path, [failed(row) if row.span == 2 else row for row in rows], "curves")
    assert "1*" in shown.stdout and "one unit: no interval" in shown.stdout and "every row failed" in shown.stdout


def test_gains_show_intervals_and_verdicts(tmp_path: Path) -> None:
    rows = measured(np.random.default_rng(3), STEPS, repetitions=9)
    shown = ran(tmp_path, rows, "gains")
    assert shown.exit_code == 0
    for text in ("balanced (compute: wait): gains over 2 misaligned arms", "times the fastest", "faster by 3", "ms ["):
        assert text in shown.stdout
    assert "misaligned-00" not in shown.stdout
    document = json.loads(ran(tmp_path, rows, "gains", "--json").stdout)
    assert {gain["arm"] for gain in document["jobs"][0]["gains"]} == {"dp-aligned", "pp-aligned"}


@pytest.mark.parametrize(("command", "cases"), [("curves", STEPS), ("gains", COLLECTIVES)])
def test_a_run_without_the_rows_is_refused(
    tmp_path: Path, command: str, cases: list[tuple[Measurement, float]]
) -> None:
    shown = ran(tmp_path, measured(np.random.default_rng(4), cases), command)
    assert isinstance(shown.exception, FitError)
    assert f"run {RUN.run_id}: found no" in str(shown.exception)

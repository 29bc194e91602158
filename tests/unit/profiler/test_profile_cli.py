import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from spanfit.cli.profile import profile
from spanfit.errors import FitError
from spanfit.profiler.curves_file import read_curves
from spanfit.results.schema import Measurement
from spanfit.results.store import Store
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, measured, step_cases

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


def test_curves_are_written_to_a_file_that_is_read_back(tmp_path: Path) -> None:
    cases = [(replace(MEASUREMENT, size_bytes=1 << n), 1e-3 + 2.0 ** (n - 25)) for n in range(14, 24)]
    alone = [(replace(case, concurrency="alone"), time_s / 2) for case, time_s in cases]
    rows = measured(np.random.default_rng(5), [*cases, *alone], noise=Noise(unit=0.01, row=0.01))
    shown = ran(tmp_path, rows, "curves", "-o", str(tmp_path / "out" / "curves.json"))
    assert shown.exit_code == 0, shown.output
    assert "Interference" in shown.stdout and "slower: loses 50" in shown.stdout
    assert "Fits: time = alpha + beta size" in shown.stdout and "half of the lasting" in shown.stdout
    written = read_curves(tmp_path / "out" / "curves.json")
    assert (written.run_id, len(written.curves)) == (RUN.run_id, 2)
    assert all(curve.fit and curve.fit.half_bytes for curve in written.curves)


def test_pairs_show_slow_links_first(tmp_path: Path) -> None:
    pair = replace(MEASUREMENT, kind="pairs", operation="send", concurrency="alone", nranks=2)
    nodes = [(a, b) for a in range(4) for b in range(4) if a != b]
    cases = [(replace(pair, nodes=f"{a},{b}"), 0.04 if 2 in (a, b) else 0.02) for a, b in nodes]
    rows = measured(np.random.default_rng(6), cases, noise=Noise(unit=0.01, row=0.01))
    shown = ran(tmp_path, rows, "pairs")
    assert shown.exit_code == 0, shown.output
    assert "slower than its class by" in shown.stdout and "Classes of links" in shown.stdout
    assert "a host counts as one link" in shown.stderr
    (scan,) = json.loads(ran(tmp_path, rows, "pairs", "--json").stdout)["scans"]
    assert scan["links"][0]["name"] == "n2" and scan["links"][0]["against_class"]["value"] > 0.4


@pytest.mark.parametrize(("command", "cases"), [("curves", STEPS), ("gains", COLLECTIVES), ("pairs", STEPS)])
def test_a_run_without_the_rows_is_refused(
    tmp_path: Path, command: str, cases: list[tuple[Measurement, float]]
) -> None:
    shown = ran(tmp_path, measured(np.random.default_rng(4), cases), command)
    assert isinstance(shown.exception, FitError)
    assert f"run {RUN.run_id}: found no" in str(shown.exception)

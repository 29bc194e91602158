import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.profiler.curves import curves_document, fit_curves, join_curves
from spanfit.profiler.curves_file import CurvesFile, read_curves
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed, framed, measured

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "curves.json"
CASES = [
    (replace(MEASUREMENT, span=span, size_bytes=1 << exponent), 1e-3 + span * 2.0 ** (exponent - 25))
    for span in (1, 2)
    for exponent in range(16, 24)
]


def document() -> CurvesFile:
    rows = measured(np.random.default_rng(1), CASES, launches=3)
    rows += [failed(replace(MEASUREMENT, operation="broadcast"))]
    frame = framed(rows)
    return curves_document(RUN, join_curves(frame, fit_curves(frame)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    files.write_json(tmp_path / "curves.json", document())
    assert read_curves(tmp_path / "curves.json") == document()


def test_curves_hold_their_points_by_size_and_a_fit_of_their_own() -> None:
    curves = {(curve.operation, curve.span): curve for curve in document().curves}
    assert set(curves) == {("all_reduce", 1), ("all_reduce", 2), ("broadcast", 1)}
    for span in (1, 2):
        curve = curves["all_reduce", span]
        assert [point.size_bytes for point in curve.points] == [1 << exponent for exponent in range(16, 24)]
        assert curve.fit is not None
        assert curve.fit.segments[-1].beta_s_per_byte.value == pytest.approx(span * 2.0**-25, rel=0.15)
    assert curves["broadcast", 1].fit is None and curves["broadcast", 1].points[0].time_s is None


def test_a_launch_that_lacks_a_size_is_left_out_of_the_fit_and_counted() -> None:
    rows = measured(np.random.default_rng(2), CASES[:8], launches=4)
    rows = [row for row in rows if (row.launch, row.size_bytes) != (2, 1 << 20)]
    (curve,) = join_curves(framed(rows), fit_curves(framed(rows)))
    assert curve.fit is not None and (curve.fit.nunits, curve.fit.nleft_out) == (3, 1)


def test_the_blocks_of_a_single_launch_are_the_units_of_its_fit() -> None:
    rows = measured(np.random.default_rng(3), CASES[:8], launches=1)
    rows += [replace(row, comm_id="other", time_s=1.1 * row.time_s) for row in rows]
    (curve,) = join_curves(framed(rows), fit_curves(framed(rows)))
    assert curve.fit is not None and curve.fit.nunits == 2
    assert curve.fit.segments[0].alpha_s.ci_low is not None


def test_another_version_and_wrong_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    plain = files.plain(document())
    path.write_text(json.dumps(plain | {"schema_version": 99}))
    with pytest.raises(ConfigError, match="schema_version: found 99, expected 1"):
        read_curves(path)
    path.write_text(json.dumps(plain | {"gpu_model": 3, "colour": "red"}, default=str))
    with pytest.raises(ConfigError) as error:
        read_curves(path)
    assert "gpu_model" in str(error.value) and "colour: unknown key" in str(error.value)


def test_a_file_from_before_there_were_rails_holds_curves_of_every_gpu(tmp_path: Path) -> None:
    plain = files.plain(document())
    for curve in plain["curves"]:
        assert curve.pop("rail") == -1
    (tmp_path / "curves.json").write_text(json.dumps(plain))
    assert read_curves(tmp_path / "curves.json") == document()


def test_the_published_schema_is_current() -> None:
    current = files.render_json(files.json_schema(CurvesFile, "curves.json of spanfit"))
    assert SCHEMA.read_text(encoding="utf-8") == current, f"run the lines of this test to write {SCHEMA}"


def test_reading_curves_loads_no_frames() -> None:
    code = (
        "import sys, spanfit.profiler.curves_file\n"
        "sys.exit(', '.join({'pandas', 'numpy', 'scipy', 'pyarrow', 'torch'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""

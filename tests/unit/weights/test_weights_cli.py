import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result

from spanfit.cli.weights import weights
from spanfit.errors import ConfigError, ExitCode
from spanfit.results.store import Store
from spanfit.weights.io import read_weights
from tests.unit.profiler.factory import RUN, measured, step_cases

ARMS = {"dp-aligned": 0.7, "pp-aligned": 0.39, "misaligned-00": 0.5, "misaligned-01": 0.55}


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(weights, arguments)


def test_fit_writes_what_show_shows(tmp_path: Path) -> None:
    Store(tmp_path).write(RUN, measured(np.random.default_rng(1), step_cases(ARMS), launches=4))
    file = tmp_path / "weights.json"
    done = ran("fit", "--store", str(tmp_path), "-o", str(file))
    assert done.exit_code == 0
    shown = ran("show", str(file))
    assert shown.stdout == done.stdout
    for text in ("balanced", "2 x 2", "0.000 [0.000, ", "1.000 [", "4*", RUN.run_id):
        assert text in shown.stdout
    assert "balanced: the DP-aligned arm gains −" in shown.stderr
    assert "provisional: 4 launches" in shown.stderr
    document = json.loads(ran("show", str(file), "--json").stdout)
    assert document == json.loads(file.read_text())
    assert read_weights(file).run_ids == (RUN.run_id,)


def test_a_file_that_is_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.json").write_text("{}")
    shown = ran("show", str(tmp_path / "weights.json"))
    assert isinstance(shown.exception, ConfigError)
    assert shown.exception.exit_code == ExitCode.BAD_INPUT
    assert "schema_version: found None, expected 1" in str(shown.exception)


def test_fit_needs_a_file_to_write(tmp_path: Path) -> None:
    assert ran("fit", "--store", str(tmp_path)).exit_code == ExitCode.BAD_INPUT

from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.profiler.predict.parameters import Residual, read_parameters, write_parameters
from tests.unit.profiler.predict.factory import PLAIN, cluster, fabric, network

RESIDUAL = Residual(pattern="send", size_bytes=1 << 20, measured_s=0.02, fitted_s=0.021, left_out_s=0.022)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    written = replace(fabric(replace(PLAIN, spread=0.3)), residuals=(RESIDUAL,), not_fitted={"spread": "assumed"})
    write_parameters(tmp_path / "fabric.json", written)
    assert read_parameters(tmp_path / "fabric.json") == written


def test_another_version_is_refused_with_the_cure(tmp_path: Path) -> None:
    write_parameters(tmp_path / "fabric.json", replace(fabric(), schema_version=99))
    with pytest.raises(ConfigError, match="schema_version: found 99, expected 2"):
        read_parameters(tmp_path / "fabric.json")


def test_other_rates_replace_those_of_their_class_only() -> None:
    slower = fabric().with_rates({"minipod": 5e5})
    assert slower.parameters.rates_bytes_per_s == {"host": 1e6, "minipod": 5e5}


def test_what_was_set_after_the_fit_is_said_to_be_given() -> None:
    fitted = replace(fabric(), not_fitted={"spread": "assumed", "call_s": "assumed"})
    assert fitted.fair().not_fitted == {"spread": "given", "call_s": "assumed"}
    assert fabric().with_rates({"minipod": 5e5}).not_fitted == {"rate of minipod": "given"}


def test_a_class_without_a_rate_holds_nothing_up() -> None:
    rates = replace(PLAIN, rates_bytes_per_s={"host": 1e6}).conduct(network(cluster())).rates_bytes_per_s
    assert set(rates) == {1e6, PLAIN.peak_bytes_per_s}

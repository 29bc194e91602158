import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.cli.weights import weights
from spanfit.errors import ConfigError, ExitCode, StoreError
from spanfit.results.schema import RunInfo
from spanfit.results.store import Store
from spanfit.weights.io import read_weights, write_weights
from spanfit.weights.model import WeightSet
from tests.unit.profiler.factory import RUN, measured, step_cases
from tests.unit.weights.factory import BY_HAND, WEIGHTS
from tests.unit.weights.test_again import run_of

ARMS = {"dp-aligned": 0.7, "pp-aligned": 0.39, "misaligned-00": 0.5, "misaligned-01": 0.55}
LONG = ("--valid-days", "36500")


def ran(*arguments: str | Path) -> Result:
    return CliRunner().invoke(weights, [str(argument) for argument in arguments])


def store(folder: Path, info: RunInfo = RUN, arms: dict[str, float] = ARMS, launches: int = 4) -> Path:
    rows = measured(np.random.default_rng(1), step_cases(arms), launches=launches)
    Store(folder).write(info, [replace(row, run_id=info.run_id) for row in rows])
    return folder


def fitted(folder: Path, *arguments: str, info: RunInfo = RUN) -> Path:
    """Fit the weights of a run in a store and return their file."""
    file = folder / "weights.json"
    done = ran("fit", "--store", store(folder, info), "-o", file, *arguments)
    assert done.exit_code == ExitCode.GOOD
    return file


def written(folder: Path, valid_until: str = "2999-01-01T00:00:00+00:00") -> Path:
    write_weights(folder / "weights.json", replace(WEIGHTS, valid_until=valid_until))
    return folder / "weights.json"


def test_fit_writes_what_show_shows(tmp_path: Path) -> None:
    file = tmp_path / "weights.json"
    done = ran("fit", "--store", store(tmp_path), "-o", file, *LONG)
    shown = ran("show", file)
    assert shown.stdout == done.stdout
    for text in (
        "balanced",
        "2 x 2",
        "0.000 [0.000, ",
        "1.000 [",
        "4*",
        RUN.run_id,
        "valid until",
        "gloo of torch 2.6",
    ):
        assert text in shown.stdout
    assert "balanced: the DP-aligned arm gains −" in shown.stderr
    assert "provisional: 4 launches" in shown.stderr
    document = json.loads(ran("show", file, "--json").stdout)
    assert document == json.loads(file.read_text())
    assert read_weights(file).run_ids == (RUN.run_id,)


def test_weights_hold_from_the_end_of_their_run_on(tmp_path: Path) -> None:
    file = tmp_path / "weights.json"
    done = ran("fit", "--store", store(tmp_path), "-o", file, "--valid-days", "1")
    assert read_weights(file).valid_until == "2026-01-03T03:14:05+00:00"
    assert "warning: valid_until: expired on 2026-01-03" in done.stderr
    assert "stale: valid_until: expired" in ran("show", file).stderr


def test_a_file_that_is_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.json").write_text("{}")
    shown = ran("show", tmp_path / "weights.json")
    assert isinstance(shown.exception, ConfigError)
    assert shown.exception.exit_code == ExitCode.BAD_INPUT
    assert "schema_version: found None, expected 2" in str(shown.exception)


def test_fit_needs_a_file_to_write(tmp_path: Path) -> None:
    assert ran("fit", "--store", tmp_path).exit_code == ExitCode.BAD_INPUT


def test_exports_go_to_stdout_or_to_a_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    document = json.loads(file.read_text())
    assert yaml.safe_load(ran("export", file, "--to", "yaml").stdout) == document
    done = ran("export", file, "--to", "configmap", "--name", "w", "-o", tmp_path / "w.yaml")
    assert done.stdout == "" and "1 entries" in done.stderr
    assert json.loads(yaml.safe_load((tmp_path / "w.yaml").read_text())["data"]["weights.json"]) == document
    assert ran("export", file, "--to", "csv").stdout.splitlines()[1].startswith("balanced,NVIDIA H100 80GB HBM3,4,2,")


def test_stale_weights_are_exported_only_with_a_record_of_it(tmp_path: Path) -> None:
    file = written(tmp_path, "2026-01-03T00:00:00+00:00")
    refused = ran("export", file, "--to", "yaml")
    assert isinstance(refused.exception, ConfigError)
    assert "valid_until: expired" in str(refused.exception) and "--accept-stale" in str(refused.exception)
    made = yaml.safe_load(ran("export", file, "--to", "yaml", "--accept-stale").stdout)
    files.write_json(tmp_path / "again.json", files.parse(WeightSet, made, "yaml"))
    (reason,) = read_weights(tmp_path / "again.json").accepted_stale
    assert reason.startswith("valid_until: expired on 2026-01-03")
    assert "made from stale weights: valid_until" in ran("show", tmp_path / "again.json").stderr


@pytest.mark.parametrize(
    "arguments", [("--to", "configmap"), ("--to", "csv", "--name", "w"), ("--to", "yaml", "--namespace", "w")]
)
def test_names_belong_to_configmaps(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert ran("export", tmp_path / "weights.json", *arguments).exit_code == ExitCode.BAD_INPUT


def later(folder: Path, arms: dict[str, float]) -> Path:
    info = replace(RUN, run_id="20260201-later", started_at="2026-02-01T00:00:00+00:00")
    return store(folder, replace(info, ended_at="2026-02-01T01:00:00+00:00"), arms, launches=6)


def test_check_ends_with_1_where_anything_has_drifted_and_writes_what_to_measure(tmp_path: Path) -> None:
    file = fitted(tmp_path, *LONG, info=run_of())
    later(tmp_path, {**ARMS, "pp-aligned": 0.6})
    again = tmp_path / "again.toml"
    done = ran("check", file, "--against", "latest", "--store", tmp_path, "--campaign", again, "--json")
    assert done.exit_code == ExitCode.FINDING
    states = [(each["aspect"], each["subject"], each["state"]) for each in json.loads(done.stdout)["findings"]]
    assert ("gain", "balanced", "drifted") in states and ("validity", "time", "holds") in states
    assert f"{again}: measures again balanced; its paths are" in done.stderr
    campaign = files.parse(CampaignFile, tomllib.loads(again.read_text()), "again")
    assert [job.name for job in campaign.jobs] == ["balanced"]
    assert (campaign.name, campaign.jobs[0].repetitions) == ("demo-again", 3)


def test_check_ends_with_0_where_nothing_has_drifted(tmp_path: Path) -> None:
    file = fitted(tmp_path, *LONG)
    later(tmp_path, ARMS)
    again = tmp_path / "again.toml"
    done = ran("check", file, "--against", "20260201", "--store", tmp_path, "--campaign", again)
    assert done.exit_code == ExitCode.GOOD
    assert "still gloo of torch 2.6" in done.stdout
    # Four launches beside six cannot tell 1% of a gain.
    assert "nothing is known to have drifted; it cannot be told of balanced\n" in done.stderr and not again.exists()


def test_check_reads_the_gpus_of_a_cluster(tmp_path: Path) -> None:
    file = written(tmp_path)
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('name = "c"\n[[nodes]]\nnames = "n[0-3]"\nswitches = ["l", "m", "c"]\ngpu_model = "A100"\n')
    done = ran("check", file, "--against", cluster)
    assert done.exit_code == ExitCode.FINDING
    assert "fabric.gpu_model: found NVIDIA H100 80GB HBM3, expected A100" in " ".join(done.stdout.split())


def test_weights_are_not_checked_against_their_own_run(tmp_path: Path) -> None:
    done = ran("check", written(tmp_path), "--against", "latest", "--store", store(tmp_path))
    assert isinstance(done.exception, ConfigError) and "which the weights come from" in str(done.exception)


def test_a_campaign_that_cannot_be_written_hides_no_finding(tmp_path: Path) -> None:
    file = written(tmp_path, "2026-01-03T00:00:00+00:00")
    elsewhere = later(tmp_path, ARMS)
    done = ran("check", file, "--against", "latest", "--store", elsewhere, "--campaign", tmp_path / "again.toml")
    assert done.exit_code == ExitCode.FINDING
    assert f"found none of the runs that the weights come from ({RUN.run_id})" in done.stderr


def test_without_a_finding_a_campaign_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    file = fitted(tmp_path, *LONG)
    (tmp_path / f"{RUN.run_id}.parquet").unlink()
    only_base = {arm: time_s for arm, time_s in ARMS.items() if arm != "pp-aligned"}
    later(tmp_path, only_base)
    done = ran("check", file, "--against", "latest", "--store", tmp_path, "--campaign", tmp_path / "again.toml")
    assert isinstance(done.exception, StoreError)


def test_what_a_cluster_file_cannot_tell_is_not_called_measured(tmp_path: Path) -> None:
    cluster, again = tmp_path / "cluster.toml", tmp_path / "again.toml"
    cluster.write_text('name = "c"\n[[nodes]]\nnames = "n[0-3]"\nswitches = ["l", "m", "c"]\ngpu_model = "H100"\n')
    done = ran("check", written(tmp_path), "--against", cluster, "--campaign", again)
    assert done.exit_code == ExitCode.GOOD and not again.exists()
    assert "not written, since nothing is known to have drifted; it cannot be told of all jobs" in done.stderr
    write_weights(tmp_path / "weights.json", replace(BY_HAND, valid_until="2026-01-03T00:00:00+00:00"))
    over = ran("check", tmp_path / "weights.json", "--against", cluster, "--campaign", again)
    assert over.exit_code == ExitCode.FINDING
    assert "not written, since time drifted, but the weights hold no measurement to repeat" in over.stderr

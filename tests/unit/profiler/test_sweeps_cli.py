import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.profile import profile
from spanfit.errors import ConfigError, FitError
from spanfit.results.store import Store
from tests.unit.profiler.test_sweep import ARMS, JOB, described_run


def stored(store: Path, jobs: list[dict[str, Any]], run_id: str, **info: Any) -> None:
    Store(store).write(*described_run(jobs, dict.fromkeys([job["name"] for job in jobs], ARMS), run_id, **info))


def ran(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(profile, [*arguments, "--store", str(store)])


def test_scaling_shows_efficiency_and_what_is_known_of_the_knee(tmp_path: Path) -> None:
    stored(tmp_path, [JOB, JOB | {"name": "twice", "dp": 4}], "20260102-ranks")
    shown = ran(tmp_path, "scaling", "latest")
    assert shown.exit_code == 0, shown.output
    for text in (
        "packed (compute: wait): 2 numbers of ranks cannot tell a knee",
        "twice, 20260102-ranks",
        "efficiency",
    ):
        assert text in shown.stdout
    document = json.loads(ran(tmp_path, "scaling", "--json").stdout)
    assert document["run_ids"] == ["20260102-ranks"]
    assert {curve["arm"] for curve in document["curves"]} == {"dp-aligned", "packed", "misaligned"}


def test_sensitivity_finds_what_differs_between_runs(tmp_path: Path) -> None:
    stored(tmp_path, [JOB], "20260102-slow", truth={"minipod": 2e8})
    stored(tmp_path, [JOB], "20260103-fast", truth={"minipod": 4e8})
    shown = ran(tmp_path, "sensitivity", "20260103", "20260102", "20260102")
    assert shown.exit_code == 0, shown.output
    for text in ("Gains along rate.minipod", "200 Mbit/s", "for each doubling"):
        assert text in shown.stdout
    document = json.loads(ran(tmp_path, "sensitivity", "20260102", "20260103", "--json").stdout)
    assert (document["thing"], document["per"]) == ("rate.minipod", "doubling")


def test_sensitivity_looks_at_one_job_of_several(tmp_path: Path) -> None:
    for run_id, rate in (("20260102-slow", 2e8), ("20260103-fast", 4e8)):
        stored(tmp_path, [JOB, JOB | {"name": "other", "dp": 4}], run_id, truth={"minipod": rate})
    document = json.loads(ran(tmp_path, "sensitivity", "20260102", "20260103", "--job", "other", "--json").stdout)
    assert document["thing"] == "rate.minipod"
    assert {point["job"] for arm in document["arms"] for point in arm["points"]} == {"other"}
    refused = ran(tmp_path, "sensitivity", "--job", "none")
    assert str(refused.exception) == "--job: found none, expected one of job, other"


def test_sensitivity_refuses_what_it_cannot_tell_apart_and_other_kinds_of_figure(tmp_path: Path) -> None:
    stored(tmp_path, [JOB, JOB | {"name": "other", "dp": 4, "gradient_bytes": 1 << 22}], "20260102-two")
    refused = ran(tmp_path, "sensitivity")
    assert isinstance(refused.exception, FitError) and "  dp: 2, 4" in str(refused.exception)
    with pytest.raises(ConfigError, match=r"--out: found gains.png, expected a name that ends with .svg"):
        CliRunner().invoke(profile, ["sensitivity", "-o", "gains.png"], catch_exceptions=False)

"""What ``spanfit campaign`` says of a campaign that stops by itself."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.campaign import _LineProgress
from spanfit.cli.main import spanfit
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.following import Progress
from tests.unit.profiler.test_campaign import CAMPAIGN, campaign_in

SWEEPS = Path(__file__).parents[3] / "examples" / "sweeps"
ADAPTIVE = CAMPAIGN.replace("launches = 2", "launches = 6\nmax_launches = 12\nprecision = 0.05")


def spanfit_campaign(command: str, campaign: Campaign, *options: str) -> Result:
    arguments = ["campaign", command, str(campaign.path), "--store", str(campaign.store.path), *options]
    return CliRunner().invoke(spanfit, arguments, catch_exceptions=False)


def measure(campaign: Campaign, launch: int, times_s: tuple[float, float]) -> None:
    """Write the lines of a launch; the cases take ``times_s``."""
    campaign.folder.mkdir(parents=True, exist_ok=True)
    with campaign.shard_path(launch).open("a") as file:
        for visit in campaign.missing(launch):
            line = {
                "type": "case",
                "launch": launch,
                "comm_id": f"{launch}.0.{visit.block}",
                "block": visit.block,
                "case_id": visit.case.case_id,
                "status": "ok",
                "times_s": [[[times_s[campaign.cases.index(visit.case)]]]],
            }
            file.write(json.dumps(line) + "\n")


def test_status_shows_which_cases_are_open_and_how_well_they_are_known(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path, ADAPTIVE)
    for launch in range(6):
        measure(campaign, launch, (1.0, 1.0 + 0.2 * (launch % 2)))
    document = json.loads(spanfit_campaign("status", campaign, "--json").stdout)
    assert [case["is_open"] for case in document["cases"]] == [False, True]
    assert document["cases"][0]["half_width"] == 0.0
    assert document["cases"][1]["half_width"] == pytest.approx(0.1106, abs=1e-3)
    assert [row["missing"] for row in document["launches"]] == [0] * 6 + [2]
    table = spanfit_campaign("status", campaign).stdout
    assert "the time of each is wanted within ± 5.0%" in table
    assert "± 11.0%" in table and "open" in table and "done" in table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CAMPAIGN, "2 launches of 4 cases on 4 nodes"),
        (ADAPTIVE, "6 to 12 launches (until times are known within ± 5.0%) of 4 cases"),
        ("time_limit = '90s'\n" + CAMPAIGN, "2 launches, 1 min 30 s at most, of 4 cases"),
    ],
)
def test_the_plan_says_what_ends_a_campaign(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in spanfit_campaign("plan", campaign_in(tmp_path, text)).stderr


def test_the_plan_names_variants_and_the_minipods_that_noise_shares(tmp_path: Path) -> None:
    def shown(sweep: str) -> str:
        result = spanfit_campaign("plan", Campaign(SWEEPS / f"{sweep}.toml", tmp_path))
        return " ".join(result.stdout.split())

    assert "Arms of step, step@cta-4, step@cta-8, step@cta-16:" in shown("ctas")
    noise = shown("noise")
    assert "step, step+one, step+two, step+inside" in noise
    assert "│ step+one │ one-00 │ m0l0h2 m1l0h2 │ m0 m1 │ m0 m1 │" in noise


def test_progress_says_launches_open_cases_and_the_shorter_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _LineProgress()
    for launch, done in ((0, 0), (1, 40)):
        lines.follow(Progress(launch=launch, launches=30, done=done, total=400, case="c", open_cases=8, left_s=0.0))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("launch 1 of 30, 8 cases: 0 of 400 done, about 0")
    assert second.startswith("launch 2 of 30, 8 cases: 40 of 400 done, about 0")

"""A campaign stops by itself: when times are known as well as asked, or when its time is over."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from spanfit.errors import ExitCode
from spanfit.profiler import stopping
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.following import Progress
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign

BODY = """{head}
[collectives]
operations = ["all_reduce", "broadcast"]
sizes = ["64K", "1M"]
nodes_per_group = 2
spans = [1, 2]
repetitions = 4
"""


def campaign_in(folder: Path, name: str, head: str) -> Path:
    fabric = make_fabric(name, hosts_per_leaf=2, host=4e8, uplink=4e8)
    return write_campaign(folder, fabric, BODY.format(head=head))


def status(path: Path, store: Path) -> Any:
    command = [sys.executable, "-m", "spanfit", "campaign", "status", str(path), "--store", str(store), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_later_launches_measure_what_is_still_uncertain(namespaces: None, tmp_path: Path) -> None:
    path = campaign_in(tmp_path, "stops", "launches = 6\nmax_launches = 9\nprecision = 0.02")
    campaign = Campaign(path, tmp_path / "runs")
    seen: list[Progress] = []
    campaign.run(seen.append)
    info, frame = campaign.store.read(campaign.run_id)
    launches = frame.groupby("case_id")["launch"].nunique()
    assert launches.between(6, 9).all()
    assert info.launches == frame["launch"].nunique() == launches.max()
    units = stopping.History(launches=stopping.frame_units(frame)).units
    for case_id, found in units.items():
        assert campaign.agenda.rule.is_done(found), "a case ended too early"
        assert len(found) == 6 or not campaign.agenda.rule.is_done(found[:-1]), f"{case_id} ended too late"
    assert seen[-1].done == frame.groupby(["launch", "case_id"]).ngroups
    assert seen[-1].launches == 9


def test_a_time_limit_ends_a_campaign_whose_result_is_whole(namespaces: None, tmp_path: Path) -> None:
    path = campaign_in(tmp_path, "limit", "launches = 500\ntime_limit = '8s'")
    campaign = Campaign(path, tmp_path / "runs")
    began_s = time.monotonic()
    campaign.run(lambda progress: None)
    assert time.monotonic() - began_s < 8 + 15
    _, frame = campaign.store.read(campaign.run_id)
    assert set(frame["case_id"]) == {case.case_id for case in campaign.cases}
    launches = frame[frame["status"] == "ok"].groupby("case_id")["launch"].nunique()
    assert launches.max() - launches.min() <= 1, "every case has as many launches as any, within one"
    assert launches.max() < 500
    found = status(path, tmp_path / "runs")
    assert found["is_finished"]
    assert sum(row["done"] for row in found["launches"]) == launches.sum()


def test_a_limit_too_short_for_any_case_is_said(namespaces: None, tmp_path: Path) -> None:
    path = campaign_in(tmp_path, "short", "time_limit = '10ms'")
    # No case of seconds can end between the first look at the clock and the next.
    path.write_text(path.read_text().replace('"64K", "1M"', '"64M"'))
    command = [sys.executable, "-m", "spanfit", "campaign", "run", str(path), "--store", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.TIMED_OUT
    assert "time_limit: found 0 s" in done.stderr and "Traceback" not in done.stderr

"""A campaign loses nothing that is finished, whatever ends it, and says what went wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanfit.errors import ConfigError, ExitCode, LaunchError, SpanfitError, TimedOutError
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric
from spanfit.launch.testbed import Testbed
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.following import Progress
from tests.conftest import make_fabric
from tests.integration.factory import SMALL, namespace, processes_in, wait_for_end, write_campaign

KILLS = 10


def small_fabric(name: str) -> Fabric:
    return make_fabric(name, hosts_per_leaf=2, host=1e9, uplink=1e9)


def nothing(_: Progress) -> None:
    """Follow a campaign without saying anything."""


def finished_lines(folder: Path) -> list[str]:
    """Return every whole line of a case that is in a run's folder."""
    lines = []
    for shard in sorted(folder.glob("launch-*.jsonl")):
        text = shard.read_text()
        lines += [line for line in text[: text.rfind("\n") + 1].splitlines() if '"type": "case"' in line]
    return lines


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "spanfit", *map(str, arguments)]


def test_a_campaign_fills_the_store_with_every_case(namespaces: None, tmp_path: Path) -> None:
    campaign = Campaign(write_campaign(tmp_path, small_fabric("fills"), SMALL), tmp_path / "runs")
    seen: list[Progress] = []
    campaign.run(seen.append)
    info, frame = campaign.store.read(campaign.run_id)
    assert set(frame["case_id"]) == {case.case_id for case in campaign.cases}
    # 6 (operation, size) x (2 groups at once and 1 alone, over 1 and 2 minipods) x 4 repetitions x 2 launches
    assert len(frame) == 6 * (2 + 1) * 2 * 4 * 2
    assert (frame["status"] == "ok").all()
    assert (frame["time_s"] >= frame["time_min_s"]).all()
    assert set(frame["span"]) == {1, 2}
    assert info.node_names == ("m0l0h0", "m0l0h1", "m1l0h0", "m1l0h1")
    assert info.truth["host/m0l0h0"] == 1e9
    assert info.environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert seen[-1].done == seen[-1].total == 2 * len(campaign.cases)
    orders = [
        list(dict.fromkeys(frame[frame["launch"] == launch].sort_values("position")["case_id"])) for launch in (0, 1)
    ]
    assert orders[0] != orders[1], "each launch has its own random order"
    assert not campaign.folder.exists()


def test_a_finished_campaign_is_not_measured_twice_unless_told(namespaces: None, tmp_path: Path) -> None:
    path = write_campaign(tmp_path, small_fabric("again"), SMALL.replace("launches = 2", "launches = 1"))
    first = Campaign(path, tmp_path / "runs")
    first.run(nothing)
    done = subprocess.run(
        command("campaign", "run", path, "--store", tmp_path / "runs"), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"{first.run_id}\n")
    assert "finished already" in done.stderr
    assert Campaign(path, tmp_path / "runs", again=True).run_id == f"{first.run_id}-2"


def test_kills_at_random_moments_lose_no_finished_case_and_leave_nothing(namespaces: None, tmp_path: Path) -> None:
    fabric = small_fabric("kills")
    path = write_campaign(tmp_path, fabric, SMALL.replace("launches = 2", "launches = 6"))
    run = command("campaign", "run", path, "--store", tmp_path / "runs")
    campaign = Campaign(path, tmp_path / "runs")
    rng = random.Random(20261130)
    kept: list[str] = []
    for _ in range(KILLS):
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        moment_s = rng.uniform(0.3, 4.0)
        try:
            process.wait(moment_s)
        except subprocess.TimeoutExpired:
            identity = pid_namespace(fabric.name)
            process.kill()
        else:
            identity = None
        process.communicate()
        if identity:
            # One that was being forked when another was looked for dies with its namespace too.
            while pids := processes_in("pid", identity):
                wait_for_end(pids)
        if campaign.is_finished:
            break
        lines = finished_lines(campaign.folder)
        assert lines[: len(kept)] == kept or set(kept) <= set(lines), "a finished case was lost"
        kept = lines
    assert subprocess.run(run, capture_output=True, check=False).returncode == 0
    _, frame = campaign.store.read(campaign.run_id)
    times = {(row.launch, row.case_id, row.group, row.repetition): row.time_s for row in frame.itertuples()}
    assert len(times) == len(frame) == 6 * (2 + 1) * 2 * 4 * 6
    for line in map(json.loads, kept):
        slowest = [max(by_rank) for by_rank in zip(*line["times_s"][0], strict=True)]
        stored = [times[line["launch"], line["case_id"], 0, repetition] for repetition in range(len(slowest))]
        assert stored == slowest, "a case that was finished before a kill was measured again"
    assert fabric.name not in beds.names()


def pid_namespace(name: str) -> str | None:
    """Return what identifies the processes of a testbed, None while there is none."""
    try:
        return namespace(beds.connect(name).pid, "pid")
    except (SpanfitError, OSError):
        return None


class Saboteur:
    """Sends a signal to the rank on a host once some cases are done."""

    def __init__(self, bed: Testbed, host: str, number: signal.Signals, after: int) -> None:
        self.bed, self.host, self.number, self.after = bed, host, number, after
        self.hit = False

    def __call__(self, progress: Progress) -> None:
        if progress.done >= self.after and not self.hit:
            network = namespace(self.bed.hosts[self.host].pid, "net")
            ranks = set(processes_in("net", network)) - {self.bed.hosts[self.host].pid}
            for pid in ranks:
                os.kill(pid, self.number)
            self.hit = bool(ranks)


def sabotage(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path, number: signal.Signals, timeout: str
) -> tuple[Campaign, SpanfitError]:
    """Return a campaign that a signal to the rank on m1l0h0 ended, and the error that it ended with."""
    fabric = small_fabric("sabotage")
    bed = bring_up(fabric)
    campaign = Campaign(write_campaign(tmp_path, fabric, SMALL, timeout=timeout), tmp_path / "runs")
    with pytest.raises(SpanfitError) as caught:
        campaign.run(Saboteur(bed, "m1l0h0", number, after=5))
    return campaign, caught.value


def test_a_rank_that_dies_is_named_its_case_is_a_row_and_the_rest_goes_on(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    campaign, error = sabotage(bring_up, tmp_path, signal.SIGKILL, "60s")
    assert isinstance(error, LaunchError)
    assert "rank 2 on m1l0h0 was ended by signal 9 (SIGKILL)" in str(error)
    assert "run the same command to go on" in str(error)
    before = finished_lines(campaign.folder)
    assert sum('"status": "failed"' in line for line in before) == 1
    campaign.run(nothing)
    _, frame = campaign.store.read(campaign.run_id)
    failed = frame[frame["status"] == "failed"]
    assert failed["reason"].str.contains("SIGKILL").all()
    assert failed["case_id"].nunique() == 1
    assert failed["time_s"].isna().all()
    good = frame[frame["status"] == "ok"]
    assert good.groupby("launch")["case_id"].nunique().tolist() == [len(campaign.cases)] * 2


def test_a_rank_that_hangs_is_named_by_the_limit_with_what_the_others_said(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path
) -> None:
    began_s = time.monotonic()
    campaign, error = sabotage(bring_up, tmp_path, signal.SIGSTOP, "3s")
    assert time.monotonic() - began_s < 3 + 15
    assert isinstance(error, TimedOutError)
    assert error.exit_code == ExitCode.TIMED_OUT
    assert "rank 2 on m1l0h0 is stopped (process state T)" in str(error)
    rows = [json.loads(line) for line in finished_lines(campaign.folder) if '"status": "timed_out"' in line]
    assert [row["reason"] for row in rows] == ["rank 2 on m1l0h0 is stopped (process state T)"]
    (kept,) = (tmp_path / "runs" / f"{campaign.run_id}.failures").iterdir()
    for rank in (0, 1, 3):
        assert "run_launch" in (kept / f"stacks-{rank}.txt").read_text()
        assert json.loads((kept / f"flight-{rank}.json").read_text())["entries"]
    assert not (kept / "stacks-2.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_campaign_goes_on_without_a_sick_host_where_it_may(
    bring_up: Callable[[Fabric], Testbed], tmp_path: Path, number: signal.Signals
) -> None:
    fabric = small_fabric("goes-on")
    bed = bring_up(fabric)
    path = write_campaign(tmp_path, fabric, SMALL, timeout="3s")
    path.write_text(path.read_text().replace("[launch]", "[launch]\nexclude_sick = true"))
    campaign = Campaign(path, tmp_path / "runs")
    campaign.run(Saboteur(bed, "m0l0h1", number, after=5))
    _, frame = campaign.store.read(campaign.run_id)
    needs = {case.case_id for case in campaign.cases if any(1 in group for group in case.groups)}
    assert 0 < len(needs) < len(campaign.cases)
    second = frame[frame["launch"] == 1]
    assert set(second[second["status"] == "failed"]["case_id"]) == needs
    assert (
        second[second["status"] == "failed"]["reason"].str.startswith("host m0l0h1 was excluded after launch 0").all()
    )
    measured = second[second["status"] == "ok"]
    assert set(measured["case_id"]) == {case.case_id for case in campaign.cases} - needs
    by_id = {case.case_id: case for case in campaign.cases}
    for row in measured.to_dict("records"):
        group = by_id[row["case_id"]].groups[row["group"]]
        assert row["nodes"] == ",".join(map(str, group)), "rows keep the campaign's node ranks"
        assert row["slowest_rank"] in group
    bad = {"failed", "timed_out"} & set(frame[frame["launch"] == 0]["status"])
    assert bad == ({"failed"} if number is signal.SIGKILL else {"failed", "timed_out"})


def test_two_of_the_same_campaign_at_once_are_refused(namespaces: None, tmp_path: Path) -> None:
    path = write_campaign(tmp_path, small_fabric("twice"), SMALL.replace("launches = 2", "launches = 1"))
    outcome: list[Any] = []

    def start_another(_: Progress) -> None:
        if not outcome:
            run = command("campaign", "run", path, "--store", tmp_path / "runs")
            outcome.append(subprocess.run(run, capture_output=True, text=True, check=False))

    Campaign(path, tmp_path / "runs").run(start_another)
    assert outcome[0].returncode == ExitCode.BAD_INPUT
    assert "running already" in outcome[0].stderr


def test_ctrl_c_keeps_what_is_finished_and_ends_with_130(namespaces: None, tmp_path: Path) -> None:
    fabric = small_fabric("ctrl-c")
    path = write_campaign(tmp_path, fabric, SMALL.replace("launches = 2", "launches = 3"))
    run = command("campaign", "run", path, "--store", tmp_path / "runs")
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("launch 2 of 3"):
            process.send_signal(signal.SIGINT)
            break
    _, talk = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    assert "run the same command to go on" in talk
    assert "Traceback" not in talk
    campaign = Campaign(path, tmp_path / "runs")
    assert len(finished_lines(campaign.folder)) >= len(campaign.cases)
    status = subprocess.run(
        command("campaign", "status", path, "--store", tmp_path / "runs", "--json"), capture_output=True
    )
    launches = json.loads(status.stdout)["launches"]
    assert launches[0] == {"launch": 0, "done": len(campaign.cases), "missing": 0, "failed": 0}
    assert launches[2]["missing"] > 0
    assert fabric.name not in beds.names()


def test_a_host_that_the_testbed_lacks_is_one_message_before_anything_starts(tmp_path: Path) -> None:
    path = write_campaign(tmp_path, small_fabric("lacks"), SMALL)
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(cluster.read_text().replace("m1l0h", "elsewhere"))
    with pytest.raises(ConfigError, match=r"testbed lacks-\d+ has no host elsewhere0, elsewhere1"):
        Campaign(path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_host_that_does_not_answer_is_named(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "ssh"
    fake.write_text('#!/bin/sh\necho "ssh: connect to host $5 port 22: No route to host" >&2\nexit 255\n')
    fake.chmod(0o755)
    path = write_campaign(tmp_path, small_fabric("unreachable"), SMALL, launcher="ssh")
    done = subprocess.run(
        command("campaign", "run", path, "--store", tmp_path / "runs"),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert done.returncode == ExitCode.LAUNCH_FAILED
    assert "ended with exit code 255" in done.stderr
    assert "No route to host" in done.stderr
    assert "Traceback" not in done.stderr

"""What each launch of a campaign measures follows from what is written, and from nothing else."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spanfit.bench.campaign_file import CampaignFile, CollectivesFile, Launcher, LaunchFile
from spanfit.bench.case import BenchCase
from spanfit.bench.groups import NodeTree
from spanfit.bench.plan import plan_cases
from spanfit.collectives import Collective
from spanfit.profiler.agenda import Agenda
from spanfit.profiler.clock import RunClock

SIZES = tuple(1 << exponent for exponent in range(20, 26))
CAMPAIGN = CampaignFile(
    name="agenda",
    cluster="cluster.toml",
    launch=LaunchFile(launcher=Launcher.SSH),
    collectives=CollectivesFile(operations=(Collective.ALL_REDUCE,), sizes=SIZES, nodes_per_group=2, spans=(1,)),
    launches=6,
    max_launches=14,
    precision=0.05,
)
CASES = plan_cases(CAMPAIGN, NodeTree(tiers=("minipod", "core"), fabric=(("m0", "core"), ("m0", "core"))))
SCATTER = {case.case_id: sd for case, sd in zip(CASES, (0.001, 0.001, 0.001, 0.03, 0.05, 0.5), strict=True)}


class Runner:
    """Writes the lines of launches as a world would, with a scatter of its own for each case."""

    def __init__(self, folder: Path, campaign: CampaignFile = CAMPAIGN) -> None:
        self.folder = folder
        self.campaign = campaign

    def agenda(self, spent_s: float = 0.0) -> Agenda:
        clock = RunClock(self.folder / "clock.json", self.campaign.time_limit)
        clock.spent_s = spent_s
        return Agenda(self.campaign, CASES, self.shard, clock)

    def shard(self, launch: int) -> Path:
        return self.folder / f"{launch}.jsonl"

    def measure(self, agenda: Agenda, launch: int, count: int | None = None) -> None:
        for visit in agenda.missing(launch)[:count]:
            self.append(visit.case, launch, visit.block, "ok")

    def append(self, case: BenchCase, launch: int, block: int, status: str) -> None:
        rng = np.random.default_rng([launch, block, CASES.index(case)])
        time_s = float(np.exp(rng.normal(0, SCATTER[case.case_id])))
        line = {
            "type": "case",
            "launch": launch,
            "comm_id": f"{launch}.0.{block}",
            "block": block,
            "case_id": case.case_id,
            "case": asdict(case),
            "status": status,
            "times_s": [[[time_s]]] if status == "ok" else [],
        }
        with self.shard(launch).open("a") as file:
            file.write(json.dumps(line) + "\n")


def run_all(runner: Runner) -> Agenda:
    agenda = runner.agenda()
    launch = 0
    while launch < len(agenda.visits):
        runner.measure(agenda, launch)
        launch += 1
    return agenda


def test_a_campaign_without_a_precision_is_decided_at_once(tmp_path: Path) -> None:
    agenda = Runner(tmp_path, replace(CAMPAIGN, precision=None, max_launches=None)).agenda()
    assert [len(visits) for visits in agenda.visits] == [len(CASES)] * 6
    assert agenda.expected_visits(0) == 6 * len(CASES)


def test_launches_after_the_least_measure_only_what_is_open_until_nothing_is(tmp_path: Path) -> None:
    agenda = run_all(Runner(tmp_path))
    planned = [{visit.case.case_id for visit in visits} for visits in agenda.visits]
    assert planned[:6] == [set(SCATTER)] * 6
    assert len(planned) == 14, "the case that never settles gets every launch"
    assert all(later <= earlier for earlier, later in pairwise(planned))
    assert planned[6].isdisjoint({case.case_id for case in CASES[:3]})
    assert planned[13] == {CASES[5].case_id}
    states = {state.case.case_id: state for state in agenda.states()}
    assert not any(state.is_open for state in states.values())
    assert all((states[case.case_id].half_width or 1) <= 0.05 for case in CASES[:4])
    assert (states[CASES[5].case_id].half_width or 0) > 0.05


@pytest.mark.parametrize("done", [0, 3, 6, 7])
def test_a_campaign_that_is_started_again_decides_the_same(tmp_path: Path, done: int) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = run_all(Runner(tmp_path / "whole")).visits
    runner = Runner(tmp_path / "parts")
    first = runner.agenda()
    for launch in range(done):
        runner.measure(first, launch)
    runner.measure(first, done, count=1)
    again = runner.agenda()
    assert again.visits == whole[: max(6, done + 1)]
    assert len(again.missing(done)) == len(whole[done]) - 1
    assert run_all(runner).visits == whole


def test_a_launch_is_not_decided_before_the_one_before_is_complete(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    agenda = runner.agenda()
    for launch in range(5):
        runner.measure(agenda, launch)
    runner.measure(agenda, 5, count=3)
    assert len(agenda.visits) == 6
    runner.measure(agenda, 5)
    assert len(agenda.visits) == 7


def test_the_expected_end_moves_with_what_is_known(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    agenda = runner.agenda()
    assert agenda.expected_visits(0) == 36
    for launch in range(6):
        runner.measure(agenda, launch)
    expected = agenda.expected_visits(6)
    assert 36 + len(agenda.visits[6]) + 7 <= expected <= 36 + 3 * 8
    assert sum(map(len, run_all(runner).visits)) == pytest.approx(expected, abs=10)


def test_a_launch_for_which_little_time_is_left_takes_the_cases_that_need_it(tmp_path: Path) -> None:
    runner = Runner(tmp_path, replace(CAMPAIGN, time_limit=100.0))
    agenda = runner.agenda()
    assert len(agenda.visits) == 1, "under a limit each launch waits for the one before"
    for launch in range(6):
        agenda.clock.spent_s = 14.0 * launch
        agenda.clock.begin(launch)
        runner.measure(agenda, launch)
    agenda.clock.spent_s = 93.0
    agenda.clock.begin(6)
    # 36 visits in 93 s leave time for 2 in the last 7 s: the widest.
    assert {visit.case for visit in agenda.visits[-1]} == {CASES[4], CASES[5]}
    assert runner.agenda(spent_s=99.9).visits == agenda.visits, "what a launch measures is settled when it begins"
    runner.measure(agenda, 6)
    agenda.clock.spent_s = 100.0
    assert len(agenda.visits) == 7


def test_cases_that_the_limit_left_no_time_for_are_known(tmp_path: Path) -> None:
    runner = Runner(tmp_path, replace(CAMPAIGN, time_limit=100.0))
    agenda = runner.agenda()
    runner.measure(agenda, 0, count=4)
    assert {visit.case for visit in agenda.unmeasured()} == {visit.case for visit in agenda.visits[0][4:]}


def test_a_case_that_fails_for_good_is_given_up(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    agenda = runner.agenda()
    for launch in range(6):
        if launch == 5:
            runner.append(CASES[5], launch, 0, "wrong_result")
        runner.measure(agenda, launch)
    assert CASES[5] not in {visit.case for visit in agenda.visits[6]}
    (state,) = (state for state in agenda.states() if state.case == CASES[5])
    assert (state.nlaunches, state.is_open) == (5, False)

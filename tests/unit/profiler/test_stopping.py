import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest

from spanfit.bench.campaign_file import CampaignFile, CollectivesFile, Launcher, LaunchFile
from spanfit.bench.case import BenchCase
from spanfit.bench.groups import NodeTree
from spanfit.bench.plan import plan_cases
from spanfit.collectives import Collective
from spanfit.profiler import statistics, stopping
from spanfit.profiler.stopping import History, Rule, Units
from spanfit.results.shards import Shard, measurements
from tests.unit.profiler.factory import framed

RULE = Rule(least=6, most=20, precision=0.05)
CAMPAIGN = CampaignFile(
    name="stops",
    cluster="cluster.toml",
    launch=LaunchFile(launcher=Launcher.SSH),
    collectives=CollectivesFile(
        operations=(Collective.ALL_REDUCE,), sizes=(1 << 20, 1 << 21, 1 << 22), nodes_per_group=2, spans=(1,)
    ),
)
CASES: tuple[BenchCase, ...] = plan_cases(
    CAMPAIGN, NodeTree(tiers=("minipod", "core"), fabric=(("m0", "core"), ("m0", "core")))
)
IDS = [case.case_id for case in CASES]


def spread(half: float, nlaunches: int) -> Units:
    """Return units whose interval reaches exactly ``half`` from their mean."""
    values = np.resize([-1.0, 1.0], nlaunches)
    now = stopping.log_half_width(tuple((value,) for value in values.tolist()))
    assert now is not None
    return tuple((value,) for value in (values * half / now).tolist())


def history(launches: Sequence[Sequence[float | None]]) -> History:
    """Return what launches measured of each case, None where it failed."""
    return History(
        launches=tuple(
            {case_id: () if value is None else (value,) for case_id, value in zip(IDS, row, strict=False)}
            for row in launches
        )
    )


@pytest.mark.parametrize(
    ("half", "nlaunches", "is_done"),
    [(0.024, 6, True), (0.026, 6, False), (0.026, 5, False), (0.0, 5, False), (0.06, 12, False), (0.06, 20, True)],
)
def test_a_case_is_done_when_it_is_narrow_beyond_doubt_or_has_all_its_launches(
    half: float, nlaunches: int, is_done: bool
) -> None:
    assert RULE.is_done(spread(half, nlaunches)) is is_done


def test_a_case_that_is_just_narrow_enough_must_be_so_after_the_next_launch_as_well() -> None:
    units = spread(0.04, 6)
    assert not RULE.is_done(units)
    assert RULE.is_done((*units, (0.0,)))
    outlier = (*units, (0.2,))
    assert (stopping.log_half_width(outlier) or 0) > math.log1p(0.05)
    assert not RULE.is_done(outlier)


def test_what_is_done_stays_done() -> None:
    rng = np.random.default_rng(1)
    units: Units = ()
    seen = []
    for _ in range(RULE.most):
        units = (*units, (float(rng.normal(0, 0.03)),))
        seen.append(RULE.is_done(units))
    assert seen == sorted(seen) and not seen[5] and seen[-1]


def test_without_a_precision_the_least_number_of_launches_is_enough() -> None:
    rule = stopping.rule_of(replace(CAMPAIGN, launches=3))
    assert (rule.least, rule.most, rule.precision) == (3, 3, None)
    assert stopping.open_cases(rule, CASES, history([[0.0] * 3] * 2)) == CASES
    assert stopping.open_cases(rule, CASES, history([[0.0] * 3] * 3)) == ()


@pytest.mark.parametrize(
    ("launches", "most", "expected"), [(3, None, (6, 30)), (8, None, (8, 40)), (3, 4, (4, 4)), (8, 12, (8, 12))]
)
def test_a_precision_needs_the_launches_of_a_final_claim(
    launches: int, most: int | None, expected: tuple[int, int]
) -> None:
    rule = stopping.rule_of(replace(CAMPAIGN, launches=launches, max_launches=most, precision=0.05))
    assert (rule.least, rule.most) == expected


def test_later_launches_measure_only_the_cases_that_are_not_done() -> None:
    rough = [value for (value,) in spread(0.2, 6)]
    past = history([[0.0, value, None if launch == 5 else 0.0] for launch, value in enumerate(rough)])
    assert stopping.open_cases(RULE, CASES, past) == (CASES[1],)
    states = stopping.case_states(RULE, CASES, past)
    assert [state.is_open for state in states] == [False, True, False]
    assert [state.nlaunches for state in states] == [6, 6, 5]
    assert states[1].half_width == pytest.approx(math.expm1(0.2))


def test_a_case_that_failed_once_and_was_measured_later_goes_on() -> None:
    rough = [value for (value,) in spread(0.2, 6)]
    past = history([[None if launch == 2 else value, 0.0, 0.0] for launch, value in enumerate(rough)])
    assert stopping.open_cases(RULE, CASES, past) == (CASES[0],)


def test_a_short_last_launch_takes_the_least_known_cases() -> None:
    past = history([[0.0, -0.1, 1.0], [0.0, 0.1, 1.3], [0.0, 0.0, 1.0]])
    assert stopping.most_wanted(CASES, past, 1) == (CASES[2],)
    assert stopping.most_wanted(CASES, past, 2) == (CASES[1], CASES[2])
    fewer = history([[0.0, -0.1, 1.0], [0.0, 0.1, 1.3], [None, 0.0, 1.0]])
    assert stopping.most_wanted(CASES, fewer, 1) == (CASES[0],)


def test_visits_that_fit_go_by_the_pace_so_far() -> None:
    assert stopping.visits_that_fit(0, 3.0, 60.0) is None
    assert stopping.visits_that_fit(30, 60.0, math.inf) is None
    assert stopping.visits_that_fit(30, 60.0, 90.0) == 15
    assert stopping.visits_that_fit(30, 90.0, 60.0) == 0


def test_expected_launches_shrink_the_interval_with_the_root_of_their_number() -> None:
    asked = math.log1p(0.05)
    assert stopping.expected_launches(RULE, spread(asked * 1.4, 8)) == math.ceil(8 * 1.96) - 8
    assert stopping.expected_launches(RULE, spread(asked * 9, 8)) == RULE.most - 8
    assert stopping.expected_launches(RULE, spread(asked * 0.9, 6)) == 1
    assert stopping.expected_launches(RULE, spread(asked, 2)) == 4
    assert stopping.expected_launches(RULE, ()) == 6
    assert stopping.expected_launches(RULE, spread(asked / 3, 6)) == 0


def line(
    case: BenchCase, launch: int, block: int, times_s: list[list[list[float]]], status: str = "ok"
) -> dict[str, object]:
    return {
        "launch": launch,
        "comm_id": f"{launch}.0.{block}",
        "block": block,
        "position": 0,
        "case_id": case.case_id,
        "case": asdict(case),
        "status": status,
        "reason": "",
        "ranks": [[0, 1]] * max(1, len(times_s)),
        "times_s": times_s,
    }


def test_a_campaign_decides_by_the_very_units_that_its_results_are_read_by() -> None:
    rng = np.random.default_rng(3)
    shards = []
    for launch in range(3):
        cases = [
            line(case, launch, block, rng.uniform(1, 2, (2, 2, 5)).tolist()) for case in CASES[:2] for block in range(2)
        ]
        shards.append(Shard(worlds=(), cases=(*cases, line(CASES[2], launch, 0, [], "failed"))))
    frame = framed(list(measurements("run", shards, 1, {"minipod": ["m0", "m0"]})))
    units = tuple(stopping.shard_units(shard) for shard in shards)
    found = stopping.frame_units(frame)
    for live, stored in zip(units, found, strict=True):
        assert stored.keys() == live.keys() == set(IDS)
        for case_id in IDS:
            assert stored[case_id] == pytest.approx(live[case_id])
    values = [value for unit in History(launches=units).units[IDS[0]] for value in unit]
    width = statistics.half_width(statistics.unit_interval(values, [0, 0, 1, 1, 2, 2]))
    assert stopping.log_half_width(History(launches=units).units[IDS[0]]) == width
    assert History(launches=units).given_up == {IDS[2]}

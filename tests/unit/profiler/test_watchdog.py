"""When a world counts as stuck, and who is to blame, from heartbeats and process states."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.case import LaunchPlan, Visit
from spanfit.bench.heartbeat import Beat, Heartbeat, Phase
from spanfit.errors import LaunchError, TimedOutError
from spanfit.launch.worlds import Failure
from spanfit.profiler.failures import blame
from spanfit.profiler.watchdog import START_LIMIT_S, Watchdog, find_suspects, name_ranks


def beat(position: int, phase: Phase) -> Beat:
    return Beat(position=position, phase=phase, time_s=0.0)


def beats(**phases: tuple[int, Phase]) -> dict[int, Beat]:
    return {int(rank.removeprefix("r")): beat(*where) for rank, where in phases.items()}


TOGETHER = beats(r0=(4, Phase.TIMED), r1=(4, Phase.TIMED), r2=(4, Phase.TIMED))


def test_a_world_is_stuck_once_nobody_began_a_phase_for_longer_than_the_limit() -> None:
    dog = Watchdog(10.0, started_s=0.0)
    assert not dog.is_stuck(TOGETHER, 4, now_s=5.0)
    assert not dog.is_stuck(TOGETHER, 4, now_s=15.0)
    assert dog.is_stuck(TOGETHER, 4, now_s=15.1)


def test_one_rank_that_moves_keeps_a_world_alive() -> None:
    dog = Watchdog(10.0, started_s=0.0)
    dog.is_stuck(TOGETHER, 4, now_s=5.0)
    assert not dog.is_stuck({**TOGETHER, 1: beat(4, Phase.GATHER)}, 4, now_s=14.0)
    assert not dog.is_stuck({**TOGETHER, 1: beat(4, Phase.GATHER)}, 4, now_s=24.0)


def test_cases_that_end_are_progress_where_ranks_give_no_heartbeat() -> None:
    dog = Watchdog(10.0, started_s=0.0)
    assert not dog.is_stuck({}, 1, now_s=9.0)
    assert not dog.is_stuck({}, 2, now_s=18.0)
    assert dog.is_stuck({}, 2, now_s=29.0)


def test_the_start_has_longer() -> None:
    dog = Watchdog(10.0, started_s=0.0)
    starting = beats(r0=(-1, Phase.START))
    dog.is_stuck(starting, 0, now_s=1.0)
    assert not dog.is_stuck(starting, 0, now_s=10.0 + START_LIMIT_S)
    assert dog.is_stuck(starting, 0, now_s=12.0 + START_LIMIT_S)


@pytest.mark.parametrize(
    ("said", "states", "ranks", "evidence"),
    [
        (TOGETHER, {0: "S", 1: "T", 2: "S"}, (1,), "is stopped"),
        # A stopped rank is to blame though another is behind it.
        ({**TOGETHER, 0: beat(4, Phase.CHECK)}, {0: "S", 1: "T", 2: "S"}, (1,), "is stopped"),
        ({**TOGETHER, 2: beat(4, Phase.CHECK)}, {}, (2,), "did not get past phase check of visit 4"),
        ({**TOGETHER, 2: beat(3, Phase.IDLE)}, {0: "D", 1: "S", 2: "S"}, (2,), "others wait in phase timed of visit 4"),
        ({0: TOGETHER[0], 2: TOGETHER[2]}, {}, (1,), "never began"),
        (TOGETHER, {0: "S", 1: "S", 2: "D"}, (2,), "hangs in the kernel"),
        (TOGETHER, {}, (), "heartbeats do not tell"),
        ({}, {}, (), "no rank has begun"),
    ],
)
def test_who_is_to_blame(
    said: Mapping[int, Beat], states: dict[int, str], ranks: tuple[int, ...], evidence: str
) -> None:
    found = find_suspects(3, said, states)
    assert found.ranks == ranks
    assert evidence in found.evidence


def test_where_all_are_in_one_phase_a_rank_that_writes_no_stacks_does_not_run() -> None:
    found = find_suspects(3, TOGETHER, {}, told=(0, 2))
    assert found.ranks == (1,)
    assert "wrote no stacks" in found.evidence
    assert find_suspects(3, TOGETHER, {}, told=(0, 1, 2)).ranks == ()
    assert find_suspects(3, {**TOGETHER, 2: beat(4, Phase.CHECK)}, {}, told=(0, 2)).ranks == (2,)


def test_ranks_are_named_with_their_hosts() -> None:
    assert name_ranks((1, 2), ("a", "b"), 2) == "rank 1 on a and rank 2 on b"


def launch_of(folder: Path) -> LaunchPlan:
    return LaunchPlan(
        run_id="run",
        launch=3,
        attempt=0,
        backend="gloo",
        node_names=("n0", "n1", "n2"),
        ngpus_per_node=1,
        timeout_s=20.0,
        shard=str(folder / "run" / "launch-003.jsonl"),
        visits=tuple[Visit, ...](),
        heartbeats=str(folder / "run" / "beats"),
    )


def failure_of(folder: Path, text: str, **fields: object) -> Failure:
    log = folder / "run" / "logs" / "rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text(text)
    return replace(Failure(who="rank 0 on n0", host="n0", code=1, log=log), **fields)  # type: ignore[arg-type]


def test_who_timed_out_first_is_not_blamed_but_who_is_behind(tmp_path: Path) -> None:
    plan = launch_of(tmp_path)
    for rank, phase in enumerate((Phase.TIMED, Phase.CHECK, Phase.TIMED)):
        Heartbeat(Path(plan.heartbeats), rank).beat(7, phase)
    failure = failure_of(tmp_path, "RuntimeError: Timed out waiting 20000ms for recv operation to complete\n")
    incident = blame(failure, plan, Path(plan.shard), ())
    assert isinstance(incident.error, TimedOutError)
    assert incident.sick == ("n1",)
    assert "rank 1 on n1 did not get past phase check of visit 7" in str(incident.error)


def test_a_rank_that_a_signal_ended_is_sick_and_its_output_is_kept(tmp_path: Path) -> None:
    plan = launch_of(tmp_path)
    incident = blame(failure_of(tmp_path, "last words\n", code=-9), plan, Path(plan.shard), ())
    assert isinstance(incident.error, LaunchError)
    assert incident.sick == ("n0",)
    assert incident.reason == "rank 0 on n0 was ended by signal 9 (SIGKILL): last words"
    assert (tmp_path / "run.failures" / "launch-003.0" / "rank-0.log").read_text() == "last words\n"


def test_an_exception_blames_no_host(tmp_path: Path) -> None:
    plan = launch_of(tmp_path)
    incident = blame(failure_of(tmp_path, "ValueError: wrong\n"), plan, Path(plan.shard), ())
    assert incident.sick == ()
    assert "ValueError: wrong" in incident.reason

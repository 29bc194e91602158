"""What ranks say of where they are is read back, and the order of phases is the order of the work."""

import os
from pathlib import Path

import pytest

from spanfit.bench.heartbeat import Heartbeat, Phase, read_heartbeats


def test_the_last_beat_of_each_rank_is_read_by_rank(tmp_path: Path) -> None:
    folder = tmp_path / "beats"
    for rank in (10, 2):
        heart = Heartbeat(folder, rank)
        heart.beat(-1, Phase.START)
        heart.beat(rank, "timed")
    beats = read_heartbeats(folder)
    assert [(rank, beat.position, beat.phase) for rank, beat in beats.items()] == [
        (2, 2, Phase.TIMED),
        (10, 10, Phase.TIMED),
    ]
    assert all(beat.time_s > 1.6e9 for beat in beats.values())


def test_a_beat_replaces_the_one_before_and_never_grows_the_file(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path, 0)
    sizes = set()
    for position in range(1000):
        heart.beat(position, Phase.GATHER)
        sizes.add((tmp_path / "rank-0").stat().st_size)
    assert len(sizes) == 1


def test_no_folder_and_torn_files_are_no_beats(tmp_path: Path) -> None:
    assert read_heartbeats(tmp_path / "none") == {}
    (tmp_path / "rank-3").write_bytes(os.urandom(5))
    (tmp_path / "stacks-1.txt").write_text("not a rank")
    assert read_heartbeats(tmp_path) == {}


def test_an_unknown_phase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lunch"):
        Heartbeat(tmp_path, 0).beat(0, "lunch")


def test_places_follow_the_work(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path, 0)
    places = []
    for position, phase in [(-1, Phase.START), *[(visit, phase) for visit in (0, 1) for phase in list(Phase)[1:]]]:
        heart.beat(position, phase)
        places.append(read_heartbeats(tmp_path)[0].place)
    assert places == sorted(set(places))

"""A queue that is killed at any instant, meets a full disk or a second writer: no node is lost or booked twice."""

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spanfit.queue.acting.deeds import act
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.state.invariants import faults
from spanfit.queue.state.replay import differences
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome
from tests.integration.queue_under_load import World, drive, new_store, next_event, open_store

KILLS = 200
STEPS = 400
LONGEST_S = 0.15
MOST_STATEMENTS = 400
_FORK = multiprocessing.get_context("fork")


def die_at(statement: int) -> Callable[[QueueStore], None]:
    """Return what kills its own process just before SQLite runs the n-th statement from now on."""

    def arm(store: QueueStore) -> None:
        left = statement

        def count(text: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        store._connection.set_trace_callback(count)

    return arm


def killed(path: Path, world: World, seed: int, rng: random.Random) -> None:
    """Drive a queue in a process of its own and kill it: at a statement of SQLite, or after some time."""
    is_timed = seed % 2 == 0
    ready = (lambda store: None) if is_timed else die_at(rng.randint(1, MOST_STATEMENTS))
    child = _FORK.Process(target=drive, args=(path, world, seed), kwargs={"steps": STEPS, "ready": ready})
    child.start()
    if is_timed:
        time.sleep(rng.uniform(0, LONGEST_S))
        child.kill()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL, "it was not killed but ended"


def test_killed_at_200_points_the_queue_is_whole_each_time(tmp_path: Path) -> None:
    path, world, rng = tmp_path / "queue.sqlite", World(tmp_path / "world.txt"), random.Random(8)
    new_store(path).close()
    events = []
    for seed in range(KILLS):
        killed(path, world, seed, rng)
        with open_store(path) as store:
            state = store.state()
            assert faults(state) == (), f"after kill {seed}"
            events.append(len(store._connection.execute("SELECT 1 FROM events").fetchall()))
    assert events[-1] > KILLS, "the kills came so early that nothing was tried"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with open_store(path) as store:
        assert list(differences(store.opening(), store.records(), store.state(), decide, choose)) == []
        outcomes = {deed.outcome for deed in act(store, world)}
        assert outcomes <= {Outcome.DONE, Outcome.DROPPED}
        assert store.open_tasks() == ()
        there, believed = world.running(), store.state().running
    assert {job_id: there.get(job_id) for job_id in believed} == {job_id: run.order for job_id, run in believed.items()}


def test_two_writers_at_once_never_book_a_node_twice(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite"
    new_store(path).close()
    code = f"""
import random
from pathlib import Path
from tests.integration.queue_under_load import next_event, open_store
import sys
rng = random.Random(int(sys.argv[1]))
with open_store(Path({str(path)!r})) as store:
    for number in range(150):
        store.step(next_event(store.state(), rng, int(sys.argv[1]) * 1000 + number))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], stderr=subprocess.PIPE, text=True, env=environment)
        for number in (1, 2)
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=60)
        assert writer.returncode == 0, said
    with open_store(path) as store:
        records = store.records()
        assert len(records) == 300
        assert faults(store.state()) == ()
        assert list(differences(store.opening(), records, store.state(), decide, choose)) == []


FULL = """
import random, sys
from pathlib import Path
from spanfit.errors import StoreError
from spanfit.queue.policy.choosing import choose
from spanfit.queue.state.invariants import faults
from spanfit.queue.policy.decide import decide
from spanfit.queue.state.replay import differences
from tests.integration.queue_under_load import new_store, next_event, open_store
disk = Path(sys.argv[1])
rng = random.Random(5)
store = new_store(disk / "queue.sqlite")
said, done = "", 0
for number in range(5000):
    before = store.state()
    try:
        store.step(next_event(before, rng, number))
        done += 1
    except StoreError as error:
        said = str(error)
        break
assert "the disk is full; nothing was changed" in said, said
assert store.state() == before
store.close()
(disk / "ballast").unlink()
with open_store(disk / "queue.sqlite") as store:
    assert store.state() == before
    assert len(store.records()) == done
    assert faults(before) == ()
    assert list(differences(store.opening(), store.records(), before, decide, choose)) == []
    store.step(next_event(before, rng, 9999))
print("full after", done)
"""


def test_a_disk_that_is_really_full_leaves_the_queue_whole(namespaces: None, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=2m none "{disk}" && head -c 1000000 /dev/zero > "{disk}/ballast"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    argv += [sys.executable, "-c", FULL, str(disk)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "full after" in done.stdout


@pytest.mark.parametrize("seed", [1, 2])
def test_the_load_itself_reaches_every_kind_of_event(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "queue.sqlite"
    rng = random.Random(seed)
    with new_store(path) as store:
        for number in range(300):
            store.step(next_event(store.state(), rng, number))
        kinds = {decision.kind for record in store.records() for decision in record.decisions}
    assert {"start", "wait", "reserve", "release", "preempt"} <= kinds

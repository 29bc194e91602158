import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import StoreError
from spanfit.queue.model.events import Arrived, Cancelled, Decision, Event, Finished, NodesDown, NodesUp, Ticked
from spanfit.queue.model.jobs import Chooser, Running
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.decide import decide
from spanfit.queue.state import journal
from spanfit.queue.state.database import make
from spanfit.queue.state.replay import differences
from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, TaskKind
from tests.unit.queue.stores import GROUND, OPENED_S, a_job, new_store, open_store, submitted

HOUR_S = 3600.0


def query(path: Path, text: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


def test_what_is_kept_is_read_again_by_another_process(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("one", 5))
        store.step(submitted("two", 8))
        store.step(submitted("llm", 6, expected_start_s=OPENED_S + 2 * HOUR_S, nrows=3, ncolumns=2, alpha=0.3))
        last = store.step(NodesDown(at_s=OPENED_S + 60, nodes=0b11 << 10))
    with open_store(tmp_path / "q.sqlite") as again:
        state = again.state()
    assert state == last.after
    assert list(state.waiting) == list(last.after.waiting)
    assert state.running["one"].order == last.after.running["one"].order
    assert state.now_s == OPENED_S + 60
    assert state.ground == GROUND


def test_the_tables_can_be_read_without_spanfit(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    with new_store(path) as store:
        store.step(submitted("one", 2))
    rows = query(path, "SELECT name, job_id FROM held JOIN nodes USING (node) ORDER BY node_rank")
    assert [job_id for _, job_id in rows] == ["one", "one"]
    assert query(path, "SELECT json_extract(document, '$.job.owner') FROM jobs") == [("ann",)]
    (kind, document) = query(path, "SELECT kind, document FROM decisions")[0]
    assert kind == "start"
    assert json.loads(str(document))["order"] == [name for name, _ in rows]


@pytest.mark.parametrize("number", [0, 2])
def test_another_schema_version_is_refused_with_the_cure(tmp_path: Path, number: int) -> None:
    path = tmp_path / "q.sqlite"
    new_store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(StoreError, match=rf"schema_version: found {number}, expected 1; use the version of spanfit"):
        open_store(path)


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no queue there; make one with: spanfit queue init"):
        open_store(tmp_path / "absent.sqlite")
    make(tmp_path / "begun.sqlite").close()
    with pytest.raises(StoreError, match="no queue there; make one with: spanfit queue init"):
        open_store(tmp_path / "begun.sqlite")
    new_store(tmp_path / "begun.sqlite").close()
    (tmp_path / "text.sqlite").write_text("no database, and longer than the head of one is, a hundred bytes " * 4)
    with pytest.raises(StoreError, match="not a whole database"):
        open_store(tmp_path / "text.sqlite")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreError, match="not a queue of spanfit"):
        open_store(tmp_path / "other.sqlite")
    with pytest.raises(StoreError, match="found a database, expected no file"):
        new_store(tmp_path / "other.sqlite")


def test_a_queue_is_not_made_over_another(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("one", 2))
        with pytest.raises(StoreError, match="found a database"):
            new_store(tmp_path / "q.sqlite")
        assert list(store.state().running) == ["one"]


def test_two_writers_see_each_other(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as one, open_store(tmp_path / "q.sqlite") as two:
        one.step(submitted("a", 7))
        step = two.step(submitted("b", 7))
        assert "a" in step.before.running
        assert "b" in one.step(Finished(at_s=OPENED_S + 1, job_id="a")).after.running
        assert one.state() == two.state()


def test_a_second_writer_that_waits_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    new_store(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as first, open_store(path, wait_s=0.05) as second:
        first.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has been writing"):
            second.step(submitted("a", 7))
        assert second.state().running == {}
        first.execute("ROLLBACK")
        assert "a" in second.step(submitted("a", 7)).after.running


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    with new_store(path) as store:
        store.step(submitted("a", 7))
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        before, events = store.state(), len(store.records())
        with pytest.raises(StoreError, match="the disk is full; nothing was changed; make room"):
            for number in range(100):
                before, events = store.state(), len(store.records())
                store.step(submitted(f"long-{number}", 7, department="x" * 2000))
        assert store.state() == before
        assert len(store.records()) == events
        with open_store(path) as other:
            assert other.state() == before
        store._connection.execute("PRAGMA max_page_count = 100000")
        assert "more" in store.step(submitted("more", 1)).after.running


def test_a_clock_that_jumps_back_is_told_once_and_time_goes_on(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        assert store.step(Ticked(at_s=OPENED_S + HOUR_S)).clock_back_s is None
        back = store.step(submitted("a", 2, at_s=OPENED_S))
        assert back.clock_back_s == HOUR_S
        assert back.event.at_s == back.after.now_s == OPENED_S + HOUR_S
        assert store.step(Ticked(at_s=OPENED_S + 60)).clock_back_s is None
        assert store.step(Ticked(at_s=OPENED_S + 2 * HOUR_S)).after.now_s == OPENED_S + 2 * HOUR_S
        assert store.step(Ticked(at_s=OPENED_S)).clock_back_s == 2 * HOUR_S
        assert query(store.path, "SELECT count(*) FROM events WHERE at_s > clock_s") == [(3,)]


def test_a_writer_that_waited_for_another_is_no_jump_of_the_clock(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(Ticked(at_s=OPENED_S + 20))
        assert store.step(Ticked(at_s=OPENED_S)).clock_back_s is None


def _doubled(
    state: QueueState, event: Event, rules: QueueRules, choose: Chooser
) -> tuple[QueueState, tuple[Decision, ...]]:
    """Decide what must never be: two jobs on one node."""
    after, decisions = decide(state, event, rules, choose)
    run = after.running["a"]
    twin = Running(job=a_job("b", 7), forecast=run.forecast, nodes=run.nodes, order=run.order, started_s=run.started_s)
    return QueueState(ground=state.ground, now_s=after.now_s, up=after.up, running={"a": run, "b": twin}), decisions


def test_a_decision_that_books_a_node_twice_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    new_store(path).close()
    with (
        QueueStore(path, _doubled, choose) as store,
        pytest.raises(StoreError, match="job b runs on nodes of another job: n"),
    ):
        store.step(submitted("a", 7))
    with open_store(path) as store:
        assert store.state().running == {}
        assert store.records() == ()


def test_the_database_itself_refuses_a_node_to_two_jobs(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    with new_store(path) as store:
        store.step(submitted("a", 1))
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO held SELECT node, 'b', 0 FROM held")


def test_rules_hold_from_when_they_are_set(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("a", 7))
        easy = QueueRules(policy=PolicyName.EASY, interval_s=30)
        store.set_rules(easy)
        store.step(submitted("b", 7))
        assert store.rules() == easy
        assert [record.rules for record in store.records()] == [QueueRules(), easy]


def test_links_are_forgotten_with_their_job(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.link("a", "1201")
        store.step(submitted("a", 7))
        assert store.links() == {"a": "1201"}
        store.step(Finished(at_s=OPENED_S + 1, job_id="a"))
        assert store.links() == {}


def test_a_job_that_is_refused_leaves_no_link(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        step = store.step(submitted("huge", 13), is_seen=True, link=("huge", "1201"))
        assert [decision.kind for decision in step.decisions] == ["refuse"]
        assert store.links() == {}


def test_foreseeing_changes_nothing(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("a", 7))
        before, events = store.state(), store.records()
        steps = store.foresee([Finished(at_s=OPENED_S + 1, job_id="a"), submitted("b", 12)])
        assert list(steps[-1].after.running) == ["b"]
        assert (store.state(), store.records()) == (before, events)


def test_tasks_stay_open_until_they_are_done(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("a", 7))
        (entry,) = store.open_tasks()
        assert (entry.task.kind, entry.outcome, entry.attempts) == (TaskKind.START, Outcome.PENDING, 0)
        store.settle(entry.task_id, Outcome.FAILED, "no route")
        (entry,) = store.open_tasks()
        assert (entry.outcome, entry.attempts, entry.said) == (Outcome.FAILED, 1, "no route")
        store.settle(entry.task_id, Outcome.DONE)
        assert store.open_tasks() == ()
        assert [each.outcome for each in store.tasks_of_job("a")] == [Outcome.DONE]


def test_the_last_decisions_about_a_job_in_their_order(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        store.step(submitted("a", 12))
        store.step(submitted("b", 12))
        store.step(Finished(at_s=OPENED_S + 1, job_id="a"))
        assert [decision.kind for decision in store.decisions("b", 9)] == ["wait", "start"]
        assert [decision.kind for decision in store.decisions("b", 1)] == ["start"]


def test_only_one_acts_at_a_time(tmp_path: Path) -> None:
    with new_store(tmp_path / "q.sqlite") as one, open_store(tmp_path / "q.sqlite") as two:
        with one.acting(), pytest.raises(StoreError, match="another tick is at work"), two.acting():
            pass
        with two.acting():
            pass


def test_nodes_out_of_service_at_first_are_so_before_the_first_event(tmp_path: Path) -> None:
    opening = QueueState(ground=GROUND, now_s=OPENED_S, up=0b111)
    with QueueStore.create(tmp_path / "q.sqlite", opening, QueueRules(), decide, choose) as store:
        assert store.opening() == store.state() == opening
        store.step(NodesUp(at_s=OPENED_S, nodes=0b1000))
        assert store.state().up == 0b1111
        assert list(differences(store.opening(), store.records(), store.state(), decide, choose)) == []


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "announce", "arrive", "cancel", "finish", "down", "up", "tick"]),
        st.integers(0, 7),
        st.integers(1, 12),
        st.integers(0, 7200),
    ),
    max_size=20,
)


def build(kind: str, number: int, nnodes: int, at_s: float) -> Event:
    job_id, nodes = f"job-{number}", 0b111 << nnodes & GROUND.everything
    match kind:
        case "submit":
            return submitted(job_id, nnodes, at_s=at_s, hours=0.5, is_preemptable=number % 2 == 0)
        case "announce":
            return submitted(job_id, nnodes, at_s=at_s, expected_start_s=at_s + 1800)
        case "arrive":
            return Arrived(at_s=at_s, job_id=job_id)
        case "cancel":
            return Cancelled(at_s=at_s, job_id=job_id)
        case "finish":
            return Finished(at_s=at_s, job_id=job_id)
        case "down":
            return NodesDown(at_s=at_s, nodes=nodes)
        case "up":
            return NodesUp(at_s=at_s, nodes=nodes)
    return Ticked(at_s=at_s)


@settings(max_examples=10)
@given(EVENTS, st.sampled_from(PolicyName))
def test_a_journal_replays_to_the_state_that_is_kept(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, int, int, int]], policy: PolicyName
) -> None:
    path = tmp_path_factory.mktemp("queue") / "q.sqlite"
    at_s = OPENED_S
    with new_store(path, QueueRules(policy=policy)) as store:
        for kind, number, nnodes, later_s in written:
            at_s += later_s - 600  # the clock jumps back now and then
            if later_s % 2:
                store._kept = None  # as in a process that has just opened the file
            step = store.step(build(kind, number, nnodes, at_s))
        if written:
            assert store.state() == step.after
    with open_store(path) as store:
        assert list(differences(store.opening(), store.records(), store.state(), decide, choose)) == []


def test_a_journal_that_was_changed_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    with new_store(path) as store:
        store.step(submitted("a", 7))
        store.step(submitted("b", 7))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE event_id = 1")
    with open_store(path) as store:
        found = list(differences(store.opening(), store.records(), store.state(), decide, choose))
    assert any("running" in line for line in found)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (journal.read_cancelled, "cancelled"),
        (journal.read_reserved, "reserved"),
        (journal.read_ever_reserved, "ever_reserved"),
        (journal.read_last_deeds, "tasks_by_job"),
    ],
)
def test_what_every_tick_asks_scans_no_history(
    tmp_path: Path, query: Callable[[sqlite3.Connection], object], index: str
) -> None:
    with new_store(tmp_path / "q.sqlite") as store:
        asked: list[str] = []
        store._connection.set_trace_callback(asked.append)
        query(store._connection)
        store._connection.set_trace_callback(None)
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()
    assert f"INDEX {index}" in " ".join(str(row) for row in plan), plan

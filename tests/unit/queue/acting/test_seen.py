from datetime import datetime
from typing import Any

import pytest

from spanfit.queue.acting.seen import SEPARATOR, SeenJob, parse_squeue, squeue_argv

TOKEN = "5e1f"


def line(**more: str) -> str:
    cells = {
        "token": TOKEN,
        "id": "12",
        "state": "PENDING",
        "nnodes": "2",
        "user": "ann",
        "account": "(null)",
        "limit": "1-02:00:00",
        "priority": "0",
        "submitted": "2026-12-01T03:36:13",
        "ncpus": "16",
        "gres": "gres/gpu:h100:8",
        "nodes": "",
        "reservation": "(null)",
        "dependency": "(null)",
        "comment": "spanfit",
        "name": "train 7",
    } | more
    return SEPARATOR.join(cells.values()) + "\n"


def read(text: str) -> tuple[tuple[SeenJob, ...], tuple[str, ...]]:
    return parse_squeue(text, TOKEN)


def test_the_format_begins_with_the_token_and_has_as_many_fields_as_are_read() -> None:
    words = squeue_argv(TOKEN)[-1].removeprefix("--format=").split(SEPARATOR)
    assert words[0] == TOKEN
    assert len(words) == len(line().split(SEPARATOR))


def test_a_held_job() -> None:
    (job,), remarks = read(line())
    assert remarks == ()
    assert (job.slurm_id, job.name, job.user, job.account) == ("12", "train 7", "ann", "")
    assert (job.is_pending, job.is_held, job.is_ending, job.is_marked) == (True, True, False, True)
    assert (job.nnodes, job.ncpus, job.ngpus, job.time_limit_s) == (2, 16, 16, 93600.0)
    assert job.submitted_s == datetime(2026, 12, 1, 3, 36, 13).timestamp()


@pytest.mark.parametrize(
    ("gres", "ngpus"), [("gres:gpu:4", 8), ("gpu:a100:2(S:0-1)", 4), ("N/A", 0), ("(null)", 0), ("gres/tmpdisk:9", 0)]
)
def test_gpus_of_all_nodes(gres: str, ngpus: int) -> None:
    assert read(line(gres=gres))[0][0].ngpus == ngpus


@pytest.mark.parametrize(
    ("state", "is_pending", "is_ending"),
    [
        ("RUNNING", False, False),
        ("SUSPENDED", False, False),
        ("CONFIGURING", False, False),
        ("COMPLETING", False, True),
        ("REQUEUE_HOLD", True, False),
    ],
)
def test_states(state: str, is_pending: bool, is_ending: bool) -> None:
    (job,), _ = read(line(state=state, nodes="n[01-02]", priority="9"))
    assert (job.is_pending, job.is_ending, job.nodes) == (is_pending, is_ending, ("n01", "n02"))


@pytest.mark.parametrize("limit", ["UNLIMITED", "NOT_SET", "Partition_Limit"])
def test_no_limit(limit: str) -> None:
    assert read(line(limit=limit))[0][0].time_limit_s is None


@pytest.mark.parametrize("comment", ["(null)", "", "my spanfit job", "spanfitted"])
def test_only_the_mark_marks(comment: str) -> None:
    assert not read(line(comment=comment))[0][0].is_marked


@pytest.mark.parametrize(
    ("words", "wishes"),
    [
        ("preemptable", {"is_preemptable": True}),
        ("priority=-3", {"priority": -3}),
        ("runtime=2h runtime-upper=3h", {"mean_s": 7200.0, "upper_s": 10800.0}),
        ("grid=2x1 alpha=0.3", {"nrows": 2, "ncolumns": 1, "alpha": 0.3}),
    ],
)
def test_wishes(words: str, wishes: dict[str, Any]) -> None:
    (job,), _ = read(line(comment=f"spanfit {words}"))
    assert job.wishes == wishes
    assert job.remarks == ()


@pytest.mark.parametrize(
    "word",
    [
        "preemptible",
        "alpha=2",
        "grid=8",
        "runtime=soon",
        "priority=high",
        "preemptable=no",
        "runtime=0s",
        "priority=1000000000",
        "alpha=nan",
    ],
)
def test_a_wish_that_cannot_be_read_is_said_and_the_others_hold(word: str) -> None:
    (job,), _ = read(line(comment=f"spanfit {word} alpha=0.5"))
    assert job.wishes == {"alpha": 0.5}
    assert job.remarks[0].startswith(f"job 12: comment: found '{word}', expected preemptable, priority")


def test_a_line_that_is_none_is_left_out_and_said() -> None:
    jobs, remarks = read(
        line() + f"{TOKEN}\x1fa name\x1fwith a separator\n" + line(id="13", nnodes="many") + line(id="14")
    )
    assert [job.slurm_id for job in jobs] == ["12", "14"]
    assert len(remarks) == 2
    assert "squeue: left out a name|with a separator: found 2 fields, expected 15" in remarks[0]


def test_a_grid_of_other_nodes_than_asked_for_is_left_out() -> None:
    (job,), _ = read(line(comment="spanfit grid=46x8 alpha=0.3"))
    assert job.wishes == {"alpha": 0.3}
    assert job.remarks == ("job 12: comment: grid: found 368 nodes, expected the 2 that the job asks for; left out",)


@pytest.mark.parametrize("field", ["comment", "name"])
def test_a_newline_does_not_pass_for_a_job_of_somebody_else(field: str) -> None:
    forged = line(token="a guess", id="77", user="bob").strip()
    jobs, remarks = read(line(**{field: f"spanfit\n{forged}"}) + line(id="13"))
    assert [job.slurm_id for job in jobs] in (["13"], ["12", "13"])
    assert all(job.user == "ann" for job in jobs)
    assert "a name or comment with a newline" in remarks[-1]


def test_a_reservation_and_dependencies() -> None:
    (job,), _ = read(line(reservation="spanfit-llm", dependency="afterok:9(unfulfilled)"))
    assert (job.reservation, job.is_dependent) == ("spanfit-llm", True)
    (job,), _ = read(line())
    assert (job.reservation, job.is_dependent) == ("", False)


def test_nothing_in_the_queue() -> None:
    assert read("") == ((), ())

"""Layouts of public traces; each text here is written for the test, none comes from a trace."""

import json
from typing import Any

import pytest

from spanfit.errors import ConfigError
from spanfit.queue.traces.acme import parse_acme
from spanfit.queue.traces.kinds import PARSERS
from spanfit.queue.traces.philly import parse_philly
from spanfit.queue.traces.reading import Dropped, JobState, TraceJob

GPUS = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]


def attempt(start: str | None, end: str | None, detail: object = GPUS) -> dict[str, object]:
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(**changes: Any) -> dict[str, Any]:
    attempts = [
        attempt("2017-10-07 01:00:10", "2017-10-07 01:10:00"),
        attempt("2017-10-07 01:11:00", "2017-10-07 02:00:10", GPUS[:1]),
    ]
    known = {"status": "Pass", "vc": "v", "jobid": "a1", "attempts": attempts, "user": "u"}
    return known | {"submitted_time": "2017-10-07 01:00:00"} | changes


def test_a_job_of_philly_runs_from_its_first_attempt_to_the_end_of_its_last() -> None:
    (job,) = parse_philly(json.dumps([entry()]), "log").jobs
    assert job == TraceJob(
        job_id="a1",
        submit_s=1507338000.0,
        start_s=1507338010.0,
        end_s=1507341610.0,
        nnodes=2,
        ngpus=4,
        state=JobState.COMPLETED,
        user="u",
        department="v",
    )


def test_jobs_of_philly_that_never_ran_or_ended_are_counted() -> None:
    log = [
        entry(),
        entry(jobid="a2", attempts=[]),
        entry(jobid="a3", attempts=[attempt("2017-10-07 01:00:10", None)]),
        entry(jobid="a4", attempts=[attempt("None", "2017-10-07 01:00:10")]),
        entry(jobid="a5", status="Killed"),
    ]
    trace = parse_philly(json.dumps(log), "log")
    assert [(job.job_id, job.is_cut_short) for job in trace.jobs] == [("a1", False), ("a5", True)]
    assert set(trace.dropped) == {
        Dropped(reason="jobs that never started", count=1),
        Dropped(reason="jobs without a start or an end in the log", count=2),
    }


def test_every_wrong_entry_of_philly_is_told_at_once() -> None:
    log = [
        entry(),
        "nonsense",
        {"jobid": "a2"},
        entry(jobid="a3", status="Dancing"),
        entry(jobid="a4", submitted_time="yesterday"),
        entry(jobid="a5", attempts="none"),
        entry(jobid="a5b", status=["Pass"]),
        entry(jobid="a6", attempts=[attempt("2017-10-07 01:00:10", "2017-10-07 01:00:10", None)]),
    ]
    with pytest.raises(ConfigError) as failure:
        parse_philly(json.dumps(log), "log")
    lines = str(failure.value).splitlines()
    assert [line.split(" ")[2].rstrip(":") for line in lines] == ["1", "2", "3", "4", "5", "6", "7"]
    assert "status, attempts, submitted_time" in lines[1]


@pytest.mark.parametrize(("text", "message"), [("{", "line 1: not valid JSON"), ("{}", "found dict, expected a list")])
def test_a_log_that_is_no_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_philly(text, "log")


KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
TIMES = "2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,2023-05-17 11:01:10+00:00"


def test_a_row_of_kalos_is_a_job() -> None:
    (job,) = parse_acme(KALOS + f"d1,uf1,8,64,960,1000,100.0,Other,FAILED,{TIMES},,,70,10.0,0\n", "k").jobs
    assert job == TraceJob(
        job_id="d1",
        submit_s=1684321200.0,
        start_s=1684321210.0,
        end_s=1684321270.0,
        nnodes=8,
        ngpus=64,
        ncpus=960,
        memory_bytes=8e12,
        state=JobState.FAILED,
        user="uf1",
        partition="Other",
    )


def test_rows_of_seren_and_helios_are_jobs() -> None:
    row = (
        "5,u5,1,8.0,128,Other,COMPLETED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,"
    )
    (job,) = parse_acme(SEREN + row + "117,32,936.0\n", "s").jobs
    assert (job.ngpus, job.runtime_s, job.start_s - job.submit_s) == (8, 117.0, 32.0)
    helios = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    (other,) = parse_acme(
        helios + "9,u1,vcA,1,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 00:01:05,60,5\n", "h"
    ).jobs
    assert (other.department, other.partition, other.runtime_s) == ("vcA", "", 60.0)


def test_rows_of_acme_without_a_run_are_counted() -> None:
    rows = (
        f"1,u,1,1,4,x,COMPLETED,{TIMES},0,0,0\n"
        "2,u,1,1,4,x,CANCELLED,2023-05-17 11:00:00+00:00,,2023-05-17 11:00:09+00:00,0,0,0\n"
        "3,u,1,1,4,x,RUNNING,2023-05-17 11:00:00+00:00,2023-05-17 11:00:09+00:00,,0,0,0\n"
    )
    trace = parse_acme(SEREN + rows, "s")
    assert len(trace.jobs) == 1
    assert [item.reason for item in trace.dropped] == ["jobs that had not ended", "jobs that never started"]


def test_every_wrong_row_of_acme_is_told_at_once() -> None:
    rows = (
        f"1,u,1,1,4,x,COMPLETED,{TIMES},0,0,0\n"
        f"2,u,one,1,4,x,COMPLETED,{TIMES},0,0,0\n"
        f"3,u,1,-1,4,x,COMPLETED,{TIMES},0,0,0\n"
        f"4,u,1,1,4,x,DANCING,{TIMES},0,0,0\n"
        "5,u\n"
        "6,u,1,1,4,x,COMPLETED,yesterday,,,0,0,0\n"
    )
    with pytest.raises(ConfigError) as failure:
        parse_acme(SEREN + rows, "s")
    assert [line.split(": ")[1] for line in str(failure.value).splitlines()] == [f"line {n}" for n in range(3, 8)]


def test_a_table_that_is_no_csv_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match="s: after line 1: found no CSV: field larger"):
        parse_acme(SEREN + "x" * 200_000, "s")


def test_a_table_without_its_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="found no column node_num, gpu_num, state"):
        parse_acme("job_id,user\n", "s")


@pytest.mark.parametrize("kind", PARSERS)
def test_an_empty_text_is_refused_in_words(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"empty\.txt"):
        PARSERS[kind]("", "empty.txt")

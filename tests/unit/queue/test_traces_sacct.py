import string
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.queue.traces.reading import Dropped, JobState, TraceJob, usable
from spanfit.queue.traces.sacct import parse_sacct, render_sacct

HEADING = "JobID|User|Account|Partition|State|Submit|Start|End|Timelimit|NNodes|ReqCPUS|ReqTRES|AllocTRES|JobName"
TRES = "billing=64,cpu=64,gres/gpu:a100=16,gres/gpu=16,mem=500G,node=2"
ROW = (
    f"7|ada|nlp|gpu|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T12:01:00|1-00:00:00|2|64|{TRES}||bert"
)


def text(*rows: str) -> str:
    return "\n".join([HEADING, *rows]) + "\n"


def changed(**cells: str) -> str:
    names = HEADING.split("|")
    return "|".join(cells.get(name, cell) for name, cell in zip(names, ROW.split("|"), strict=True))


def test_a_row_is_a_job_with_its_request() -> None:
    (job,) = parse_sacct(text(ROW), "t").jobs
    assert job == TraceJob(
        job_id="7",
        submit_s=1767607200.0,
        start_s=1767607260.0,
        end_s=1767614460.0,
        nnodes=2,
        state=JobState.COMPLETED,
        ngpus=16,
        ncpus=64,
        memory_bytes=500 * 2**30,
        user="ada",
        department="nlp",
        partition="gpu",
        name="bert",
        time_limit_s=86400.0,
    )
    assert job.runtime_s == 7200.0


@pytest.mark.parametrize(
    ("cells", "field", "value"),
    [
        ({"ReqTRES": "cpu=4,gres/gpu:a100=2,gres/gpu:l20=1"}, "ngpus", 3),
        ({"ReqTRES": "", "AllocTRES": "cpu=4,gres/gpu=8"}, "ngpus", 8),
        ({"ReqTRES": "cpu=4,mem=4000"}, "memory_bytes", 4000.0 * 2**20),
        ({"ReqTRES": "cpu=1K,mem=2.50T", "ReqCPUS": ""}, "ncpus", 1024),
        ({"NNodes": "1.50K"}, "nnodes", 1536),
        ({"ReqTRES": "cpu=4,gres/nvme=2"}, "ndrives", 2),
        ({"Timelimit": "UNLIMITED"}, "time_limit_s", None),
        ({"Timelimit": "00:30:00"}, "time_limit_s", 1800.0),
        ({"Timelimit": "30:00"}, "time_limit_s", 1800.0),
        ({"State": "CANCELLED by 1000"}, "state", JobState.CANCELLED),
        ({"State": "OUT_OF_MEMORY"}, "state", JobState.FAILED),
        ({"State": "TIMEOUT"}, "state", JobState.TIMED_OUT),
        ({"JobID": "12_3"}, "job_id", "12_3"),
        ({"JobName": "a|b|c"}, "name", "a|b|c"),
        ({"Submit": "1767607200"}, "submit_s", 1767607200.0),
        ({"End": "2026-01-05T14:01:00+02:00"}, "end_s", 1767614460.0),
    ],
)
def test_cells_are_read_as_sacct_prints_them(cells: dict[str, str], field: str, value: object) -> None:
    (job,) = parse_sacct(text(changed(**cells)), "t").jobs
    assert getattr(job, field) == value


def test_what_is_no_ended_job_is_left_out_and_counted() -> None:
    trace = parse_sacct(
        text(
            ROW,
            ROW,
            changed(JobID="7.batch", User="", Timelimit=""),
            changed(JobID="7.0", NNodes="nonsense"),
            changed(JobID="8", State="RUNNING", End="Unknown"),
            changed(JobID="9", State="PENDING", Start="Unknown", End="Unknown"),
            changed(JobID="10", State="CANCELLED by 5", Start="None", End="2026-01-05T10:00:30"),
            changed(JobID="11", End="2026-01-05T10:00:30"),
            changed(JobID="12", State="REQUEUED"),
            changed(JobID="12", Start="2026-01-05T11:00:00"),
        ),
        "t",
    )
    assert [(job.job_id, job.state) for job in trace.jobs] == [("12", JobState.COMPLETED), ("7", JobState.COMPLETED)]
    assert set(trace.dropped) == {
        Dropped(reason="steps of jobs", count=2),
        Dropped(reason="the same row twice", count=1),
        Dropped(reason="jobs that had not ended", count=2),
        Dropped(reason="jobs that never started", count=1),
        Dropped(reason="times that go back (a clock was set, or summer time ended)", count=1),
        Dropped(reason="earlier runs of a requeued job", count=1),
    }


def test_every_wrong_line_is_told_at_once() -> None:
    wrong = text(
        ROW,
        changed(Start="yesterday"),
        changed(State="DANCING"),
        "7|ada",
        changed(Timelimit="long"),
        changed(NNodes="two"),
        changed(ReqTRES="cpu"),
        changed(End="Unknown"),
    )
    with pytest.raises(ConfigError) as failure:
        parse_sacct(wrong, "jobs.txt")
    lines = str(failure.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [f"line {number}" for number in range(3, 10)]
    assert "jobs.txt: line 3: Start: found 'yesterday'" in lines[0]


def test_of_many_mistakes_the_first_are_shown_and_the_rest_counted() -> None:
    with pytest.raises(ConfigError, match="and 5 more mistakes"):
        parse_sacct(text(*[changed(NNodes="x")] * 25), "t")


@pytest.mark.parametrize(
    ("heading", "message"),
    [
        ("", "no column JobID, User, State"),
        ("JobID|User|State|Submit|Start|End", "no column NNodes"),
        (HEADING.replace("|JobName", "").replace("User", "JobName|User"), "put it last"),
    ],
)
def test_headings_that_cannot_be_read_are_refused(heading: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_sacct(heading + "\n", "t")


def test_a_text_without_ended_jobs_says_what_it_held() -> None:
    with pytest.raises(ConfigError, match="1 steps of jobs"):
        parse_sacct(text(changed(JobID="7.batch")), "t")


def test_absent_columns_are_told() -> None:
    trace = parse_sacct(
        "JobID|User|State|Submit|Start|End|NNodes\n1|ada|COMPLETED|100|110|120|1\n",
        "t",
    )
    assert trace.jobs[0].ngpus == 0
    assert any("GPUs are taken as 0" in remark for remark in trace.remarks)


def test_jobs_that_others_ended_teach_nothing() -> None:
    rows = [changed(JobID=word, State=word) for word in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED")]
    trace = parse_sacct(text(*rows, changed(JobID="N", State="NODE_FAIL")), "t")
    assert {job.job_id for job in usable(trace.jobs)} == {"COMPLETED", "FAILED", "TIMEOUT"}


WORDS = st.text(string.ascii_letters + string.digits + "-_. äß", max_size=12)
MOMENTS = st.integers(0, 2**31)


@st.composite
def jobs(draw: st.DrawFn) -> TraceJob:
    submit, wait, runtime = draw(MOMENTS), draw(st.integers(0, 10**6)), draw(st.integers(0, 10**7))
    ngpus = draw(st.integers(0, 4096))
    return TraceJob(
        job_id=str(draw(st.integers(1, 10**9))),
        submit_s=float(submit),
        start_s=float(submit + wait),
        end_s=float(submit + wait + runtime),
        nnodes=draw(st.integers(1, 512)),
        state=draw(st.sampled_from(JobState)),
        ngpus=ngpus,
        ncpus=draw(st.integers(0, 10**6)),
        ndrives=draw(st.integers(0, 30)),
        memory_bytes=draw(st.none() | st.integers(0, 10**6).map(lambda mebibytes: float(mebibytes * 2**20))),
        user=draw(WORDS),
        department=draw(WORDS),
        partition=draw(WORDS),
        name=draw(st.text(string.ascii_letters + "|- ", max_size=12)),
        time_limit_s=draw(st.none() | st.integers(0, 10**7).map(float)),
    )


@settings(max_examples=25)
@given(st.lists(jobs(), min_size=1, max_size=5, unique_by=lambda job: job.job_id))
def test_what_is_written_is_read_back(written: list[TraceJob]) -> None:
    read = parse_sacct(render_sacct(written), "t")
    assert sorted(read.jobs, key=lambda job: job.job_id) == sorted(written, key=lambda job: job.job_id)


def test_what_the_format_cannot_carry_is_refused() -> None:
    (job,) = parse_sacct(text(ROW), "t").jobs
    with pytest.raises(ValueError, match="cannot carry"):
        render_sacct([replace(job, user="a|b")])
    with pytest.raises(ValueError, match="cannot carry"):
        render_sacct([replace(job, name="a\nb")])

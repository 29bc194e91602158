import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.queue.jct import features
from spanfit.queue.jct.features import NUMERIC, Request, numeric_table, request_of
from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.traces.reading import JobState, TraceJob


def job(job_id: str, submit_s: float, end_s: float, **changes: object) -> TraceJob:
    known = TraceJob(
        job_id=job_id, submit_s=submit_s, start_s=submit_s, end_s=end_s, nnodes=1, state=JobState.COMPLETED, ngpus=8
    )
    return replace(known, **({"user": "ada", "name": "bert", "department": "nlp"} | changes))  # type: ignore[arg-type]


def column(table: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", name: str) -> list[float]:
    found: list[float] = table[:, NUMERIC.index(name)].tolist()
    return found


def test_the_past_counts_from_the_moment_it_ended() -> None:
    jobs = [job("a", 0, 100), job("b", 50, 90), job("c", 95, 99), job("d", 100, 500)]
    table = numeric_table(jobs, [request_of(each) for each in jobs], {})
    assert column(table, "user_count") == pytest.approx([0, 0, math.log1p(1), math.log1p(3)])
    last = column(table, "user_name_last")
    assert math.isnan(last[0])
    assert last[2:] == pytest.approx([math.log1p(40), math.log1p(100)])
    assert column(table, "user_age")[3] == 0


def test_groups_do_not_mix() -> None:
    jobs = [
        job("a", 0, 10),
        job("b", 0, 20, user="bob"),
        job("c", 0, 40, name="gpt"),
        job("d", 0, 80, ngpus=16),
        job("e", 0, 160, department="cv", user="eve"),
    ]
    (row,) = numeric_table(jobs, [replace(request_of(jobs[0]), submit_s=1000)], {})
    found = {name: math.expm1(row[NUMERIC.index(f"{name}_last")]) for name in features.GROUPS}
    assert found == pytest.approx(
        {"user": 80, "user_name": 80, "user_gpus": 40, "department": 80, "department_gpus": 40}
    )


def test_averages_fade_and_count_failures() -> None:
    jobs = [
        job(str(n), 10 * n, 10 * n + (1 if n % 2 else 3), state=JobState.FAILED if n % 2 else JobState.COMPLETED)
        for n in range(400)
    ]
    (row,) = numeric_table(jobs, [replace(request_of(jobs[0]), submit_s=1e6)], {})
    assert row[NUMERIC.index("user_failed")] == pytest.approx(0.5, abs=0.02)
    assert row[NUMERIC.index("user_average")] == pytest.approx((math.log(2) + math.log(4)) / 2, abs=0.02)
    assert row[NUMERIC.index("user_spread")] == pytest.approx(math.log(2) / 2, abs=0.02)


TIMES = st.integers(0, 40)


@st.composite
def histories(draw: st.DrawFn) -> list[TraceJob]:
    def one(number: int) -> TraceJob:
        submit = draw(TIMES)
        return job(
            str(number),
            float(submit),
            float(submit + draw(TIMES)),
            user=draw(st.sampled_from(["ada", "bob"])),
            name=draw(st.sampled_from(["", "x", "y"])),
            ngpus=draw(st.sampled_from([1, 8])),
            state=draw(st.sampled_from([JobState.COMPLETED, JobState.FAILED])),
        )

    return [one(number) for number in range(draw(st.integers(1, 12)))]


@given(histories(), TIMES, st.floats(1.0, 1e6), st.booleans())
@settings(max_examples=40)
def test_nothing_that_ended_later_changes_a_feature(
    jobs: list[TraceJob], now: int, stretch: float, is_dropped: bool
) -> None:
    """No leakage: whatever the jobs that end after a moment turn out to be, features up to it stay as they are."""

    def rewritten(each: TraceJob) -> TraceJob:
        return each if each.end_s <= now else replace(each, end_s=each.end_s + stretch, state=JobState.TIMED_OUT)

    changed = [rewritten(each) for each in jobs if not (is_dropped and each.end_s > now)]
    early = [request_of(each) for each in jobs if each.submit_s <= now]
    np.testing.assert_array_equal(numeric_table(jobs, early, {}), numeric_table(changed, early, {}))


@given(histories(), TIMES)
@settings(max_examples=20)
def test_what_ended_by_then_does_change_them(jobs: list[TraceJob], now: int) -> None:
    """The test above can fail: a history that holds all jobs at once gives other features wherever one ends later."""
    requests = [request_of(each) for each in jobs]
    strict = numeric_table(jobs, requests, {})
    leaking = numeric_table((), requests, features.history_of(jobs, {}))
    counts = NUMERIC.index("user_count")
    for index, each in enumerate(jobs):
        same_user = [other for other in jobs if other.user == each.user]
        known = [other for other in same_user if other.end_s <= each.submit_s]
        assert strict[index, counts] == pytest.approx(math.log1p(len(known)))
        assert leaking[index, counts] == pytest.approx(math.log1p(len(same_user)))


def test_a_history_may_come_from_before() -> None:
    first, second = [job("a", 0, 10)], [job("b", 20, 50)]
    asked = [Request(submit_s=60, nnodes=1, ngpus=8, user="ada", name="bert", department="nlp")]
    whole = numeric_table([*first, *second], asked, {})
    np.testing.assert_array_equal(numeric_table(second, asked, features.history_of(first, {})), whole)


def test_a_job_of_the_queue_is_described_as_far_as_it_is_known() -> None:
    asked = QueueJob(
        job_id="q", nnodes=4, submitted_s=7.0, owner="ada", department="nlp", ngpus=32, ncpus=64, ndrives=2,
        time_limit_s=60.0,
    )  # fmt: skip
    assert request_of(asked) == Request(
        submit_s=7.0, nnodes=4, ngpus=32, ncpus=64, ndrives=2, time_limit_s=60.0, user="ada", department="nlp"
    )


def test_rare_and_unknown_values_have_no_code() -> None:
    requests = [
        Request(submit_s=0, nnodes=1, user=f"u{n}", department="nlp") for n in range(features.MAX_CATEGORIES + 5)
    ]
    requests.append(requests[-1])
    codes = features.codes_of(requests)
    assert len(codes["user"]) == features.MAX_CATEGORIES
    assert codes["user"][requests[-1].user] == 0
    assert codes["partition"] == {}
    table = features.code_table([replace(requests[0], user="stranger")], codes)
    assert math.isnan(table[0, 0])
    assert table[0, 1] == 0


def test_the_clock_is_a_feature() -> None:
    (row,) = numeric_table((), [Request(submit_s=1767571200.0 + 5 * 86400 + 6 * 3600, nnodes=1)], {})
    assert row[NUMERIC.index("hour")] == pytest.approx(6)
    assert row[NUMERIC.index("weekday")] == 5  # 2026-01-10 was a Saturday

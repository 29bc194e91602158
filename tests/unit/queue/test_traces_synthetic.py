import numpy as np
import pytest

from spanfit.queue.traces.reading import JobState, Trace
from spanfit.queue.traces.sacct import parse_sacct, render_sacct
from spanfit.queue.traces.synthetic import DAY_S, START_S, SyntheticShape, synthetic_trace, true_means_s

MADE = {kind: synthetic_trace(kind, njobs=2500, days=40, seed=1) for kind in SyntheticShape}


def runtimes(trace: Trace) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([job.runtime_s for job in trace.jobs])


def test_the_seed_decides_everything() -> None:
    again = synthetic_trace(SyntheticShape.LLM, njobs=300, days=5, seed=7)
    assert again == synthetic_trace(SyntheticShape.LLM, njobs=300, days=5, seed=7)
    assert again != synthetic_trace(SyntheticShape.LLM, njobs=300, days=5, seed=8)


@pytest.mark.parametrize("kind", SyntheticShape)
def test_nothing_of_it_can_be_taken_for_a_real_cluster(kind: SyntheticShape) -> None:
    trace = MADE[kind]
    assert trace.kind == "synthetic"
    assert all(text.startswith("synthetic") for job in trace.jobs for text in (job.user, job.department, job.name))
    assert "say nothing about a real cluster" in trace.remarks[0]


@pytest.mark.parametrize(
    ("kind", "median_s", "failed", "gpus"),
    [(SyntheticShape.SHARED, 874, 0.305, 1.93), (SyntheticShape.LLM, 122, 0.429, 5.68)],
)
def test_it_has_the_published_shape(kind: SyntheticShape, median_s: float, failed: float, gpus: float) -> None:
    trace = MADE[kind]
    times = runtimes(trace)
    assert median_s / 2.5 < np.median(times) < median_s * 2.5
    assert 4 < times.mean() / np.median(times) < 60
    assert 1.7 < np.log1p(times).std() < 3
    assert np.mean([job.state is JobState.FAILED for job in trace.jobs]) == pytest.approx(failed, abs=0.03)
    sizes = np.array([job.ngpus for job in trace.jobs])
    assert np.median(sizes) == 1
    assert gpus / 2.5 < sizes.mean() < gpus * 2.5
    assert set(np.log2(sizes) % 1) == {0.0}


@pytest.mark.parametrize("kind", SyntheticShape)
def test_failures_are_early_and_days_have_a_rhythm(kind: SyntheticShape) -> None:
    trace = MADE[kind]
    by_state = {
        state: [job.runtime_s for job in trace.jobs if job.state is state]
        for state in (JobState.FAILED, JobState.COMPLETED)
    }
    assert np.median(by_state[JobState.FAILED]) < np.median(by_state[JobState.COMPLETED])
    hours = np.array([(job.submit_s % DAY_S) / 3600 for job in trace.jobs])
    assert np.sum((hours > 13) & (hours < 19)) > 2 * np.sum((hours > 1) & (hours < 7))
    assert trace.jobs[0].submit_s >= START_S
    assert trace.jobs[-1].submit_s <= START_S + 40 * DAY_S


@pytest.mark.parametrize("kind", SyntheticShape)
def test_users_repeat_themselves(kind: SyntheticShape) -> None:
    groups: dict[str, list[float]] = {}
    for job in MADE[kind].jobs:
        if job.state is JobState.COMPLETED:
            groups.setdefault(job.name, []).append(float(np.log1p(job.runtime_s)))
    often = [np.var(logs, ddof=1) for logs in groups.values() if len(logs) >= 5]
    every = np.var([log for logs in groups.values() for log in logs])
    assert len(often) > 20
    assert np.mean(often) < 0.75 * every


def test_no_job_outruns_its_limit_and_it_survives_its_file() -> None:
    trace = MADE[SyntheticShape.SHARED]
    assert all(job.time_limit_s is not None and job.runtime_s <= job.time_limit_s + 1 for job in trace.jobs)
    assert parse_sacct(render_sacct(trace.jobs), "again").jobs == trace.jobs


@pytest.mark.parametrize("kind", SyntheticShape)
def test_the_true_means_leave_only_luck(kind: SyntheticShape) -> None:
    """Runtimes add up to their true means within the luck of their heavy tail, in total and among the longer half."""
    jobs = [job for job in MADE[kind].jobs if job.state is not JobState.CANCELLED]
    means = true_means_s(kind, jobs, days=40, seed=1)
    times = np.array([job.runtime_s for job in jobs])
    for part in (means > 0, means > np.median(means), means <= np.median(means)):
        luck = times[part].std() / np.sqrt(part.sum())
        assert abs(times[part].mean() - means[part].mean()) < 4 * luck
    assert np.corrcoef(np.log(means), np.log1p(times))[0, 1] > 0.5

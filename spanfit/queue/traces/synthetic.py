"""Synthetic traces with the shape of published ones; what they give is never a result about a real cluster.

Users, departments and job names all begin with ``synthetic``, so that no table or file can be taken for a real one.

What is published, and where a figure below comes from:

- Summary [S]: ``data/cluster_summary.csv`` of InternLM/AcmeTrace compares GPU jobs of clusters. Philly: mean runtime
  18,006 s, median 874 s, mean queueing 3,761 s, median 189 s, 1.93 GPUs in the mean, 1 in the median, at most 128; 60%
  completed, 9% cancelled, 31% failed. Seren: mean 1,414 s, median 122 s, mean queueing 446 s, median 1 s, 5.7 GPUs in
  the mean, 1 in the median, at most 1,024; 50% completed, 8% cancelled, 43% failed. Cancelled jobs hold 29% of
  Philly's GPU time, more than their number, so they run longer than others.
- Log-normal [L]: mean over median of 12 to 21 is that of a log-normal whose logarithm has a standard deviation of
  sqrt(2 ln(mean / median)) = 2.2 to 2.5.
- Philly's paper [P]: Jeon et al., ATC 2019: virtual clusters share the cluster unequally; failed jobs are tried again.
- Helios' paper [H]: Hu et al., SC 2021: users repeat jobs, so that their past predicts them; a few users hold most of
  the GPU time; submissions follow the day.
- Assumed [A]: nothing is published; the value is a guess that the docstring of its attribute names so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from spanfit.queue.traces.reading import JobState, Trace, TraceJob

DAY_S = 86400.0
START_S = 1_767_571_200.0
"""Monday 2026-01-05 00:00 UTC: where synthetic traces begin."""
GPUS_PER_NODE = 8
MEAN_DRAWS = 50_000
"""The true mean of a habit is that of so many runs."""

Floats = npt.NDArray[np.float64]


class SyntheticShape(StrEnum):
    """Which published cluster a synthetic trace resembles."""

    SHARED = "shared"
    LLM = "llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a synthetic trace is drawn from.

    Attributes
    ----------
    median_s, log_sd : float
        Of the runtime over all jobs [s], and of its natural logarithm [S, L].
    habit_share : float
        Share of the variance of the logarithm between habits; the rest is between runs of one habit [A].
    size_exponent : float
        A habit's median runtime grows with this power of its GPUs [A].
    gpu_shares : mapping of int to float
        Share of habits by GPUs: powers of two, mostly up to 8, few large; fitted to mean and median of [S].
    failed_share, cancelled_share : float
        [S]
    failure_median_s : float
        Failed jobs mostly end early: at this median, or at their own end if that is sooner [P says that many failures
        come within minutes; the value is A].
    queue_median_s, queue_log_sd : float
        Of the delay before the start [S, L].
    nusers, ndepartments : int
        [A]; their activity follows Zipf's law, so that few of them hold most jobs [H].
    habit_days : float
        How long a habit lasts in the mean, so that the past goes stale [A].
    """

    median_s: float
    log_sd: float
    habit_share: float
    size_exponent: float
    gpu_shares: Mapping[int, float]
    failed_share: float
    cancelled_share: float
    failure_median_s: float
    queue_median_s: float
    queue_log_sd: float
    nusers: int
    ndepartments: int
    habit_days: float


SHAPES: Mapping[SyntheticShape, Shape] = {
    SyntheticShape.SHARED: Shape(
        median_s=1500.0,
        log_sd=2.35,
        habit_share=0.6,
        size_exponent=0.3,
        gpu_shares={1: 0.80, 2: 0.08, 4: 0.06, 8: 0.045, 16: 0.011, 32: 0.003, 64: 0.001},
        failed_share=0.305,
        cancelled_share=0.09,
        failure_median_s=600.0,
        queue_median_s=189.0,
        queue_log_sd=2.4,
        nusers=300,
        ndepartments=14,
        habit_days=30.0,
    ),
    SyntheticShape.LLM: Shape(
        median_s=180.0,
        log_sd=2.1,
        habit_share=0.6,
        size_exponent=0.35,
        gpu_shares={
            1: 0.62,
            2: 0.07,
            4: 0.06,
            8: 0.19,
            16: 0.02,
            32: 0.02,
            64: 0.01,
            128: 0.006,
            256: 0.003,
            512: 0.001,
        },
        failed_share=0.429,
        cancelled_share=0.075,
        failure_median_s=90.0,
        queue_median_s=1.0,
        queue_log_sd=3.5,
        nusers=120,
        ndepartments=8,
        habit_days=21.0,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """A job that a user runs again and again [H]."""

    user: int
    name: str
    ngpus: int
    cpus_per_gpu: int
    ndrives: int
    median_s: float
    time_limit_s: float
    first_day: float
    last_day: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Who submits what."""

    departments: tuple[int, ...]
    habits: tuple[Habit, ...]


def synthetic_trace(kind: SyntheticShape, *, njobs: int, days: float, seed: int) -> Trace:
    """Return a synthetic trace; the same arguments give the same trace.

    Parameters
    ----------
    kind : SyntheticShape
    njobs : int
        So many are submitted; each ends.
    days : float
        From the first possible submission to the last.
    seed : int
    """
    shape, rng = SHAPES[kind], np.random.default_rng(seed)
    people = _population(shape, days, rng)
    submits_s = np.sort(_arrivals(njobs, days, rng))
    jobs = _jobs(shape, people, submits_s, rng)
    remark = f"synthetic, shape {kind.value}, seed {seed}: its figures say nothing about a real cluster"
    return Trace(origin=f"synthetic-{kind.value}", kind="synthetic", jobs=jobs, remarks=(remark,))


def true_means_s(kind: SyntheticShape, jobs: Sequence[TraceJob], *, days: float, seed: int) -> Floats:
    """Return the mean runtime that the generator gives each job of a trace, of those that are not cancelled [s].

    No predictor can know more: what errors it leaves are the luck of each run.

    Parameters
    ----------
    kind : SyntheticShape
    jobs : sequence of TraceJob
        Of the trace that the same arguments make.
    days : float
    seed : int
    """
    shape = SHAPES[kind]
    habits = {habit.name: habit for habit in _population(shape, days, np.random.default_rng(seed)).habits}
    rng = np.random.default_rng([seed, 1])
    scatter = np.exp(math.sqrt(1 - shape.habit_share) * shape.log_sd * rng.normal(size=MEAN_DRAWS))
    failures_s = shape.failure_median_s * np.exp(1.5 * rng.normal(size=MEAN_DRAWS))
    failed_share = shape.failed_share / (1 - shape.cancelled_share)
    means = {}
    for name in {job.name for job in jobs}:
        whole_s = np.minimum(habits[name].median_s * scatter, habits[name].time_limit_s)
        failed_s = np.minimum(failures_s, whole_s)
        means[name] = failed_share * failed_s.mean() + (1 - failed_share) * whole_s.mean()
    return np.array([means[job.name] for job in jobs])


def _arrivals(njobs: int, days: float, rng: np.random.Generator) -> Floats:
    """Return submit times [s from the start]: by day and week, in bursts.

    A day has its low at 4 o'clock and its high at 16 [H: the day's cycle; its depth is A]; weekends have half [A]. A
    third of all jobs follow another within minutes, as sweeps and new trials do [P, H; the share is A].
    """
    nfirst = max(1, math.ceil(njobs * 2 / 3))
    candidates = rng.uniform(0, days, 12 * nfirst + 100)
    daily = 1 + 0.7 * np.cos(2 * np.pi * (candidates % 1 - 16 / 24))
    weekly = np.where(candidates.astype(int) % 7 >= 5, 0.5, 1.0)
    kept = candidates[rng.uniform(0, 1.7, len(candidates)) < daily * weekly][:nfirst]
    followed = rng.choice(kept, njobs - len(kept)) + rng.exponential(4 / 1440, njobs - len(kept))
    submits_s: Floats = np.minimum(np.concatenate([kept, followed]), days) * DAY_S
    return submits_s


def _population(shape: Shape, days: float, rng: np.random.Generator) -> Population:
    departments = tuple(rng.choice(shape.ndepartments, shape.nusers, p=_zipf(shape.ndepartments, 1.0)).tolist())
    tempers = rng.normal(0, 1, shape.ndepartments)
    activity = _zipf(shape.nusers, 1.1)
    habits = []
    for user, department in enumerate(departments):
        own = float(rng.normal(0, 1))
        for index in range(1 + int(rng.poisson(3 * max(days, 1.0) / shape.habit_days))):
            temper = 0.4 * tempers[department] + 0.5 * own + math.sqrt(1 - 0.41) * float(rng.normal(0, 1))
            habits.append(_habit(shape, user, index, temper, float(activity[user]), days, rng))
    return Population(departments=departments, habits=tuple(habits))


def _zipf(count: int, power: float) -> Floats:
    weights = np.array([1.0 / rank**power for rank in range(1, count + 1)])
    shares: Floats = weights / weights.sum()
    return shares


def _habit(
    shape: Shape, user: int, index: int, temper: float, activity: float, days: float, rng: np.random.Generator
) -> Habit:
    """Draw a habit; ``temper`` is standard normal and says how long it runs among all habits."""
    sizes, shares = list(shape.gpu_shares), np.array(list(shape.gpu_shares.values()))
    ngpus = int(rng.choice(sizes, p=shares / shares.sum()))
    centre = shape.size_exponent * float(np.log(sizes) @ shares / shares.sum())
    between = math.sqrt(shape.habit_share) * shape.log_sd
    median_s = shape.median_s * math.exp(between * temper - centre) * ngpus**shape.size_exponent
    # A limit at three times the 95% quantile of a habit, in whole hours; half of all habits ask for a week [A].
    within = math.sqrt(1 - shape.habit_share) * shape.log_sd
    limit_s = 3600 * math.ceil(3 * median_s * math.exp(1.645 * within) / 3600)
    middle, length = float(rng.uniform(-0.1, 1.1)) * days, float(rng.exponential(shape.habit_days))
    return Habit(
        user=user,
        name=f"synthetic-job-{user:04d}-{index:02d}",
        ngpus=ngpus,
        cpus_per_gpu=int(rng.choice([4, 8, 12, 16])),
        ndrives=int(rng.choice([0, 1, 2, 4])),
        median_s=median_s,
        time_limit_s=float(7 * DAY_S if rng.uniform() < 0.5 else min(limit_s, 30 * DAY_S)),
        first_day=middle - length / 2,
        last_day=middle + length / 2,
        weight=activity * float(rng.pareto(1.5) + 0.2),
    )


def _jobs(shape: Shape, people: Population, submits_s: Floats, rng: np.random.Generator) -> tuple[TraceJob, ...]:
    habits = people.habits
    firsts, lasts = (np.array([getattr(habit, key) for habit in habits]) for key in ("first_day", "last_day"))
    weights = np.array([habit.weight for habit in habits])
    jobs: list[TraceJob] = []
    chosen = 0
    for number, submit_s in enumerate(submits_s.tolist()):
        day = submit_s / DAY_S
        # Two of five submissions repeat the last habit of the trace's current burst [A].
        if not (number and rng.uniform() < 0.4 and firsts[chosen] <= day <= lasts[chosen]):
            live = weights * ((firsts <= day) & (day <= lasts))
            live = live if live.sum() > 0 else weights
            chosen = int(np.searchsorted(np.cumsum(live), rng.uniform() * live.sum()))
        jobs.append(_job(shape, people, habits[min(chosen, len(habits) - 1)], number, START_S + submit_s, rng))
    return tuple(jobs)


def _job(
    shape: Shape, people: Population, habit: Habit, number: int, submit_s: float, rng: np.random.Generator
) -> TraceJob:
    within = math.sqrt(1 - shape.habit_share) * shape.log_sd
    own_s = habit.median_s * math.exp(within * float(rng.normal()))
    runtime_s, state = _end(shape, own_s, habit.time_limit_s, rng)
    delay_s = shape.queue_median_s * math.exp(shape.queue_log_sd * float(rng.normal()))
    submitted, started = round(submit_s), round(submit_s + min(delay_s, 7 * DAY_S))
    return TraceJob(
        job_id=str(number + 1),
        submit_s=float(submitted),
        start_s=float(started),
        end_s=float(started + max(1, round(runtime_s))),
        state=state,
        nnodes=math.ceil(habit.ngpus / GPUS_PER_NODE),
        ngpus=habit.ngpus,
        ncpus=habit.ngpus * habit.cpus_per_gpu,
        ndrives=habit.ndrives,
        memory_bytes=float(habit.ngpus * habit.cpus_per_gpu * 8 * 2**30),
        user=f"synthetic-user-{habit.user:04d}",
        department=f"synthetic-department-{people.departments[habit.user]:02d}",
        partition="synthetic-large" if habit.ngpus > GPUS_PER_NODE else "synthetic-small",
        name=habit.name,
        time_limit_s=habit.time_limit_s,
    )


def _end(shape: Shape, own_s: float, limit_s: float, rng: np.random.Generator) -> tuple[float, JobState]:
    """Return how long a job runs and how it ends: failures early, cancelled ones after up to four times as long [A]."""
    draw = rng.uniform()
    if draw < shape.failed_share:
        failed_s = shape.failure_median_s * math.exp(1.5 * float(rng.normal()))
        return min(failed_s, own_s, limit_s), JobState.FAILED
    if draw < shape.failed_share + shape.cancelled_share:
        return min(4 * own_s * float(rng.uniform()), limit_s), JobState.CANCELLED
    return (limit_s, JobState.TIMED_OUT) if own_s > limit_s else (own_s, JobState.COMPLETED)

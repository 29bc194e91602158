"""The jobs of a replay: from a trace or drawn, scaled to a load, with what the policy is told about each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.simulate.replay import ReplayJob
from spanfit.queue.traces.reading import JobState, TraceJob

_MAX_HOURS_ASKED = 7 * 24


class Told(StrEnum):
    """What the policy is told of a runtime.

    ``perfect``: the truth. ``lognormal``: the truth with a log-normal error, whose upper quantile is calibrated.
    ``limit``: the time limit only, as without a predictor. ``model``: by a trained predictor.
    """

    PERFECT = "perfect"
    LOGNORMAL = "lognormal"
    LIMIT = "limit"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How forecasts come about.

    Attributes
    ----------
    told : Told
    log_sd : float
        Standard deviation of the error of the logarithm of a runtime; for ``lognormal``.
    quantile : float
        Of the upper forecast, as the queue's rules have it.

    Raises
    ------
    ValueError
        If the error is negative or the quantile no share.
    """

    told: Told = Told.LOGNORMAL
    log_sd: float = 0.5
    quantile: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what makes no forecast."""
        if self.log_sd < 0 or not 0.5 <= self.quantile < 1:
            raise ValueError(
                f"log_sd is {self.log_sd}, quantile is {self.quantile}; expected log_sd from 0 up, quantile in [0.5, 1)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMix:
    """What drawn jobs are like; a clear-cut stand-in for a trace, with no claim about a real cluster.

    Attributes
    ----------
    shares : mapping of int to float
        Share of jobs by their nodes.
    median_s, log_sd : float
        Of the runtime: log-normal [s].
    limit_factors : tuple of float
        A time limit is the runtime times a factor drawn evenly between these, rounded up to whole hours, at most a
        week; the runtime where that is longer.
    """

    shares: Mapping[int, float]
    median_s: float
    log_sd: float
    limit_factors: tuple[float, float] = (1.5, 8.0)

    @property
    def mean_node_s(self) -> float:
        """Node-seconds of a job in the mean."""
        total = sum(self.shares.values())
        nodes = sum(nnodes * share for nnodes, share in self.shares.items()) / total
        return nodes * self.median_s * math.exp(self.log_sd**2 / 2)


def steady_jobs(mix: JobMix, *, nnodes: int, load: float, start_s: float, end_s: float, seed: int) -> list[TraceJob]:
    """Return jobs that come by chance, evenly over a time, and would keep ``load`` of ``nnodes`` nodes busy.

    Parameters
    ----------
    mix : JobMix
    nnodes : int
        Of the cluster; larger jobs are not drawn.
    load : float
        Node-seconds that jobs bring in a second, over ``nnodes``.
    start_s, end_s : float
        First and last possible submission, Unix time [s].
    seed : int
    """
    rng = np.random.default_rng(seed)
    njobs = int(rng.poisson(load * nnodes * (end_s - start_s) / mix.mean_node_s))
    sizes, shares = list(mix.shares), np.array(list(mix.shares.values()))
    submits_s = np.sort(rng.uniform(start_s, end_s, njobs)).tolist()
    nodes = rng.choice(sizes, njobs, p=shares / shares.sum()).tolist()
    runtimes_s = np.maximum(1.0, mix.median_s * np.exp(mix.log_sd * rng.normal(size=njobs))).tolist()
    factors = rng.uniform(*mix.limit_factors, njobs).tolist()
    return [
        TraceJob(
            job_id=f"drawn-{number:06d}",
            submit_s=submit_s,
            start_s=submit_s,
            end_s=submit_s + runtime_s,
            nnodes=size,
            state=JobState.COMPLETED,
            time_limit_s=_limit_s(runtime_s, factor),
        )
        for number, (submit_s, size, runtime_s, factor) in enumerate(
            zip(submits_s, nodes, runtimes_s, factors, strict=True)
        )
    ]


def _limit_s(runtime_s: float, factor: float) -> float:
    hours = min(math.ceil(runtime_s * factor / 3600), _MAX_HOURS_ASKED)
    return max(3600.0 * hours, runtime_s)


def scaled(jobs: Sequence[TraceJob], *, nnodes: int, load: float) -> list[TraceJob]:
    """Return jobs whose submissions are drawn together or apart so that they would keep ``load`` of the nodes busy.

    Runtimes stay. The load is node-seconds of all jobs over ``nnodes`` times the time between the first and the last
    submission.

    Raises
    ------
    ValueError
        If all are submitted at one time.
    """
    first_s, last_s = min(job.submit_s for job in jobs), max(job.submit_s for job in jobs)
    if first_s == last_s:
        raise ValueError(f"{len(jobs)} jobs are all submitted at {first_s}; expected a span of time to scale")
    wanted_s = sum(max(1, job.nnodes) * job.runtime_s for job in jobs) / (load * nnodes)
    factor = wanted_s / (last_s - first_s)
    return [_submitted(job, first_s + factor * (job.submit_s - first_s)) for job in jobs]


def _submitted(job: TraceJob, at_s: float) -> TraceJob:
    return replace(job, submit_s=at_s, start_s=at_s, end_s=at_s + job.runtime_s)


def forecasts_of(jobs: Sequence[TraceJob], telling: Telling, seed: int) -> list[Forecast]:
    """Return what the policy is told of each job's runtime, without a predictor.

    With an error, the logarithm of the truth is the forecast's median plus a normal draw, so that the truth lies under
    the upper forecast as often as ``quantile`` says. Where there is no time limit to tell, it is a week.
    """
    if telling.told is Told.LIMIT:
        limits_s = (7 * 86400.0 if job.time_limit_s is None else job.time_limit_s for job in jobs)
        return [Forecast(mean_s=limit_s, upper_s=limit_s) for limit_s in limits_s]
    sd = telling.log_sd if telling.told is Told.LOGNORMAL else 0.0
    medians_s = np.array([job.runtime_s for job in jobs]) * np.exp(
        -sd * np.random.default_rng(seed).normal(size=len(jobs))
    )
    upper = math.exp(sd * NormalDist().inv_cdf(telling.quantile))
    return [Forecast(mean_s=s * math.exp(sd**2 / 2), upper_s=s * upper) for s in medians_s.tolist()]


def replay_jobs(
    jobs: Sequence[TraceJob],
    forecasts: Iterable[Forecast],
    *,
    nnodes: int,
    preemptable_share: float = 0.0,
    seed: int = 0,
) -> tuple[ReplayJob, ...]:
    """Return the jobs of a trace as a replay takes them; those that ask for more than ``nnodes`` nodes are left out.

    Parameters
    ----------
    jobs : sequence of TraceJob
        One that names no nodes asks for one.
    forecasts : iterable of Forecast
        Of each job.
    nnodes : int
        Of the cluster.
    preemptable_share : float
        Share of the jobs, drawn by chance, that may be stopped.
    seed : int
    """
    draws = np.random.default_rng(seed).uniform(size=len(jobs)).tolist()
    return tuple(
        ReplayJob(
            job=QueueJob(
                job_id=job.job_id,
                nnodes=max(1, job.nnodes),
                submitted_s=job.submit_s,
                is_preemptable=draw < preemptable_share,
                time_limit_s=job.time_limit_s,
                owner=job.user,
                department=job.department,
                ngpus=job.ngpus,
                ncpus=job.ncpus,
                ndrives=job.ndrives,
            ),
            forecast=forecast,
            runtime_s=max(1.0, job.runtime_s),
        )
        for job, forecast, draw in zip(jobs, forecasts, draws, strict=True)
        if job.nnodes <= nnodes
    )

"""What a replay says of a policy in figures, each with its formula. docs/simulator.md explains them.

Times are means over time, that is integrals over the replay divided by its span; N is the nodes of the cluster.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from spanfit.queue.simulate.outcome import JobOutcome, ReplayOutcome, Series

SIZE_CLASSES = ((1, 1), (2, 7), (8, 31), (32, 127), (128, None))
"""Fewest and most nodes of the classes by which delays are told."""


def class_label(smallest: int, largest: int | None) -> str:
    """Return what a class of sizes is called.

    >>> [class_label(*bounds) for bounds in SIZE_CLASSES]
    ['1', '2-7', '8-31', '32-127', '128+']
    """
    if largest is None:
        return f"{smallest}+"
    return str(smallest) if largest == smallest else f"{smallest}-{largest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Queueing delays of a set of jobs.

    A job's delay is all the time that it wanted nodes and had none: up to its first start, after each stop, and up to
    the end of the replay where it still waits, so that a job that never starts counts with what it waited.

    Attributes
    ----------
    njobs : int
    mean_s, p50_s, p95_s : float
        [s]
    nnever : int
        Jobs that never started.
    """

    njobs: int
    mean_s: float
    p50_s: float
    p95_s: float
    nnever: int


def delays_of(jobs: Sequence[JobOutcome]) -> Delays:
    """Return the delays of jobs; all are 0 for none."""
    waited_s = np.array([job.waited_s for job in jobs] or [0.0])
    p50_s, p95_s = np.quantile(waited_s, (0.5, 0.95))
    return Delays(
        njobs=len(jobs),
        mean_s=float(waited_s.mean()),
        p50_s=float(p50_s),
        p95_s=float(p95_s),
        nnever=sum(job.started_s is None for job in jobs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFigures:
    """What became of an announced job.

    Attributes
    ----------
    job_id : str
    nnodes : int
    start_delay_s : float or None
        From its arrival to its first start [s]; None if it never started.
    retention : float or None
        Share of its planned nodes that others held when it arrived; None without a plan.
    short : float
        Share of its nodes that were not free anywhere when it arrived.
    spread, dp_spread, pp_spread : int
        Minipods that it touched, and the largest spread of its DP and PP groups.
    """

    job_id: str
    nnodes: int
    start_delay_s: float | None
    retention: float | None
    short: float | None
    spread: int
    dp_spread: int
    pp_spread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a replay.

    Attributes
    ----------
    allocation : float
        Nodes with a job over N, mean over time.
    fragmentation : float
        Share of free nodes that lie in minipods too small for a job: the integral of sum_m f_m P(S > f_m) over that of
        sum_m f_m, with f_m the free nodes of minipod m and S the nodes of a job that fits the largest minipod, drawn by
        the nodes that jobs ask for.
    delays : Delays
        Of all jobs that were not announced.
    delays_by_size : mapping of str to Delays
        The same by class of nodes; classes without a job are left out.
    announced : tuple of AnnouncedFigures
    mean_spread : float or None
        Minipods that a job of two nodes and more touched in its last run, mean over jobs; None without such a job.
    whole_share : float or None
        Share of those jobs, where they fit the largest minipod, that touched one minipod only; None without such a job.
    idle_gpu_h : float
        Free GPUs in service while a job waited [GPU-hours].
    held_gpu_h : float
        Those of them inside reservations [GPU-hours].
    preempted_gpu_h, failed_gpu_h : float
        Work that was done again since its run was preempted, or its node failed [GPU-hours].
    npreemptions, nfailures, nrefused, nunfinished : int
        Runs that were preempted, runs that failed, jobs that were refused, jobs that had not ended.
    span_s : float
        From the first submission to the end [s].
    """

    allocation: float
    fragmentation: float
    delays: Delays
    delays_by_size: dict[str, Delays]
    announced: tuple[AnnouncedFigures, ...]
    mean_spread: float | None
    whole_share: float | None
    idle_gpu_h: float
    held_gpu_h: float
    preempted_gpu_h: float
    failed_gpu_h: float
    npreemptions: int
    nfailures: int
    nrefused: int
    nunfinished: int
    span_s: float


def figures_of(outcome: ReplayOutcome, largest_minipod: int) -> Figures:
    """Return the figures of a replay on a cluster whose largest minipod has so many nodes."""
    totals, ordinary = outcome.totals, [job for job in outcome.jobs if not job.is_announced]
    gpu_h = outcome.ngpus_per_node / 3600
    wide = [job for job in ordinary if job.spread and job.nnodes > 1]
    return Figures(
        allocation=_share(totals.allocated, outcome.nnodes * totals.span_s),
        fragmentation=_share(totals.fragmented, totals.free),
        delays=delays_of(ordinary),
        delays_by_size=dict(_by_size(ordinary)),
        announced=tuple(_announced(job) for job in outcome.jobs if job.is_announced),
        mean_spread=_mean([job.spread for job in wide]),
        whole_share=_mean([job.spread == 1 for job in wide if job.nnodes <= largest_minipod]),
        idle_gpu_h=totals.idle * gpu_h,
        held_gpu_h=totals.held * gpu_h,
        preempted_gpu_h=totals.preempted * gpu_h,
        failed_gpu_h=totals.failed * gpu_h,
        npreemptions=totals.npreemptions,
        nfailures=totals.nfailures,
        nrefused=sum(job.was_refused for job in outcome.jobs),
        nunfinished=sum(job.ended_s is None and not job.was_refused for job in outcome.jobs),
        span_s=totals.span_s,
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _by_size(jobs: Sequence[JobOutcome]) -> Iterable[tuple[str, Delays]]:
    for smallest, largest in SIZE_CLASSES:
        if own := [job for job in jobs if job.nnodes >= smallest and (largest is None or job.nnodes <= largest)]:
            yield class_label(smallest, largest), delays_of(own)


def _announced(job: JobOutcome) -> AnnouncedFigures:
    return AnnouncedFigures(
        job_id=job.job_id,
        nnodes=job.nnodes,
        start_delay_s=job.delay_s,
        retention=job.retention,
        short=job.short,
        spread=job.spread,
        dp_spread=job.dp_spread,
        pp_spread=job.pp_spread,
    )


def allocation_at(series: Series, nnodes: int, at_s: float) -> float:
    """Return the share of a cluster's nodes that had a job at the last point of a series not after ``at_s``.

    Raises
    ------
    ValueError
        If the series begins later.
    """
    index = int(np.searchsorted(series.times_s, at_s, side="right")) - 1
    if index < 0:
        raise ValueError(f"the series begins after {at_s}; expected a time inside it")
    return series.allocated[index] / nnodes


def flat_figures(figures: Figures) -> dict[str, Any]:
    """Return the figures as one level of names and numbers, as tables and sweeps take them.

    A class of sizes or an announced job follows its figure after a colon: ``delay_mean_s:2-7``, ``retention:lpj``.
    """
    plain = asdict(figures)
    flat = {key: value for key, value in plain.items() if isinstance(value, int | float)}
    flat |= {f"delay_{key}": value for key, value in plain["delays"].items()}
    for label, delays in plain["delays_by_size"].items():
        flat |= {f"delay_{key}:{label}": value for key, value in delays.items()}
    for job in plain["announced"]:
        flat |= {f"{key}:{job['job_id']}": value for key, value in job.items() if key != "job_id"}
    return flat

"""How a job's throughput for each rank holds up as it gets more ranks, and from where on it does not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spanfit.bench.arms import MISALIGNED
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.latency import MIN_SIZES, MIN_UNITS, fit_latency
from spanfit.profiler.sweep import Setting, SweptJob, contrast
from spanfit.results.schema import Estimate, format_estimate

_SCALED = {"dp", "layout.dp", "fsdp", "nmicrobatches", "global_batch", "minipods"}
"""What may differ between the jobs of a curve: replicas, what they share out, and the minipods that hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """A job at one number of ranks.

    Attributes
    ----------
    time_s : Estimate
        Of a step [s].
    throughput_per_rank_per_s : Estimate
        Sequences a second for each rank; microbatches where the job is known by its volumes.
    efficiency : Estimate or None
        That throughput over the one at the fewest ranks; None at the fewest, and where no launch holds both.
    """

    run_id: str
    job: str
    nranks: int
    time_s: Estimate
    throughput_per_rank_per_s: Estimate
    efficiency: Estimate | None
    nunits: int
    is_provisional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """An arm of a job over numbers of ranks.

    Attributes
    ----------
    arm : str
        ``misaligned`` is the base that gains are measured against.
    points : tuple of ScalePoint
        By rising number of ranks.
    knee_nranks : Estimate or None
        From this number of ranks on the efficiency falls faster; None where there is none within what was measured.
    sentence : str
        What is known of the knee.
    """

    arm: str
    compute: str
    points: tuple[ScalePoint, ...]
    knee_nranks: Estimate | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """An arm of a job at one number of ranks, with the log rank-seconds of a sequence in each launch."""

    job: SweptJob
    nranks: int
    log_times: pd.Series
    log_costs: pd.Series


def fit_scaling(jobs: Sequence[SweptJob]) -> tuple[ScalingCurve, ...]:
    """Return a curve for each arm that jobs have at two numbers of ranks or more.

    Parameters
    ----------
    jobs : sequence of SweptJob
        Those alike but for their replicas and their batch form a curve, whatever they are called.

    Raises
    ------
    FitError
        If no jobs form a curve, or two of a curve have the same number of ranks.
    """
    series: dict[tuple[tuple[str, Setting], ...], list[SweptJob]] = {}
    for job in jobs:
        fixed = {name: value for name, value in job.settings.items() if name not in _SCALED}
        series.setdefault(tuple(sorted(fixed.items())), []).append(job)
    curves = tuple(
        _curve(arm, points)
        for alike in series.values()
        for arm in dict.fromkeys(arm for job in alike for arm in _arms(job))
        if len(points := _points(arm, alike)) > 1
    )
    if not curves:
        found = ", ".join(f"{job.name} ({job.steps.nranks} ranks)" for job in jobs)
        raise FitError(
            f"found {found}; expected a job at two numbers of ranks or more, alike in all but dp and its batch; "
            "add jobs to the campaign, or name more runs"
        )
    return curves


def _arms(job: SweptJob) -> tuple[str, ...]:
    return (*job.steps.arms, *([MISALIGNED] if job.steps.base_arms else []))


def _points(arm: str, jobs: Sequence[SweptJob]) -> list[_Scaled]:
    points = sorted((_scaled(job, arm) for job in jobs if arm in _arms(job)), key=lambda point: point.nranks)
    numbers = [point.nranks for point in points]
    if twice := [point.job.name for point in points if numbers.count(point.nranks) > 1]:
        raise FitError(f"{', '.join(twice)}: found the same job with as many ranks twice; name one of these runs only")
    return points


def _scaled(job: SweptJob, arm: str) -> _Scaled:
    steps = job.steps
    log_times = steps.base if arm == MISALIGNED else steps.table[arm].dropna()
    cost = math.log(steps.nranks / _sequences(job))
    return _Scaled(job=job, nranks=steps.nranks, log_times=log_times, log_costs=log_times + cost)


def _sequences(job: SweptJob) -> float:
    """Return the sequences of a step, or its microbatches where the job is known by its volumes."""
    settings = job.settings
    if "global_batch" in settings:
        return float(settings["global_batch"])
    return float(settings["nmicrobatches"]) * float(settings["dp"])


def _curve(arm: str, points: Sequence[_Scaled]) -> ScalingCurve:
    knee, sentence = _knee(points)
    return ScalingCurve(
        arm=arm,
        compute=points[0].job.steps.compute,
        points=tuple(_point(point, points[0]) for point in points),
        knee_nranks=knee,
        sentence=sentence,
    )


def _point(point: _Scaled, fewest: _Scaled) -> ScalePoint:
    nunits = len(point.log_times)
    against = None
    if point is not fewest:
        against = contrast([fewest.job, point.job], [fewest.log_costs, point.log_costs], [1.0, -1.0])
    return ScalePoint(
        run_id=point.job.run_id,
        job=point.job.steps.job,
        nranks=point.nranks,
        time_s=statistics.mapped(statistics.interval(point.log_times), math.exp),
        throughput_per_rank_per_s=statistics.mapped(
            statistics.interval(point.log_costs), lambda log_cost: math.exp(-log_cost)
        ),
        efficiency=statistics.mapped(against.estimate(), math.exp) if against else None,
        nunits=nunits,
        is_provisional=statistics.is_provisional(nunits),
    )


def _knee(points: Sequence[_Scaled]) -> tuple[Estimate | None, str]:
    """Return where the cost of a sequence begins to rise faster with the ranks, and what is known of it.

    Launches of unlike runs are independent, so that any of one may stand beside any of another.
    """
    if len(points) < MIN_SIZES:
        return None, f"{len(points)} numbers of ranks cannot tell a knee, {MIN_SIZES} or more could"
    nunits = min(len(point.log_costs) for point in points)
    if nunits < MIN_UNITS:
        return None, f"{nunits} launch cannot tell a knee, {MIN_UNITS} or more could"
    logs = np.stack([point.log_costs.to_numpy(dtype=float)[:nunits] for point in points], axis=-1)
    fit = fit_latency([point.nranks for point in points], logs, 1.0)
    first, last = fit.segments[0], fit.segments[-1]
    if fit.knee_bytes is None or last.beta_s_per_byte.value <= first.beta_s_per_byte.value:
        return None, f"no knee within what was measured, {points[0].nranks} to {points[-1].nranks} ranks"
    return fit.knee_bytes, f"efficiency falls faster from {format_estimate(fit.knee_bytes, '{:.0f} ranks'.format)} on"

"""How well forecasts of runtimes were: errors in ten-minute intervals, coverage, and intervals from resampled days."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.queue.jct.features import request_of
from spanfit.queue.jct.losses import bin_errors, deviance, pinball
from spanfit.queue.jct.model import WINDOW, limits_s, runtimes_s
from spanfit.queue.jct.targets import bounded, upper_offset, within_limits
from spanfit.queue.traces.reading import TraceJob
from spanfit.results.schema import Estimate

RESAMPLES = 2000
DAY_S = 86400.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """What one predictor said of every tested job, and the truth.

    Attributes
    ----------
    mean_s, upper_s, runtime_s : array of float
        [s]
    days : array of int
        Of submission: the block of the bootstrap.
    """

    mean_s: Floats
    upper_s: Floats
    runtime_s: Floats
    days: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one predictor did.

    Attributes
    ----------
    name : str
    rmse_bins : Estimate
        Root mean square error in intervals of ten minutes; a bootstrap by days.
    mae_bins : float
        Mean absolute error in the same.
    deviance : float
        Mean Poisson deviance in the same, by which predictors are chosen.
    coverage : Estimate
        Share of jobs that ended within the upper quantile.
    pinball_log : float
        Pinball loss of the upper quantile, on natural logarithms.
    upper_over_runtime : float
        Median of the upper quantile over the runtime: what the coverage costs.
    target : str
        What its mean is fitted to, as validation chose it.
    wall_s : float
        To choose and fit [s].
    """

    name: str
    rmse_bins: Estimate
    mae_bins: float
    deviance: float
    coverage: Estimate
    pinball_log: float
    upper_over_runtime: float
    target: str
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A trace divided by a moment.

    Attributes
    ----------
    cut_s : float
        Unix time [s].
    before : tuple of TraceJob
        Ended before it.
    between : tuple of TraceJob
        Submitted before it and ended after it: their ends become known while others are forecast.
    after : tuple of TraceJob
        Submitted after it: forecast.
    """

    cut_s: float
    before: tuple[TraceJob, ...]
    between: tuple[TraceJob, ...]
    after: tuple[TraceJob, ...]


def divide(jobs: Sequence[TraceJob], test_share: float) -> Division:
    """Return jobs divided at the moment after which a share of them is submitted."""
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    cut_s = ordered[min(int((1 - test_share) * len(ordered)), len(ordered) - 1)].submit_s
    return Division(
        cut_s=cut_s,
        before=tuple(job for job in ordered if job.end_s < cut_s),
        between=tuple(job for job in ordered if job.submit_s < cut_s <= job.end_s),
        after=tuple(job for job in ordered if job.submit_s >= cut_s),
    )


def calibrated(jobs: Sequence[TraceJob], first: int, *, base: Floats, mean_s: Floats, quantile: float) -> Forecasts:
    """Return forecasts of ``jobs[first:]``, each bounded by what the jobs that had ended by its submission say.

    Parameters
    ----------
    jobs : sequence of TraceJob
    first : int
        Those before it calibrate only.
    base : array of float, shape (njobs,)
        Logarithm of the runtime that the bound is calibrated from.
    mean_s : array of float, shape (njobs,)
        Forecast mean; here brought within the time limit [s].
    quantile : float
    """
    runtime_s, limits = runtimes_s(jobs), limits_s([request_of(job) for job in jobs])
    means_s = within_limits(mean_s, limits)
    scores = np.log1p(runtime_s) - base
    ends = np.array([job.end_s for job in jobs])
    order = np.argsort(ends, kind="stable")
    ended, ranked = ends[order], scores[order]
    submits = np.array([job.submit_s for job in jobs[first:]])
    known = np.searchsorted(ended, submits, side="right")
    offsets = np.array([upper_offset(ranked[max(0, count - WINDOW) : count], quantile) for count in known.tolist()])
    return Forecasts(
        mean_s=means_s[first:],
        upper_s=bounded(np.expm1(base[first:] + offsets), means_s[first:], limits[first:]),
        runtime_s=runtime_s[first:],
        days=np.floor(submits / DAY_S),
    )


def score(name: str, target: str, wall_s: float, found: Forecasts, quantile: float, seed: int) -> Score:
    """Return how well a predictor did, with intervals from resampled days."""
    errors = bin_errors(found.mean_s, found.runtime_s)
    covered = (found.runtime_s <= found.upper_s).astype(np.float64)
    truth = np.log1p(found.runtime_s)
    return Score(
        name=name,
        rmse_bins=_bootstrapped(errors**2, found.days, seed, np.sqrt),
        mae_bins=float(np.mean(np.abs(errors))),
        deviance=deviance(found.mean_s, found.runtime_s),
        coverage=_bootstrapped(covered, found.days, seed, np.asarray),
        pinball_log=pinball(np.log1p(found.upper_s), truth, quantile),
        upper_over_runtime=float(np.median(found.upper_s / np.maximum(found.runtime_s, 1.0))),
        target=target,
        wall_s=wall_s,
    )


def _bootstrapped(values: Floats, days: Floats, seed: int, shape: Callable[[Floats], Floats]) -> Estimate:
    """Return a mean, shaped, with the percentiles of its resampled days."""
    sums, counts = _by_day(values, days)
    drawn = _draws(len(sums), seed)
    low, high = np.percentile(shape(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)), (2.5, 97.5))
    value = float(shape(np.array([sums.sum() / counts.sum()]))[0])
    return Estimate(value=value, ci_low=float(low), ci_high=float(high))


def ratio(ours: Forecasts, theirs: Forecasts, seed: int) -> Estimate:
    """Return the ratio of the root mean square errors of two predictors, on the same resampled days."""
    tops, _ = _by_day(bin_errors(ours.mean_s, ours.runtime_s) ** 2, ours.days)
    bottoms, _ = _by_day(bin_errors(theirs.mean_s, theirs.runtime_s) ** 2, theirs.days)
    drawn = _draws(len(tops), seed)
    ratios = np.sqrt(tops[drawn].sum(axis=1) / bottoms[drawn].sum(axis=1))
    low, high = np.percentile(ratios, (2.5, 97.5))
    value = float(np.sqrt(tops.sum() / bottoms.sum()))
    return Estimate(value=value, ci_low=float(low), ci_high=float(high))


def _by_day(values: Floats, days: Floats) -> tuple[Floats, Floats]:
    """Return the sum and the number of the values of each day."""
    _, index = np.unique(days, return_inverse=True)
    sums = np.bincount(index, weights=values).astype(np.float64)
    return sums, np.bincount(index).astype(np.float64)


def _draws(nblocks: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, 2]).integers(0, nblocks, (RESAMPLES, nblocks))

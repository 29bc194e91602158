"""Affinity weights from measured gains: alpha = j_dp / (j_dp + j_pp), with a confidence set for the ratio.

The gains are those of section 5.2 of arXiv 2509.15940: the throughput of the DP-aligned and of the PP-aligned
placement over the misaligned base, minus 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

import spanfit
from spanfit import files
from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.gains import JobGains, fit_gains, lacking_base
from spanfit.results.schema import Estimate, RunInfo
from spanfit.weights.model import SCHEMA_VERSION, WeightEntry, WeightSet
from spanfit.workload.job import Job, StepJob, TrainingJob, node_grid
from spanfit.workload.traffic import boundary_bytes, gradient_bytes

_ROUNDING = 1e-6
"""A double root comes out of floating point as a pair this close, and one at a border as just beyond it."""

_FLAT = Estimate(value=0.5, ci_low=0.0, ci_high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaFit:
    """Alpha with its interval; ``is_flat`` where neither gain can be told to be above 0."""

    alpha: Estimate
    is_flat: bool


def alpha_of_gains(gain_dp: float, gain_pp: float) -> float:
    """Return alpha = j_dp / (j_dp + j_pp); a negative gain counts as 0, and two that are not positive give 0.5.

    Examples
    --------
    >>> round(alpha_of_gains(0.0077, 0.018), 2)
    0.3
    """
    dp, pp = max(0.0, gain_dp), max(0.0, gain_pp)
    return dp / (dp + pp) if dp + pp > 0 else 0.5


def fit_alpha(log_gain_pairs: Sequence[tuple[float, float]]) -> AlphaFit:
    """Return alpha and its 95% interval from the log gains of both arms in each launch.

    Parameters
    ----------
    log_gain_pairs : sequence of (float, float)
        Log gain of the DP-aligned and of the PP-aligned arm; paired, as both share the launch's base.

    Notes
    -----
    The interval is the hull of the values r in [0, 1] that the data do not refute at 95%, after Fieller (1954):

    - 0 < r < 1 stays if the mean of (1 - r) j_dp - r j_pp cannot be told from 0 (Student's t over launches) and
      neither gain can be told to be below 0 (which follows: beside a gain told to be above 0, such a contrast is
      told from 0 for every r, as a standard error is at most the sum of those of its parts);
    - r = 0 stays unless j_dp is told to be above 0; r = 1 stays unless j_pp is.

    If neither gain is told to be above 0, or there is one launch, nothing is refuted: 0.5 with [0, 1], flat.
    A launch's gain is linearised at the mean, j + (1 + j)(l - mean l), so that the estimate lies in its interval.
    """
    logs = np.asarray(log_gain_pairs, dtype=float).reshape(-1, 2)
    if len(logs) < 2:
        return AlphaFit(alpha=_FLAT, is_flat=True)
    dp, pp = _linearised(logs[:, 0]), _linearised(logs[:, 1])
    dp_low, pp_low = _low(dp), _low(pp)
    if dp_low <= 0 and pp_low <= 0:
        return AlphaFit(alpha=_FLAT, is_flat=True)
    kept = [0.0] * (dp_low <= 0) + [1.0] * (pp_low <= 0) + _contrast_roots(dp, pp)
    value = alpha_of_gains(float(dp.mean()), float(pp.mean()))
    return AlphaFit(alpha=Estimate(value=value, ci_low=min([*kept, value]), ci_high=max([*kept, value])), is_flat=False)


def _linearised(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    gain = math.expm1(float(logs.mean()))
    linear: npt.NDArray[np.float64] = gain + (1 + gain) * (logs - logs.mean())
    return linear


def _low(values: npt.NDArray[np.float64]) -> float:
    low = statistics.interval(values).ci_low
    assert low is not None
    return low


def _contrast_roots(dp: npt.NDArray[np.float64], pp: npt.NDArray[np.float64]) -> list[float]:
    """Return the r in [0, 1] at which the contrast (1 - r) dp - r pp is just not told from 0.

    With s = dp + pp the contrast is dp - r s, and the bound (mean dp - r mean s)^2 = t^2 var(dp - r s) / n is
    quadratic in r.
    """
    total = dp + pp
    covariance = np.cov(dp, total)
    scale = statistics.t_quantile(len(dp)) ** 2 / len(dp)
    quadratic = (
        float(total.mean()) ** 2 - scale * covariance[1, 1],
        -2 * (float(dp.mean() * total.mean()) - scale * covariance[0, 1]),
        float(dp.mean()) ** 2 - scale * covariance[0, 0],
    )
    roots = np.roots(quadratic)
    real = [float(root.real) for root in roots if abs(root.imag) < _ROUNDING]
    return [min(1.0, max(0.0, root)) for root in real if -_ROUNDING < root < 1 + _ROUNDING]


def fit_weights(info: RunInfo, frame: pd.DataFrame, *, created_at: str) -> WeightSet:
    """Return the weights of every job whose training steps a run measured.

    Parameters
    ----------
    info : RunInfo
        ``info.spec["jobs"]`` holds the jobs that were run.
    frame : pandas.DataFrame
        The run's measurements, as ``Store.read`` returns them.
    created_at : str
        ISO 8601, UTC.

    Raises
    ------
    FitError
        If the run holds no training steps, or a job lacks an arm or its description; all jobs at once.
    """
    jobs = _jobs(info)
    if baseless := lacking_base(frame):
        raise FitError("\n".join(baseless))
    gains = [job for job in fit_gains(frame) if not _is_of_one_kind(jobs.get((job.job, job.compute)))]
    if not gains:
        raise FitError(
            f"run {info.run_id}: found no training steps of a job with both DP and PP groups, expected at least one; "
            "add jobs to the campaign and run it again"
        )
    if faults := [fault for job in gains for fault in _faults(info, job, jobs.get((job.job, job.compute)))]:
        raise FitError("\n".join(faults))
    return WeightSet(
        schema_version=SCHEMA_VERSION,
        run_ids=(info.run_id,),
        cluster=info.cluster,
        transport=info.transport,
        created_at=created_at,
        spanfit_version=spanfit.__version__,
        entries=tuple(_entry(info, jobs[job.job, job.compute], job) for job in gains),
    )


def _jobs(info: RunInfo) -> dict[tuple[str, str], Job]:
    entries = info.spec.get("jobs", ())
    assert isinstance(entries, list | tuple)
    jobs = [_job(entry, f"run {info.run_id}: spec.jobs[{index}]") for index, entry in enumerate(entries)]
    return {(job.name, job.compute.value): job for job in jobs}


def _job(entry: Mapping[str, object], origin: str) -> Job:
    return files.parse(TrainingJob, entry, origin) if "model" in entry else files.parse(StepJob, entry, origin)


def _is_of_one_kind(job: Job | None) -> bool:
    """Return whether a job has groups of one kind only, between which there is nothing to weigh."""
    return job is not None and 1 in (job.layout.dp, job.layout.pp)


def _faults(info: RunInfo, gains: JobGains, job: Job | None) -> Iterator[str]:
    origin = f"run {info.run_id}: job {gains.job}"
    if job is None:
        yield f"{origin}: steps with compute {gains.compute!r} were measured, but spec.jobs does not describe them"
    elif not boundary_bytes(job):
        yield f"{origin}: sends no activations, so a ratio of DP to PP volume does not exist; leave it out"
    if not gains.log_gain_pairs:
        arms = ", ".join(gain.arm for gain in gains.gains) or "none"
        yield (
            f"{origin}: found arms {arms} beside the misaligned ones, expected launches that hold both {DP_ALIGNED} "
            f"and {PP_ALIGNED}; add them to the campaign and run it again"
        )


def _entry(info: RunInfo, job: Job, gains: JobGains) -> WeightEntry:
    fit = fit_alpha(gains.log_gain_pairs)
    by_arm = {gain.arm: gain.gain for gain in gains.gains}
    launches = len(gains.log_gain_pairs)
    nrows, ncolumns = node_grid(job, info.ngpus_per_node)
    return WeightEntry(
        job=job.name,
        gpu_model=info.gpu_model,
        dp=nrows,
        pp=ncolumns,
        alpha=fit.alpha,
        beta=statistics.mapped(fit.alpha, lambda alpha: 1 - alpha),
        gain_dp=by_arm[DP_ALIGNED],
        gain_pp=by_arm[PP_ALIGNED],
        is_flat=fit.is_flat,
        is_provisional=statistics.is_provisional(launches),
        base_arms=gains.base_arms,
        compute=job.compute.value,
        launches=launches,
        dp_to_pp_volume=gradient_bytes(job) / boundary_bytes(job),
    )

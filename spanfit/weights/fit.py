"""Affinity weights from measured gains: alpha = j_dp / (j_dp + j_pp), with a confidence set for the ratio.

The gains are those of section 5.2 of arXiv 2509.15940: the throughput of the DP-aligned and of the PP-aligned
placement over the misaligned base, minus 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

import spanfit
from spanfit import files
from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED
from spanfit.bench.case import COMMUNICATION, CaseKind
from spanfit.bench.variants import parse_variant
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.gains import JobGains, fit_gains, lacking_base
from spanfit.profiler.steps import StepTimes, step_times
from spanfit.results.schema import RunInfo
from spanfit.weights.crossings import crossing_costs, grids_of, removed_crossings
from spanfit.weights.fabric import fabric_of
from spanfit.weights.io import sealed
from spanfit.weights.model import SCHEMA_VERSION, LaunchTimes, Source, WeightEntry, WeightSet
from spanfit.weights.shares import NOTHING_KNOWN, Pair, Share, fit_share
from spanfit.weights.stale import VALID_DAYS, valid_until
from spanfit.weights.volumes import lack_of_volumes, volumes_of
from spanfit.workload.job import Job, StepJob, TrainingJob, node_grid


def fit_alpha(log_gain_pairs: Sequence[tuple[float, float]]) -> Share:
    """Return alpha and its 95% interval from the log gains of both arms in each launch; one launch tells nothing.

    Parameters
    ----------
    log_gain_pairs : sequence of (float, float)
        Log gain of the DP-aligned and of the PP-aligned arm; paired, as both share the launch's base.

    Notes
    -----
    ``fit_share`` says which values stay; the tests are Student's t over launches. A launch's gain is linearised at the
    mean, j + (1 + j)(l - mean l), so that the estimate lies in its interval.
    """
    logs = np.asarray(log_gain_pairs, dtype=float).reshape(-1, 2)
    if len(logs) < 2:
        return NOTHING_KNOWN
    dp, pp = _linearised(logs[:, 0]), _linearised(logs[:, 1])
    covariance = np.cov(dp, pp) / len(logs)
    pair = Pair(
        first=float(dp.mean()),
        second=float(pp.mean()),
        first_variance=float(covariance[0, 0]),
        second_variance=float(covariance[1, 1]),
        covariance=float(covariance[0, 1]),
    )
    return fit_share(pair, statistics.t_quantile(len(logs)))


def _linearised(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    gain = math.expm1(float(logs.mean()))
    linear: npt.NDArray[np.float64] = gain + (1 + gain) * (logs - logs.mean())
    return linear


def fit_weights(info: RunInfo, frame: pd.DataFrame, *, created_at: str, valid_days: int = VALID_DAYS) -> WeightSet:
    """Return the weights of every job whose training steps a run measured, alone and as the library chooses.

    Parameters
    ----------
    info : RunInfo
        ``info.spec["jobs"]`` holds the jobs that were run.
    frame : pandas.DataFrame
        The run's measurements, as ``Store.read`` returns them.
    created_at : str
        ISO 8601, UTC.
    valid_days : int
        For how long they hold, counted from the end of the run or, where that is no date, from ``created_at``.

    Raises
    ------
    FitError
        If the run holds no training steps, or a job lacks an arm or its description; all jobs at once.
    """
    jobs, rows = run_jobs(info), _without_variants(frame)
    if baseless := lacking_base(rows):
        raise FitError("\n".join(baseless))
    gains = [job for job in fit_gains(rows) if not _is_of_one_kind(jobs.get((job.job, job.compute)))]
    if not gains:
        raise FitError(
            f"run {info.run_id}: found no training steps of a job with both DP and PP groups, expected at least one; "
            "add jobs to the campaign and run it again"
        )
    if faults := [fault for job in gains for fault in _faults(info, job, jobs.get((job.job, job.compute)))]:
        raise FitError("\n".join(faults))
    steps = {(each.job, each.compute): each for each in step_times(rows)}
    keyed = [((job.job, job.compute), job) for job in gains]
    return sealed(
        WeightSet(
            schema_version=SCHEMA_VERSION,
            entries=tuple(_entry(info, jobs[key], job, steps[key]) for key, job in keyed),
            run_ids=(info.run_id,),
            cluster=info.cluster,
            fabric=fabric_of(info, frame),
            created_at=created_at,
            valid_until=valid_until(info.ended_at if info.period else created_at, valid_days),
            spanfit_version=spanfit.__version__,
        )
    )


def run_jobs(info: RunInfo) -> dict[tuple[str, str], Job]:
    """Return the jobs that a run describes, by name and mode of compute; ConfigError names every wrong key.

    Their variants, beside noise or with a limit of CTAs, are other steps of the same jobs and are left out.
    """
    entries = info.spec.get("jobs", ())
    assert isinstance(entries, list | tuple)
    jobs = [_job(entry, f"run {info.run_id}: spec.jobs[{index}]") for index, entry in enumerate(entries)]
    return {(job.name, job.compute.value): job for job in jobs if parse_variant(job.name).is_plain}


def _without_variants(frame: pd.DataFrame) -> pd.DataFrame:
    names = {name: parse_variant(name.removesuffix(COMMUNICATION)) for name in map(str, frame["operation"].unique())}
    variants = [name for name, variant in names.items() if not variant.is_plain]
    return frame[~((frame["kind"] == CaseKind.STEP) & frame["operation"].isin(variants))]


def _job(entry: Mapping[str, object], origin: str) -> Job:
    return files.parse(TrainingJob, entry, origin) if "model" in entry else files.parse(StepJob, entry, origin)


def _is_of_one_kind(job: Job | None) -> bool:
    """Return whether a job has groups of one kind only, between which there is nothing to weigh."""
    return job is not None and 1 in (job.layout.dp, job.layout.pp)


def _faults(info: RunInfo, gains: JobGains, job: Job | None) -> Iterator[str]:
    origin = f"run {info.run_id}: job {gains.job}"
    if job is None:
        yield f"{origin}: steps with compute {gains.compute!r} were measured, but spec.jobs does not describe them"
    elif lacking := lack_of_volumes(job):
        yield f"{origin}: {lacking}; leave it out"
    if not gains.log_gain_pairs:
        arms = ", ".join(gain.arm for gain in gains.gains) or "none"
        yield (
            f"{origin}: found arms {arms} beside the misaligned ones, expected launches that hold both {DP_ALIGNED} "
            f"and {PP_ALIGNED}; add them to the campaign and run it again"
        )


def _entry(info: RunInfo, job: Job, gains: JobGains, steps: StepTimes) -> WeightEntry:
    fit = fit_alpha(gains.log_gain_pairs)
    by_arm = {gain.arm: gain.gain for gain in gains.gains}
    launches = len(gains.log_gain_pairs)
    nrows, ncolumns = node_grid(job, info.ngpus_per_node)
    times = launch_times(steps)
    removed = removed_crossings(grids_of(steps, info, job))
    return WeightEntry(
        job=job.name,
        gpu_model=info.gpu_model,
        dp=nrows,
        pp=ncolumns,
        alpha=fit.estimate,
        beta=statistics.mapped(fit.estimate, lambda alpha: 1 - alpha),
        source=Source.MEASURED,
        gain_dp=by_arm[DP_ALIGNED],
        gain_pp=by_arm[PP_ALIGNED],
        volumes=volumes_of(job, info.ngpus_per_node),
        base_time_s=gains.base_time_s,
        times=times,
        base_arms=gains.base_arms,
        compute=job.compute.value,
        launches=launches,
        is_flat=fit.is_flat,
        is_provisional=statistics.is_provisional(launches),
        crossing_costs=crossing_costs(times, removed),
        removed=removed,
    )


def launch_times(steps: StepTimes) -> tuple[LaunchTimes, ...]:
    """Return the times of the launches that hold the base and both aligned arms."""
    if not {DP_ALIGNED, PP_ALIGNED} <= set(steps.arms):
        return ()
    aligned = steps.table[[DP_ALIGNED, PP_ALIGNED]].dropna()
    return tuple(
        LaunchTimes(
            launch=int(launch),
            base_s=math.exp(steps.base[launch]),
            dp_aligned_s=math.exp(aligned.loc[launch, DP_ALIGNED]),
            pp_aligned_s=math.exp(aligned.loc[launch, PP_ALIGNED]),
        )
        for launch in steps.base.index.intersection(aligned.index)
    )

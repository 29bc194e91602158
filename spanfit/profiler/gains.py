"""What each aligned placement of a job gains over misaligned ones, from measured training steps."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, MOVED, PP_ALIGNED
from spanfit.errors import FitError
from spanfit.profiler import statistics, verdicts
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.profiler.steps import StepTimes, step_times
from spanfit.results.schema import Estimate, RunInfo

SMALLEST_EFFECT = 0.01
"""The smallest gain that matters, as a share of the throughput of what an arm is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGain:
    """What one arm gains over the misaligned base, paired by launch.

    Attributes
    ----------
    gain : Estimate
        Throughput over that of the base, minus 1; a share of one, negative where the arm is slower.
    time_s : Estimate
        Time of a step of the arm [s].
    communication : Estimate or None
        Share of a step in which the rank that waits longest waits for bytes; None where that was not timed.
    nunits : int
        Launches that hold the arm and the whole base.
    base_arms : tuple of str
        The misaligned arms whose median is the base.
    verdict : Verdict
        ``faster``, ``slower``, ``same`` (within 1%) or ``cannot tell``; corrected over all arms of the run (Holm).
    sentence : str
        The verdict for people, with its interval and with what more measuring would cost.
    """

    job: str
    arm: str
    compute: str
    gain: Estimate
    time_s: Estimate
    communication: Estimate | None
    nunits: int
    is_provisional: bool
    base_arms: tuple[str, ...]
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPair:
    """Two arms that should take the same time, paired by launch.

    Attributes
    ----------
    arm, other : str
    is_same : bool
        Whether both are the same placement under two names, else ``arm`` is ``other`` with its nodes moved inside
        their minipods.
    gain : Estimate
        Throughput of ``arm`` over that of ``other``, minus 1; a share of one.
    verdict : Verdict
        As of a gain; corrected over all pairs of the run (Holm).
    """

    job: str
    arm: str
    other: str
    compute: str
    is_same: bool
    gain: Estimate
    nunits: int
    is_provisional: bool
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGains:
    """The gains of a job's arms, and the base that they are measured against.

    Attributes
    ----------
    base_time_s : Estimate
        Time of a step of the base [s].
    base_communication : Estimate or None
        Share of a step of the base that is communication, as of an arm.
    misaligned_ratio : Estimate or None
        Time of the slowest misaligned arm over the fastest; the interval allows for their having been picked
        (Bonferroni over all pairs). None where the base is one arm.
    launches, left_out_launches : tuple of int
        Launches that hold the whole base, and those that do not and count nowhere.
    gains : tuple of PlacementGain
        One for each arm that is not misaligned.
    pairs : tuple of ArmPair
        Of those arms, the ones that are the same placement, and those moved inside minipods with what was moved.
    log_gain_pairs : tuple of (float, float)
        Log gain of the DP-aligned and of the PP-aligned arm in each launch that holds both.
    nfailed : int
        Rows that hold no time.
    """

    job: str
    compute: str
    base_arms: tuple[str, ...]
    base_time_s: Estimate
    base_communication: Estimate | None
    misaligned_ratio: Estimate | None
    launches: tuple[int, ...]
    left_out_launches: tuple[int, ...]
    gains: tuple[PlacementGain, ...]
    pairs: tuple[ArmPair, ...]
    log_gain_pairs: tuple[tuple[float, float], ...]
    nfailed: int


def fit_gains(frame: pd.DataFrame, launch_s: float | None = None) -> tuple[JobGains, ...]:
    """Return the gains of every job whose training steps a run measured beside a base, sorted by job.

    Jobs without a base are left out; :func:`lacking_base` names them.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them; arms are called dp-aligned, pp-aligned, packed,
        misaligned-00, misaligned-01, ..., or by the name of a placement file.
    launch_s : float, optional
        Seconds that a launch of the run took in all (:func:`seconds_per_launch`), by which more launches are priced;
        unless given, the seconds of the job's steps in it.

    Raises
    ------
    FitError
        If no job has a misaligned arm to compare with, or a row has status ok but no time.

    Notes
    -----
    A misaligned arm belongs to the base if more than half of the job's launches hold it; a launch counts if it holds
    the whole base, so that the base is the same thing in all of them. The base of a launch is the median of its
    misaligned arms' median log times.
    """
    measured = step_times(frame)
    jobs = tuple(job for job in measured if job.base_arms)
    if measured and not jobs:
        raise FitError("\n".join(map(_no_base, measured)))
    gains, pairs = _gains(jobs, launch_s), _pairs(jobs, launch_s)
    return tuple(
        _job_gains(
            job,
            tuple(gain for gain in gains if _belongs(gain, job)),
            tuple(pair for pair in pairs if _belongs(pair, job)),
        )
        for job in jobs
    )


def lacking_base(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return a sentence for each job of a run whose gains cannot be told, as nothing misaligned was measured of it."""
    return tuple(_no_base(job) for job in step_times(frame) if not job.base_arms)


def seconds_per_launch(info: RunInfo) -> float | None:
    """Return the mean seconds of a launch of a run, with all between its steps; None where that is unknown.

    A run that was resumed counts the pause, too.
    """
    if info.period is None or not info.launches:
        return None
    start, end = info.period
    return (end - start).total_seconds() / info.launches if end > start else None


def _belongs(found: PlacementGain | ArmPair, job: StepTimes) -> bool:
    return (found.job, found.compute) == (job.job, job.compute)


def _no_base(job: StepTimes) -> str:
    found = ", ".join(map(str, job.table.columns)) or "no arm that ended well"
    return (
        f"job {job.job}: found {found}; expected launches that hold all of at least one arm called {MISALIGNED}-00, "
        f"{MISALIGNED}-01, ... to measure gains against; {job.nfailed} rows failed, spanfit results show says why; "
        "run the campaign again"
    )


def _gains(jobs: tuple[StepTimes, ...], launch_s: float | None) -> list[PlacementGain]:
    """Return the gains of all jobs; those whose arm shares no launch with the base have none."""
    logs = {(job.job, job.compute, arm): job.log_gains(arm) for job in jobs for arm in job.arms}
    drafts = [(job, arm) for job in jobs for arm in job.arms if len(logs[job.job, job.compute, arm])]
    family = [logs[job.job, job.compute, arm].to_numpy(dtype=float) for job, arm in drafts]
    found = zip(drafts, family, verdicts.verdicts(family, SMALLEST_EFFECT), strict=True)
    return [_gain(job, arm, values, verdict, launch_s or job.launch_s) for (job, arm), values, verdict in found]


def _gain(job: StepTimes, arm: str, log_gains: FloatArray, verdict: Verdict, launch_s: float) -> PlacementGain:
    launches = job.log_gains(arm).index
    return PlacementGain(
        job=job.job,
        arm=arm,
        compute=job.compute,
        gain=verdicts.estimate(log_gains),
        time_s=statistics.mapped(statistics.interval(job.table.loc[launches, arm]), math.exp),
        communication=job.waiting_share([arm]),
        nunits=len(log_gains),
        is_provisional=statistics.is_provisional(len(log_gains)),
        base_arms=job.base_arms,
        verdict=verdict,
        sentence=verdicts.sentence(verdict, log_gains, SMALLEST_EFFECT, launch_s),
    )


def _pairs(jobs: tuple[StepTimes, ...], launch_s: float | None) -> list[ArmPair]:
    drafts = [
        (job, arm, other, is_same, logs)
        for job in jobs
        for arm, other, is_same in _alike(job)
        if len(logs := job.log_ratios(arm, other).to_numpy(dtype=float))
    ]
    told = verdicts.verdicts([logs for *_, logs in drafts], SMALLEST_EFFECT)
    return [
        ArmPair(
            job=job.job,
            arm=arm,
            other=other,
            compute=job.compute,
            is_same=is_same,
            gain=verdicts.estimate(logs),
            nunits=len(logs),
            is_provisional=statistics.is_provisional(len(logs)),
            verdict=verdict,
            sentence=verdicts.sentence(verdict, logs, SMALLEST_EFFECT, launch_s or job.launch_s),
        )
        for (job, arm, other, is_same, logs), verdict in zip(drafts, told, strict=True)
    ]


def _alike(job: StepTimes) -> list[tuple[str, str, bool]]:
    """Return the arms that are another one's placement, or its nodes moved inside minipods, with that other one."""
    first: dict[str, str] = {}
    alike = []
    for arm in job.arms:
        origin, _, index = arm.rpartition(f"-{MOVED}-")
        other = first.setdefault(job.seats[arm], arm)
        if other != arm:
            alike.append((arm, other, True))
        elif index.isdigit() and origin in job.arms:
            alike.append((arm, origin, False))
    return alike


def _job_gains(job: StepTimes, gains: tuple[PlacementGain, ...], pairs: tuple[ArmPair, ...]) -> JobGains:
    return JobGains(
        job=job.job,
        compute=job.compute,
        base_arms=job.base_arms,
        base_time_s=statistics.mapped(statistics.interval(job.base), math.exp),
        base_communication=job.waiting_share(list(job.base_arms)),
        misaligned_ratio=_misaligned_ratio(job),
        launches=tuple(int(launch) for launch in job.base.index),
        left_out_launches=tuple(int(launch) for launch in job.table.index.difference(job.base.index)),
        gains=gains,
        pairs=pairs,
        log_gain_pairs=_log_gain_pairs(job),
        nfailed=job.nfailed,
    )


def _misaligned_ratio(job: StepTimes) -> Estimate | None:
    arms = job.table.loc[job.base.index, list(job.base_arms)].to_numpy(dtype=float)
    narms = arms.shape[1]
    if narms < 2:
        return None
    order = np.argsort(arms.mean(axis=0), kind="stable")
    npairs = narms * (narms - 1) / 2
    difference = arms[:, order[-1]] - arms[:, order[0]]
    return statistics.mapped(
        statistics.interval(difference, 1 - statistics.SIGNIFICANCE / npairs),
        math.exp,
    )


def _log_gain_pairs(job: StepTimes) -> tuple[tuple[float, float], ...]:
    if not {DP_ALIGNED, PP_ALIGNED} <= set(job.arms):
        return ()
    dp, pp = job.log_gains(DP_ALIGNED).align(job.log_gains(PP_ALIGNED), join="inner")
    return tuple(zip(dp.astype(float).tolist(), pp.astype(float).tolist(), strict=True))

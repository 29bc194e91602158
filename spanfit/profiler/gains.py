"""What each aligned placement of a job gains over misaligned ones, from measured training steps."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spanfit import units
from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, PP_ALIGNED
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.results.schema import Estimate, format_estimate

SMALLEST_EFFECT = 0.01
"""The smallest gain that matters, as a share of the throughput of the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGain:
    """What one arm gains over the misaligned base, paired by launch.

    Attributes
    ----------
    gain : Estimate
        Throughput over that of the base, minus 1; a share of one, negative where the arm is slower.
    time_s : Estimate
        Time of a step of the arm [s].
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
    nunits: int
    is_provisional: bool
    base_arms: tuple[str, ...]
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGains:
    """The gains of a job's arms, and the base that they are measured against.

    Attributes
    ----------
    base_time_s : Estimate
        Time of a step of the base [s].
    misaligned_ratio : Estimate or None
        Time of the slowest misaligned arm over the fastest; the interval allows for their having been picked
        (Bonferroni over all pairs). None where the base is one arm.
    launches, left_out_launches : tuple of int
        Launches that hold the whole base, and those that do not and count nowhere.
    gains : tuple of PlacementGain
        One for each arm that is not misaligned.
    log_gain_pairs : tuple of (float, float)
        Log gain of the DP-aligned and of the PP-aligned arm in each launch that holds both.
    nfailed : int
        Rows that hold no time.
    """

    job: str
    compute: str
    base_arms: tuple[str, ...]
    base_time_s: Estimate
    misaligned_ratio: Estimate | None
    launches: tuple[int, ...]
    left_out_launches: tuple[int, ...]
    gains: tuple[PlacementGain, ...]
    log_gain_pairs: tuple[tuple[float, float], ...]
    nfailed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job's log step times: ``table`` is launches x arms, NaN where a launch lacks an arm."""

    job: str
    compute: str
    table: pd.DataFrame
    base_arms: tuple[str, ...]
    base: pd.Series
    launch_s: float
    nfailed: int

    def log_gains(self, arm: str) -> pd.Series:
        """Return the log gain of an arm in each launch that holds it and the base, indexed by launch."""
        return (self.base - self.table[arm]).dropna()

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are not misaligned and share a launch with the base."""
        arms = (str(arm) for arm in self.table.columns if not str(arm).startswith(MISALIGNED))
        return tuple(arm for arm in arms if len(self.log_gains(arm)))


def fit_gains(frame: pd.DataFrame) -> tuple[JobGains, ...]:
    """Return the gains of every job whose training steps a run measured, sorted by job.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them; arms are called dp-aligned, pp-aligned, packed,
        misaligned-00, misaligned-01, ...

    Raises
    ------
    FitError
        If a job has no misaligned arm to compare with, or a row has status ok but no time.

    Notes
    -----
    A misaligned arm belongs to the base if more than half of the job's launches hold it; a launch counts if it holds
    the whole base, so that the base is the same thing in all of them. The base of a launch is the median of its
    misaligned arms' median log times.
    """
    jobs = _jobs(frame[frame["kind"] == "step"])
    drafts = [(job, arm) for job in jobs for arm in job.arms]
    verdicts = _verdicts([job.log_gains(arm).to_numpy(dtype=float) for job, arm in drafts])
    gains = [_gain(job, arm, verdict) for (job, arm), verdict in zip(drafts, verdicts, strict=True)]
    return tuple(_job_gains(job, tuple(gain for gain in gains if _belongs(gain, job))) for job in jobs)


def _belongs(gain: PlacementGain, job: _Job) -> bool:
    return (gain.job, gain.compute) == (job.job, job.compute)


def _jobs(rows: pd.DataFrame) -> list[_Job]:
    jobs, faults = [], []
    for (name, compute), own in rows.groupby(["operation", "compute"]):
        table = _table(statistics.ok_rows(own))
        base_arms = _base_arms(table)
        if not base_arms:
            faults.append(_no_base(str(name), table))
            continue
        base = table[list(base_arms)].dropna().median(axis="columns")
        jobs.append(
            _Job(
                job=str(name),
                compute=str(compute),
                table=table,
                base_arms=base_arms,
                base=base,
                launch_s=_fabric_s_per_launch(statistics.ok_rows(own)),
                nfailed=int((own["status"] != "ok").sum()),
            )
        )
    if faults:
        raise FitError("\n".join(faults))
    return jobs


def _no_base(job: str, table: pd.DataFrame) -> str:
    found = ", ".join(str(arm) for arm in table.columns) or "no arm that ended well"
    return (
        f"job {job}: found {found}; expected launches that hold all of at least one arm called {MISALIGNED}-00, "
        f"{MISALIGNED}-01, ... to measure gains against; add misaligned arms to the campaign and run it again"
    )


def _table(timed: pd.DataFrame) -> pd.DataFrame:
    return statistics.launch_logs(statistics.unit_logs(timed, ["arm"]), ["arm"]).unstack("arm")


def _base_arms(table: pd.DataFrame) -> tuple[str, ...]:
    arms = [str(arm) for arm in table.columns if str(arm).startswith(MISALIGNED)]
    usual = [arm for arm in arms if table[arm].notna().sum() * 2 > len(table)]
    return tuple(usual) if len(table[usual].dropna()) else ()


def _fabric_s_per_launch(timed: pd.DataFrame) -> float:
    """Return the seconds of steps in a mean launch; groups of a case run at once."""
    steps = timed.groupby(["launch", "comm_id", "case_id", "repetition"])["time_s"].max()
    return float(steps.groupby(level="launch").sum().mean())


def _verdicts(family: list[FloatArray]) -> list[Verdict]:
    """Return the verdict on each member of a family of paired log gains, with Holm's correction over it."""
    low, high = math.log1p(-SMALLEST_EFFECT), math.log1p(SMALLEST_EFFECT)
    p_other = [min(statistics.p_above(values, 0.0), statistics.p_below(values, 0.0)) for values in family]
    p_same = [max(statistics.p_above(values, low), statistics.p_below(values, high)) for values in family]
    adjusted = zip(family, statistics.holm(p_other), statistics.holm(p_same), strict=True)
    return [_verdict(float(values.mean()), other, same) for values, other, same in adjusted]


def _verdict(mean: float, p_other: float, p_same: float) -> Verdict:
    if p_same < statistics.SIGNIFICANCE:
        return Verdict.SAME
    if p_other < statistics.SIGNIFICANCE:
        return Verdict.FASTER if mean > 0 else Verdict.SLOWER
    return Verdict.CANNOT_TELL


def _gain(job: _Job, arm: str, verdict: Verdict) -> PlacementGain:
    log_gains = job.log_gains(arm)
    gain = statistics.mapped(statistics.interval(log_gains), math.expm1)
    return PlacementGain(
        job=job.job,
        arm=arm,
        compute=job.compute,
        gain=gain,
        time_s=statistics.mapped(statistics.interval(job.table.loc[log_gains.index, arm]), math.exp),
        nunits=len(log_gains),
        is_provisional=statistics.is_provisional(len(log_gains)),
        base_arms=job.base_arms,
        verdict=verdict,
        sentence=_sentence(verdict, gain, log_gains.to_numpy(dtype=float), job.launch_s),
    )


def _sentence(verdict: Verdict, gain: Estimate, log_gains: FloatArray, launch_s: float) -> str:
    half = statistics.half_width(gain)
    if half is None:
        text = format_estimate(gain, units.format_percent)
        minutes = units.format_time((statistics.MIN_UNITS - 1) * launch_s)
        return f"cannot tell: {text}; {statistics.MIN_UNITS - 1} more launches ({minutes} of steps) would give one"
    size = f"± {units.format_percent(half)}"
    if verdict in (Verdict.FASTER, Verdict.SLOWER):
        return f"{verdict} by {units.format_percent(abs(gain.value))} {size}"
    if verdict is Verdict.SAME:
        return f"the same within {units.format_percent(SMALLEST_EFFECT)}: {units.format_percent(gain.value)} {size}"
    return f"not told apart: {units.format_percent(gain.value)} {size}; {_cost(log_gains, launch_s)}"


def _cost(log_gains: FloatArray, launch_s: float) -> str:
    cost = statistics.cost_of_telling(log_gains, SMALLEST_EFFECT)
    assert cost is not None
    target, more = cost
    return (
        f"about {units.format_time(more * launch_s)} more of steps ({statistics.count_launches(more)}) "
        f"would narrow it to ± {units.format_percent(target)}"
    )


def _job_gains(job: _Job, gains: tuple[PlacementGain, ...]) -> JobGains:
    return JobGains(
        job=job.job,
        compute=job.compute,
        base_arms=job.base_arms,
        base_time_s=statistics.mapped(statistics.interval(job.base), math.exp),
        misaligned_ratio=_misaligned_ratio(job),
        launches=tuple(int(launch) for launch in job.base.index),
        left_out_launches=tuple(int(launch) for launch in job.table.index.difference(job.base.index)),
        gains=gains,
        log_gain_pairs=_pairs(job),
        nfailed=job.nfailed,
    )


def _misaligned_ratio(job: _Job) -> Estimate | None:
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


def _pairs(job: _Job) -> tuple[tuple[float, float], ...]:
    if not {DP_ALIGNED, PP_ALIGNED} <= set(job.arms):
        return ()
    dp, pp = job.log_gains(DP_ALIGNED).align(job.log_gains(PP_ALIGNED), join="inner")
    return tuple(zip(dp.astype(float).tolist(), pp.astype(float).tolist(), strict=True))

"""The training steps of a run: of each job the log time of a step, by launch and arm."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spanfit.bench.arms import MISALIGNED
from spanfit.bench.case import COMMUNICATION
from spanfit.profiler import statistics
from spanfit.results.schema import Estimate

_JOB = ["operation", "compute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The steps of a job with one mode of compute.

    Attributes
    ----------
    nranks : int
        Ranks of the job.
    table : pandas.DataFrame
        Log time of a step [log s], launches x arms; NaN where a launch lacks an arm.
    waiting : pandas.DataFrame
        The same of the seconds in which the rank that waited longest waited for bytes; empty where none was timed.
    seats : mapping of str to str
        Of each arm the node ranks in rank order.
    base_arms : tuple of str
        The misaligned arms that more than half of the launches hold; empty where no launch holds them all.
    base : pandas.Series
        The median of their log times, by launch, for launches that hold them all.
    launch_s : float
        Seconds of steps in a mean launch, those of all arms together.
    nfailed : int
        Rows that hold no time.
    """

    job: str
    compute: str
    nranks: int
    table: pd.DataFrame
    waiting: pd.DataFrame
    seats: Mapping[str, str]
    base_arms: tuple[str, ...]
    base: pd.Series
    launch_s: float
    nfailed: int

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are not misaligned."""
        return tuple(arm for arm in map(str, self.table.columns) if not arm.startswith(MISALIGNED))

    def log_gains(self, arm: str) -> pd.Series:
        """Return the log gain of an arm over the base in each launch that holds both, indexed by launch."""
        return (self.base - self.table[arm]).dropna()

    def log_ratios(self, arm: str, other: str) -> pd.Series:
        """Return the log throughput of an arm less that of another, in each launch that holds both."""
        return (self.table[other] - self.table[arm]).dropna()

    def waiting_share(self, arms: list[str]) -> Estimate | None:
        """Return the share of a step that is communication, over some arms; None where none of them was timed."""
        known = [arm for arm in arms if arm in self.waiting]
        shares = np.exp((self.waiting[known] - self.table[known]).mean(axis="columns").dropna().to_numpy(dtype=float))
        return statistics.interval(np.minimum(shares, 1.0)) if len(shares) else None


def step_times(frame: pd.DataFrame) -> tuple[StepTimes, ...]:
    """Return the steps of each job and mode of compute that a run measured, sorted by both.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them.

    Raises
    ------
    FitError
        If a row has status ok but no time.
    """
    rows = frame[frame["kind"] == "step"]
    is_waiting = rows["operation"].str.endswith(COMMUNICATION)
    waiting = dict(iter(rows[is_waiting].groupby(_JOB)))
    return tuple(
        _step_times(str(job), str(compute), own, waiting.get((f"{job}{COMMUNICATION}", compute)))
        for (job, compute), own in rows[~is_waiting].groupby(_JOB)
    )


def _step_times(job: str, compute: str, rows: pd.DataFrame, waiting: pd.DataFrame | None) -> StepTimes:
    timed = statistics.ok_rows(rows)
    table = _table(timed)
    base_arms = _base_arms(table)
    return StepTimes(
        job=job,
        compute=compute,
        nranks=int(rows["nranks"].iloc[0]),
        table=table,
        # A rank with no one to wait for waits 0 s.
        waiting=pd.DataFrame() if waiting is None else _table(waiting[waiting["time_s"] > 0]),
        seats=dict(timed.groupby("arm")["nodes"].first()),
        base_arms=base_arms,
        base=table[list(base_arms)].dropna().median(axis="columns"),
        launch_s=_launch_s(timed),
        nfailed=int((rows["status"] != "ok").sum()),
    )


def _table(timed: pd.DataFrame) -> pd.DataFrame:
    return statistics.launch_logs(statistics.unit_logs(timed, ["arm"]), ["arm"]).unstack("arm")


def _base_arms(table: pd.DataFrame) -> tuple[str, ...]:
    arms = [arm for arm in map(str, table.columns) if arm.startswith(MISALIGNED)]
    usual = [arm for arm in arms if table[arm].notna().sum() * 2 > len(table)]
    return tuple(usual) if len(table[usual].dropna()) else ()


def _launch_s(timed: pd.DataFrame) -> float:
    """Return the seconds of steps in a mean launch; groups of a case run at once."""
    steps = timed.groupby(["launch", "comm_id", "case_id", "repetition"])["time_s"].max()
    return float(steps.groupby(level="launch").sum().mean())

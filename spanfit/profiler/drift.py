"""Whether times drifted while a run was measured, over its launches or within them."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from spanfit import units
from spanfit.bench.case import ALL_GPUS, on_rail
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate, format_estimate

SMALLEST_EFFECT = 0.03
"""The smallest change from first to last that matters, as a share of the time."""
_MIN_LAUNCHES = 4
"""A trend of fewer launches cannot be told from what launches differ by anyway."""
_TOGETHER = "all cases together"
_CASE = ["case_id", "rail"]
"""A case that runs each rail at once has a trend for each."""


class Along(StrEnum):
    """What a drift goes along."""

    RUN = "run"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How a time changed from the first to the last launch, or from the first to the last place of a launch.

    Attributes
    ----------
    along : Along
        ``run``: from launch to launch; ``launch``: with the place in a launch's order, as when hosts heat up.
    case_id : str
        The case, "" for the mean over all cases that every launch measured.
    rail : int
        The local rank that alone takes part on each node; -1: every GPU, or all cases.
    change : Estimate
        Share by which the time grew from first to last; negative where it fell.
    nlaunches : int
    is_drift : bool
        Whether the change is told from none and is 3% or more. Tests are corrected by Holm, those of all cases
        together and those of single ones at half the significance each, lest many cases hide what all of them share.
    sentence : str
    """

    along: Along
    case_id: str
    rail: int
    change: Estimate
    nlaunches: int
    is_drift: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trend:
    """The log change from first to last, with its standard error and degrees of freedom."""

    along: Along
    case_id: str
    rail: int
    what: str
    change: float
    error: float
    freedom: int
    nlaunches: int

    @property
    def p_value(self) -> float:
        if self.error == 0:
            return 0.0 if self.change else 1.0
        return 2 * float(stats.t.sf(abs(self.change) / self.error, self.freedom))

    def estimate(self) -> Estimate:
        half = float(stats.t.ppf((1 + statistics.CONFIDENCE) / 2, self.freedom)) * self.error
        bounds = Estimate(value=self.change, ci_low=self.change - half, ci_high=self.change + half)
        return statistics.mapped(bounds, math.expm1)


def fit_drift(frame: pd.DataFrame) -> tuple[Drift, ...]:
    """Return every trend that was tested, those of all cases together first; empty from fewer than 4 launches.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them.

    Raises
    ------
    FitError
        If a row has status ok but no time.

    Notes
    -----
    Along the run, the log times of a case's launches are regressed on the launch's number, for each case and for the
    mean over all cases. Launches are what replicates, so n of them leave n - 2 degrees of freedom however many rows
    there are, and what launches differ by is in the error. Along a launch, each launch gives one slope of its cases'
    log times on their places, both less the case's means; the slopes of n launches leave n - 1.
    """
    timed = statistics.ok_rows(frame)
    logs = statistics.launch_logs(statistics.unit_logs(timed, _CASE), _CASE).unstack(_CASE)
    if len(logs) < _MIN_LAUNCHES:
        return ()
    firsts = timed.sort_values(_CASE).drop_duplicates(_CASE).to_dict("records")
    shared = logs.dropna(axis="columns")
    together = [_along_run(shared.mean(axis="columns"), ("", ALL_GPUS), _TOGETHER)] if len(shared.columns) > 1 else []
    together += _along_launches(timed)
    columns = [(row, logs[row["case_id"], row["rail"]].dropna()) for row in firsts]
    alone = [
        _along_run(own, (row["case_id"], row["rail"]), _label(row)) for row, own in columns if len(own) >= _MIN_LAUNCHES
    ]
    return tuple(_drift(trend, p) for family in (together, alone) for trend, p in _corrected(family))


def _corrected(family: Sequence[_Trend]) -> list[tuple[_Trend, float]]:
    """Return trends with p-values corrected by Holm within the family, and for there being two families."""
    p_values = statistics.holm([trend.p_value for trend in family])
    return [(trend, min(1.0, 2 * p_value)) for trend, p_value in zip(family, p_values, strict=True)]


def _label(row: Mapping[Hashable, Any]) -> str:
    if row["arm"]:
        return f"{row['operation']}, {row['arm']}"
    where = f"{row['span']} {row['tier']}{on_rail(row['rail'])}"
    return f"{row['operation']} {units.format_size(row['size_bytes'])} over {where}"


def _along_run(logs: "pd.Series[float]", case: tuple[str, int], what: str) -> _Trend:
    """Return the trend of a value of a case and rail for each launch, indexed by launch."""
    launches, values = logs.index.to_numpy(dtype=float), logs.to_numpy(dtype=float)
    centred = launches - launches.mean()
    slope = float(centred @ values / (centred @ centred))
    residuals = values - values.mean() - slope * centred
    freedom = len(values) - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / float(centred @ centred))
    reach = float(np.ptp(launches))
    return _Trend(
        along=Along.RUN,
        case_id=case[0],
        rail=case[1],
        what=what,
        change=slope * reach,
        error=error * reach,
        freedom=freedom,
        nlaunches=len(values),
    )


def _along_launches(timed: pd.DataFrame) -> list[_Trend]:
    """Return the trend with the place in a launch, if at least 4 launches hold cases that others hold as well."""
    places = timed.groupby([*_CASE, "launch", "comm_id"])["position"].first()
    visits = pd.DataFrame({"log_time": statistics.unit_logs(timed, _CASE), "place": places})
    centred = visits - visits.groupby(level=_CASE).transform("mean")
    slopes = [_slope(own) for _, own in centred.groupby(level="launch") if len(own) > 2]
    if len(slopes) < _MIN_LAUNCHES:
        return []
    reach = float(np.ptp(visits["place"].to_numpy(dtype=float)))
    changes: FloatArray = np.array(slopes) * reach
    return [
        _Trend(
            along=Along.LAUNCH,
            case_id="",
            rail=ALL_GPUS,
            what=_TOGETHER,
            change=float(changes.mean()),
            error=float(changes.std(ddof=1)) / math.sqrt(len(changes)),
            freedom=len(changes) - 1,
            nlaunches=len(changes),
        )
    ]


def _slope(visits: pd.DataFrame) -> float:
    place = visits["place"].to_numpy(dtype=float)
    centred = place - place.mean()
    return float(centred @ visits["log_time"].to_numpy(dtype=float) / max(centred @ centred, 1e-300))


def _drift(trend: _Trend, p_value: float) -> Drift:
    change = trend.estimate()
    is_drift = p_value < statistics.SIGNIFICANCE and abs(change.value) >= SMALLEST_EFFECT
    return Drift(
        along=trend.along,
        case_id=trend.case_id,
        rail=trend.rail,
        change=change,
        nlaunches=trend.nlaunches,
        is_drift=is_drift,
        sentence=_sentence(trend, change, is_drift=is_drift),
    )


def _sentence(trend: _Trend, change: Estimate, *, is_drift: bool) -> str:
    text = format_estimate(change, units.format_percent)
    where = f"over {trend.nlaunches} launches" if trend.along is Along.RUN else "from the first to the last of a launch"
    if not is_drift:
        return f"{trend.what}: no drift is told {where}: {text}"
    advice = (
        "the mean over the run hides it" if trend.along is Along.RUN else "the random order spreads it over all cases"
    )
    return f"{trend.what}: times {'grew' if change.value > 0 else 'fell'} by {text} {where}; {advice}"


def drifting(drifts: Sequence[Drift]) -> tuple[Drift, ...]:
    """Return the drifts that were told, without those of single cases where all cases drift along the run together."""
    found = [drift for drift in drifts if drift.is_drift]
    together = any(drift.along is Along.RUN and not drift.case_id for drift in found)
    return tuple(drift for drift in found if not (together and drift.case_id))

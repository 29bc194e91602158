"""Estimates from units of replication: Student's t on logs of per-unit medians, Holm over families.

A unit is a launch with its communicators: paths, channels and buffers are frozen within one, so its groups and
repetitions are not independent and count once, as their median. Ratios of times are differences of logs. Units of one
launch share what the launch fixes, so that an interval over several launches is one over their means.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from spanfit.errors import FitError
from spanfit.results.schema import Estimate, Status

MIN_UNITS = 6
"""With fewer units of replication a result is provisional."""

WIDENING = 1.08
"""How much wider an interval over more than ``MIN_UNITS`` launches is than Student's; see :func:`unit_interval`."""

CONFIDENCE = 0.95
SIGNIFICANCE = 1 - CONFIDENCE

FloatArray = npt.NDArray[np.float64]


class Verdict(StrEnum):
    """What the measurements say of a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_SLOWER = "no slower"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


def is_provisional(nunits: int) -> bool:
    """Return whether there are too few units of replication for a final claim."""
    return nunits < MIN_UNITS


def ok_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that hold a time; FitError where one of them is not a positive number of seconds."""
    rows = frame[frame["status"] == Status.OK.value]
    wrong = rows[~(rows["time_s"] > 0)]
    if len(wrong):
        first = wrong.iloc[0]
        raise FitError(
            f"{len(wrong)} rows have status ok but no time: case {first['case_id']}, launch {first['launch']}: "
            f"time_s: found {first['time_s']}, expected a positive number of seconds; run the campaign again"
        )
    return rows


def unit_logs(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return the median log time of each unit, indexed by ``by``, launch and comm_id."""
    times = rows.assign(log_time=np.log(rows["time_s"].to_numpy(dtype=float)))
    return times.groupby([*by, "launch", "comm_id"])["log_time"].median()


def launch_logs(units: pd.Series, by: list[str]) -> pd.Series:
    """Return the median over a launch's units, indexed by ``by`` and launch, so that cases can be paired by launch."""
    return units.groupby(level=[*by, "launch"]).median()


def t_quantile(nunits: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors the two-sided interval of ``nunits`` values reaches from their mean."""
    return _t_quantile(nunits - 1, confidence)


def interval(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean of independent values with Student's t interval; one value gives no interval."""
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(value=mean, ci_low=None, ci_high=None)
    half = t_quantile(len(array), confidence) * _standard_error(array)
    return Estimate(value=mean, ci_low=mean - half, ci_high=mean + half)


def unit_interval(values: npt.ArrayLike, launches: npt.ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean of units that are nested in launches with its interval; one unit gives no interval.

    Parameters
    ----------
    values, launches : array_like of shape (nunits,)
        Each unit's value and the launch that it belongs to.
    confidence : float

    Notes
    -----
    Launch and unit are random effects: a unit's value is the mean, plus what its launch adds, plus its own. The
    variance of a launch's mean holds both, so Student's t over the launches' means needs neither apart, is exact where
    every launch has as many units, and is :func:`interval` where each has one. Where launches have unlike numbers of
    units, the degrees of freedom are Satterthwaite's. Estimating the variance of launches, and dropping it where it
    seems to be none, covers only 93.6% for 3 launches of 4 units, and is no narrower from 6 launches on. The units of a
    single launch give an interval for that launch; how others differ from it they cannot tell.

    More launches than a final claim needs were mostly added because somebody, or the stopping rule, looked at the
    interval and found it too wide. Those looks stop at moments when the scatter happens to be small, so that the
    interval of more than ``MIN_UNITS`` launches is widened by ``WIDENING``.
    """
    units = np.asarray(values, dtype=float)
    _, launch, counts = np.unique(np.asarray(launches), return_inverse=True, return_counts=True)
    nlaunches = len(counts)
    if nlaunches < 2:
        return interval(units, confidence)
    means = np.bincount(launch, units) / counts
    freedom: float = nlaunches - 1
    if counts.min() < counts.max():
        within = float(((units - means[launch]) ** 2).sum()) / (len(units) - nlaunches)
        freedom = _satterthwaite(means, counts, within)
    quantile = _t_quantile(freedom, confidence) * (WIDENING if nlaunches > MIN_UNITS else 1)
    half, mean = quantile * _standard_error(means), float(means.mean())
    return Estimate(value=mean, ci_low=mean - half, ci_high=mean + half)


def _satterthwaite(means: FloatArray, counts: npt.NDArray[np.int64], within: float) -> float:
    """Return the degrees of freedom of the sample variance of means that have variances of their own."""
    nlaunches = len(means)
    between = max(0.0, float(means.var(ddof=1)) - within * float((1 / counts).mean()))
    variances = between + within / counts
    total, squares = float(variances.sum()), float((variances**2).sum())
    if total == 0:
        return nlaunches - 1
    return (total * (1 - 1 / nlaunches)) ** 2 / (squares * (1 - 2 / nlaunches) + (total / nlaunches) ** 2)


@cache
def _t_quantile(freedom: float, confidence: float) -> float:
    return float(stats.t.ppf((1 + confidence) / 2, freedom))


def _standard_error(array: FloatArray) -> float:
    return float(array.std(ddof=1)) / math.sqrt(len(array))


def mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    """Return the estimate of a monotone function of what was estimated, such as ``exp`` of a log."""
    value = function(estimate.value)
    if estimate.ci_low is None or estimate.ci_high is None:
        return Estimate(value=value, ci_low=None, ci_high=None)
    low, high = sorted((function(estimate.ci_low), function(estimate.ci_high)))
    return Estimate(value=value, ci_low=low, ci_high=high)


def half_width(estimate: Estimate) -> float | None:
    """Return half the width of the interval, None where there is none."""
    if estimate.ci_low is None or estimate.ci_high is None:
        return None
    return (estimate.ci_high - estimate.ci_low) / 2


def p_above(values: npt.ArrayLike, bound: float) -> float:
    """Return the two-sided p-value of mean = ``bound`` where the mean is above it, else 1.

    Under 0.05 exactly where the 95% interval lies wholly above ``bound``.
    """
    array = np.asarray(values, dtype=float)
    if len(array) < 2 or array.mean() <= bound:
        return 1.0
    error = _standard_error(array)
    if error == 0:
        return 0.0
    return 2 * float(stats.t.sf((float(array.mean()) - bound) / error, len(array) - 1))


def p_below(values: npt.ArrayLike, bound: float) -> float:
    """Return the two-sided p-value of mean = ``bound`` where the mean is below it, else 1."""
    return p_above(-np.asarray(values, dtype=float), -bound)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values, in the order given; under 0.05 means: holds for the whole family.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def units_needed(sd: float, target: float) -> int:
    """Return the fewest units whose 95% interval is expected within ± ``target``, for a unit's standard deviation."""
    nunits = max(2, math.ceil((float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * sd / target) ** 2))
    while t_quantile(nunits) * sd / math.sqrt(nunits) > target:
        nunits += 1
    return nunits


def cost_of_telling(values: npt.ArrayLike, effect: float) -> tuple[float, int] | None:
    """Return a target of ± share and how many more units would reach it; None from one unit.

    The target is ``effect``, halved until it is narrower than what is known now. At least as many units are asked for
    as a final claim needs.
    """
    array = np.asarray(values, dtype=float)
    now = half_width(interval(array))
    if now is None:
        return None
    target = effect
    while target >= now > 0:
        target /= 2
    wanted = max(MIN_UNITS, units_needed(float(array.std(ddof=1)), target))
    return target, max(1, wanted - len(array))


def count_launches(count: int, what: str = "") -> str:
    """Return a number of launches in words, such as ``5 more launches`` for ``what`` = more."""
    return " ".join([str(count), *([what] if what else []), "launch" if count == 1 else "launches"])

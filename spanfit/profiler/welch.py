"""The difference of two runs' launches, which scatter unlike, and how many launches would tell it."""

import math
from dataclasses import dataclass

from scipy import stats

from spanfit.profiler import statistics
from spanfit.profiler.statistics import CONFIDENCE, MIN_UNITS, WIDENING, FloatArray
from spanfit.results.schema import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean log time of one run less that of another.

    Attributes
    ----------
    value, error, freedom : float
        The difference, its standard error and the degrees of freedom of that.
    resolution : float
        How far the difference may be off on either side, since times were printed with few digits; 0 where none was.
    sd : float
        Standard deviation of one launch's difference.
    """

    value: float
    error: float
    freedom: float
    resolution: float
    sd: float

    @property
    def p_value(self) -> float:
        """The two-sided p-value of no difference; what the digits leave open is none."""
        beyond = abs(self.value) - self.resolution
        if beyond <= 0:
            return 1.0
        return 2 * float(stats.t.sf(beyond / self.error, self.freedom)) if self.error else 0.0

    def estimate(self) -> Estimate:
        """Return the difference with its 95% interval."""
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.error + self.resolution
        return Estimate(value=self.value, ci_low=self.value - half, ci_high=self.value + half)


def difference(a: FloatArray, b: FloatArray, resolution_a: float = 0.0, resolution_b: float = 0.0) -> Difference:
    """Return the mean of ``b`` less that of ``a``, by Welch's t.

    Parameters
    ----------
    a, b : numpy.ndarray
        Mean log time of each launch, at least two of each.
    resolution_a, resolution_b : float
        What the printed digits leave open of a time, ± as a share of it.

    Notes
    -----
    The error of more than ``MIN_UNITS`` launches is widened as in ``statistics.unit_interval``. Launches scatter by at
    least what rounding can hide, lest equal digits pass for certainty.

    Degrees of freedom are never more than those of two runs of as many launches as the smaller. Welch's are found from
    the scatter itself, and are most where the few launches of the smaller happen to agree; far out in the tails, where
    a family of tests is decided, that alone tells some of 24 equal cases of 3 and 15 launches apart in 20% of
    comparisons. With the limit it is under 1%, and two runs of equal length lose nothing.
    """
    variances = [max(float(a.var(ddof=1)), resolution_a**2 / 3), max(float(b.var(ddof=1)), resolution_b**2 / 3)]
    nlaunches = [len(a), len(b)]
    parts = [v / n * (WIDENING**2 if n > MIN_UNITS else 1) for v, n in zip(variances, nlaunches, strict=True)]
    most = 2.0 * (min(nlaunches) - 1)
    weights = sum(part**2 / (n - 1) for part, n in zip(parts, nlaunches, strict=True))
    return Difference(
        value=float(b.mean() - a.mean()),
        error=math.sqrt(sum(parts)),
        freedom=min(most, sum(parts) ** 2 / weights) if weights else most,
        resolution=math.log1p(resolution_a) + math.log1p(resolution_b),
        sd=math.sqrt(sum(variances)),
    )


def launches_wanted(sd: float, target: float, confidence: float = CONFIDENCE) -> int:
    """Return the fewest launches in each run whose interval is expected within ± ``target``, MIN_UNITS at least.

    Parameters
    ----------
    sd : float
        Standard deviation of one launch's difference.
    target : float
        Half the width of the interval, above 0.
    """
    sd *= WIDENING
    wanted = max(MIN_UNITS, math.ceil((float(stats.norm.ppf((1 + confidence) / 2)) * sd / target) ** 2))
    while statistics.t_quantile(2 * wanted - 1, confidence) * sd / math.sqrt(wanted) > target:
        wanted += 1
    return wanted

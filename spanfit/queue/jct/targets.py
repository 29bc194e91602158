"""What a runtime predictor is fitted to, the way back to seconds, and upper bounds from calibration. numpy."""

import math
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BIN_S = 600.0
"""Errors are told in intervals of ten minutes, as the paper tells them."""
LIMIT_GRACE_S = 60.0
"""A scheduler ends a job that reaches its time limit up to so much later."""
LONGEST_S = 400 * 86400.0
"""No forecast is longer, whatever a sum of leaves says."""


class Target(StrEnum):
    """What the mean is fitted to.

    ``log``: squared error on the logarithm, brought back to the mean by a factor (``smear_of``). ``bins``: squared
    error on the runtime in intervals of ten minutes. ``poisson``: Poisson deviance on the same with a logarithmic link,
    which estimates the mean without a factor and never falls below 0.
    """

    LOG = "log"
    BINS = "bins"
    POISSON = "poisson"


def encoded(target: Target, runtime_s: Floats) -> Floats:
    """Return what an estimator is fitted to."""
    if target is Target.LOG:
        return np.log1p(runtime_s)
    return runtime_s / BIN_S


def decoded(target: Target, raw: Floats, smear: float) -> Floats:
    """Return seconds from what an estimator gives; that of ``poisson`` is a logarithm, as ``log``'s is."""
    if target is Target.BINS:
        seconds = raw * BIN_S
    else:
        powers = np.exp(np.minimum(raw, math.log(LONGEST_S)))
        seconds = smear * powers - 1 if target is Target.LOG else powers * BIN_S
    return np.clip(seconds, 1.0, LONGEST_S)


def smear_of(target: Target, raw: Floats, runtime_s: Floats) -> float:
    """Return the factor that brings logarithms back to the mean, from jobs that were not fitted to: Duan's smearing."""
    if target is not Target.LOG or not len(raw):
        return 1.0
    return float(np.mean(np.exp(np.log1p(runtime_s) - raw)))


def within_limits(seconds: Floats, limits_s: Floats) -> Floats:
    """Return forecasts that no time limit forbids; NaN is no limit."""
    return np.fmin(seconds, limits_s + LIMIT_GRACE_S)


def bounded(bound_s: Floats, mean_s: Floats, limits_s: Floats) -> Floats:
    """Return upper bounds that no time limit forbids and that are not below the mean.

    The mean of a heavy tail may lie beyond its 90% quantile; a bound below the mean would serve no queue.
    """
    return within_limits(np.clip(np.fmax(bound_s, mean_s), 1.0, LONGEST_S), limits_s)


def upper_offset(scores: Floats, quantile: float) -> float:
    """Return what to add to a predicted logarithm so that it holds a share ``quantile`` of runs like the scored ones.

    Scores are true minus predicted logarithms of jobs that were not fitted to. The rank is that of split conformal
    prediction, ceil((n + 1) quantile); where there are too few scores for it, the largest.

    >>> upper_offset(np.arange(1.0, 10.0), 0.9)
    9.0
    """
    if not len(scores):
        return 0.0
    rank = min(math.ceil((len(scores) + 1) * quantile), len(scores))
    return float(np.partition(scores, rank - 1)[rank - 1])

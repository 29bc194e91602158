"""The share of one of two gains in their sum, with the set of shares that the data do not refute (Fieller, 1954)."""

import math
from dataclasses import dataclass

import numpy as np

from spanfit.results.schema import Estimate

_ROUNDING = 1e-6
"""A double root comes out of floating point as a pair this close, and one at a border as just beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share with its interval; ``is_flat`` where neither part can be told to be above 0."""

    estimate: Estimate
    is_flat: bool


NOTHING_KNOWN = Share(estimate=Estimate(value=0.5, ci_low=0.0, ci_high=1.0), is_flat=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two estimated gains with what is known of their errors.

    Attributes
    ----------
    first, second : float
    first_variance, second_variance, covariance : float
        Of the estimates, not of single launches.
    """

    first: float
    second: float
    first_variance: float
    second_variance: float
    covariance: float


def share_of(first: float, second: float) -> float:
    """Return first / (first + second); what is negative counts as 0, and two that are not positive give 0.5.

    Examples
    --------
    >>> round(share_of(0.0077, 0.018), 2)
    0.3
    """
    first, second = max(0.0, first), max(0.0, second)
    return first / (first + second) if first + second > 0 else 0.5


def fit_share(pair: Pair, quantile: float) -> Share:
    """Return the share of the first gain and the hull of the shares in [0, 1] that the data do not refute.

    Parameters
    ----------
    pair : Pair
    quantile : float
        How many standard errors an interval of one gain reaches from its estimate.

    Notes
    -----
    - 0 < r < 1 stays if (1 - r) first - r second cannot be told from 0 and neither gain can be told to be below 0
      (which follows: beside a gain told to be above 0, such a contrast is told from 0 for every r, as a standard error
      is at most the sum of those of its parts);
    - r = 0 stays unless the first gain is told to be above 0; r = 1 stays unless the second is.

    If neither gain is told to be above 0 nothing is refuted: 0.5 with [0, 1], flat.
    """
    first_low = pair.first - quantile * math.sqrt(pair.first_variance)
    second_low = pair.second - quantile * math.sqrt(pair.second_variance)
    if first_low <= 0 and second_low <= 0:
        return NOTHING_KNOWN
    value = share_of(pair.first, pair.second)
    kept = [value, *[0.0] * (first_low <= 0), *[1.0] * (second_low <= 0), *_contrast_roots(pair, quantile)]
    return Share(estimate=Estimate(value=value, ci_low=min(kept), ci_high=max(kept)), is_flat=False)


def _contrast_roots(pair: Pair, quantile: float) -> list[float]:
    """Return the r in [0, 1] at which the contrast (1 - r) first - r second is just not told from 0.

    With s = first + second the contrast is first - r s, and the bound (first - r s)^2 = q^2 var(first - r s) is
    quadratic in r.
    """
    total, scale = pair.first + pair.second, quantile**2
    total_variance = pair.first_variance + pair.second_variance + 2 * pair.covariance
    roots = np.roots(
        (
            total**2 - scale * total_variance,
            -2 * (pair.first * total - scale * (pair.first_variance + pair.covariance)),
            pair.first**2 - scale * pair.first_variance,
        )
    )
    real = [float(root.real) for root in roots if abs(root.imag) < _ROUNDING]
    return [min(1.0, max(0.0, root)) for root in real if -_ROUNDING < root < 1 + _ROUNDING]

"""Alpha of a new job by a regression over characterised ones, with its uncertainty, and what each way is off by.

A Gaussian process on the scaled logs of r1 and r2: it returns to the mean of what is known away from it, and its
interval widens there. Entries weigh by their own intervals.
"""

from collections.abc import Sequence

import numpy as np

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.matching import (
    FAR_FACTOR,
    Known,
    LeaveOneOut,
    Match,
    Method,
    coordinates,
    known_to,
    log_distance,
    match,
    off_by,
    summed_up,
)
from spanfit.weights.model import WeightEntry
from spanfit.weights.scaling import Scaling, alpha_for, shape_of_entry

MIN_ENTRIES = 8
"""Fewer entries than this say too little of how alpha changes with the ratios."""
_LENGTHS = (0.5, 1.0, 2.0, 4.0)
_LEAST_SD = 0.02
_NORMAL_95 = 1.96


def regress(known: Sequence[Known], r1: float, r2: float) -> Match:
    """Return alpha by the regression, with a 95% interval, unless the nearest entry is far.

    Raises
    ------
    ConfigError
        If there are fewer than 8 entries.
    """
    if len(known) < MIN_ENTRIES:
        raise ConfigError(
            f"entries: found {len(known)} that count, expected at least {MIN_ENTRIES} for a regression; match by the "
            "nearest one, or characterise more jobs"
        )
    nearest = min(known, key=lambda one: log_distance(known, one, r1, r2))
    factor = off_by(nearest, r1, r2)
    return Match(
        method=Method.REGRESSION,
        alpha=None if factor > FAR_FACTOR else _regressed(known, r1, r2),
        nearest=nearest,
        distance=log_distance(known, nearest, r1, r2),
        factor=factor,
    )


def _regressed(known: Sequence[Known], r1: float, r2: float) -> Estimate:
    # Loading it takes a second, and the nearest entry is told without it.
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    points = np.array([coordinates(known, one.r1, one.r2) for one in known])
    alphas = np.array([one.alpha.value for one in known])
    noise = np.array([_sd(one.alpha) ** 2 for one in known])
    amplitude = max(float(alphas.var()), _LEAST_SD**2)
    fits = [
        GaussianProcessRegressor(ConstantKernel(amplitude) * RBF(length), alpha=noise, optimizer=None).fit(
            points, alphas - alphas.mean()
        )
        for length in _LENGTHS
    ]
    best = max(fits, key=lambda fit: float(fit.log_marginal_likelihood_value_))
    middle, sd = best.predict(np.array([coordinates(known, r1, r2)]), return_std=True)
    value, half = float(middle[0]) + float(alphas.mean()), _NORMAL_95 * float(sd[0])
    low, mean, high = (min(1.0, max(0.0, bound)) for bound in (value - half, value, value + half))
    return Estimate(value=mean, ci_low=low, ci_high=high)


def _sd(alpha: Estimate) -> float:
    if alpha.ci_low is None or alpha.ci_high is None:
        return _LEAST_SD
    return max(_LEAST_SD, (alpha.ci_high - alpha.ci_low) / (2 * _NORMAL_95))


def find(known: Sequence[Known], r1: float, r2: float, method: Method) -> Match:
    """Return what is known of alpha of a new job, by any of the methods."""
    return regress(known, r1, r2) if method is Method.REGRESSION else match(known, r1, r2, method)


def leave_one_out(entries: Sequence[WeightEntry], scaling: Scaling) -> tuple[LeaveOneOut, ...]:
    """Return for each method how far off alpha of each entry would be if only entries of other jobs were known.

    Parameters
    ----------
    entries : sequence of WeightEntry
        Those that count for one GPU model. A method that has too few of them is left out.
    scaling : Scaling
    """
    nothers = min((len(_others(entry, entries)) for entry in entries), default=0)
    least = {Method.PAPER: 1, Method.LOGS: 1, Method.REGRESSION: MIN_ENTRIES}
    methods = [method for method in Method if nothers >= least[method]]
    return tuple(
        summed_up(method, [_error(entry, entries, method, scaling) for entry in entries]) for method in methods
    )


def _error(entry: WeightEntry, entries: Sequence[WeightEntry], method: Method, scaling: Scaling) -> float | None:
    shape, volumes = shape_of_entry(entry), entry.volumes
    assert shape is not None and volumes is not None
    found = find(known_to(shape, _others(entry, entries), scaling), volumes.r1, volumes.r2, method)
    return None if found.alpha is None else abs(found.alpha.value - alpha_for(entry, shape, scaling).value)


def _others(entry: WeightEntry, entries: Sequence[WeightEntry]) -> list[WeightEntry]:
    """Return the entries of other jobs: those of its own, of another shape or source, would tell it too well."""
    return [other for other in entries if other.job != entry.job]

"""Choose how to predict runtimes: the same random search, on the same jobs, for every estimator."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.queue.jct.losses import deviance
from spanfit.queue.jct.targets import Target, decoded, smear_of, within_limits

Floats = npt.NDArray[np.float64]
Parameters = dict[str, float]
Raw = Callable[[Floats], Floats]
"""From a table to what a fitted estimator gives, in the space of its target."""


FOLDS = ((0.45, 0.55, 0.70), (0.60, 0.70, 0.85), (0.75, 0.85, 1.0))
"""Shares of the jobs, by time, up to which a split is fitted to, smeared by, and chosen on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Jobs as an estimator sees them.

    Attributes
    ----------
    table : array of float, shape (njobs, nfeatures)
        Codes of categories first.
    runtime_s : array of float
        [s]
    limits_s : array of float
        Time limits, NaN where there is none [s].
    """

    table: Floats
    runtime_s: Floats
    limits_s: Floats

    def rows(self, start: int, stop: int) -> "Sample":
        """Return the jobs from one index up to another."""
        part = slice(start, stop)
        return Sample(table=self.table[part], runtime_s=self.runtime_s[part], limits_s=self.limits_s[part])

    def __len__(self) -> int:
        return len(self.runtime_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of estimator.

    Attributes
    ----------
    name : str
    draw : callable
        Draws parameters from the family's ranges.
    fit : callable
        Fits the mean to a sample: target, parameters, sample, seed.
    """

    name: str
    draw: Callable[[np.random.Generator], Parameters]
    fit: Callable[[Target, Parameters, Sample, int], Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The best of a search.

    Attributes
    ----------
    target : Target
    parameters : dict
    deviance : float
        Poisson deviance in ten-minute intervals, on the jobs that chose it.
    """

    target: Target
    parameters: Parameters
    deviance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A sample by time: fitted to, then smearing, then choosing; each begins where the one before ends."""

    fitted: Sample
    smearing: Sample
    choosing: Sample


def rolling_splits(sample: Sample) -> tuple[Split, ...]:
    """Return splits of a sample in its order, each later than the one before.

    One period alone would let its few longest jobs, or a change of habits, choose.
    """
    return tuple(_split(sample, *(math.ceil(share * len(sample)) for share in shares)) for shares in FOLDS)


def _split(sample: Sample, fitted: int, smeared: int, chosen: int) -> Split:
    return Split(
        fitted=sample.rows(0, fitted), smearing=sample.rows(fitted, smeared), choosing=sample.rows(smeared, chosen)
    )


def search(family: Family, splits: Sequence[Split], *, ndraws: int, seed: int) -> Chosen:
    """Return the draw with the smallest mean deviance out of time; every target gets its turn.

    Parameters
    ----------
    family : Family
    splits : sequence of Split
    ndraws : int
        At least one for each target.
    seed : int
        Of the draws and of the estimators.
    """
    rng = np.random.default_rng(seed)
    targets = tuple(Target)
    found = []
    for index in range(max(ndraws, len(targets))):
        target, parameters = targets[index % len(targets)], family.draw(rng)
        scores = [_tried(family, target, parameters, split, seed) for split in splits]
        found.append(Chosen(target=target, parameters=parameters, deviance=sum(scores) / len(scores)))
    return min(found, key=lambda chosen: chosen.deviance)


def _tried(family: Family, target: Target, parameters: Parameters, split: Split, seed: int) -> float:
    """Return the deviance of one draw on the jobs of a split that choose."""
    mean = fitted_mean(family, target, parameters, split.fitted, split.smearing, seed)
    forecast = within_limits(mean(split.choosing.table), split.choosing.limits_s)
    return deviance(forecast, split.choosing.runtime_s)


def fitted_mean(
    family: Family, target: Target, parameters: Parameters, fitted: Sample, smearing: Sample, seed: int
) -> Raw:
    """Return a function from a table to mean runtimes [s], smeared by jobs after those fitted to."""
    raw = family.fit(target, parameters, fitted, seed)
    smear = smear_of(target, raw(smearing.table), smearing.runtime_s)
    return lambda table: decoded(target, raw(table), smear)


def pick(rng: np.random.Generator, values: Sequence[float]) -> float:
    """Return one of some values."""
    return float(values[int(rng.integers(len(values)))])


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a value between two whose logarithm is uniform."""
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))

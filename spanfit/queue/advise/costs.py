"""What a placement costs a step, in draws that hold how well that is known: from weights, or from the predictor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spanfit.errors import FitError
from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.simulate.ledger import grid_spreads
from spanfit.results.schema import Estimate
from spanfit.weights.model import WeightEntry

Floats = npt.NDArray[np.float64]

_NORMAL_95 = 1.96
_LEAST_STEP = 0.05
"""A step keeps at least this share of the base's, however the gains are drawn."""


class Costs(Protocol):
    """Says how long a step takes in a placement."""

    def remarks(self, orders: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        """Return what limits the answer for these placements, a sentence each."""

    def best_guess(self, order: tuple[int, ...]) -> float:
        """Return the step of nodes in node-rank order over that of the tightest placement that is thinkable."""

    def draws(self, order: tuple[int, ...]) -> Floats:
        """Return the same in draws of what is not known; draw i belongs to draw i of every other placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadCosts:
    """Steps by the spreads of a job's groups, from the gains of its aligned placements.

    The base of the gains has spreads (2, 2), the DP-aligned arm (1, 2), the PP-aligned one (2, 1). With
    s = gain / (1 + gain), the share of the base's step that an alignment saves, a placement of spreads (a, b) takes
    1 + s_dp (a - 2) + s_pp (b - 2) of the base's step. Beyond 2 that goes on in a straight line, which nobody measured.

    Attributes
    ----------
    job : QueueJob
        With a grid.
    minipods : tuple of int
        Of each node of the ground.
    saved : tuple of Estimate
        s_dp and s_pp.
    normals : array of shape (ndraws, 2)
        Standard normal draws, one column for each.
    """

    job: QueueJob
    minipods: tuple[int, ...]
    saved: tuple[Estimate, Estimate]
    normals: Floats

    def remarks(self, orders: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        """Say what was not measured."""
        if all(spread <= 2 for order in orders for spread in self._spreads(order)):
            return ()
        return ("over more than 2 minipods a group's cost goes on in a straight line, which was not measured",)

    def best_guess(self, order: tuple[int, ...]) -> float:
        """Return the step by the gains as they were estimated."""
        return float(self._ratio(order, np.array([[each.value for each in self.saved]]))[0])

    def draws(self, order: tuple[int, ...]) -> Floats:
        """Return the step with gains drawn from their intervals."""
        shares = np.array([each.value for each in self.saved]) + self.normals * np.array(
            [_deviation(each) for each in self.saved]
        )
        return self._ratio(order, shares)

    def _spreads(self, order: tuple[int, ...]) -> tuple[int, int]:
        return grid_spreads(self.job, [self.minipods[node] for node in order])

    def _ratio(self, order: tuple[int, ...], shares: Floats) -> Floats:
        spreads = np.array(self._spreads(order))
        here = np.maximum(_LEAST_STEP, 1 + shares @ (spreads - 2))
        return np.asarray(here / np.maximum(_LEAST_STEP, 1 - shares.sum(axis=1)))


def _deviation(estimate: Estimate) -> float:
    if estimate.ci_low is None or estimate.ci_high is None:
        return 0.0
    return (estimate.ci_high - estimate.ci_low) / (2 * _NORMAL_95)


def costs_by_weights(
    entry: WeightEntry, job: QueueJob, minipods: tuple[int, ...], *, ndraws: int, seed: int
) -> SpreadCosts:
    """Return what placements of a job cost by the gains of a weights entry.

    Raises
    ------
    FitError
        If the job has no grid, or the entry has no gains.
    """
    if job.nrows is None or job.ncolumns is None:
        raise FitError(
            f"job {job.job_id}: it has no grid of rows and columns, so weights say nothing of it; submit it with one"
        )
    if entry.gain_dp is None or entry.gain_pp is None:
        raise FitError(f"weights of {entry.job}: found no gains, expected both; weights by hand have none to advise by")
    rng = np.random.default_rng(seed)
    return SpreadCosts(
        job=job,
        minipods=minipods,
        saved=(_saved(entry.gain_dp), _saved(entry.gain_pp)),
        normals=rng.normal(size=(ndraws, 2)),
    )


def _saved(gain: Estimate) -> Estimate:
    """Return the share of the base's step that a gain in throughput saves."""
    low, value, high = (None if each is None else each / (1 + each) for each in (gain.ci_low, gain.value, gain.ci_high))
    assert value is not None
    return Estimate(value=value, ci_low=low, ci_high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCosts:
    """Steps by the predictor, each placement with an error of its own.

    Attributes
    ----------
    step_time_s : callable
        Gives the predicted step of nodes in node-rank order [s].
    tightest_s : float
        The predicted step of the tightest placement that is thinkable [s].
    error : float
        Standard deviation of the logarithm of a prediction.
    ndraws, seed : int
        A placement has the same draws each time.
    """

    step_time_s: Callable[[tuple[int, ...]], float]
    tightest_s: float
    error: float
    ndraws: int
    seed: int

    def remarks(self, orders: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
        """Say what the error is."""
        return (f"steps are predicted, each with an error of ± {100 * _NORMAL_95 * self.error:.1f}%",)

    def best_guess(self, order: tuple[int, ...]) -> float:
        """Return the predicted step."""
        return self.step_time_s(order) / self.tightest_s

    def draws(self, order: tuple[int, ...]) -> Floats:
        """Return the predicted step with errors drawn."""
        rng = np.random.default_rng([self.seed, *order])
        return self.best_guess(order) * np.exp(self.error * rng.normal(size=self.ndraws))

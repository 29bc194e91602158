"""From one shape to another: what a crossing of each kind costs where it was measured, and alpha of another job.

Rings in the columns and chains in the rows of a grid of D x P nodes carry about a P V_d + (b - 1) D V_p bytes between
minipods, where each column touches a minipods and each row b, V_d is what a node sends around its rings in a step and
V_p what crosses one boundary of stages. So one more minipod in every column costs P crossings of V_d bytes each, one
more in every row D crossings of V_p bytes, and alpha belongs to a job of D x P, not to a model.

The DP-aligned arm saves T j / (1 + j) seconds of the base's T for its gain j of throughput, the PP-aligned one as much
for its own. Neither removes crossings of its kind alone: in misaligned placements rings run to and fro and chains may
come back, so each arm's saving is its number of removed ring crossings times the cost of one, plus the same of chains.
Two arms, two unknowns. What a crossing costs grows with its bytes, so the job at hand pays for its own P V_d at the
measured price of a byte of DP, and for its own D V_p at that of PP. Seconds that both kinds have in common, and how
many uplinks share the bytes, leave alpha as it is, a ratio. Where nothing was measured both bytes have one price, which
leaves alpha_v = P V_d / (P V_d + D V_p).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED
from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.model import RemovedCrossings, Source, WeightEntry
from spanfit.weights.shares import Pair, fit_share, share_of
from spanfit.weights.volumes import node_bytes
from spanfit.workload.job import Job, node_grid

Floats = npt.NDArray[np.float64]
_NORMAL_95 = 1.96
_BASE_SHARE = 0.5
"""Of the variance of a predicted gain what the base adds, which both gains have in common."""


class Scaling(StrEnum):
    """How weights of one shape serve another: through volumes and shape, or as the paper prints them."""

    VOLUMES = "volumes"
    PAPER = "paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A job's grid of nodes and what it moves.

    Attributes
    ----------
    dp, pp : int
        Rows (PP groups) and columns (DP groups) of nodes.
    dp_bytes : float
        Gradient bytes that a node reduces in a step.
    pp_bytes : float
        Bytes between a node and its neighbour at one boundary of stages in a step, both ways, all microbatches.
    """

    dp: int
    pp: int
    dp_bytes: float
    pp_bytes: float

    @property
    def column_bytes(self) -> float:
        """What one more minipod in every column moves between minipods in a step: P V_d.

        A ring all-reduce of D nodes sends 2 (D - 1) / D of what it reduces over each of its edges.
        """
        return self.pp * 2 * (self.dp - 1) / self.dp * self.dp_bytes

    @property
    def row_bytes(self) -> float:
        """What one more minipod in every row moves between minipods in a step: D V_p."""
        return self.dp * self.pp_bytes if self.pp > 1 else 0.0


def shape_of(job: Job, ngpus_per_node: int) -> Shape:
    """Return the shape of a job; ValueError where its ranks do not fill nodes evenly."""
    rows, columns = node_grid(job, ngpus_per_node)
    dp_bytes, pp_bytes = node_bytes(job, ngpus_per_node)
    return Shape(dp=rows, pp=columns, dp_bytes=dp_bytes, pp_bytes=pp_bytes)


def volume_alpha(shape: Shape) -> float:
    """Return alpha_v, the share of DP in the traffic of one more minipod: the prior where nothing was measured.

    Examples
    --------
    >>> volume_alpha(Shape(dp=4, pp=2, dp_bytes=100.0, pp_bytes=75.0))
    0.5
    """
    total = shape.column_bytes + shape.row_bytes
    return shape.column_bytes / total if total else 0.5


def shape_of_entry(entry: WeightEntry) -> Shape | None:
    """Return the shape that was measured; None for weights by hand whose volumes nobody said."""
    if entry.volumes is None:
        return None
    return Shape(dp=entry.dp, pp=entry.pp, dp_bytes=entry.volumes.dp_bytes, pp_bytes=entry.volumes.pp_bytes)


def fewest_minipods(free: Iterable[int], nnodes: int) -> int | None:
    """Return how many minipods of so many free nodes hold a job at least; None where all together do not.

    Examples
    --------
    >>> fewest_minipods([4, 10, 6], 12)
    2
    """
    held = accumulate(sorted(free, reverse=True))
    return next((count for count, nodes in enumerate(held, 1) if nodes >= nnodes), None)


def alpha_for(entry: WeightEntry, wanted: Shape, scaling: Scaling, minipods: int | None = None) -> Estimate:
    """Return alpha of a job of a shape from what was characterised on another one.

    Parameters
    ----------
    entry : WeightEntry
        Where it is flat its job told nothing, and the prior alpha_v is returned with the interval [0, 1].
    wanted : Shape
    scaling : Scaling
        ``paper`` returns the entry's own alpha.
    minipods : int, optional
        How many minipods the job needs at least (:func:`fewest_minipods`), where that is known.

    Raises
    ------
    ConfigError
        If the entry has no volumes to scale by, or its arms do not tell crossings of both kinds apart.

    Notes
    -----
    With M the crossings that both arms remove and x the shares of a step that they save, M^-1 x is what a crossing of
    each kind costs, and what one more minipod in every column and in every row costs the job at hand is that times the
    bytes it moves. Errors of x follow through both, and alpha is the share of the first in their sum with the interval
    of :func:`fit_share`; gains whose errors nobody tells leave it without one. Unlike the paper's alpha, which weighs
    whole arms, it weighs one more minipod, which is what the objective counts. A ring over a > 1 minipods crosses a
    times, but one within a minipod not at all: where two minipods hold the job, all that can be chosen is which kind is
    whole, and the minipod of a column counts twice.
    """
    if scaling is Scaling.PAPER:
        return entry.alpha
    value = scaled_alpha(entry, wanted, scaling, minipods)
    if not (wanted.column_bytes and wanted.row_bytes):
        return Estimate(value=value, ci_low=value, ci_high=value)
    if entry.is_flat:
        return Estimate(value=value, ci_low=0.0, ci_high=1.0)
    if (errors := _errors(entry)) is None:
        return Estimate(value=value, ci_low=None, ci_high=None)
    costs, (covariance, quantile) = _costs(entry, wanted, minipods), errors
    found = fit_share(_pair(costs @ _saved(entry), costs @ covariance @ costs.T), quantile).estimate
    return Estimate(value=value, ci_low=found.ci_low, ci_high=found.ci_high)


def scaled_alpha(entry: WeightEntry, wanted: Shape, scaling: Scaling, minipods: int | None = None) -> float:
    """Return the value of :func:`alpha_for` without its interval: it needs numpy alone, so that placing starts fast."""
    if scaling is Scaling.PAPER:
        return entry.alpha.value
    if entry.is_flat or not (wanted.column_bytes and wanted.row_bytes):
        return volume_alpha(wanted)
    return share_of(*(_costs(entry, wanted, minipods) @ _saved(entry)).tolist())


def _costs(entry: WeightEntry, wanted: Shape, minipods: int | None) -> Floats:
    """Return the matrix that makes of what both arms save what one more minipod costs each kind of the wanted job."""
    measured = shape_of_entry(entry)
    if measured is None or not (measured.column_bytes and measured.row_bytes):
        raise ConfigError(
            f"job {entry.job}: volumes: found none of both kinds, expected them to scale alpha by; add volumes to the "
            "entry, or use its alpha as it is: --scaling paper"
        )
    ring_crossings = 2 if minipods == 2 else 1
    bytes_of = (
        ring_crossings * measured.pp * wanted.column_bytes / measured.column_bytes,
        measured.dp * wanted.row_bytes / measured.row_bytes,
    )
    return np.asarray(np.diag(bytes_of) @ prices(_removed(entry)), dtype=float)


def _saved(entry: WeightEntry) -> Floats:
    """Return the shares of a step that both arms save: of launches, else of gains, else alpha and beta by hand."""
    if len(entry.times) > 1:
        return np.asarray(_by_launch(entry).mean(axis=0), dtype=float)
    if entry.gain_dp is None or entry.gain_pp is None:
        return np.array([entry.alpha.value, entry.beta.value])
    return np.array([_saved_share(gain.value) for gain in (entry.gain_dp, entry.gain_pp)])


def _by_launch(entry: WeightEntry) -> Floats:
    return np.array([(1 - one.dp_aligned_s / one.base_s, 1 - one.pp_aligned_s / one.base_s) for one in entry.times])


def _saved_share(gain: float) -> float:
    return gain / (1 + gain)


def _errors(entry: WeightEntry) -> tuple[Floats, float] | None:
    """Return the covariance of what both arms save and how many standard errors an interval reaches, where told."""
    if len(entry.times) > 1:
        from spanfit.profiler import statistics

        by_launch = _by_launch(entry)
        return np.cov(by_launch.T) / len(by_launch), statistics.t_quantile(len(by_launch))
    told = [sd for sd in map(_sd, (entry.gain_dp, entry.gain_pp)) if sd is not None]
    if len(told) < 2:
        return None
    sds = np.array(told)
    return np.outer(sds, sds) * np.array([[1.0, _BASE_SHARE], [_BASE_SHARE, 1.0]]), _NORMAL_95


def _sd(gain: Estimate | None) -> float | None:
    """Return the standard error of what a gain saves, None where nothing tells it."""
    if gain is None or gain.ci_low is None or gain.ci_high is None:
        return None
    return (_saved_share(gain.ci_high) - _saved_share(gain.ci_low)) / (2 * _NORMAL_95)


def prices(removed: Sequence[RemovedCrossings]) -> Floats:
    """Return the matrix that makes the costs of a DP and a PP crossing of what both arms save."""
    return np.asarray(np.linalg.inv(counts(removed)), dtype=float)


def counts(removed: Sequence[RemovedCrossings]) -> Floats:
    """Return the crossings that the DP-aligned arm (first row) and the PP-aligned one remove, rings before chains."""
    return np.array([(each.dp, each.pp) for each in removed], dtype=float)


def _removed(entry: WeightEntry) -> tuple[RemovedCrossings, ...]:
    """Return what arms remove; by hand, from a base over two minipods that crosses no more than it must.

    Rings over two minipods cross twice. Alpha by hand without gains weighs a minipod of each kind as it is.
    """
    if entry.removed:
        return entry.removed
    if entry.source is not Source.HAND:
        raise ConfigError(
            f"job {entry.job}: removed: found none, as its arms do not tell crossings of both kinds apart, expected "
            "those of both aligned arms to scale alpha by; measure other arms, or use its alpha as it is: --scaling "
            "paper"
        )
    ring_crossings = 1 if entry.gain_dp is None else 2
    return (
        RemovedCrossings(arm=DP_ALIGNED, dp=ring_crossings * entry.pp, pp=0),
        RemovedCrossings(arm=PP_ALIGNED, dp=0, pp=entry.dp),
    )


def _pair(costs: Floats, covariance: Floats) -> Pair:
    return Pair(
        first=float(costs[0]),
        second=float(costs[1]),
        first_variance=float(covariance[0, 0]),
        second_variance=float(covariance[1, 1]),
        covariance=float(covariance[0, 1]),
    )

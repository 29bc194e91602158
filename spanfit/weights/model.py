"""Affinity weights: what a DP crossing and a PP crossing of minipods are worth against each other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spanfit import units
from spanfit.results.schema import Estimate, format_estimate

SCHEMA_VERSION = 2

_ROUNDING = 1e-9
_KNOWN_KEYS_ONLY = {"extra": "forbid"}
"""As ``spanfit.files.CONFIG``, which this module cannot import, being standard library only."""


class Source(StrEnum):
    """Where weights come from: training steps that were run, the step-time predictor, or a person."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    HAND = "hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """What a job moves, by which jobs are matched and weights carried to other shapes.

    Attributes
    ----------
    dp_bytes : float
        V_d: gradient bytes that a node reduces over its copies in a step (S of nccl-tests, all its DP groups together);
        a ring sends 2 (D - 1) / D of it to the next of D nodes.
    pp_bytes : float
        V_p: bytes that a node exchanges over one boundary of stages in a step, both directions and all microbatches.
    r1 : float
        mb v_w / (v_d + v_p) of the paper, compute to communication. Adopted units: mb in sequences; v_w the bytes of a
        rank's weights, v_d its gradients and v_p what it exchanges over a boundary, each in bytes a step.
    r2 : float
        v_d / v_p of the paper, in the same units.
    """

    dp_bytes: float
    pp_bytes: float
    r1: float
    r2: float

    def __post_init__(self) -> None:
        """Refuse what has no logarithm: jobs are matched by ratios."""
        if faults := [
            f"{name} is {value}; expected a number above 0"
            for name in ("dp_bytes", "pp_bytes", "r1", "r2")
            for value in [getattr(self, name)]
            if not 0 < value < math.inf
        ]:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Seconds of a step in one launch: of the base (the median of its misaligned arms) and of both aligned arms."""

    launch: int
    base_s: float
    dp_aligned_s: float
    pp_aligned_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedCrossings:
    """How many crossings of minipods an aligned arm has fewer than its base, over all groups of a kind.

    Attributes
    ----------
    arm : str
        ``dp-aligned`` or ``pp-aligned``.
    dp, pp : float
        Edges of DP rings (in rank order) and of PP chains between two minipods: the base's mean less the arm's.
    """

    arm: str
    dp: float
    pp: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossingCost:
    """What one crossing costs a step of the measured job: an edge of a DP ring or of a PP chain between two minipods.

    Attributes
    ----------
    kind : str
        ``dp`` or ``pp``.
    time_s : Estimate
        Seconds of step for each crossing.
    """

    kind: str
    time_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightEntry:
    """Weights of one job on one GPU model.

    Attributes
    ----------
    job : str
    gpu_model : str
    dp, pp : int
        Rows D and columns P of the grid of nodes that the weights are for; alpha belongs to a job of this shape.
    alpha, beta : Estimate
        Weight of DP groups (columns) and of PP groups (rows); alpha + beta = 1.
    source : Source
    gain_dp, gain_pp : Estimate or None
        Throughput gain of the DP-aligned and the PP-aligned arm over the misaligned base, as shares of one.
    volumes : Volumes or None
    base_time_s : Estimate or None
        Time of a step of the base [s].
    times : tuple of LaunchTimes
        What the gains come from, so that they can be carried and checked with what launches have in common.
    base_arms : tuple of str
        The misaligned arms whose median is the base.
    compute : str
        How compute was spent in the steps.
    launches : int
    is_flat : bool
        Neither gain can be told from 0, so the weights are 0.5 and 0.5 with the interval [0, 1].
    is_provisional : bool
        Fewer than six units of replication.
    removed : tuple of RemovedCrossings
        What crossings each aligned arm removes from the base; none for weights by hand.
    crossing_costs : tuple of CrossingCost

    Raises
    ------
    ValueError
        With a line for everything that cannot be or that the source does not explain.
    """

    job: str
    gpu_model: str
    dp: int
    pp: int
    alpha: Estimate
    beta: Estimate
    source: Source
    gain_dp: Estimate | None = None
    gain_pp: Estimate | None = None
    volumes: Volumes | None = None
    base_time_s: Estimate | None = None
    times: tuple[LaunchTimes, ...] = ()
    base_arms: tuple[str, ...] = ()
    compute: str = ""
    launches: int = 0
    is_flat: bool = False
    is_provisional: bool = False
    removed: tuple[RemovedCrossings, ...] = ()
    crossing_costs: tuple[CrossingCost, ...] = ()

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of one, and measured ones without what was measured."""
        if faults := list(_entry_faults(self)):
            raise ValueError("\n".join(f"job {self.job}: {fault}" for fault in faults))


def _entry_faults(entry: WeightEntry) -> Iterator[str]:
    alpha, beta = entry.alpha.value, entry.beta.value
    if not (0 <= alpha <= 1 and abs(alpha + beta - 1) < _ROUNDING):
        yield f"alpha is {alpha}, beta is {beta}; expected shares of one that sum to 1"
    if min(entry.dp, entry.pp) < 1:
        yield f"the grid is {entry.dp} x {entry.pp} nodes; expected at least 1 x 1"
    for name in ("gain_dp", "gain_pp", "volumes"):
        if entry.source is not Source.HAND and getattr(entry, name) is None:
            yield f"{name}: missing; weights whose source is {entry.source!s} need it, weights by hand do not"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRate:
    """The bandwidth that a collective reached over so many switches of a tier, at the largest size measured.

    Attributes
    ----------
    busbw_bytes_per_s : Estimate
    launch_times_s : tuple of float
        Time of the collective in each launch [s], to tell drift by.
    """

    operation: str
    dtype: str
    redop: str
    tier: str
    span: int
    nranks: int
    nnodes: int
    size_bytes: int
    concurrency: str
    busbw_bytes_per_s: Estimate
    launch_times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricKind:
    """The kind of fabric that weights hold for, never a list of nodes.

    Weights that were measured on a few minipods hold for the whole cluster of this kind.

    Attributes
    ----------
    gpu_model : str
    backend : str
        gloo, nccl, rccl or mpi.
    library : str
        What moved the bytes, with its version, such as ``nccl 2.21.5``.
    transport : str
        What the traffic went over; ``emulated`` for a testbed.
    nic : str
        Model or names of the network adapters; "" where nothing told it.
    nrails : int
        Network adapters of a node; 0 where nothing told it.
    tier_rates : tuple of TierRate
    """

    gpu_model: str
    backend: str
    library: str
    transport: str
    nic: str = ""
    nrails: int = 0
    tier_rates: tuple[TierRate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """The content of ``weights.json``.

    Attributes
    ----------
    entries : tuple of WeightEntry
    run_ids : tuple of str
        The runs whose measurements the weights come from.
    cluster : str
        Name of the cluster that was measured, for people; nothing depends on it.
    fabric : FabricKind or None
        None for weights by hand that are for any.
    created_at : str
        ISO 8601, UTC.
    valid_until : str or None
        ISO 8601, UTC; None: without end.
    spanfit_version : str
    content_hash : str
        SHA-256 of the file's text with "" in this place; "" where all entries are by hand.
    accepted_stale : tuple of str
        Why the weights that these were made from were refused, where ``--accept-stale`` used them all the same.
    """

    __pydantic_config__ = _KNOWN_KEYS_ONLY
    schema_version: int
    entries: tuple[WeightEntry, ...]
    run_ids: tuple[str, ...] = ()
    cluster: str = ""
    fabric: FabricKind | None = None
    created_at: str = ""
    valid_until: str | None = None
    spanfit_version: str = ""
    content_hash: str = ""
    accepted_stale: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        if faults := [
            fault for key in ("created_at", "valid_until") for fault in _time_faults(key, getattr(self, key))
        ]:
            raise ValueError("\n".join(faults))

    @property
    def needs_hash(self) -> bool:
        """Whether anything in it is not by hand."""
        return any(entry.source is not Source.HAND for entry in self.entries)


def _time_faults(key: str, text: str | None) -> Iterator[str]:
    try:
        datetime.fromisoformat(text or "2026-01-01")
    except ValueError:
        yield f"{key}: found {text!r}, expected a time such as 2026-01-31T12:00:00+00:00"


def format_weight(weight: Estimate) -> str:
    """Return a weight for people; one by hand may have no interval.

    Examples
    --------
    >>> format_weight(Estimate(value=0.3, ci_low=0.2, ci_high=0.4))
    '0.300 [0.200, 0.400]'
    >>> format_weight(Estimate(value=0.3, ci_low=None, ci_high=None))
    '0.300'
    """
    return f"{weight.value:.3f}" if weight.ci_low is None else format_estimate(weight, lambda share: f"{share:.3f}")


def remarks(entry: WeightEntry) -> tuple[str, ...]:
    """Return what a person must know of an entry before trusting its weights, one sentence each."""
    found = []
    for gain, name, weight in ((entry.gain_dp, "DP", "alpha"), (entry.gain_pp, "PP", "beta")):
        if gain is not None and gain.value < 0:
            text = format_estimate(gain, units.format_percent)
            found.append(f"the {name}-aligned arm gains {text} over the base, which counts as none for {weight}")
    if entry.source is not Source.MEASURED:
        found.append("given by hand, not measured" if entry.source is Source.HAND else "predicted, not measured")
    if entry.is_flat:
        found.append("neither gain can be told to be above 0, so the weights are 0.5 and 0.5 and may be anything")
    if entry.is_provisional:
        launches = "1 launch" if entry.launches == 1 else f"{entry.launches} launches"
        found.append(f"provisional: {launches}, at least 6 make a final claim")
    return tuple(found)

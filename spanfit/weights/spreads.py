"""Weights of any number of group kinds or tiers: log step time regressed on spreads, launch by launch.

Where groups of one kind lie inside those of another, as EP does in DP, no arm moves one kind alone, so differences of
two arms confound them. Enough placements with spreads that vary apart tell what one more minipod in each kind costs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt

from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.steps import StepTimes
from spanfit.results.schema import Estimate, RunInfo
from spanfit.weights.shares import Pair, fit_share
from spanfit.workload.job import Job

MORE_PLACEMENTS = 3
"""How many more placements than kinds there must be, so that what spreads do not explain shows."""
_COMMON = 0.5
_TOLERANCE = 1e-9
_KINDS = ("dp", "pp", "tp", "cp", "ep", "edp")

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWeight:
    """What one of any number of kinds of groups is worth.

    Attributes
    ----------
    kind : str
        ``dp``, ``pp``, ``ep``, ...; ``dp@leaf`` where leaves are counted, not minipods.
    weight : Estimate
        Share of one; the weights of all kinds sum to 1.
    per_minipod : Estimate
        Log step time that one more minipod in the widest group of the kind adds; negative ones count as 0 in weights.
    is_flat : bool
        Neither this kind nor the others together can be told to cost anything.
    """

    kind: str
    weight: Estimate
    per_minipod: Estimate
    is_flat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFit:
    """Weights of some kinds, and how well spreads explain the steps.

    Attributes
    ----------
    kinds : tuple of KindWeight
    residual_sd : float
        Standard deviation over placements of the log step time that spreads do not explain.
    """

    kinds: tuple[KindWeight, ...]
    residual_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSteps:
    """Steps of one job in some placements, measured in launches that hold them all.

    Attributes
    ----------
    kinds : tuple of str
        Names of the group kinds (or kinds at tiers).
    spreads : mapping of str to tuple of int
        Of each placement the spread of each kind.
    log_times : mapping of str to tuple of float
        Of each placement the log of the median step time [s] in each launch.
    left_out : tuple of str
        Placements that half of the launches or more lack, which count nowhere.
    """

    kinds: tuple[str, ...]
    spreads: Mapping[str, tuple[int, ...]]
    log_times: Mapping[str, tuple[float, ...]]
    left_out: tuple[str, ...] = ()


def check_kinds(info: RunInfo, kinds: Sequence[str]) -> None:
    """Raise FitError, with a line for each, where kinds or their tiers are none that a run has."""
    faults = [
        f"kind {kind}: found {groups or 'no'} groups over {tier or 'minipod'} switches, expected one of "
        f"{', '.join(_KINDS)}, alone or as KIND@TIER with a tier of {', '.join(info.tiers)}"
        for kind in kinds
        for groups, _, tier in [kind.partition("@")]
        if groups not in _KINDS or (tier or "minipod") not in info.switches
    ]
    if faults:
        raise FitError("\n".join(faults))


def placed_steps(steps: StepTimes, info: RunInfo, job: Job, kinds: Sequence[str]) -> PlacedSteps:
    """Return the steps of a job in all arms of a run, with the spreads of some kinds of groups.

    Parameters
    ----------
    steps : StepTimes
        Arms that half of the launches or more lack are left out, then launches that lack one of the others.
    info : RunInfo
    job : Job
    kinds : sequence of str
        Kinds of the layout's groups, such as ``dp``, ``pp``, ``ep``; ``dp@leaf`` counts leaves, not minipods.
    """
    is_common = steps.table.notna().mean() > _COMMON
    whole = steps.table.loc[:, is_common].dropna()
    return PlacedSteps(
        kinds=tuple(kinds),
        spreads={
            str(arm): tuple(_spread(info, job, steps.seats[str(arm)], kind) for kind in kinds) for arm in whole.columns
        },
        log_times={str(arm): tuple(map(float, whole[arm])) for arm in whole.columns},
        left_out=tuple(map(str, steps.table.columns[~is_common])),
    )


def _spread(info: RunInfo, job: Job, seats: str, kind: str) -> int:
    """Return how many switches of a tier the widest group of a kind touches where a job sits as ``seats`` says."""
    groups, _, tier = kind.partition("@")
    switches = info.switches[tier or "minipod"]
    nodes = [int(node) for node in seats.split(",")]
    ranks_per_node = job.layout.nranks // len(nodes)
    return max(len({switches[nodes[rank // ranks_per_node]] for rank in group}) for group in job.layout.groups(groups))


def fit_kinds(steps: PlacedSteps) -> KindFit:
    """Return the weight of each kind, with intervals.

    Raises
    ------
    FitError
        If there are fewer than kinds + 3 placements, or spreads that never vary apart, all mistakes at once; or no
        launch that holds all placements.

    Notes
    -----
    In each launch log time is a constant of that launch plus what each kind adds for each minipod of its spread, by
    least squares. Two things put a coefficient off: noise, by which it differs between launches, and what spreads do
    not explain of a placement, which is the same in all launches and shows in the residuals of the placements' means.
    Their covariances add up, and Student's t has the smaller of their degrees of freedom: launches - 1 and
    placements - kinds - 1. A kind's weight is its share in what all kinds add, and its interval the shares that the
    data do not refute (:func:`fit_share`).
    """
    placements = sorted(steps.spreads)
    design = np.array([steps.spreads[name] for name in placements], dtype=float)
    if faults := _faults(steps.kinds, design):
        raise FitError("\n".join(faults))
    logs = np.array([steps.log_times[name] for name in placements])
    if not logs.size:
        raise FitError("launches: found none that holds all placements, expected at least one; run the campaign again")
    costs = _costs(design - design.mean(axis=0), logs - logs.mean(axis=0))
    priced = np.where(costs.means > 0, costs.means, 0.0)
    total = float(priced.sum())
    values = priced / total if total > 0 else np.full(len(priced), 1 / len(priced))
    return KindFit(
        kinds=tuple(_kind_weight(kind, float(values[index]), costs, index) for index, kind in enumerate(steps.kinds)),
        residual_sd=costs.residual_sd,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """What each kind adds to log time for each minipod: the mean over launches, and the covariance of its errors.

    ``nunits`` is one more than the degrees of freedom; with 1 the covariance is not known.
    """

    means: FloatArray
    covariance: FloatArray
    nunits: int
    residual_sd: float


def _costs(design: FloatArray, logs: FloatArray) -> _Costs:
    """Return the costs by centred spreads (placements x kinds) and centred log times (placements x launches)."""
    (nplacements, nkinds), nlaunches = design.shape, logs.shape[1]
    per_launch = np.linalg.lstsq(design, logs, rcond=None)[0]
    means = np.asarray(per_launch.mean(axis=1), dtype=float)
    residuals = logs.mean(axis=1) - design @ means
    variance = float(residuals @ residuals) / (nplacements - nkinds - 1)
    noise = np.atleast_2d(np.cov(per_launch)) / nlaunches if nlaunches > 1 else np.zeros((nkinds, nkinds))
    return _Costs(
        means=means,
        covariance=noise + variance * np.linalg.inv(design.T @ design),
        nunits=min(nlaunches, nplacements - nkinds),
        residual_sd=math.sqrt(variance),
    )


def _kind_weight(kind: str, value: float, costs: _Costs, index: int) -> KindWeight:
    own = float(costs.means[index])
    if costs.nunits < 2:
        unknown = Estimate(value=value, ci_low=0.0, ci_high=1.0)
        return KindWeight(
            kind=kind, weight=unknown, per_minipod=Estimate(value=own, ci_low=None, ci_high=None), is_flat=True
        )
    others = (costs.means > 0) & (np.arange(len(costs.means)) != index)
    pair = Pair(
        first=own,
        second=float(costs.means[others].sum()),
        first_variance=float(costs.covariance[index, index]),
        second_variance=float(costs.covariance[np.ix_(others, others)].sum()),
        covariance=float(costs.covariance[index, others].sum()),
    )
    quantile = statistics.t_quantile(costs.nunits)
    found = fit_share(pair, quantile)
    assert found.estimate.ci_low is not None and found.estimate.ci_high is not None
    low, high = min(found.estimate.ci_low, value), max(found.estimate.ci_high, value)
    half = quantile * math.sqrt(pair.first_variance)
    return KindWeight(
        kind=kind,
        weight=Estimate(value=value, ci_low=low, ci_high=high),
        per_minipod=Estimate(value=own, ci_low=own - half, ci_high=own + half),
        is_flat=found.is_flat,
    )


def _faults(kinds: Sequence[str], design: FloatArray) -> list[str]:
    nplacements, wanted = len(design), len(kinds) + MORE_PLACEMENTS
    faults = []
    if nplacements < wanted:
        faults.append(
            f"placements: found {nplacements}, expected at least {wanted} for {len(kinds)} kinds "
            f"({', '.join(kinds)}); add placements to the campaign"
        )
    for confounded in _confounded(kinds, design):
        faults.append(
            f"spreads of {', '.join(confounded)}: found the same in all {nplacements} placements, expected it to vary"
            if len(confounded) == 1
            else f"spreads of {' and '.join(confounded)}: found them to vary together in all {nplacements} placements, "
            "expected some in which one varies without the others; add such placements, or leave one of the kinds out"
        )
    return faults


def _confounded(kinds: Sequence[str], design: FloatArray) -> list[tuple[str, ...]]:
    """Return the sets of kinds among whose spreads there is a linear relation, smallest first, each minimal."""
    centred = design - design.mean(axis=0)
    found: list[tuple[int, ...]] = []
    subsets = (combinations(range(len(kinds)), size) for size in range(1, len(kinds) + 1))
    for members in chain.from_iterable(subsets):
        if any(set(known) <= set(members) for known in found):
            continue
        if np.linalg.matrix_rank(centred[:, members], tol=_TOLERANCE * max(1, len(design))) < len(members):
            found.append(members)
    return [tuple(kinds[member] for member in members) for members in found]

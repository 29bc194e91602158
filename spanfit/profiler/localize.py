"""Which place explains best why some groups are slower than their like: pure.

Every observation is the median log time of a group in one unit (a launch with its communicators), less the usual time
of its operation and size. A slow place costs the groups whose traffic passes it, the more the more flows share it:

    log time - usual log time = max(0, k + log(flows through the place))

The place whose best ``k`` explains most of the deviations is found, if the groups that pass it are slower than the
others by Welch's t with Holm's correction over all places, by at least ``SMALLEST_EFFECT``, in most units. Then its
groups are set aside and the next place is looked for. Places that all groups pass alike cannot be told apart and are
found together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from spanfit.profiler import statistics
from spanfit.profiler.paths import Place, PlaceKind, Tree, hops
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate

SMALLEST_EFFECT = 0.15
"""The smallest share of more time that is called slow."""
SIGNIFICANCE = 0.01
MIN_OBSERVATIONS = 3
_USUAL_QUANTILE = 0.2
"""The usual time is a low quantile, since one place may slow down most groups."""
_MAX_CULPRITS = 8
_AS_GOOD = 0.9
"""A place that explains this share of what the best one does cannot be told from it."""
_SMALLEST_VARIANCE = 1e-6
"""Of log times; a tenth of a percent, below which a spread is that of the clock."""
_SHAPE = ["operation", "size_bytes", "dtype", "redop", "in_place", "nranks", "nnodes"]
"""What groups have in common that should take as long; rails should be alike, so that a slow one stands out."""

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What groups took, each in one unit.

    Attributes
    ----------
    deviations : array of float, shape (n,)
        Log time less the usual log time of the operation and size.
    units : sequence of str
    loads : sequence of mapping of Place to float
        What the group's traffic passes, with the flows that share it.
    cases : sequence of str
    """

    deviations: FloatArray
    units: Sequence[str]
    loads: Sequence[Mapping[Place, float]]
    cases: Sequence[str]

    def load(self, place: Place) -> FloatArray:
        """Return the flows through a place for each observation, 0 where the group does not pass it."""
        return np.array([loads.get(place, 0.0) for loads in self.loads])

    def by_moment(self, chosen: BoolArray) -> FloatArray:
        """Return the mean deviation of the chosen observations of each case in each unit.

        Groups of a case run at the same moment, so that what disturbs one may disturb all: they count once.
        """
        kept = [int(index) for index in np.flatnonzero(chosen)]
        moments = [f"{self.units[index]}/{self.cases[index]}" for index in kept]
        return np.asarray(pd.Series(self.deviations[kept]).groupby(moments).mean(), dtype=np.float64)

    def without(self, gone: BoolArray) -> "Observations":
        """Return the others."""
        kept = [int(index) for index in np.flatnonzero(~gone)]
        return Observations(
            deviations=self.deviations[kept],
            units=[self.units[index] for index in kept],
            loads=[self.loads[index] for index in kept],
            cases=[self.cases[index] for index in kept],
        )


def observe(rows: pd.DataFrame, tree: Tree) -> Observations:
    """Return the observations in rows that hold times, of collectives over two nodes or more.

    What slows down a whole unit alike, such as a busy launch, is taken off.
    """
    timed = rows.assign(log_time=np.log(rows["time_s"].to_numpy(dtype=float)))
    keys = ["case_id", "group", "nodes", "rail", "launch", "comm_id", *_SHAPE]
    logs = timed.groupby(keys, sort=True)["log_time"].median().reset_index()
    logs["deviation"] = logs["log_time"] - _usual(logs, "log_time", _SHAPE)
    deviations = logs["deviation"] - _usual(logs, "deviation", ["launch", "comm_id"])
    loads = _case_loads(logs, tree)
    return Observations(
        deviations=deviations.to_numpy(dtype=float),
        units=[f"{launch}/{comm}" for launch, comm in zip(logs["launch"], logs["comm_id"], strict=True)],
        loads=[loads[key] for key in zip(logs["case_id"], logs["group"], strict=True)],
        cases=logs["case_id"].tolist(),
    )


def _usual(logs: pd.DataFrame, column: str, by: list[str]) -> pd.Series:
    return logs.groupby(by)[column].transform("quantile", q=_USUAL_QUANTILE)


def _case_loads(logs: pd.DataFrame, tree: Tree) -> dict[tuple[str, int], dict[Place, float]]:
    found = {}
    for case_id, own in logs.drop_duplicates(["case_id", "group"]).groupby("case_id"):
        moved = [
            hops(operation, [int(node) for node in nodes.split(",")], rail)
            for operation, nodes, rail in zip(own["operation"], own["nodes"], own["rail"].tolist(), strict=True)
        ]
        for group, loads in zip(own["group"], tree.loads(moved), strict=True):
            found[str(case_id), int(group)] = loads
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """That some places, which all groups pass alike, are slow.

    Attributes
    ----------
    places : tuple of Place
    load : array of float, shape (n,)
        Flows through them.
    predicted : array of float, shape (n,)
        What the theory says of each deviation.
    explained : float
        By how much it lowers the sum of absolute deviations.
    """

    places: tuple[Place, ...]
    load: FloatArray
    predicted: FloatArray
    explained: float

    @property
    def hit(self) -> BoolArray:
        """Which observations it says are slow by an effect that matters."""
        return self.predicted > math.log1p(SMALLEST_EFFECT)

    @property
    def calm(self) -> BoolArray:
        """Which observations pass the places and yet are not slow, as few flows shared them."""
        return (self.load > 0) & ~self.hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A theory that holds, the rivals that explain as much, and the observations that it was judged on."""

    theory: Theory
    rivals: tuple[Theory, ...]
    seen: Observations

    @property
    def places(self) -> tuple[Place, ...]:
        """Every place that may be the one."""
        return tuple(place for theory in (self.theory, *self.rivals) for place in theory.places)


def find_culprits(seen: Observations) -> Iterator[Culprit]:
    """Yield the slow places, the one that explains most first."""
    for _ in range(_MAX_CULPRITS):
        theories = sorted(_theories(seen), key=lambda theory: -theory.explained)
        if not theories:
            return
        judged = [compare(seen.by_moment(theory.hit), seen.by_moment(~theory.hit)) for theory in theories]
        sure = [p_value < SIGNIFICANCE for p_value in statistics.holm([difference.p_value for difference in judged])]
        best = theories[0]
        if not sure[0] or not _holds(seen, best):
            return
        rivals = tuple(
            theory
            for theory, is_sure in zip(theories[1:], sure[1:], strict=True)
            if is_sure and theory.explained > _AS_GOOD * best.explained and _rivals(seen, best, theory)
        )
        yield Culprit(theory=best, rivals=rivals, seen=seen)
        seen = seen.without(best.hit)


def _theories(seen: Observations) -> Iterator[Theory]:
    alike: dict[bytes, list[Place]] = {}
    for place in sorted({place for loads in seen.loads for place in loads}, key=_simplest_first):
        load = seen.load(place)
        # What a place can carry is free, so loads that differ by a factor predict the same.
        alike.setdefault((load / load[load > 0].min()).round(6).tobytes(), []).append(place)
    for members in alike.values():
        if (theory := _theory(seen, tuple(members))) is not None:
            yield theory


def _simplest_first(place: Place) -> tuple[int, str, str, int]:
    return tuple(PlaceKind).index(place.kind), place.tier, place.name, place.rail


def _theory(seen: Observations, places: tuple[Place, ...]) -> Theory | None:
    """Return the best theory of some places, None where too few groups speak for it or could speak against it."""
    load = seen.load(places[0])
    passing = load > 0
    log_load = np.log(np.where(passing, load, 1.0))
    slow = passing & (seen.deviations > math.log1p(SMALLEST_EFFECT / 2))
    if slow.sum() < MIN_OBSERVATIONS:
        return None
    k = float(np.median(seen.deviations[slow] - log_load[slow]))
    predicted = np.where(passing, np.maximum(0.0, k + log_load), 0.0)
    explained = float(np.abs(seen.deviations).sum() - np.abs(seen.deviations - predicted).sum())
    theory = Theory(places=places, load=load, predicted=predicted, explained=explained)
    moments = min(len(seen.by_moment(theory.hit)), len(seen.by_moment(~theory.hit)))
    return theory if moments >= MIN_OBSERVATIONS else None


def _rivals(seen: Observations, best: Theory, other: Theory) -> bool:
    """Return whether another theory may be the true one instead of the best.

    It may not where the best is closer to the groups on which they differ, nor where it is true besides: groups that
    only it says are slow are.
    """
    errors = np.abs(seen.deviations - other.predicted) - np.abs(seen.deviations - best.predicted)
    differ = np.abs(other.predicted - best.predicted) > math.log1p(SMALLEST_EFFECT) / 2
    if statistics.p_above(errors[differ], 0.0) < statistics.SIGNIFICANCE:
        return False
    besides = other.hit & ~best.hit
    return not besides.any() or float(np.median(seen.deviations[besides])) < math.log1p(SMALLEST_EFFECT)


def _holds(seen: Observations, theory: Theory) -> bool:
    """Return whether most groups that should be slow are, by enough, in most units."""
    hit = theory.hit
    effect = float(np.median(seen.deviations[hit]) - np.median(seen.deviations[~hit]))
    slow = seen.deviations[hit] > 0.5 * theory.predicted[hit]
    by_unit = pd.Series(slow).groupby([unit for unit, is_hit in zip(seen.units, hit, strict=True) if is_hit]).mean()
    if len({case_id for case_id, is_hit in zip(seen.cases, hit, strict=True) if is_hit}) < 2:
        return False
    return bool(effect > math.log1p(SMALLEST_EFFECT) and slow.mean() > 0.6 and (by_unit > 0.5).mean() > 0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much slower some observations are than others, as a ratio of times, and how surely."""

    ratio: Estimate
    p_value: float


def compare(these: FloatArray, others: FloatArray) -> Difference:
    """Return the ratio of two sets of log times, each of two or more, by Welch's t; the p-value is one-sided."""
    samples = (these, others)
    parts = [max(float(values.var(ddof=1)), _SMALLEST_VARIANCE) / len(values) for values in samples]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, samples, strict=True))
    mean = float(these.mean() - others.mean())
    half = float(stats.t.ppf((1 + statistics.CONFIDENCE) / 2, freedom)) * error
    log_ratio = Estimate(value=mean, ci_low=mean - half, ci_high=mean + half)
    return Difference(ratio=statistics.mapped(log_ratio, math.exp), p_value=float(stats.t.sf(mean / error, freedom)))

"""The nearest characterised job of a new one, on the two ratios that the paper matches by, inside one GPU model.

r1 says how much compute there is to hide communication behind, r2 how much DP there is for PP. Both are ratios, so
distances are taken of their logarithms unless the paper's own are asked for: printed as they are, r2, which goes into
tens, decides alone.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, pstdev

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.model import Source, WeightEntry
from spanfit.weights.scaling import Scaling, Shape, alpha_for
from spanfit.weights.stale import same_gpu

FAR_FACTOR = 3.0
"""A job is far from everything known where the nearest entry is off by more than this in r1 or in r2."""
_ENTRIES_FOR_SCALE = 3


class Method(StrEnum):
    """How alpha is taken from what is known."""

    PAPER = "paper"
    LOGS = "logs"
    REGRESSION = "regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A characterised job as the job at hand sees it.

    Attributes
    ----------
    job : str
    source : Source
    r1, r2 : float
    alpha : Estimate
        What its gains make alpha of the job at hand.
    """

    job: str
    source: Source
    r1: float
    r2: float
    alpha: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What is known of alpha of a new job.

    Attributes
    ----------
    method : Method
    alpha : Estimate or None
        None where the job is far from everything known.
    nearest : Known
        The closest entry.
    distance : float
        To it, by the measure of the method.
    factor : float
        By how much r1 or r2, whichever is further off, differs from that of the closest entry.
    """

    method: Method
    alpha: Estimate | None
    nearest: Known
    distance: float
    factor: float

    @property
    def is_far(self) -> bool:
        """Whether nothing known is close enough to say anything."""
        return self.alpha is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOneOut:
    """How well the entries tell each other's alpha.

    Attributes
    ----------
    nentries, nfar : int
        Entries, and those that are far from all others and count in no error.
    mean_error, worst_error : float or None
        Of alpha, absolute; None where no entry is near another.
    """

    method: Method
    nentries: int
    nfar: int
    mean_error: float | None
    worst_error: float | None


def why_not(entry: WeightEntry, gpu_model: str, sources: Collection[Source]) -> str:
    """Return why an entry says nothing of jobs on a GPU model, "" where it does."""
    if entry.source not in sources:
        return f"{entry.source}, not {' or '.join(sources)}; --source {entry.source} adds it"
    if not same_gpu(entry.gpu_model, gpu_model):
        return f"measured on {entry.gpu_model}, and weights do not carry over from one GPU model to another"
    if entry.is_flat:
        return "flat: neither of its gains can be told from 0"
    if entry.source is not Source.HAND and not entry.removed:
        return "its arms do not tell crossings of both kinds apart"
    return "" if entry.volumes else "has no volumes to be matched by"


def that_count(entries: Sequence[WeightEntry], gpu_model: str, sources: Collection[Source]) -> tuple[WeightEntry, ...]:
    """Return the entries that say something of jobs on a GPU model; ConfigError, with all reasons, where none does."""
    if found := tuple(entry for entry in entries if not why_not(entry, gpu_model, sources)):
        return found
    reasons = [f"{entry.job}: {why_not(entry, gpu_model, sources)}" for entry in entries] or ["there are no entries"]
    text = f"entries: found none that counts, expected at least one of {gpu_model}; measure a job on it"
    raise ConfigError("\n".join([text, *reasons]))


def known_to(shape: Shape, entries: Sequence[WeightEntry], scaling: Scaling) -> tuple[Known, ...]:
    """Return entries that have volumes as a job of a shape sees them."""
    return tuple(
        Known(
            job=entry.job,
            source=entry.source,
            r1=volumes.r1,
            r2=volumes.r2,
            alpha=alpha_for(entry, shape, scaling),
        )
        for entry in entries
        if (volumes := entry.volumes)
    )


def distance(one: Known, r1: float, r2: float) -> float:
    """Return the paper's distance, sqrt((r1 - r_i)^2 + (r2 - r_j)^2), of a job to an entry.

    Examples
    --------
    >>> alpha = Estimate(value=0.3, ci_low=None, ci_high=None)
    >>> distance(Known(job="moe", source=Source.HAND, r1=1.0, r2=20.0, alpha=alpha), 4.0, 24.0)
    5.0
    """
    return math.hypot(r1 - one.r1, r2 - one.r2)


def coordinates(known: Sequence[Known], r1: float, r2: float) -> tuple[float, float]:
    """Return the logs of r1 and r2, each over its standard deviation among the entries.

    Fewer than three entries, or equal ones, tell no scale; their logs stay as they are.
    """
    columns = [math.log(each.r1) for each in known], [math.log(each.r2) for each in known]
    scales = [pstdev(column) or 1.0 if len(column) >= _ENTRIES_FOR_SCALE else 1.0 for column in columns]
    return math.log(r1) / scales[0], math.log(r2) / scales[1]


def log_distance(known: Sequence[Known], one: Known, r1: float, r2: float) -> float:
    """Return the distance of a job to an entry on scaled logs."""
    return math.dist(coordinates(known, r1, r2), coordinates(known, one.r1, one.r2))


def off_by(one: Known, r1: float, r2: float) -> float:
    """Return the factor by which the ratio that is further off differs between a job and an entry."""
    return math.exp(max(abs(math.log(r1 / one.r1)), abs(math.log(r2 / one.r2))))


def match(known: Sequence[Known], r1: float, r2: float, method: Method) -> Match:
    """Return the nearest entry by a distance, and its alpha unless that is far.

    Parameters
    ----------
    known : sequence of Known
        At least one.
    r1, r2 : float
        Of the new job, in the units of the entries.
    method : Method
        ``paper`` or ``logs``; a regression names no entry (:mod:`spanfit.weights.regression`).
    """

    def measure(one: Known) -> float:
        return distance(one, r1, r2) if method is Method.PAPER else log_distance(known, one, r1, r2)

    nearest = min(known, key=measure)
    factor = off_by(nearest, r1, r2)
    return Match(
        method=method,
        alpha=None if factor > FAR_FACTOR else nearest.alpha,
        nearest=nearest,
        distance=measure(nearest),
        factor=factor,
    )


def summed_up(method: Method, errors: Sequence[float | None]) -> LeaveOneOut:
    """Return the summary of errors of alpha, None where an entry was far from all others."""
    told = [error for error in errors if error is not None]
    return LeaveOneOut(
        method=method,
        nentries=len(errors),
        nfar=len(errors) - len(told),
        mean_error=mean(told) if told else None,
        worst_error=max(told) if told else None,
    )

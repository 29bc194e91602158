"""The file that later steps read curves from: ``curves.json``; standard library types, no frames."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from spanfit import files
from spanfit.bench.case import ALL_GPUS
from spanfit.results.schema import Estimate

CURVES_VERSION = 1


class Shape(StrEnum):
    """Which model of time against size was chosen."""

    LINE = "line"
    BROKEN_LINE = "broken line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Sizes over which ``time_s = alpha_s + beta_s_per_byte * size_bytes``.

    Attributes
    ----------
    from_bytes, to_bytes : float
        The smallest or largest size measured, or the knee.
    alpha_s : Estimate
        Intercept [s]; negative where bursts beat the lasting rate, as a token bucket lets them.
    beta_s_per_byte : Estimate
        Slope [s per byte]; 0 where the time does not grow.
    """

    from_bytes: float
    to_bytes: float
    alpha_s: Estimate
    beta_s_per_byte: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFit:
    """Time against size, and where bandwidth saturates.

    Attributes
    ----------
    segments : tuple of Segment
        One, or two that meet at the knee; the last one tells the lasting rate.
    knee_bytes : Estimate or None
        Where the two lines meet [bytes]; None where one line explains all sizes.
    busbw_bytes_per_s : Estimate or None
        What busbw tends to; None where the time does not grow with the size.
    half_bytes, ninety_bytes : Estimate or None
        From this size on busbw is at least half or 90% of that; None where that is not within the sizes measured.
    misfit : float
        Largest relative difference between a measured time and the fit.
    bic_gain : float
        How much lower the Bayesian information criterion of the broken line is; 0 where it was not tried.
    nunits, nleft_out : int
        Units of replication that hold every size, and those left out because they do not.
    sentence : str
        What the fit says of the knee, for people.
    """

    shape: Shape
    segments: tuple[Segment, ...]
    knee_bytes: Estimate | None
    busbw_bytes_per_s: Estimate | None
    half_bytes: Estimate | None
    ninety_bytes: Estimate | None
    misfit: float
    bic_gain: float
    nunits: int
    nleft_out: int
    is_provisional: bool
    sentence: str

    def time_s(self, size_bytes: float) -> float:
        """Return the time of an operation [s], by the segment that holds the size or lies nearest to it."""
        segment = next((each for each in self.segments if size_bytes <= each.to_bytes), self.segments[-1])
        return segment.alpha_s.value + segment.beta_s_per_byte.value * size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What was measured at one size; the estimates are None where every row failed."""

    size_bytes: int
    time_s: Estimate | None
    busbw_bytes_per_s: Estimate | None
    nunits: int
    is_provisional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Everything that is pooled over nothing but units of replication and draws of nodes.

    Attributes
    ----------
    points : tuple of CurvePoint
        Sorted by size.
    rail : int
        The local rank that alone takes part on each node; -1: every GPU.
    fit : LatencyFit or None
        None where fewer than two sizes hold times in a common unit.
    """

    operation: str
    dtype: str
    redop: str
    in_place: bool
    nranks: int
    nnodes: int
    rank_order: str
    concurrency: str
    tier: str
    span: int
    points: tuple[CurvePoint, ...]
    fit: LatencyFit | None
    rail: int = ALL_GPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesFile:
    """The curves of a run with their origin.

    Attributes
    ----------
    cluster_hash : str
        SHA-256 of the description of the cluster that was measured.
    ended_at : str
        When the run ended, ISO 8601, UTC.
    """

    __pydantic_config__ = files.CONFIG
    schema_version: int
    run_id: str
    cluster: str
    cluster_hash: str
    ended_at: str
    backend: str
    transport: str
    gpu_model: str
    curves: tuple[Curve, ...]


def read_curves(path: Path) -> CurvesFile:
    """Return the curves of a ``curves.json``.

    Raises
    ------
    ConfigError
        For every wrong key at once, or where another version wrote the file.
    """
    return files.read_json(path, CurvesFile, CURVES_VERSION)

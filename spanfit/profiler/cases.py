"""What a run measured, case by case: the times of its units, and the rows that hold no time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from spanfit import units
from spanfit.bench.case import CaseKind
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate, Status

_IN_PARTS = (CaseKind.STARTUP, CaseKind.OVERLAP)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CaseKey:
    """What makes measurements of any run and any cluster the same case: what was measured, not which nodes did it.

    Draws and groups are not in it; they are pooled in the units of a case.
    """

    kind: str
    operation: str
    arm: str
    compute: str
    dtype: str
    redop: str
    in_place: bool
    nranks: int
    nnodes: int
    tier: str
    span: int
    rank_order: str
    concurrency: str
    rail: int
    size_bytes: int

    @property
    def whole(self) -> "CaseKey":
        """The case that this is a part of; where it fails, it is one row under the name of its collective."""
        return replace(self, operation="") if self.kind in _IN_PARTS else self

    def what(self) -> str:
        """Return what was measured, without its size, in a few words."""
        notes = [note for note in (self.arm, self.compute, self.dtype, self.redop) if note not in ("", "none")]
        notes += ["in place"] if self.in_place else []
        notes += [f"rail {self.rail}"] if self.rail >= 0 else []
        return self.operation + (f" ({', '.join(notes)})" if notes else "")

    def where(self) -> str:
        """Return the groups that it was measured on, in a few words."""
        tier = f"{self.span} {self.tier}{'s' * (self.span > 1)}"
        return f"{self.nranks} ranks, {self.nnodes} nodes, {tier}, {self.rank_order}, {self.concurrency}"

    def label(self) -> str:
        """Return the case in one line."""
        return f"{self.what()} {units.format_size(self.size_bytes)}: {self.where()}"


_COLUMNS = [field.name for field in fields(CaseKey)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of a case in a run.

    Attributes
    ----------
    unit_logs : numpy.ndarray of shape (nunits,)
        Median log time of each unit; empty where every row failed.
    launches : tuple of int
        The launch of each unit.
    nfailed : int
        Rows that hold no time.
    reason : str
        Why the first of them does not, "" where none failed.
    resolution : float
        What the printed digits leave open of a time, ± as a share of it; 0 where a clock was read.
    """

    unit_logs: FloatArray
    launches: tuple[int, ...]
    nfailed: int
    reason: str
    resolution: float

    @property
    def nlaunches(self) -> int:
        """Launches that hold a time."""
        return len(set(self.launches))

    def time_s(self) -> Estimate | None:
        """Return the time of the case [s], None where every row failed."""
        if not self.launches:
            return None
        return statistics.mapped(statistics.unit_interval(self.unit_logs, self.launches), math.exp)

    def launch_means(self) -> FloatArray:
        """Return the mean over each launch's units."""
        _, launch, counts = np.unique(np.array(self.launches, dtype=int), return_inverse=True, return_counts=True)
        means: FloatArray = np.bincount(launch, self.unit_logs, len(counts)) / counts
        return means


NO_ROWS = CaseTimes(unit_logs=np.array([], dtype=float), launches=(), nfailed=0, reason="", resolution=0.0)
"""A case of which a run has no row at all."""


def case_times(frame: pd.DataFrame) -> dict[CaseKey, CaseTimes]:
    """Return every case of a run, those that only failed as well, sorted.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them.

    Raises
    ------
    FitError
        If a row has status ok but no time.
    """
    timed = statistics.ok_rows(frame)
    found: dict[CaseKey, list[tuple[int, float]]] = {}
    for key, (launch, _), log_time in _by_case(statistics.unit_logs(timed, _COLUMNS)):
        found.setdefault(key, []).append((launch, log_time))
    shares = timed.assign(share=timed["time_resolution_s"] / timed["time_s"]).groupby(_COLUMNS)["share"].max()
    resolutions = {key: share for key, _, share in _by_case(shares)}
    failures = _failures(frame)
    wholes = {key.whole for key in found}
    keys = [*found, *(key for key, _, _ in failures.values() if key.whole not in wholes)]
    return {
        key: CaseTimes(
            unit_logs=np.array([log_time for _, log_time in found.get(key, [])], dtype=float),
            launches=tuple(launch for launch, _ in found.get(key, [])),
            nfailed=failures[key.whole][1] if key.whole in failures else 0,
            reason=failures[key.whole][2] if key.whole in failures else "",
            resolution=resolutions.get(key, 0.0),
        )
        for key in sorted(keys)
    }


def with_failed_parts(
    cases: Mapping[CaseKey, CaseTimes], other: Mapping[CaseKey, CaseTimes]
) -> dict[CaseKey, CaseTimes]:
    """Return a run's cases, one that only failed under the names of the parts that another run timed of it."""
    parts: dict[CaseKey, list[CaseKey]] = {}
    for key, case in other.items():
        if case.launches:
            parts.setdefault(key.whole, []).append(key)
    return {
        name: case for key, case in cases.items() for name in ([key] if case.launches else parts.get(key.whole, [key]))
    }


def _by_case(values: pd.Series) -> list[tuple[CaseKey, tuple[int, ...], float]]:
    """Return each value with its case and what is left of its index."""
    ncolumns = len(_COLUMNS)
    indexed = zip(values.index.tolist(), values.tolist(), strict=True)
    return [
        (CaseKey(**dict(zip(_COLUMNS, index[:ncolumns], strict=True))), index[ncolumns:], value)
        for index, value in indexed
    ]


def _failures(frame: pd.DataFrame) -> dict[CaseKey, tuple[CaseKey, int, str]]:
    """Return for each whole case that has rows without a time: its key as it failed, how many, and the first reason."""
    failed = frame[frame["status"] != Status.OK.value]
    grouped = failed.groupby(_COLUMNS)["reason"]
    reasons = grouped.first()
    found = {}
    for (key, _, count), reason in zip(_by_case(grouped.size()), reasons.tolist(), strict=True):
        found[key.whole] = (key, int(count), str(reason))
    return found

"""What a collective costs at each span, and what it loses against the same collective inside one minipod."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from spanfit import collectives, units
from spanfit.bench.case import Concurrency
from spanfit.collectives import Collective
from spanfit.profiler import statistics
from spanfit.profiler.curves_file import CURVES_VERSION, Curve, CurvePoint, CurvesFile, LatencyFit
from spanfit.profiler.latency import fit_latency
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.results.schema import Estimate, RunInfo, format_estimate

SMALLEST_EFFECT = 0.03
"""The smallest loss that matters, as a share of the bandwidth at span 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLoss:
    """What a case loses against the same case at span 1, or against the same groups alone, paired by launch.

    Attributes
    ----------
    estimate : Estimate
        1 - busbw / busbw of the reference, a share of one; negative where the case is faster than that.
    nlaunches : int
        Launches that hold both cases.
    verdict : Verdict
        ``slower``, ``no slower`` or ``cannot tell``; corrected over all losses of the run (Holm).
    sentence : str
        The verdict for people, with the interval and with what more measuring would cost.
    """

    estimate: Estimate
    nlaunches: int
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCurvePoint:
    """Time and bandwidth of a collective at one size and span.

    Attributes
    ----------
    time_s, busbw_bytes_per_s : Estimate or None
        None where every row failed; busbw also of a barrier, which moves nothing.
    nsamples, nunits, nfailed : int
        Timed rows, units of replication, and rows that hold no time.
    loss : SpanLoss or None
        None at span 1 and where no launch holds the same case at span 1.
    interference : SpanLoss or None
        What the groups that were also measured alone lose by those beside them; None where none was.
    """

    operation: str
    size_bytes: int
    dtype: str
    redop: str
    in_place: bool
    nranks: int
    nnodes: int
    rail: int
    rank_order: str
    concurrency: str
    tier: str
    span: int
    time_s: Estimate | None
    busbw_bytes_per_s: Estimate | None
    nsamples: int
    nunits: int
    nfailed: int
    is_provisional: bool
    loss: SpanLoss | None
    interference: SpanLoss | None


class _Key(NamedTuple):
    operation: str
    dtype: str
    redop: str
    in_place: bool
    nranks: int
    nnodes: int
    rail: int
    concurrency: str
    size_bytes: int
    tier: str
    span: int
    rank_order: str


_KEY = list(_Key._fields)
_LINE = [name for name in _KEY if name != "size_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    key: _Key
    unit_logs: FloatArray
    unit_launches: tuple[int, ...]
    launch_logs: dict[int, float]
    nrows: int
    nsamples: int


def fit_curves(frame: pd.DataFrame) -> tuple[SpanCurvePoint, ...]:
    """Return a point for each case of a run's collectives, sorted by operation, ranks, size and span.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them.

    Raises
    ------
    FitError
        If a row has status ok but no time.

    Notes
    -----
    Nothing is pooled over operation, size, dtype, redop, place, ranks, nodes, rail, rank order, concurrency, tier or
    span.
    Span 1 is the sorted case: every other order of a span is compared with it.
    """
    rows = frame[frame["kind"] == "collective"]
    cases, again = _cases(rows), _cases(_also_alone(rows))
    spans = {key: values for key in cases if len(values := _differences(cases, key, _narrow(key)))}
    beside = {key: values for key in again if len(values := _differences(again, key, _alone(key)))}
    found = _losses([*spans.values(), *beside.values()])
    losses = dict(zip(spans, found, strict=False))
    interference = dict(zip(beside, found[len(spans) :], strict=True))
    return tuple(_point(cases[key], losses.get(key), interference.get(key)) for key in sorted(cases, key=_order))


def join_curves(frame: pd.DataFrame, points: Iterable[SpanCurvePoint]) -> tuple[Curve, ...]:
    """Return the points of a run as curves over size, each with its fit where two sizes or more allow one.

    Parameters
    ----------
    frame : pandas.DataFrame
        The measurements that the points come from.
    points : iterable of SpanCurvePoint
    """
    timed = statistics.ok_rows(frame[frame["kind"] == "collective"])
    logs: dict[object, pd.Series] = dict(iter(statistics.unit_logs(timed, _KEY).groupby(level=_LINE, sort=False)))
    by_line: dict[tuple[object, ...], list[SpanCurvePoint]] = {}
    for point in points:
        by_line.setdefault(tuple(getattr(point, name) for name in _LINE), []).append(point)
    return tuple(_curve(group, logs.get(line)) for line, group in by_line.items())


def curves_document(info: RunInfo, curves: Iterable[Curve]) -> CurvesFile:
    """Return the curves of a run with their origin, ready to be written as ``curves.json``."""
    return CurvesFile(
        schema_version=CURVES_VERSION,
        run_id=info.run_id,
        cluster=info.cluster,
        cluster_hash=info.cluster_hash,
        ended_at=info.ended_at,
        backend=info.backend,
        transport=info.transport,
        gpu_model=info.gpu_model,
        curves=tuple(curves),
    )


def _curve(points: Sequence[SpanCurvePoint], logs: pd.Series | None) -> Curve:
    first = points[0]
    return Curve(
        operation=first.operation,
        dtype=first.dtype,
        redop=first.redop,
        in_place=first.in_place,
        nranks=first.nranks,
        nnodes=first.nnodes,
        rail=first.rail,
        rank_order=first.rank_order,
        concurrency=first.concurrency,
        tier=first.tier,
        span=first.span,
        points=tuple(
            CurvePoint(
                size_bytes=point.size_bytes,
                time_s=point.time_s,
                busbw_bytes_per_s=point.busbw_bytes_per_s,
                nunits=point.nunits,
                is_provisional=point.is_provisional,
            )
            for point in points
        ),
        fit=None if logs is None else _fit(logs, collectives.busbw_factor(Collective(first.operation), first.nranks)),
    )


def _fit(logs: pd.Series, busbw_factor: float) -> LatencyFit | None:
    """Return the fit of one curve over its launches, over the units of a single launch, or None."""
    by_unit = logs.groupby(level=["launch", "comm_id", "size_bytes"]).first().unstack("size_bytes")
    by_launch = by_unit.groupby(level="launch").mean()
    replicated = by_launch if len(by_launch) > 1 else by_unit
    whole = replicated.dropna()
    if by_unit.shape[1] < 2 or whole.empty:
        return None
    sizes = [int(size) for size in by_unit.columns]
    nleft_out = len(replicated) - len(whole)
    return fit_latency(sizes, whole.to_numpy(dtype=float), busbw_factor, nleft_out=nleft_out)


def _also_alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the groups that were measured alone as well, so that each is compared with itself."""
    same = [name for name in (*_KEY, "draw", "nodes") if name != "concurrency"]
    alone = rows.loc[rows["concurrency"] == Concurrency.ALONE.value, same].drop_duplicates()
    return rows.merge(alone, on=same)


def _narrow(key: _Key) -> _Key | None:
    return key._replace(span=1, rank_order="sorted") if key.span != 1 else None


def _alone(key: _Key) -> _Key | None:
    return key._replace(concurrency=Concurrency.ALONE.value) if key.concurrency != Concurrency.ALONE else None


def _order(key: _Key) -> tuple[object, ...]:
    return *key[:-1], key.rank_order != "sorted", key.rank_order


def _cases(rows: pd.DataFrame) -> dict[_Key, _Case]:
    timed = statistics.ok_rows(rows)
    logs = statistics.unit_logs(timed, _KEY)
    by_unit = _by_case(logs)
    by_launch = _by_case(statistics.launch_logs(logs, _KEY))
    samples = {key: entries[0][1] for key, entries in _by_case(timed.groupby(_KEY).size()).items()}
    return {
        key: _Case(
            key=key,
            unit_logs=np.array([value for _, value in by_unit.get(key, [])]),
            unit_launches=tuple(index[0] for index, _ in by_unit.get(key, [])),
            launch_logs={index[0]: value for index, value in by_launch.get(key, [])},
            nrows=int(entries[0][1]),
            nsamples=int(samples.get(key, 0)),
        )
        for key, entries in _by_case(rows.groupby(_KEY).size()).items()
    }


def _by_case(values: pd.Series) -> dict[_Key, list[tuple[tuple[int, ...], float]]]:
    """Return the values of each case, each with what is left of its index: the launch first."""
    found: dict[_Key, list[tuple[tuple[int, ...], float]]] = {}
    for index, value in zip(values.index.tolist(), values.tolist(), strict=True):
        found.setdefault(_Key(*index[: len(_KEY)]), []).append((index[len(_KEY) :], value))
    return found


def _differences(cases: dict[_Key, _Case], key: _Key, reference: _Key | None) -> FloatArray:
    """Return log time - log time of the reference for each launch that holds both, empty where there is none."""
    base = cases.get(reference) if reference else None
    if base is None:
        return np.empty(0)
    own = cases[key].launch_logs
    return np.array([own[launch] - base.launch_logs[launch] for launch in sorted(own.keys() & base.launch_logs)])


def _losses(family: Sequence[FloatArray]) -> list[SpanLoss]:
    """Return the loss of each member of a family of paired log differences, with Holm's correction over it."""
    matters = -math.log1p(-SMALLEST_EFFECT)
    p_slower = statistics.holm([statistics.p_above(values, 0.0) for values in family])
    p_no_slower = statistics.holm([statistics.p_below(values, matters) for values in family])
    return [
        _loss(values, is_slower=slower < statistics.SIGNIFICANCE, is_no_slower=no_slower < statistics.SIGNIFICANCE)
        for values, slower, no_slower in zip(family, p_slower, p_no_slower, strict=True)
    ]


def _loss(values: FloatArray, *, is_slower: bool, is_no_slower: bool) -> SpanLoss:
    estimate = statistics.mapped(statistics.interval(values), lambda log_ratio: -math.expm1(-log_ratio))
    text = format_estimate(estimate, units.format_percent)
    if is_no_slower and estimate.ci_high is not None:
        verdict = Verdict.NO_SLOWER
        sentence = f"no slower than {units.format_percent(max(0.0, estimate.ci_high))}: {text}"
    elif is_slower and estimate.value >= SMALLEST_EFFECT:
        verdict, sentence = Verdict.SLOWER, f"slower: loses {text}"
    else:
        verdict, sentence = Verdict.CANNOT_TELL, f"cannot tell: {text}; {_cost(values)}"
    return SpanLoss(estimate=estimate, nlaunches=len(values), verdict=verdict, sentence=sentence)


def _cost(values: FloatArray) -> str:
    cost = statistics.cost_of_telling(values, SMALLEST_EFFECT)
    if cost is None:
        return f"{statistics.MIN_UNITS - 1} more launches would give a final interval"
    return f"about {statistics.count_launches(cost[1], 'more')} would narrow it to ± {units.format_percent(cost[0])}"


def _point(case: _Case, loss: SpanLoss | None, interference: SpanLoss | None) -> SpanCurvePoint:
    key = case.key
    nunits = len(case.unit_logs)
    log_time = statistics.unit_interval(case.unit_logs, case.unit_launches) if nunits else None
    time_s = statistics.mapped(log_time, math.exp) if log_time else None
    return SpanCurvePoint(
        operation=key.operation,
        size_bytes=key.size_bytes,
        dtype=key.dtype,
        redop=key.redop,
        in_place=key.in_place,
        nranks=key.nranks,
        nnodes=key.nnodes,
        rail=key.rail,
        rank_order=key.rank_order,
        concurrency=key.concurrency,
        tier=key.tier,
        span=key.span,
        time_s=time_s,
        busbw_bytes_per_s=_busbw(key, time_s) if time_s else None,
        nsamples=case.nsamples,
        nunits=nunits,
        nfailed=case.nrows - case.nsamples,
        is_provisional=statistics.is_provisional(nunits),
        loss=loss,
        interference=interference,
    )


def _busbw(key: _Key, time_s: Estimate) -> Estimate | None:
    """Return the bus bandwidth, None of what moves nothing."""
    collective = Collective(key.operation)
    if math.isnan(collectives.busbw_factor(collective, key.nranks)):
        return None
    return statistics.mapped(time_s, lambda value: collectives.busbw(collective, key.nranks, key.size_bytes, value))

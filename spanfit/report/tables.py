"""The tables of the report as text cells: curves, gains, weights, placement, known truth, failed cases, provenance."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from spanfit import units
from spanfit.bench.case import on_rail
from spanfit.collectives import Collective
from spanfit.placer.model import Crossing, Placement
from spanfit.profiler.curves import SpanCurvePoint
from spanfit.profiler.curves_file import Curve, LatencyFit
from spanfit.profiler.gains import JobGains
from spanfit.report.figures import Shape, at_once, panel_order, shape
from spanfit.report.placement_map import used_minipods
from spanfit.results.schema import Estimate, RunInfo, Status, format_estimate
from spanfit.weights.model import WeightEntry, format_weight

_RINGS = {Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.SEND_RECV}
_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of text; columns whose name starts with '>' are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def curve_tables(points: Sequence[SpanCurvePoint]) -> tuple[Table, ...]:
    """Return a table for each panel of curves."""
    columns = (">size", ">span", "order", "time", "busbw", "against span 1", ">units", ">failed rows")
    ordered = sorted(points, key=lambda point: panel_order(shape(point)))
    return tuple(
        Table(title=_curve_title(key), columns=columns, rows=tuple(_curve_row(point) for point in group))
        for key, group in groupby(ordered, key=shape)
    )


def _curve_title(key: Shape) -> str:
    return f"{key.operation} ({key.dtype}), {key.where}, {at_once(key.concurrency)}"


def _curve_row(point: SpanCurvePoint) -> tuple[str, ...]:
    time, rate = "every row failed", ""
    if point.time_s:
        time = format_estimate(point.time_s, units.format_time)
    if point.busbw_bytes_per_s:
        rate = format_estimate(point.busbw_bytes_per_s, units.format_bandwidth)
    nothing = "is the reference" if (point.span, point.rank_order) == (1, "sorted") else "no launch holds both"
    return (
        units.format_size(point.size_bytes),
        str(point.span),
        point.rank_order,
        time,
        rate,
        point.loss.sentence if point.loss else nothing,
        marked(point.nunits, is_provisional=point.is_provisional),
        str(point.nfailed),
    )


def fit_tables(curves: Iterable[Curve]) -> tuple[Table, ...]:
    """Return a table of where bandwidth saturates, none where no curve holds two sizes."""
    rows = tuple(_fit_row(curve, curve.fit) for curve in curves if curve.fit)
    columns = ("collective", "groups", ">span", "order", "latency", "lasting busbw", "knee", ">launches")
    return (Table(title="Fits: time = alpha + beta size", columns=columns, rows=rows),) if rows else ()


def _fit_row(curve: Curve, fit: LatencyFit) -> tuple[str, ...]:
    rate = fit.busbw_bytes_per_s
    return (
        f"{curve.operation} ({curve.dtype}), {curve.nranks} ranks{on_rail(curve.rail)}",
        at_once(curve.concurrency),
        f"{curve.span} {curve.tier}",
        curve.rank_order,
        format_estimate(fit.segments[0].alpha_s, units.format_time),
        format_estimate(rate, units.format_bandwidth) if rate else "cannot tell",
        fit.sentence,
        marked(fit.nunits, is_provisional=fit.is_provisional),
    )


def marked(nunits: int, *, is_provisional: bool) -> str:
    """Return a count of units with the star of what is provisional."""
    return f"{nunits} *" if is_provisional else str(nunits)


def gain_tables(jobs: Iterable[JobGains]) -> tuple[Table, ...]:
    """Return a table for each job: its arms, then the base that they are measured against."""
    return tuple(
        Table(
            title=f"{job.job} (compute: {job.compute})",
            columns=("placement", "time of a step", "communication", "gain", "verdict", ">launches"),
            rows=(*_arm_rows(job), *_base_rows(job)),
        )
        for job in jobs
    )


def _arm_rows(job: JobGains) -> Iterator[tuple[str, ...]]:
    for gain in job.gains:
        yield (
            gain.arm,
            format_estimate(gain.time_s, units.format_time),
            _communication(gain.communication),
            format_estimate(gain.gain, units.format_percent),
            gain.sentence,
            marked(gain.nunits, is_provisional=gain.is_provisional),
        )


def _base_rows(job: JobGains) -> Iterator[tuple[str, ...]]:
    note = "is the reference"
    if job.misaligned_ratio:
        note += f"; the slowest takes {format_estimate(job.misaligned_ratio, lambda r: f'{r:.3g}')} times the fastest"
    if job.left_out_launches:
        note += f"; launches that lack a placement and count nowhere: {', '.join(map(str, job.left_out_launches))}"
    if job.nfailed:
        note += f"; {job.nfailed} failed rows"
    base = format_estimate(job.base_time_s, units.format_time)
    communication = _communication(job.base_communication)
    yield f"median of {len(job.base_arms)} misaligned", base, communication, "", note, str(len(job.launches))


def _communication(share: Estimate | None) -> str:
    return format_estimate(share, units.format_percent) if share else ""


def weights_table(entries: Iterable[WeightEntry]) -> Table:
    """Return the weights of each job, with the gains that they come from."""
    columns = (
        *("job", "device", ">DP × PP", "alpha (DP)", "beta (PP)", "DP-aligned gains", "PP-aligned gains"),
        *(">V_DP / V_PP", ">launches"),
    )
    return Table(
        title="Weights, the gains they come from, and DP over PP volume of a step",
        columns=columns,
        rows=tuple(_weight_row(entry) for entry in entries),
    )


def _weight_row(entry: WeightEntry) -> tuple[str, ...]:
    return (
        entry.job,
        entry.gpu_model,
        f"{entry.dp} × {entry.pp}",
        format_weight(entry.alpha),
        format_weight(entry.beta),
        _gain(entry.gain_dp),
        _gain(entry.gain_pp),
        f"{entry.volumes.r2:.3g}" if entry.volumes else "",
        marked(entry.launches, is_provisional=entry.is_provisional),
    )


def _gain(gain: Estimate | None) -> str:
    return format_estimate(gain, units.format_percent) if gain else ""


def placement_tables(placement: Placement) -> tuple[Table, Table]:
    """Return how good a placement is beside best-fit, and the nodes of each minipod in node-rank order."""
    dp, pp = max(placement.dp_spreads), max(placement.pp_spreads)
    value, bound, peer = (f"{x:.4g}" for x in (placement.objective, placement.bound, placement.best_fit_objective))
    ep = max(placement.ep_spreads, default=0)
    quality = (
        ("objective", value, peer),
        ("bound: no placement is below", bound, ""),
        ("status", placement.status.value, ""),
        ("largest DP spread (minipods a column touches)", str(dp), str(placement.best_fit_dp_spread)),
        ("largest PP spread (minipods a row touches)", str(pp), str(placement.best_fit_pp_spread)),
        *((("largest EP spread (minipods an EP group touches)", str(ep), ""),) if ep else ()),
        ("alpha, beta", f"{placement.alpha:.4g}, {placement.beta:.4g}", ""),
        *((("weight of EP groups", f"{placement.ep_weight:.4g}", ""),) if placement.ep_weight else ()),
        ("proof", placement.certificate, ""),
        *_crossing_rows(placement.crossing),
        *((("chosen", placement.choice, ""),) if placement.choice else ()),
        *((("spares", ", ".join(placement.spares), ""),) if placement.spares else ()),
        ("found by", f"{placement.solver} in {units.format_time(placement.solve_s)}", ""),
    )
    nodes: dict[str, list[str]] = {minipod: [] for minipod in used_minipods(placement)}
    for minipod, name in zip(placement.minipods, placement.rank_map.node_names, strict=True):
        nodes[minipod].append(name)
    members = tuple((minipod, str(len(names)), ", ".join(names)) for minipod, names in nodes.items())
    return (
        Table(title="Quality", columns=("", "this placement", "best-fit"), rows=quality),
        Table(title="Nodes", columns=("minipod", ">nodes", "names, in node-rank order"), rows=members),
    )


def _crossing_rows(crossing: Crossing | None) -> Iterator[tuple[str, ...]]:
    if crossing is None:
        return
    yield "ring, chain edges between minipods", f"{crossing.rings}, {crossing.chains}", ""
    if crossing.total_bytes is not None and crossing.busiest_bytes is not None:
        total, busiest = (units.format_size(round(each)) for each in (crossing.total_bytes, crossing.busiest_bytes))
        yield "traffic between minipods in a step", total, ""
        if crossing.busiest:
            yield "busiest uplink", f"{busiest} at {crossing.busiest}", ""


def truth_tables(
    info: RunInfo, points: Sequence[SpanCurvePoint], ngroups: dict[tuple[object, ...], int]
) -> tuple[Table, ...]:
    """Return the known link rates of an emulated fabric, and what they allow beside what was measured.

    Parameters
    ----------
    info : RunInfo
    points : sequence of SpanCurvePoint
    ngroups : dict
        Groups that ran at once, by :func:`case_of` of a point.
    """
    if not info.truth:
        return ()
    rates = link_rates(info)
    links = tuple(
        (name, str(count), units.format_link_rate(rate), units.format_bandwidth(rate / _BITS))
        for (name, rate), count in sorted(rates.items())
    )
    tables = [Table(title="Links as they were shaped", columns=("class", ">links", ">rate", ">in bytes"), rows=links)]
    checks = tuple(_truth_rows(info, points, ngroups))
    if checks:
        columns = (">span", "order", "groups", "links allow a ring", "measured busbw", ">measured / allowed")
        tables.append(
            Table(title="Measured beside what the links allow", columns=("collective", ">size", *columns), rows=checks)
        )
    return tuple(tables)


def link_rates(info: RunInfo) -> Counter[tuple[str, float]]:
    """Return how many links there are of each class and rate [bits/s]; truth names links ``class/name``."""
    return Counter((name.partition("/")[0], rate) for name, rate in info.truth.items())


def case_of(point: SpanCurvePoint) -> tuple[object, ...]:
    """Return what makes a case of a point, for counting the groups that ran at once."""
    return *shape(point), point.size_bytes, point.span, point.rank_order


def groups_at_once(frame: pd.DataFrame) -> dict[tuple[object, ...], int]:
    """Return the groups that ran at once in each collective case, by :func:`case_of`."""
    columns = [*Shape._fields, "size_bytes", "span", "rank_order"]
    rows = frame[frame["kind"] == "collective"]
    # Groups of other rails that run at once count too: they share the uplinks.
    counts = rows.assign(ngroups=rows.groupby("case_id")["group"].transform("nunique"))
    counted = counts.groupby(columns)["ngroups"].max()
    return {tuple(key): int(count) for key, count in zip(counted.index.tolist(), counted.tolist(), strict=True)}


def _truth_rows(
    info: RunInfo, points: Sequence[SpanCurvePoint], ngroups: dict[tuple[object, ...], int]
) -> Iterator[tuple[str, ...]]:
    largest = {key: max(p.size_bytes for p in group) for key, group in groupby(points, key=lambda p: shape(p)[:-1])}
    for point in points:
        allowed = ring_limit(info, point, ngroups.get(case_of(point), 0))
        if allowed and point.busbw_bytes_per_s and point.size_bytes == largest[shape(point)[:-1]]:
            yield (
                point.operation + on_rail(point.rail),
                units.format_size(point.size_bytes),
                str(point.span),
                point.rank_order,
                at_once(point.concurrency),
                units.format_bandwidth(allowed),
                format_estimate(point.busbw_bytes_per_s, units.format_bandwidth),
                f"{point.busbw_bytes_per_s.value / allowed:.0%}",
            )


def ring_limit(info: RunInfo, point: SpanCurvePoint, ngroups: int) -> float | None:
    """Return the busbw [bytes/s] that links of known rates allow a ring; None where that cannot be said.

    Notes
    -----
    A ring moves busbw over every hop. Of a group over k minipods, one hop leaves each minipod in sorted order and
    ceil(n / k) in alternating order, where all n nodes change minipod at every hop. Groups share minipods evenly, so
    the busiest minipod carries ceil(groups k / minipods) of them. Only hosts and minipods may be shaped, each class
    at one rate; a rank is its node's only one.
    """
    rates = link_rates(info)
    by_class = dict(rates.keys())
    is_plain = len(by_class) == len(rates) and "host" in by_class and by_class.keys() <= {"host", "minipod"}
    hops = {"sorted": 1, "alternating": math.ceil(point.nnodes / point.span)}.get(point.rank_order)
    is_ring = point.operation in _RINGS and point.nranks == point.nnodes
    if not (is_plain and is_ring and hops and ngroups):
        return None
    if point.span == 1 or "minipod" not in by_class:
        return by_class["host"] / _BITS
    sharing = math.ceil(ngroups * point.span / len(set(info.minipods)))
    return min(by_class["host"], by_class["minipod"] / (hops * sharing)) / _BITS


def failure_table(frame: pd.DataFrame) -> Table | None:
    """Return the cases that hold no time with their reasons, None where every row is ok."""
    failed = frame[frame["status"] != Status.OK.value]
    if failed.empty:
        return None
    keys = ["operation", "arm", "rail", "size_bytes", "span", "rank_order", "concurrency", "status", "reason"]
    counted = failed.groupby(keys)["launch"].agg(["size", "nunique"])
    rows = tuple(
        (
            f"{operation} {arm}".strip() + on_rail(rail),
            units.format_size(int(size_bytes)),
            str(span),
            order,
            at_once(concurrency),
            str(status),
            reason,
            str(int(count[0])),
            str(int(count[1])),
        )
        for (operation, arm, rail, size_bytes, span, order, concurrency, status, reason), count in zip(
            counted.index.tolist(), counted.to_numpy().tolist(), strict=True
        )
    )
    columns = ("case", ">size", ">span", "order", "groups", "status", "reason", ">rows", ">launches")
    return Table(title="Failed cases", columns=columns, rows=rows)


def provenance(info: RunInfo) -> Table:
    """Return what was true of the run, for whoever wants to measure it again."""
    rows = [
        ("run", info.run_id),
        ("campaign", info.campaign),
        ("cluster", f"{info.cluster}, description {info.cluster_hash}"),
        ("git commit", info.git_commit),
        ("nodes, in node-rank order", ", ".join(info.node_names)),
    ]
    rows += [(f"version of {name}", version) for name, version in sorted(info.versions.items())]
    rows += [(f"environment: {name}", value) for name, value in sorted(info.environment.items())]
    return Table(title="Environment", columns=("what", "value"), rows=tuple(rows))

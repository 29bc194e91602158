"""The figures of the report as SVG text: bandwidth by span, loss, gains and weights, each with its intervals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spanfit import units
from spanfit.bench.case import on_rail
from spanfit.profiler.curves import SMALLEST_EFFECT, SpanCurvePoint
from spanfit.profiler.curves_file import Curve, LatencyFit
from spanfit.profiler.gains import JobGains
from spanfit.profiler.latency import MIN_SIZES
from spanfit.report.drawing import MUTED, SHADE, draw, head, place_axes, readable, span_colour
from spanfit.report.forest import Forest, Row, limits_of, percent_axis
from spanfit.weights.model import WeightEntry

_MARKERS = {"sorted": "o", "alternating": "D"}
_DASHES: dict[str, tuple[float, ...]] = {"sorted": (), "alternating": (5.0, 2.5)}
_MAX_SIZE_LABELS = 6


class Shape(NamedTuple):
    """What a panel of curves holds: everything of a collective that curves never pool, but size, span and order."""

    operation: str
    dtype: str
    redop: str
    nranks: int
    nnodes: int
    rail: int
    concurrency: str

    @property
    def where(self) -> str:
        """Return the ranks in words."""
        return f"{self.nranks} ranks on {self.nnodes} nodes{on_rail(self.rail)}"


def shape(point: SpanCurvePoint) -> Shape:
    """Return the panel that a point belongs to."""
    return Shape(point.operation, point.dtype, point.redop, point.nranks, point.nnodes, point.rail, point.concurrency)


def panel_order(key: Shape) -> tuple[object, ...]:
    """Return what panels and tables are sorted by: groups alone come before groups at once."""
    return *key[:-1], key.concurrency != "alone", key.concurrency


def at_once(concurrency: str) -> str:
    """Return in words how many groups ran at once."""
    return {"alone": "one group alone", "all": "all groups at once"}.get(concurrency, f"groups at once: {concurrency}")


def spanned(span: int) -> str:
    """Return a span in words, such as ``2 minipods``."""
    return "1 minipod" if span == 1 else f"{span} minipods"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """How a line of the curves looks: ``dash`` as in SVG, ``marker`` as matplotlib names it."""

    label: str
    colour: str
    dash: str
    marker: str


def curve_legend(points: Iterable[SpanCurvePoint]) -> tuple[LegendEntry, ...]:
    """Return an entry for each span and rank order of the curves, narrow spans first."""
    lines = sorted({(point.span, point.rank_order) for point in points}, key=line_order)
    return tuple(
        LegendEntry(
            label=f"{spanned(span)}, {readable(order)} order" if span > 1 else spanned(span),
            colour=span_colour(span),
            dash=" ".join(f"{length:g}" for length in _dash(order)),
            marker=_marker(order),
        )
        for span, order in lines
    )


def line_order(line: tuple[int, str]) -> tuple[int, bool, str]:
    """Return what lines are sorted by, from their span and rank order: narrow spans first, sorted order first."""
    span, order = line
    return span, order != "sorted", order


def _dash(order: str) -> tuple[float, ...]:
    return _DASHES.get(order, (1.5, 2.0))


def _marker(order: str) -> str:
    return _MARKERS.get(order, "s")


def curve_panels(points: Sequence[SpanCurvePoint], curves: Iterable[Curve] = ()) -> tuple[str, ...]:
    """Return a panel of busbw against size for each collective, ranks and concurrency, in that order.

    A line is a span and a rank order; bars are 95% intervals, and thin lines the fits of ``curves`` that rest on enough
    sizes to tell a knee. Panels of one collective share the axis of busbw.
    """
    fits = {_curve_key(curve): curve.fit for curve in curves if curve.fit and len(curve.points) >= MIN_SIZES}
    measured = sorted((p for p in points if p.busbw_bytes_per_s), key=lambda point: panel_order(shape(point)))
    tops = {key: _top(group) for key, group in groupby(measured, key=lambda point: shape(point)[:-1])}
    return tuple(_curve_panel(key, list(group), tops[key[:-1]], fits) for key, group in groupby(measured, key=shape))


def _curve_key(of: Curve | SpanCurvePoint) -> tuple[object, ...]:
    groups = (of.operation, of.dtype, of.redop, of.in_place, of.nranks, of.nnodes, of.rail, of.concurrency)
    return *groups, of.tier, of.span, of.rank_order


def _top(points: Iterable[SpanCurvePoint]) -> float:
    """Return where the axis ends [bytes/s]; an interval that is wild does not squeeze the values."""
    rates = [point.busbw_bytes_per_s for point in points if point.busbw_bytes_per_s]
    largest = max(rate.value for rate in rates)
    return 1.08 * min(max(rate.ci_high or rate.value for rate in rates), 1.6 * largest)


def _curve_panel(
    key: Shape, points: list[SpanCurvePoint], top: float, fits: Mapping[tuple[object, ...], LatencyFit]
) -> str:
    title = f"{key.operation}, {at_once(key.concurrency)}"

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=46, right=10, top=46, bottom=38)
        head(axes, title, f"{key.dtype}, {key.where}")
        scale, unit = _bandwidth_scale(top)
        lines = sorted({(point.span, point.rank_order) for point in points}, key=line_order)
        for index, line in enumerate(lines):
            own = [point for point in points if (point.span, point.rank_order) == line]
            for kind in dict.fromkeys(_curve_key(point) for point in own):
                _draw_fit(axes, [point for point in own if _curve_key(point) == kind], fits.get(kind), scale)
            _draw_line(axes, own, scale, shift=0.16 * ((index + 0.5) / len(lines) - 0.5))
        axes.set_ylim(0, top / scale)
        axes.set_ylabel(f"busbw [{unit}]")
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y", color=SHADE, linewidth=0.8)
        _size_axis(axes, sorted({point.size_bytes for point in points}))

    detail = f"{key.dtype}, {key.redop}, {key.where}"
    return draw(250, f"{title}: bus bandwidth against size by span and rank order ({detail})", paint)


def _bandwidth_scale(top: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if top >= scale:
            return scale, unit
    return 1.0, "B/s"


def _draw_line(axes: Axes, points: list[SpanCurvePoint], scale: float, shift: float) -> None:
    """Draw a line with its intervals, moved by ``shift`` octaves so that equal values do not hide each other."""
    span, order = points[0].span, points[0].rank_order
    rates = [point.busbw_bytes_per_s for point in points if point.busbw_bytes_per_s]
    sizes = [point.size_bytes * 2**shift for point in points]
    colour, dash = span_colour(span), _dash(order)
    for size, rate in zip(sizes, rates, strict=True):
        if rate.ci_low is not None and rate.ci_high is not None:
            axes.plot([size, size], [rate.ci_low / scale, rate.ci_high / scale], color=colour, linewidth=1.2)
    axes.plot(
        sizes,
        [rate.value / scale for rate in rates],
        color=colour,
        linewidth=1.6,
        dashes=dash or (None, None),
    )
    for size, rate, point in zip(sizes, rates, points, strict=True):
        fill = "white" if point.is_provisional else colour
        axes.plot(size, rate.value / scale, _marker(order), color=colour, markerfacecolor=fill, markersize=4.5)


def _draw_fit(axes: Axes, points: list[SpanCurvePoint], fit: LatencyFit | None, scale: float) -> None:
    last = points[-1]
    if fit is None or last.time_s is None or last.busbw_bytes_per_s is None:
        return
    factor = last.busbw_bytes_per_s.value * last.time_s.value / last.size_bytes
    sizes = np.geomspace(points[0].size_bytes, last.size_bytes, 100).tolist()
    rates = [factor * size / fit.time_s(size) / scale for size in sizes]
    axes.plot(sizes, rates, color=span_colour(last.span), linewidth=0.7, alpha=0.6)


def _size_axis(axes: Axes, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 2**0.35, sizes[-1] * 2**0.35)
    step = -(-len(sizes) // _MAX_SIZE_LABELS)
    labelled = sizes[::-1][::step][::-1]
    axes.set_xticks(labelled, [units.format_size(size) for size in labelled])
    axes.set_xticks(sizes, minor=True)
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.set_xlabel("size of the message")


def largest_cases(points: Iterable[SpanCurvePoint]) -> tuple[SpanCurvePoint, ...]:
    """Return the points that hold a loss at the largest size at which their collective, span and order have one."""

    def case(point: SpanCurvePoint) -> tuple[object, ...]:
        return *shape(point), *line_order((point.span, point.rank_order))

    known = sorted((point for point in points if point.loss), key=lambda point: (case(point), point.size_bytes))
    return tuple(list(group)[-1] for _, group in groupby(known, key=case))


def loss_panels(points: Sequence[SpanCurvePoint]) -> tuple[str, ...]:
    """Return a panel for each concurrency: what each collective loses against span 1 at its largest size."""
    cases = sorted(largest_cases(points), key=lambda point: (point.concurrency != "alone", point.concurrency))
    limits = limits_of((point.loss.estimate for point in cases if point.loss), least=2 * SMALLEST_EFFECT)
    return tuple(
        _loss_panel(concurrency, list(group), (max(limits[0], -1.05), limits[1]))
        for concurrency, group in groupby(cases, key=lambda point: point.concurrency)
    )


def _loss_panel(concurrency: str, cases: list[SpanCurvePoint], limits: tuple[float, float]) -> str:
    def decorate(axes: Axes) -> None:
        axes.axvspan(-SMALLEST_EFFECT, SMALLEST_EFFECT, color=SHADE, linewidth=0)
        axes.axvline(0, color=MUTED, linewidth=1)
        percent_axis(axes)

    return Forest(
        title=f"Loss against one minipod, {at_once(concurrency)}",
        subtitle=f"busbw lost at the largest size; shaded: under {SMALLEST_EFFECT:.0%}",
        axis_label="loss of busbw",
        rows=list(_loss_rows(cases)),
        limits=limits,
        form=units.format_percent,
        decorate=decorate,
        alt=f"Loss of bus bandwidth against one minipod at the largest size, {at_once(concurrency)}",
    ).render()


def _loss_rows(cases: list[SpanCurvePoint]) -> Iterator[Row]:
    shapes = {shape(point) for point in cases}
    for key, group in groupby(cases, key=shape):
        own = list(group)
        namesakes = [other for other in shapes if other.operation == key.operation]
        detail = f", {key.dtype}, {key.where}" if len(namesakes) > 1 else ""
        yield Row(label=f"{key.operation}, {units.format_size(own[-1].size_bytes)}{detail}")
        for point in own:
            if point.loss:
                yield Row(
                    label=f"{spanned(point.span)}, {readable(point.rank_order, 12)}",
                    estimate=point.loss.estimate,
                    colour=span_colour(point.span),
                    marker=_marker(point.rank_order),
                    is_final=not point.is_provisional,
                )


def gain_panel(job: JobGains, misaligned: Sequence[float]) -> str:
    """Return what each arm of a job gains over the misaligned ones.

    Parameters
    ----------
    job : JobGains
    misaligned : sequence of float
        The gain of each misaligned arm over their own median, drawn as a light strip; empty where it is not known.
    """

    def decorate(axes: Axes) -> None:
        if misaligned:
            axes.axvspan(min(misaligned), max(misaligned), color=SHADE, linewidth=0)
            axes.plot(misaligned, [-0.5] * len(misaligned), "|", color=MUTED, markersize=6, clip_on=False)
        axes.axvline(0, color=MUTED, linewidth=1)
        percent_axis(axes)

    low, high = limits_of((gain.gain for gain in job.gains), least=0.02)
    margin = 0.04 * (high - low)
    return Forest(
        title=f"{readable(job.job, 40)}: gain of each placement",
        subtitle=f"over the median of {len(job.base_arms)} misaligned ones (shaded: their range)",
        axis_label="gain in throughput",
        rows=[
            Row(label=readable(gain.arm, 16), estimate=gain.gain, is_final=not gain.is_provisional)
            for gain in job.gains
        ],
        limits=(min([low, *(value - margin for value in misaligned)]), max([high, *(v + margin for v in misaligned)])),
        form=units.format_percent,
        decorate=decorate,
        alt=f"Gain in throughput of each placement of job {job.job} (compute {job.compute}) over the misaligned ones",
    ).render()


def weights_figure(entries: Sequence[WeightEntry]) -> str:
    """Return alpha of each job on an axis from 0 (only PP crossings count) to 1 (only DP crossings count)."""

    def decorate(axes: Axes) -> None:
        axes.axvline(0.5, color=MUTED, linewidth=1, dashes=(4, 3))
        axes.set_xticks([0, 0.5, 1], ["0: only PP", "0.5", "1: only DP"])

    return Forest(
        title="Affinity weight alpha of each job",
        subtitle="worth of a DP crossing; a PP crossing has beta = 1 − alpha",
        axis_label="alpha",
        rows=[
            Row(
                label=f"{readable(entry.job, 14)} {entry.dp} × {entry.pp}",
                estimate=entry.alpha,
                is_final=not entry.is_provisional,
            )
            for entry in entries
        ],
        limits=(-0.04, 1.04),
        form=lambda share: f"{share:.3f}",
        decorate=decorate,
        alt="Affinity weight alpha of each job with its interval",
    ).render()

"""The figures of the queue as SVG text: levels around an announced job, delays by way, who holds which nodes when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spanfit.queue.model.nodes import Ground
from spanfit.queue.simulate.metrics import SIZE_CLASSES, class_label
from spanfit.queue.simulate.outcome import ReplayOutcome, ReservationSpan
from spanfit.report.drawing import (
    EDGE,
    INK,
    MUTED,
    SHADE,
    SMALL,
    WIDTH,
    draw,
    head,
    minipod_colour,
    place_axes,
    readable,
)
from spanfit.report.forest import Forest, Row
from spanfit.results.schema import Estimate

HOUR_S = 3600.0
_LEFT, _RIGHT = 46, 12
_HEADING = 13
"""Letters of the longest heading, which the labels of rows give room to."""
_LINE_ROOM, _PANEL, _LEGEND_COLUMNS = 16, 120, 3
_DASHES: tuple[tuple[float, ...], ...] = ((), (5.0, 2.0), (1.5, 1.8), (7.0, 2.0, 1.5, 2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When an announced job was announced and when it arrived [s], and around which time a figure is drawn."""

    job_id: str
    announced_s: float
    arrives_s: float


def way_colour(index: int) -> str:
    """Return the colour of the index-th way of a figure."""
    return INK if index == 0 else minipod_colour((0, 5, 2, 4, 1, 7)[(index - 1) % 6])


def levels_figure(outcomes: Mapping[str, ReplayOutcome], moments: Moments, *, before_s: float, after_s: float) -> str:
    """Return allocation, and below it retention, around the arrival of an announced job, a line for each way.

    Parameters
    ----------
    outcomes : mapping of str to ReplayOutcome
        Of the same jobs, by what the way is called.
    moments : Moments
    before_s, after_s : float
        How much is shown before the announcement and after the arrival [s].
    """
    window = moments.announced_s - before_s, moments.arrives_s + after_s
    legend_rows = -(-len(outcomes) // _LEGEND_COLUMNS)
    top = 62 + _LINE_ROOM * legend_rows
    total = top + 2 * _PANEL + 34 + 38

    def paint(figure: Figure) -> None:
        upper = place_axes(figure, left=_LEFT, right=_RIGHT, top=top, bottom=total - top - _PANEL)
        lower = place_axes(figure, left=_LEFT, right=_RIGHT, top=top + _PANEL + 34, bottom=38)
        nnodes = next(iter(outcomes.values())).nnodes
        head(upper, f"Around the arrival of {moments.job_id}", f"{nnodes} nodes in all; dotted: announced, arrives")
        for axes, label in (
            (upper, "share of nodes with a job"),
            (lower, "share of its planned nodes that others hold"),
        ):
            _level_axes(axes, label, moments, window)
        for index, (way, outcome) in enumerate(outcomes.items()):
            _draw_level(upper, _allocation(outcome, moments.arrives_s, window), index, way)
            _draw_level(lower, _retention(outcome, moments, window[0]), index, way)
        upper.tick_params(labelbottom=False)
        lower.set_xlabel("hours from its arrival")
        _legend(upper, 1 + 20 / _PANEL, _LEGEND_COLUMNS)

    ways = ", ".join(outcomes)
    return draw(total, f"Allocation and retention around the arrival of {moments.job_id} under {ways}", paint)


def _draw_level(axes: Axes, line: tuple[list[float], list[float]], index: int, way: str) -> None:
    dashes = _DASHES[index % len(_DASHES)]
    axes.plot(*line, color=way_colour(index), linewidth=1.6, dashes=dashes or (None, None), label=readable(way, 22))


def _legend(axes: Axes, height: float, ncolumns: int) -> None:
    """Put the legend at a height over the axes, flush with the title; it fills rows first."""
    handles, labels = axes.get_legend_handles_labels()
    order = [index for column in range(ncolumns) for index in range(column, len(handles), ncolumns)]
    axes.legend(
        [handles[index] for index in order],
        [labels[index] for index in order],
        loc="lower left",
        bbox_to_anchor=((EDGE / WIDTH - axes.get_position().x0) / axes.get_position().width, height),
        ncols=ncolumns,
        frameon=False,
        fontsize=SMALL,
        handlelength=2.2,
        columnspacing=1.4,
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.35,
    )


def _level_axes(axes: Axes, label: str, moments: Moments, window: tuple[float, float]) -> None:
    axes.set_xlim(*((at_s - moments.arrives_s) / HOUR_S for at_s in window))
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.5, 1], ["0", "50%", "100%"])
    axes.grid(axis="y", color=SHADE, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: f"{hour:+.0f}".replace("-", "−") if hour else "0"))
    for at_s in (moments.announced_s, moments.arrives_s):
        axes.axvline((at_s - moments.arrives_s) / HOUR_S, color=MUTED, linewidth=0.9, dashes=(2, 2))
    axes.text(0, 1.04, label, transform=axes.transAxes, color=INK, size=SMALL, va="bottom")


def _allocation(outcome: ReplayOutcome, zero_s: float, window: tuple[float, float]) -> tuple[list[float], list[float]]:
    times_s = np.array(outcome.series.times_s)
    inside = (window[0] <= times_s) & (times_s <= window[1])
    allocated = np.array(outcome.series.allocated)[inside] / outcome.nnodes
    return ((times_s[inside] - zero_s) / HOUR_S).tolist(), allocated.tolist()


def _retention(outcome: ReplayOutcome, moments: Moments, start_s: float) -> tuple[list[float], list[float]]:
    """Return hours and shares; the last point is what the job found when it arrived."""
    points = [point for point in outcome.series.retention.get(moments.job_id, ()) if point[0] >= start_s]
    found = next((job.retention for job in outcome.jobs if job.job_id == moments.job_id), None)
    if found is not None:
        points = [*(point for point in points if point[0] < moments.arrives_s), (moments.arrives_s, found)]
    return [(at_s - moments.arrives_s) / HOUR_S for at_s, _ in points], [share for _, share in points]


def delays_figure(delays_s: Mapping[str, Mapping[str, Estimate]], what: str) -> str:
    """Return mean delays by class of nodes, a row for each way.

    Parameters
    ----------
    delays_s : mapping of str to mapping of str to Estimate
        By way, then by label of the class; the classes ``class_label`` names [s].
    what : str
        What an interval holds, in words.
    """
    rows: list[Row] = []
    for label in (class_label(*bounds) for bounds in SIZE_CLASSES):
        own = [(way, each[label]) for way, each in delays_s.items() if label in each]
        if own:
            rows.append(Row(label="1 node" if label == "1" else f"{label} nodes"))
            rows += [
                Row(label=way.ljust(_HEADING), estimate=_minutes(each), colour=way_colour(list(delays_s).index(way)))
                for way, each in own
            ]
    known = [row.estimate for row in rows if row.estimate]
    reach = 8 * max([1.0, *(each.value for each in known)])
    end = max([1.0, *(min(reach, each.value if each.ci_high is None else each.ci_high) for each in known)])

    def decorate(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.xaxis.set_major_locator(MaxNLocator(5))

    return Forest(
        title="Queueing delay by nodes of a job",
        subtitle=what,
        axis_label="mean delay [minutes]",
        rows=rows,
        limits=(-0.02 * end, 1.03 * end),
        form=_three_digits,
        decorate=decorate,
        alt=f"Mean queueing delay by nodes of a job under {', '.join(delays_s)}",
    ).render()


def _three_digits(minutes: float) -> str:
    return (f"{minutes:.3g}" if abs(minutes) < 999.5 else f"{minutes:.0f}").replace("-", "−")


def _minutes(delay_s: Estimate) -> Estimate:
    low, value, high = (
        None if each is None else each / 60 for each in (delay_s.ci_low, delay_s.value, delay_s.ci_high)
    )
    assert value is not None
    return Estimate(value=value, ci_low=low, ci_high=high)


def calendar_figure(spans: Sequence[ReservationSpan], ground: Ground, *, zero_s: float, counted_from: str) -> str:
    """Return which part of each minipod is held for announced jobs when, and taken by them.

    Parameters
    ----------
    spans : sequence of ReservationSpan
        At least one.
    ground : Ground
    zero_s : float
        The time that the axis calls 0, Unix time [s].
    counted_from : str
        What that is, in words.
    """
    jobs = list(dict.fromkeys(span.job_id for span in spans))
    row = max(6.0, min(16.0, 330 / len(ground.labels)))
    top = 50 + _LINE_ROOM * len(jobs)
    total = top + row * len(ground.labels) + 38

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=78, right=_RIGHT, top=top, bottom=38)
        head(axes, "Nodes of announced jobs", "height of a block: share of the minipod's nodes")
        axes.set_xlim(
            *((at_s - zero_s) / HOUR_S for at_s in (min(s.from_s for s in spans), max(s.to_s for s in spans)))
        )
        axes.set_ylim(len(ground.labels), 0)
        for minipod, mask in enumerate(ground.masks):
            axes.axhline(minipod, color=SHADE, linewidth=0.8)
            for span in spans:
                _draw_span(axes, minipod, mask, span, _below(span, spans, jobs, mask), jobs.index(span.job_id), zero_s)
        _name_minipods(axes, ground.labels, row)
        axes.set_xlabel(f"hours from {readable(counted_from, 44)}")
        axes.xaxis.set_major_locator(MaxNLocator(8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: f"{hour:g}".replace("-", "−")))
        for index, job_id in enumerate(jobs):
            for is_running, word in ((False, "reserved"), (True, "running")):
                axes.add_patch(_block((0, 0, 0, 0), index, is_running=is_running, label=f"{readable(job_id)} {word}"))
        _legend(axes, 1 + 4 / (total - top - 38), 2)

    return draw(total, f"Nodes of each minipod held for and taken by {', '.join(jobs)} over time", paint)


def _below(span: ReservationSpan, spans: Sequence[ReservationSpan], jobs: Sequence[str], mask: int) -> int:
    """Return how many nodes of a minipod jobs before this one have while it has its own, so that blocks stack."""
    mine = jobs.index(span.job_id)
    most: dict[str, int] = {}
    for each in spans:
        if jobs.index(each.job_id) < mine and each.from_s < span.to_s and span.from_s < each.to_s:
            most[each.job_id] = max(most.get(each.job_id, 0), (each.nodes & mask & ~span.nodes).bit_count())
    return sum(most.values())


def _draw_span(axes: Axes, minipod: int, mask: int, span: ReservationSpan, below: int, job: int, zero_s: float) -> None:
    own, nnodes = (span.nodes & mask).bit_count(), mask.bit_count()
    if not own:
        return
    floor = minipod + 0.96 - 0.92 * min(below, nnodes - own) / nnodes
    start, length = (span.from_s - zero_s) / HOUR_S, (span.to_s - span.from_s) / HOUR_S
    axes.add_patch(_block((start, floor, length, -0.92 * own / nnodes), job, is_running=span.is_running))


def _block(box: tuple[float, float, float, float], job: int, *, is_running: bool, label: str = "") -> Rectangle:
    colour = minipod_colour(job)
    left, bottom, width, height = box
    return Rectangle(
        (left, bottom),
        width,
        height,
        facecolor=colour if is_running else "white",
        edgecolor=colour,
        hatch=None if is_running else "////",
        linewidth=0.6,
        label=label or "_block",
    )


def _name_minipods(axes: Axes, labels: Sequence[str], row: float) -> None:
    step = max(1, round(11 / row))
    shown = range(0, len(labels), step)
    axes.set_yticks([minipod + 0.5 for minipod in shown], [readable(labels[minipod], 12) for minipod in shown])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)

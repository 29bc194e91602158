"""Figures of weights beyond one job: the (r1, r2) map with the match, and the spreads that are best by alpha."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from spanfit.report.drawing import INK, LINE, MUTED, SHADE, SMALL, draw, head, minipod_colour, place_axes, readable
from spanfit.results.schema import Estimate
from spanfit.weights.matching import FAR_FACTOR, Known, Match
from spanfit.weights.sensitivity import AlphaRange

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 48, 42


def ratio_map(known: Sequence[Known], found: Match, job: str, r1: float, r2: float) -> str:
    """Return a map of characterised jobs on (r1, r2), with the new job and its nearest, as SVG text.

    The shaded square holds what is near enough to say something of the new job.
    """
    verdict = f"nearest: {found.nearest.job}" if not found.is_far else "far from everything known"
    alt = f"{job} at r1 = {r1:.3g}, r2 = {r2:.3g} among {len(known)} characterised jobs; {verdict}"

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
        head(axes, f"{job} among characterised jobs", f"by {found.method}; {verdict}; shaded: close enough")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.fill_between([r1 / FAR_FACTOR, r1 * FAR_FACTOR], r2 / FAR_FACTOR, r2 * FAR_FACTOR, color=SHADE)
        axes.plot([r1, found.nearest.r1], [r2, found.nearest.r2], color=MUTED, linewidth=1.0, linestyle=":")
        for each in known:
            axes.plot(each.r1, each.r2, "o", color=INK, markersize=5)
            _name(axes, f"{each.job} {each.alpha.value:.2f}", each.r1, each.r2)
        axes.plot(r1, r2, "*", color=minipod_colour(1), markersize=12)
        _name(axes, job, r1, r2, is_below=True)
        _limit(axes, [r1, *(each.r1 for each in known)], [r2, *(each.r2 for each in known)])
        axes.set_xlabel("r1: compute to communication")
        axes.set_ylabel("r2: DP to PP volume")

    return draw(320, alt, paint)


def _name(axes: Axes, text: str, x: float, y: float, *, is_below: bool = False) -> None:
    shift = (6, -14) if is_below else (6, 4)
    axes.annotate(readable(text, 24), (x, y), xytext=shift, textcoords="offset points", size=SMALL, color=INK)


def _limit(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """Show all points with a margin of the far factor, and name round numbers on both axes."""
    axes.set_xlim(min(xs) / FAR_FACTOR, max(xs) * FAR_FACTOR)
    axes.set_ylim(min(ys) / FAR_FACTOR, max(ys) * FAR_FACTOR)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
        axis.set_minor_locator(NullLocator())


def alpha_figure(ranges: Sequence[AlphaRange], marked: Estimate | None, job: str) -> str:
    """Return the ranges of alpha from 0 to 1, each with its best spreads, and where alpha is, as SVG text."""
    alt = f"Best spreads of {job} by alpha: " + "; ".join(
        f"{each.low:.3g} to {each.high:.3g}: DP {each.dp}, PP {each.pp}" for each in ranges
    )

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=_RIGHT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
        head(axes, f"Best spreads of {job} by alpha", _legend(ranges))
        for index, each in enumerate(ranges):
            _draw_range(axes, index, each)
        if marked is not None:
            _mark(axes, marked)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.5)
        axes.yaxis.set_major_locator(NullLocator())
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("alpha, the weight of DP groups")

    return draw(160, alt, paint)


def _legend(ranges: Sequence[AlphaRange]) -> str:
    unproven = "" if all(each.is_proven for each in ranges) else "; hatched ranges are not proven"
    return f"DP × PP spread{unproven}"


def _draw_range(axes: Axes, index: int, each: AlphaRange) -> None:
    hatch = "" if each.is_proven else "///"
    fill = SHADE if index % 2 else "white"
    axes.barh(0.5, each.high - each.low, left=each.low, height=0.8, color=fill, edgecolor=LINE, hatch=hatch)
    if each.high - each.low > 0.06:
        middle = (each.low + each.high) / 2
        axes.text(middle, 0.5, f"{each.dp} × {each.pp}", ha="center", va="center", size=SMALL, color=INK)


def _mark(axes: Axes, alpha: Estimate) -> None:
    colour = minipod_colour(1)
    if alpha.ci_low is not None and alpha.ci_high is not None:
        axes.plot([alpha.ci_low, alpha.ci_high], [1.15, 1.15], color=colour, linewidth=2.0, solid_capstyle="butt")
    axes.plot(alpha.value, 1.15, "o", color=colour, markersize=5.5, clip_on=False)

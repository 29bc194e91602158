"""The figure of a sweep: the gain of each arm along what is swept."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from spanfit import units
from spanfit.profiler.sensitivity import ArmSensitivity, Sensitivity, format_setting, value_places
from spanfit.profiler.statistics import FloatArray
from spanfit.report.drawing import MUTED, SMALL, draw, head, minipod_colour, place_axes, readable

_HEIGHT = 260
_SHIFT = 0.02
"""Arms stand beside each other by this share of the axis, so that their intervals can be told apart."""


def sensitivity_figure(found: Sensitivity) -> str:
    """Return the SVG text of a figure of the gains along what is swept, with their intervals."""

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=52, right=122, top=44, bottom=44)
        head(axes, f"Gains along {found.thing}", "throughput over misaligned placements")
        axes.axhline(0, color=MUTED, linewidth=1)
        values = [point.value for point in found.arms[0].points]
        along = value_places(values)[1]
        places = np.arange(len(values), dtype=float) if along is None else along
        for index, arm in enumerate(found.arms):
            _draw_arm(axes, arm, places + _SHIFT * index * max(float(np.ptp(places)), 1.0), minipod_colour(index))
        axes.set_xticks(places, [readable(format_setting(found.thing, value), 12) for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: units.format_percent(share)))
        axes.set_xlabel(readable(found.thing, 40))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=SMALL)

    return draw(_HEIGHT, f"Gain of each arm along {found.thing}", paint)


def _draw_arm(axes: Axes, arm: ArmSensitivity, places: FloatArray, colour: str) -> None:
    gains = [point.gain for point in arm.points]
    axes.plot(places, [gain.value for gain in gains], "-o", color=colour, label=readable(arm.arm, 20), markersize=4.5)
    for place, gain in zip(places, gains, strict=True):
        if gain.ci_low is not None and gain.ci_high is not None:
            axes.plot([place, place], [gain.ci_low, gain.ci_high], color=colour, linewidth=2, solid_capstyle="butt")

"""Forest plots: rows of estimates with their intervals on one axis."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from spanfit.report.drawing import EDGE, INK, SMALL, WIDTH, draw, head, place_axes, readable
from spanfit.results.schema import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a forest plot; a heading has no estimate."""

    label: str
    estimate: Estimate | None = None
    colour: str = INK
    marker: str = "o"
    is_final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Rows with points and intervals on one axis; ``decorate`` draws what lies under them."""

    title: str
    subtitle: str
    axis_label: str
    rows: Sequence[Row]
    limits: tuple[float, float]
    form: Callable[[float], str]
    decorate: Callable[[Axes], None]
    alt: str

    def render(self) -> str:
        """Return the figure as SVG text."""
        nrows = len(self.rows)
        longest = max(len(row.label) for row in self.rows if row.estimate)

        def paint(figure: Figure) -> None:
            axes = place_axes(figure, left=20 + min(5.8 * longest, 150), right=138, top=44, bottom=38)
            head(axes, self.title, self.subtitle)
            axes.set_xlim(*self.limits)
            axes.set_ylim(nrows - 0.3, -0.7)
            self.decorate(axes)
            for index, row in enumerate(self.rows):
                _draw_row(axes, index, row, self.form)
            axes.yaxis.set_major_locator(NullLocator())
            axes.spines["left"].set_visible(False)
            axes.set_xlabel(self.axis_label)

        return draw(44 + 38 + 19 * nrows, self.alt, paint)


def _draw_row(axes: Axes, index: int, row: Row, form: Callable[[float], str]) -> None:
    beside = axes.get_yaxis_transform()
    start = (EDGE / WIDTH - axes.get_position().x0) / axes.get_position().width
    if row.estimate is None:
        axes.text(
            start, index + 0.1, readable(row.label, 64), transform=beside, va="center", size=SMALL + 0.5, weight="bold"
        )
        return
    axes.text(start + 0.02, index, readable(row.label, 28), transform=beside, va="center", size=SMALL, color=INK)
    low, high = row.estimate.ci_low, row.estimate.ci_high
    if low is not None and high is not None:
        axes.plot([low, high], [index, index], color=row.colour, linewidth=2.0, solid_capstyle="butt")
    fill = row.colour if row.is_final else "white"
    axes.plot(row.estimate.value, index, row.marker, color=row.colour, markerfacecolor=fill, markersize=5.5)
    text = _estimate_text(row.estimate, form) + ("" if row.is_final else " *")
    axes.text(1.03, index, text, transform=beside, va="center", size=SMALL, color=INK)


def _estimate_text(estimate: Estimate, form: Callable[[float], str]) -> str:
    if estimate.ci_low is None or estimate.ci_high is None:
        return f"{form(estimate.value)} (no interval)"
    low, high = (form(bound).removesuffix("%") for bound in (estimate.ci_low, estimate.ci_high))
    return f"{form(estimate.value)} [{low}, {high}]"


def limits_of(estimates: Iterable[Estimate], least: float) -> tuple[float, float]:
    """Return an axis that holds 0 and all values, and their intervals unless those are wild."""
    known = list(estimates)
    reach = 2.5 * max([least, *(abs(estimate.value) for estimate in known)])
    lows = [max(-reach, estimate.value if estimate.ci_low is None else estimate.ci_low) for estimate in known]
    highs = [min(reach, estimate.value if estimate.ci_high is None else estimate.ci_high) for estimate in known]
    low, high = min([-least, *lows]), max([least, *highs])
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def percent_axis(axes: Axes) -> None:
    """Label an axis of shares in percent."""
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%".replace("-", "−")))

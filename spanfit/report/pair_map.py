"""The rates between pairs of nodes as a figure, and what links carry as tables."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spanfit import units
from spanfit.bench.case import on_rail
from spanfit.profiler.pair_scan import LinkRate, PairScan
from spanfit.report.drawing import INK, LINE, SMALL, WIDTH, draw, head, readable
from spanfit.report.tables import Table, marked
from spanfit.results.schema import format_estimate

MAX_NODES = 64
"""A figure with more nodes could not be read; the tables say what matters."""
_MAX_NAMES = 20


def pair_panels(scans: Iterable[PairScan], minipods: Sequence[str]) -> tuple[str, ...]:
    """Return a matrix of rates by sender and receiver for each scan of up to 64 nodes.

    Parameters
    ----------
    scans : iterable of PairScan
    minipods : sequence of str
        Minipod of each node, between which lines are drawn.
    """
    return tuple(_panel(scan, minipods) for scan in scans if len(scan.node_names) <= MAX_NODES)


def _panel(scan: PairScan, minipods: Sequence[str]) -> str:
    rates = scan.matrix()
    n = len(scan.node_names)
    title = f"{scan.operation}, {units.format_size(scan.size_bytes)}{on_rail(scan.rail)}, between pairs"
    concurrency = {pair.concurrency for pair in scan.pairs}
    load = "each pair alone" if "alone" in concurrency else "all pairs of a round at once"

    def paint(figure: Figure) -> None:
        height = figure.get_size_inches()[1] * 72
        left, side = 86.0, 250.0
        axes = figure.add_axes((left / WIDTH, 1 - (48 + side) / height, side / WIDTH, side / height))
        head(axes, title, f"{scan.dtype}, {load}")
        mesh = axes.pcolormesh(np.ma.masked_invalid(rates), cmap="viridis", vmin=0.0, linewidth=0)
        axes.set_xlim(0, n)
        axes.set_ylim(n, 0)
        _name_nodes(axes, scan.node_names, minipods)
        bar = figure.add_axes(((left + side + 12) / WIDTH, 1 - (48 + side) / height, 10 / WIDTH, side / height))
        _draw_scale(bar, float(mesh.get_clim()[1]))

    return draw(48 + 250 + 84, f"{title}: rate by sender and receiver, {load}", paint)


def _draw_scale(axes: Axes, most: float) -> None:
    """Draw the scale of colours as shapes: a colour bar of matplotlib would be a bitmap, which the page refuses."""
    edges = np.linspace(0.0, most, 65)
    axes.pcolormesh([0.0, 1.0], edges, (edges[:-1, None] + edges[1:, None]) / 2, cmap="viridis", vmin=0.0, vmax=most)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    ticks = [share * most for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    axes.set_yticks(ticks, ["0", *(units.format_bandwidth(tick) for tick in ticks[1:])], size=SMALL)


def _name_nodes(axes: Axes, names: Sequence[str], minipods: Sequence[str]) -> None:
    step = -(-len(names) // _MAX_NAMES)
    shown = range(0, len(names), step)
    labels = [readable(names[index], 12) for index in shown]
    axes.set_xticks([index + 0.5 for index in shown], labels, rotation=90, size=SMALL)
    axes.set_yticks([index + 0.5 for index in shown], labels, size=SMALL)
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    axes.tick_params(length=0)
    for edge in (index for index in range(1, len(names)) if minipods[index] != minipods[index - 1]):
        axes.axhline(edge, color="white", linewidth=1.5)
        axes.axvline(edge, color="white", linewidth=1.5)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.yaxis.label.set_color(INK)


def pair_tables(scans: Iterable[PairScan]) -> tuple[Table, ...]:
    """Return a table of the links of each scan, slow ones first."""
    return tuple(
        Table(
            title=f"{scan.operation} ({scan.dtype}) of {units.format_size(scan.size_bytes)}{on_rail(scan.rail)}",
            columns=("link", "carries in one direction", "verdict", ">launches"),
            rows=tuple(
                (*_link_row(link), marked(scan.nunits, is_provisional=scan.is_provisional)) for link in scan.links
            ),
        )
        for scan in scans
    )


def _link_row(link: LinkRate) -> tuple[str, ...]:
    rate = link.rate_bytes_per_s
    plain = units.format_bandwidth(rate.value)
    text = plain if rate.ci_low is None and link.is_bound else format_estimate(rate, units.format_bandwidth)
    return link.place, f"at least {text}" if link.is_bound else text, link.sentence

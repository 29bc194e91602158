"""Where a placed job sits, as SVG text: the grid of its nodes by minipod, and the nodes that each minipod gives."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from spanfit.placer.model import Placement
from spanfit.report.drawing import (
    INK,
    LINE,
    SHADE,
    SMALL,
    WIDTH,
    draw,
    head,
    minipod_colour,
    place_axes,
    readable,
    text_colour,
)

MAX_BARS = 32
"""Minipods drawn one by one; the rest share a line."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 46, 38
_TALLEST, _TALLEST_CELL, _SEEN_CELL = 460, 30, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A rectangle of cells that one minipod fills, in cells of the grid."""

    row: int
    column: int
    nrows: int
    ncolumns: int
    minipod: str


def blocks(placement: Placement) -> tuple[Block, ...]:
    """Return the grid as rectangles: equal neighbouring rows are one band, a band is cut where the minipod changes."""
    return tuple(_blocks(_grid(placement)))


def _grid(placement: Placement) -> list[tuple[str, ...]]:
    rows: dict[int, dict[int, str]] = {}
    for (row, column), minipod in zip(placement.cells, placement.minipods, strict=True):
        rows.setdefault(row, {})[column] = minipod
    return [tuple(minipod for _, minipod in sorted(rows[row].items())) for row in sorted(rows)]


def _blocks(grid: Sequence[tuple[str, ...]]) -> Iterator[Block]:
    row = 0
    for line, equal in groupby(grid):
        nrows, column = len(list(equal)), 0
        for minipod, run in groupby(line):
            ncolumns = len(list(run))
            yield Block(row=row, column=column, nrows=nrows, ncolumns=ncolumns, minipod=minipod)
            column += ncolumns
        row += nrows


def short_names(minipods: Sequence[str]) -> dict[str, str]:
    """Return what to call each minipod where room is short: the last part of its path where that is its own.

    Examples
    --------
    >>> short_names(["core/m0", "core/m1"])
    {'core/m0': 'm0', 'core/m1': 'm1'}
    """
    last = {minipod: minipod.rpartition("/")[2] for minipod in minipods}
    counts = Counter(last.values())
    return {minipod: readable(name if name and counts[name] == 1 else minipod, 18) for minipod, name in last.items()}


def used_minipods(placement: Placement) -> dict[str, int]:
    """Return the nodes that each minipod gives, in the order in which the grid shows the minipods, row by row."""
    in_order = [minipod for _, minipod in sorted(zip(placement.cells, placement.minipods, strict=True))]
    return dict(Counter(in_order))


def placement_grid(placement: Placement) -> str:
    """Return the grid of a job's nodes: rows are PP groups, columns DP groups, a colour is a minipod."""
    grid = _grid(placement)
    nrows, ncolumns = len(grid), len(grid[0])
    cell_height = min(_TALLEST_CELL, _TALLEST / nrows)
    cell_width = (WIDTH - _LEFT - _RIGHT) / ncolumns
    names = list(used_minipods(placement))

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
        head(axes, f"Job {readable(placement.job.name, 40)}: who sits where", _grid_subtitle(nrows, ncolumns))
        axes.set_xlim(-0.5, ncolumns - 0.5)
        axes.set_ylim(nrows - 0.5, -0.5)
        for block in _blocks(grid):
            _draw_block(axes, block, names, cell_width, cell_height)
        _cell_lines(axes, nrows if cell_height >= _SEEN_CELL else 0, ncolumns if cell_width >= _SEEN_CELL else 0)
        for axis, count in ((axes.xaxis, ncolumns), (axes.yaxis, nrows)):
            axis.set_major_locator(MaxNLocator(min(count, 9), integer=True))
        axes.set_xlabel("column (DP group: one pipeline stage)")
        axes.set_ylabel("row (PP group)")
        for spine in axes.spines.values():
            spine.set_visible(False)

    alt = (
        f"Minipod of each node of job {placement.job.name}: {nrows} rows (PP groups) by {ncolumns} columns (DP groups)"
    )
    return draw(_TOP + _BOTTOM + cell_height * nrows, alt, paint)


def _grid_subtitle(nrows: int, ncolumns: int) -> str:
    return f"{nrows} × {ncolumns} nodes; a cell is a node, its colour the minipod"


def _draw_block(axes: Axes, block: Block, names: list[str], cell_width: float, cell_height: float) -> None:
    fill = minipod_colour(names.index(block.minipod))
    corner = (block.column - 0.5, block.row - 0.5)
    axes.add_patch(Rectangle(corner, block.ncolumns, block.nrows, facecolor=fill, edgecolor="white", linewidth=0.6))
    label = short_names(names)[block.minipod]
    room, colour = 6.4 * len(label) + 4, text_colour(fill)
    if cell_height >= 14 and cell_width >= room:
        for row, column in product(range(block.nrows), range(block.ncolumns)):
            spot = (block.column + column, block.row + row)
            axes.text(*spot, label, ha="center", va="center", size=SMALL, color=colour)
    elif block.nrows * cell_height >= 13 and block.ncolumns * cell_width >= room:
        middle = (block.column + (block.ncolumns - 1) / 2, block.row + (block.nrows - 1) / 2)
        backing = {"facecolor": fill, "edgecolor": "none", "pad": 1.5}
        axes.text(*middle, label, ha="center", va="center", size=SMALL, color=colour, bbox=backing, zorder=3)


def _cell_lines(axes: Axes, nrows: int, ncolumns: int) -> None:
    """Draw thin lines between cells that are large enough to be seen one by one; 0 draws none."""
    for row in range(1, nrows):
        axes.axhline(row - 0.5, color="white", linewidth=0.6, alpha=0.6)
    for column in range(1, ncolumns):
        axes.axvline(column - 0.5, color="white", linewidth=0.6, alpha=0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A line of the bars; without a colour it sums up minipods that are not drawn one by one."""

    label: str
    used: int
    free: int
    colour: str | None


def minipod_bars(placement: Placement, free: Mapping[str, int] | None = None) -> str:
    """Return the nodes that each minipod gives to a job.

    Parameters
    ----------
    placement : Placement
    free : mapping of str to int or None
        Nodes that each minipod had free for the job, the used ones among them; None where that is not known.
    """
    bars = list(_bars(placement, free or {}))
    shown, hidden = (bars, []) if len(bars) <= MAX_BARS else (bars[: MAX_BARS - 1], bars[MAX_BARS - 1 :])
    if hidden:
        label, used, left = f"{len(hidden)} more", sum(bar.used for bar in hidden), sum(bar.free for bar in hidden)
        shown.append(_Bar(label=label, used=used, free=left, colour=None))
    longest = max(len(bar.label) for bar in shown)

    def paint(figure: Figure) -> None:
        axes = place_axes(figure, left=16 + 6.4 * longest, right=70, top=_TOP, bottom=_BOTTOM)
        what = "taken, out of the nodes that were free (pale)" if free is not None else "taken by the job"
        head(axes, "Nodes by minipod", what)
        axes.set_xlim(0, max(max(bar.used, bar.free) for bar in shown if bar.colour))
        axes.set_ylim(len(shown) - 0.4, -0.6)
        for index, bar in enumerate(shown):
            _draw_bar(axes, index, bar, is_free_known=free is not None)
        axes.set_yticks(range(len(shown)), [bar.label for bar in shown], color=INK)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_color(LINE)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("nodes")

    return draw(_TOP + _BOTTOM + 20 * len(shown), f"Nodes that each minipod gives to job {placement.job.name}", paint)


def _bars(placement: Placement, free: Mapping[str, int]) -> Iterator[_Bar]:
    used = used_minipods(placement)
    everything = [*used, *(minipod for minipod in free if minipod not in used)]
    names = short_names(everything)
    for index, minipod in enumerate(everything):
        count = used.get(minipod, 0)
        yield _Bar(label=names[minipod], used=count, free=free.get(minipod, 0), colour=minipod_colour(index))


def _draw_bar(axes: Axes, index: int, bar: _Bar, *, is_free_known: bool) -> None:
    if bar.colour and is_free_known:
        axes.barh(index, bar.free, height=0.62, color=SHADE, edgecolor=LINE, linewidth=0.6)
    if bar.colour:
        axes.barh(index, bar.used, height=0.62, color=bar.colour)
    text = f"{bar.used} of {bar.free}" if is_free_known else str(bar.used)
    axes.text(1.03, index, text, transform=axes.get_yaxis_transform(), va="center", size=SMALL)

"""How every figure of the report is drawn: one theme, one palette, text kept as text, the same bytes each time."""

import re
import warnings
from collections.abc import Callable
from html import escape
from io import StringIO

import matplotlib
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

WIDTH = 420
"""Width of a panel in units of its SVG: shown 350 to 560 px wide, so that text keeps 8 px on a phone."""
EDGE = 8
"""Where titles and labels begin, in the same units."""
INK, MUTED, LINE, SHADE = "#1f2933", "#56616b", "#c9d1d8", "#e9edf1"
TEXT, SMALL = 11.0, 10.0

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_THEME: dict[str, object] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.linewidth": 1.0,
    "axes.titlesize": TEXT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OWN_FONT = re.compile(r"(style=\"[^\"]*font: [^'\"]*)'DejaVu Sans'[^;\"]*")


def printable(text: str) -> str:
    """Return a text fit for XML and UTF-8: control characters but line feeds, and lone surrogates, are replaced."""
    return _UNPRINTABLE.sub("\ufffd", text)


def readable(name: str, limit: int = 24) -> str:
    """Return a name from a file fit for one line of a figure and its room, with an ellipsis where it is cut."""
    text = printable(name).replace("\n", "\ufffd")
    return text if len(text) <= limit else text[: limit - 1] + "…"


_COLOURS: tuple[str, ...] = tuple(to_hex(colour) for colour in sns.color_palette("colorblind"))
_SPANS = (INK, *(_COLOURS[index] for index in (0, 3, 2, 4, 1, 9)))
_FILLS = tuple(_COLOURS[index] for index in (0, 1, 2, 9, 4, 3, 8, 5, 6, 7))


def span_colour(span: int) -> str:
    """Return the colour of a span, the same in every figure; wide spans share the last colours in turn."""
    return _SPANS[span - 1] if span <= len(_SPANS) else _SPANS[1 + (span - 1) % (len(_SPANS) - 1)]


def minipod_colour(index: int) -> str:
    """Return the fill of the index-th minipod; hues come again paler after ten, and darker after twenty."""
    hue, turn = _FILLS[index % len(_FILLS)], index // len(_FILLS) % 3
    towards, share = ((0.0, 0.0), (1.0, 0.45), (0.0, 0.4))[turn]
    red, green, blue = (channel + share * (towards - channel) for channel in to_rgb(hue))
    return to_hex((red, green, blue))


def text_colour(fill: str) -> str:
    """Return black or white, whichever contrasts more with a fill (WCAG 2 relative luminance)."""
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"


def draw(height: float, alt: str, paint: Callable[[Figure], None]) -> str:
    """Return the SVG text of a figure that ``paint`` fills; equal input gives equal bytes.

    Parameters
    ----------
    height : float
        In units of the SVG, of which it is ``WIDTH`` wide; it has no fixed size and fills the width that it is given.
    alt : str
        What a reader who cannot see the figure is told; it also keeps the ids of two figures of a page apart.
    """
    alt = printable(alt)
    theme = {**sns.axes_style("ticks"), **_THEME, "svg.hashsalt": alt, "svg.id": None}
    buffer = StringIO()
    with matplotlib.rc_context(theme), warnings.catch_warnings():
        # The browser has its own fonts: a glyph that this machine lacks is no fault of the page.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        paint(figure)
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inline(buffer.getvalue(), alt, height)


def _inline(document: str, alt: str, height: float) -> str:
    """Return a matplotlib document as an ``svg`` element that may stand in a page beside others."""
    body = document[document.index(">", document.index("<svg")) + 1 :].strip()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r"<g id=\"[^\"]*\"", "<g", body)
    body = _OWN_FONT.sub(lambda match: match[1] + _FONTS, body)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(alt)}">{body}\n'
    )


def place_axes(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> Axes:
    """Return axes with margins in units of the SVG, without the upper and right frame."""
    height = figure.get_size_inches()[1] * 72
    axes = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (top + bottom) / height))
    axes.tick_params(length=3)
    sns.despine(ax=axes)
    return axes


def head(axes: Axes, title: str, subtitle: str) -> None:
    """Write a title and a muted line under it, flush with the left edge of the figure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = figure.get_size_inches()[1] * 72
    figure.text(EDGE / WIDTH, 1 - 14 / height, readable(title, 54), weight="bold", size=TEXT + 0.5, va="center")
    figure.text(EDGE / WIDTH, 1 - 30 / height, readable(subtitle, 68), color=MUTED, size=SMALL, va="center")

"""Rows to text as chosen versions print it, by their printf rules: what the reader must turn back into the rows."""

from dataclasses import dataclass

from spanfit.results.importers.log import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a range of versions prints.

    Attributes
    ----------
    lead : tuple of str
        Columns before the halves, of ``size``, ``count``, ``type``, ``redop`` and ``root``.
    wrong : str
        Heading of the last column of a half.
    wrong_width, gap : int, str
        Its width in a row, and the blanks before its heading.
    unchecked : str
        What stands in its place where results were not checked.
    """

    version: str
    lead: tuple[str, ...]
    type_width: int
    wrong: str
    wrong_width: int
    gap: str
    unchecked: str
    has_groups: bool


V20 = Style(
    version="2.0-2.9 layout",
    lead=("size", "count", "type", "redop"),
    type_width=6,
    wrong="error",
    wrong_width=5,
    gap="  ",
    unchecked="    N/A",
    has_groups=False,
)
V29_REDUCE = Style(
    version="2.0-2.9 layout",
    lead=("size", "count", "type", "redop", "root"),
    type_width=6,
    wrong="error",
    wrong_width=5,
    gap="  ",
    unchecked="    N/A",
    has_groups=False,
)
V211_GATHER = Style(
    version="2.10-2.11 layout",
    lead=("size", "count", "type"),
    type_width=8,
    wrong="error",
    wrong_width=5,
    gap="  ",
    unchecked="    N/A",
    has_groups=False,
)
V213 = Style(
    version="2.14.1-2.16.6 layout",
    lead=("size", "count", "type", "redop", "root"),
    type_width=8,
    wrong="#wrong",
    wrong_width=5,
    gap=" ",
    unchecked="    N/A",
    has_groups=True,
)
V217 = Style(
    version="2.17.8",
    lead=("size", "count", "type", "redop", "root"),
    type_width=8,
    wrong="#wrong",
    wrong_width=6,
    gap="  ",
    unchecked="    N/A",
    has_groups=True,
)
STYLES = (V20, V29_REDUCE, V211_GATHER, V213, V217)
WIDTHS = {"size": 12, "count": 12, "redop": 6, "root": 6}


def head(style: Style, hosts: tuple[str, ...] = ("node01", "node02")) -> list[str]:
    """Return the lines before the rows; a rank on each host."""
    lines = []
    if style is V217:
        lines += [
            "# nccl-tests version 2.17.8 nccl-headers=22907 nccl-library=22907",
            "# Collective test starting: all_reduce_perf",
        ]
    rest = "agg iters: 1 validation: 1 graph: 0" if style.has_groups else "validation: 1 "
    lines += [f"# nThread 1 nGpus 1 minBytes 8 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 {rest}", "#"]
    lines += ["# Using devices"]
    for rank, host in enumerate(hosts):
        place = "#  Rank %2d Group  0 Pid %6d" if style.has_groups else "#   Rank %2d Pid %6d"
        bus = "[0000:1b:00]" if style in (V213, V217) else "[0x1b]"
        lines.append(place % (rank, 4000 + rank) + f" on {host:>10} device  0 {bus} NVIDIA H100 80GB HBM3")
    return [*lines, "#", *table_head(style)]


def table_head(style: Style) -> list[str]:
    """Return the three header lines of a table."""
    widths = {**WIDTHS, "type": style.type_width}
    names = "  ".join(f"{name:>{widths[name]}}" for name in style.lead).replace("  ", "# ", 1)
    half = f"     time   algbw   busbw{style.gap}{style.wrong}"
    return [
        "#" + " " * (len(names) + 8) + "out-of-place                       in-place          ",
        f"{names}{half}{half}",
        "#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]


def writes(style: Style, row: Row) -> tuple[str, str, str]:
    """Return the three writes of a row: leading cells, out-of-place, in-place."""
    values = {"size": row.size_bytes, "count": row.nelements, "type": row.dtype, "redop": row.redop, "root": row.root}
    widths = {**WIDTHS, "type": style.type_width}
    lead = "  ".join(f"{values[name]:>{widths[name]}}" for name in style.lead)
    halves = []
    for half in (row.oop, row.ip):
        assert half is not None
        text = f"  {half.time_text:>7}  {half.algbw_text:>6}  {half.busbw_text:>6}"
        found = half.wrong if style.has_groups else half.max_error
        if found is None:
            text += style.unchecked
        else:
            text += f"  {found:{style.wrong_width}g}" if style.has_groups else f"  {found:5.0e}"
        halves.append(text)
    return lead, halves[0], halves[1]


def foot(style: Style, average: float, nwrong: int = 0) -> list[str]:
    """Return the lines after the rows."""
    verdict = "FAILED" if nwrong else "OK"
    lines = [f"# Out of bounds values : {nwrong} {verdict}", f"# Avg bus bandwidth    : {average:g} ", "#"]
    return [*lines, "# Collective test concluded: all_reduce_perf", "#"] if style is V217 else lines

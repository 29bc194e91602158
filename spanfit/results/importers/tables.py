"""Rows of the tables of nccl-tests, by the columns that a header names and the writes that print them.

A row is printed in several writes: the leading cells, a half, its spread over iterations, the other half. Whatever else
is printed at that time may come to stand between two writes, in the same line or in lines of its own. Cells are padded
on the left to a right edge, which the header shows; a longer cell pushes the rest to the right.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter

from spanfit.results.importers.log import Half, PerIteration, Row

_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?(?:e[-+]?\d{1,3})?|inf|nan)"
_ERROR = r"\de[-+]\d\d"
_TIMESTAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_TIMES = ("time", "cputime")
_WRONG = ("#wrong", "error", "res")
_REDOP = ("redop", "op")
_SPREAD = ("i_min", "i_max", "i_p99", "i_cv%")
_PATTERNS = {
    **dict.fromkeys(("size", "bytes", "count", "N"), r"\d{1,18}"),
    **dict.fromkeys(("type", *_REDOP), r"[A-Za-z]\w*"),
    "root": r"-?\d{1,9}",
    **dict.fromkeys((*_TIMES, "algbw", "busbw", *_SPREAD), _NUMBER),
    **dict.fromkeys(_WRONG, rf"N/A|{_ERROR}|{_NUMBER}\*?"),
    "timestamp": _TIMESTAMP,
}
_FIXED = re.compile(f"N/A|{_ERROR}|{_TIMESTAMP}")
"""Cells whose length is known, so that nothing can be missing at their end."""
_UNKNOWN = r"\S+"
_HEADER = re.compile(r"#?\s*(?:size\s+count\s+type|bytes\s+N\s+type)\b")
_BLANKS = 2
"""Blanks in front of every cell but the first."""
_HALF = ("time", "algbw", "busbw", "wrong", *_SPREAD)
"""What a half may print."""

Cells = tuple[str | None, ...]
"""The cells of a row as they were printed, None for a blank one and for those that are missing; last, always None."""
_Pick = Callable[[Cells], Cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Cells that are printed at once: their columns, and their right edges counted from where the write begins.

    A pattern is of a cell and the blanks before it.
    """

    columns: tuple[str, ...]
    edges: tuple[int, ...]
    patterns: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a header says about its rows.

    Attributes
    ----------
    columns : tuple of str
        Every column from the left; the first three are size, count and type.
    key : callable
        Takes size, count, type, operation and root out of a row's cells, with None for columns that there are not.
    oop, ip : callable
        Takes the cells of a half, in the order of ``_HALF``.
    timestamp : int
        Where the time of day is among the cells.
    row : re.Pattern
        A whole row in one line.
    is_first : bool
        It is the layout of 1.0, whose times are in ms.
    type_width : int
        Characters of the data type's column, which tells versions apart.
    is_wide : bool
        ``#wrong`` stands two blanks from the column before, not one.
    """

    columns: tuple[str, ...]
    writes: tuple[Write, ...]
    key: _Pick
    oop: _Pick
    ip: _Pick
    timestamp: int
    row: re.Pattern[str]
    is_first: bool
    is_cpu_time: bool
    wrong_column: str
    counts_wrong: bool
    type_width: int
    is_wide: bool

    @property
    def unknown(self) -> tuple[str, ...]:
        """Columns that no version is known to print; their cells are not read."""
        return tuple(name for name in self.columns if name not in _PATTERNS)


@lru_cache
def read_layout(header: str, title: str) -> Layout | None:
    """Return the layout that a line of column names says, None where it is no such line.

    Parameters
    ----------
    header : str
        The line with ``size``, ``count``, ``type``, ...
    title : str
        The line above it, which names the halves; "" where it is missing.
    """
    if not _HEADER.match(header):
        return None
    found = [match for match in re.finditer(r"\S+", header) if match[0] != "#"]
    columns, edges = tuple(match[0] for match in found), [match.end() for match in found]
    starts = [place for place, name in enumerate(columns) if name in _TIMES]
    ends = [*starts[1:], len(columns)]
    halves = [_half_places(columns, start, end) for start, end in zip(starts, ends, strict=False)]
    if len(halves) not in (1, 2) or any(len(columns) in half[:3] for half in halves):
        return None
    picks = {name: itemgetter(*half) for name, half in zip(_halves(title, len(halves)), halves, strict=True)}
    nothing = itemgetter(*[len(columns)] * len(_HALF))
    wrong_column = next((name for name in columns if name in _WRONG), "")
    return Layout(
        columns=columns,
        writes=tuple(_writes(columns, edges)),
        key=itemgetter(0, 1, 2, _place(columns, _REDOP), _place(columns, ("root",))),
        oop=picks.get("oop", nothing),
        ip=picks.get("ip", nothing),
        timestamp=_place(columns, ("timestamp",)),
        row=_row_pattern(columns),
        is_first=columns[0] == "bytes",
        is_cpu_time="cputime" in columns,
        wrong_column=wrong_column,
        counts_wrong=wrong_column == "#wrong",
        type_width=edges[2] - edges[1] - _BLANKS,
        is_wide="  #wrong" in header,
    )


def _place(columns: Sequence[str], names: Sequence[str], start: int = 0, end: int | None = None) -> int:
    """Return where the first column of any of the names is; where there is none, the place behind the last."""
    places = range(start, len(columns) if end is None else end)
    return next((place for place in places if columns[place] in names), len(columns))


def _half_places(columns: Sequence[str], start: int, end: int) -> tuple[int, ...]:
    names = ((name,) if name != "wrong" else _WRONG for name in _HALF[1:])
    return (start, *(_place(columns, each, start, end) for each in names))


def _halves(title: str, count: int) -> tuple[str, ...]:
    """Return the names of the halves; a single one without a title is in-place: only rccl-tests -O 0 prints that."""
    named = tuple("oop" if name == "out-of-place" else "ip" for name in re.findall(r"out-of-place|in-place", title))
    return named if len(named) == count else ("oop", "ip")[-count:]


def _writes(columns: Sequence[str], edges: Sequence[int]) -> Iterator[Write]:
    starts = [place for place, name in enumerate(columns) if not place or name in (*_TIMES, "i_min", "timestamp")]
    for start, end in zip(starts, [*starts[1:], len(columns)], strict=True):
        origin = edges[start - 1] if start else 0
        yield Write(
            columns=tuple(columns[start:end]),
            edges=tuple(edge - origin for edge in edges[start:end]),
            patterns=tuple(re.compile(rf"\s*({_PATTERNS.get(name, _UNKNOWN)})") for name in columns[start:end]),
        )


def _row_pattern(columns: Sequence[str]) -> re.Pattern[str]:
    cells = [f"({_PATTERNS.get(name, _UNKNOWN)})" for name in columns]
    spaced = [
        rf"(?:[ \t]++{cell})?" if name in _REDOP else rf"[ \t]++{cell}"
        for name, cell in zip(columns[1:], cells[1:], strict=True)
    ]
    return re.compile(rf"[ \t]*(?:#[ \t]+)?{cells[0]}{''.join(spaced)}[ \t]*")


@dataclass(slots=True)
class RowReader:
    """Puts rows together, line by line."""

    layout: Layout
    rows: list[Cells] = field(default_factory=list)
    partial_rows: list[Cells] = field(default_factory=list)
    _begun: list[str | None] = field(default_factory=list)
    _nwrites: int = 0

    def take(self, text: str, label: str, *, is_cut: bool) -> str | None:
        """Take the cells that a line begins with; return the rest of it, None where it begins with no cells.

        Parameters
        ----------
        label : str
            What the launcher puts in front of every write, also within the line.
        is_cut : bool
            No newline followed, so that the last cell is only believed where its right edge proves it whole.
        """
        found = None if is_cut else self.layout.row.fullmatch(text.replace(label, "") if label else text)
        if found:
            self.finish()
            self.rows.append((*found.groups(), None))
            return ""
        end = self._take_writes(text, 0, label, is_cut)
        if not end and text.lstrip()[:1].isdigit() and (start := _scan(self.layout.writes[0], text, 0, is_cut)):
            self.finish()
            self._begun, end = start
            self._nwrites = 1
            end = self._take_writes(text, end, label, is_cut)
        return text[end:] if end else None

    def finish(self) -> None:
        """Count the row that was begun, if any, as a partial one."""
        if self._nwrites:
            missing = [None] * (len(self.layout.columns) - len(self._begun))
            self.partial_rows.append((*self._begun, *missing, None))
            self._nwrites = 0

    def _take_writes(self, text: str, end: int, label: str, is_cut: bool) -> int:
        """Take the next writes of the row that was begun; return where the last of them ends."""
        while self._nwrites:
            start = end + len(label) if end and label and text.startswith(label, end) else end
            found = _scan(self.layout.writes[self._nwrites], text, start, is_cut)
            if not found:
                break
            self._begun += found[0]
            self._nwrites += 1
            end = found[1]
            if self._nwrites == len(self.layout.writes):
                self.rows.append((*self._begun, None))
                self._nwrites = 0
        return end


def _scan(write: Write, text: str, start: int, is_cut: bool) -> tuple[list[str | None], int] | None:
    """Return the cells of a write that begins at ``start`` and where it ends, None where it is not all there.

    Each cell must end at its right edge or fill its place from the left: any other line of numbers is no write.
    """
    cells: list[str | None] = []
    end, due = start, start
    is_whole = False
    for name, edge, before, pattern in zip(write.columns, write.edges, (0, *write.edges), write.patterns, strict=False):
        slot = end if name in ("size", "bytes") else end + _BLANKS
        due = end + edge - before
        found = _cell(text, slot, due, pattern)
        if not found and not (name in _REDOP and len(text) >= due and text[end:due].isspace()):
            return None
        cells.append(found[1] if found else None)
        is_whole = not found or found.start(1) > slot or _FIXED.fullmatch(found[1]) is not None
        end = found.end() if found else due
    follows = text[end : end + 1] or ("" if is_cut else "\n")
    # Without padding the last cell may go on, in what was cut off, or in what somebody else printed right behind it.
    return (cells, end) if is_whole or follows.isspace() or follows == "[" else None


def _cell(text: str, slot: int, due: int, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the cell in the place from ``slot`` to ``due``; one that fills it from the left may be longer."""
    if text[slot : slot + 1].strip():
        found = pattern.match(text, slot)
        return found if found and found.end() >= due else None
    # 2.17.3 and later print N/A one character short of its place.
    end = due - 1 if text.startswith("N/A", due - 4) else due
    return pattern.fullmatch(text, slot, end)


def read_row(layout: Layout, cells: Cells, cycle: int = 0) -> Row:
    """Return the row that cells are; a half is None where one of its time and bandwidths is missing."""
    size, count, dtype, redop, root = layout.key(cells)
    return Row(
        size_bytes=int(size or 0),
        nelements=int(count or 0),
        dtype=dtype or "",
        redop=redop,
        root=int(root) if root else None,
        oop=_half(layout, *layout.oop(cells)),
        ip=_half(layout, *layout.ip(cells)),
        timestamp=cells[layout.timestamp] or "",
        cycle=cycle,
    )


def _half(
    layout: Layout, time: str | None, algbw: str | None, busbw: str | None, wrong: str | None, *spread: str | None
) -> Half | None:
    if time is None or algbw is None or busbw is None:
        return None
    checked = 0.0 if wrong == "0" else None if wrong is None or wrong == "N/A" else float(wrong.rstrip("*"))
    return Half(
        _from_ms(time) if layout.is_first else time,
        algbw,
        busbw,
        checked if layout.counts_wrong else None,
        None if layout.counts_wrong else checked,
        layout.is_cpu_time,
        None if None in spread else _spread(*spread),
    )


def _spread(*cells: str | None) -> PerIteration:
    low, high, p99, cv = (float(cell) for cell in cells if cell)
    return PerIteration(low, high, p99, cv)


def _from_ms(text: str) -> str:
    """Return a time of 1.0 in us, its point moved by three places so that the resolution stays what it was."""
    number = Decimal(text)
    return f"{number.scaleb(3):f}" if number.is_finite() else text

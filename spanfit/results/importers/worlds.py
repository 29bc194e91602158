"""Which lines of a log belong to which run: several follow each other in a file, or print through each other."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

from spanfit.results.importers.judging import failure_of
from spanfit.results.importers.log import ErrorClass
from spanfit.results.importers.unlabel import Line


class Kind(StrEnum):
    """What a line is, as far as it tells runs apart; each is printed once a run."""

    JSON = "where the JSON goes"
    VERSION = "version"
    STARTING = "starting"
    PARAMETERS = "parameters"
    RANK_0 = "the device of rank 0"
    TITLE = "the halves of the table"
    COLUMNS = "the columns of the table"
    BOUNDS = "the verdict"


_Told = tuple[Line, Kind | None]
_BANNER = frozenset((Kind.JSON, Kind.VERSION, Kind.STARTING, Kind.PARAMETERS))
_ONCE = (Kind.RANK_0, Kind.COLUMNS, Kind.BOUNDS)
_KINDS = {
    "Writing": (Kind.JSON, re.compile(r"# Writing JSON output to ")),
    "nccl-tests": (Kind.VERSION, re.compile(r"# nccl-tests version ")),
    "Collective": (Kind.STARTING, re.compile(r"# Collective test starting: ")),
    "nThread": (Kind.PARAMETERS, re.compile(r"(?:# )?nThread \d+ nGpus \d+ ")),
    "Rank": (Kind.RANK_0, re.compile(r"#\s+Rank\s+0\s")),
    "out-of-place": (Kind.TITLE, re.compile(r"#")),
    "in-place": (Kind.TITLE, re.compile(r"#")),
    "size": (Kind.COLUMNS, re.compile(r"#?\s*size\s+count\s+type\b")),
    "bytes": (Kind.COLUMNS, re.compile(r"#?\s*bytes\s+N\s+type\b")),
    "Out": (Kind.BOUNDS, re.compile(r"#? Out of bounds values\s+:")),
}
"""By the first word of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The lines of one run.

    Attributes
    ----------
    is_interleaved : bool
        Other runs print between its lines.
    is_dealt : bool
        No label tells which line is whose: of each kind of line the first is given to the first run, and so on.
    """

    lines: tuple[Line, ...]
    is_interleaved: bool = False
    is_dealt: bool = False


def worlds(lines: Sequence[Line]) -> tuple[World, ...]:
    """Return the runs of a log, in the order in which they begin; one without any sign of a run is one run."""
    streams = _streams([(line, _kind(line)) for line in lines])
    found = [world for stream in streams for world in _runs(stream)]
    if len(streams) > 1:
        meeting = _meeting([_span(world) for world in found])
        found = [replace(world, is_interleaved=True) if i in meeting else world for i, world in enumerate(found)]
    return tuple(sorted(found, key=lambda world: world.lines[0].number if world.lines else 0))


def _kind(line: Line) -> Kind | None:
    known = _KINDS.get(line.text.lstrip(" #").partition(" ")[0])
    return known[0] if known and known[1].match(line.text) else None


def _streams(told: list[_Told]) -> list[list[_Told]]:
    """Return the lines by the process that prints them; what tells of no process goes with the one that spoke last."""
    speaker_of = {line.label: line.speaker for line, _ in told}
    if len(speaker_of) < 2:
        return [told]
    speakers = dict.fromkeys(line.speaker for line, kind in told if kind in _BANNER or kind is Kind.COLUMNS)
    if len(speakers) < 2:
        return [told]
    streams: dict[str, list[_Told]] = {speaker: [] for speaker in speakers}
    current = next(iter(streams.values()))
    for each in told:
        current = streams.get(speaker_of[each[0].label], current)
        current.append(each)
    return list(streams.values())


def _span(world: World) -> tuple[int, int, str]:
    speaker = next((line.speaker for line in world.lines if _kind(line)), world.lines[0].speaker)
    first, last = (
        next(line.number for line in lines if line.speaker == speaker) for lines in (world.lines, world.lines[::-1])
    )
    return first, last, speaker


def _meeting(spans: Sequence[tuple[int, int, str]]) -> set[int]:
    """Return which spans overlap one of another speaker."""
    meeting: set[int] = set()
    begun: list[int] = []
    for i in sorted(range(len(spans)), key=spans.__getitem__):
        first, _, speaker = spans[i]
        begun = [other for other in begun if spans[other][1] > first]
        met = [other for other in begun if spans[other][2] != speaker]
        meeting.update([i, *met] if met else ())
        begun.append(i)
    return meeting


@dataclass(slots=True)
class _Run:
    """A run in the making: its lines and how often each kind was among them."""

    lines: list[Line]
    seen: Counter[Kind]
    has_begun: bool = False
    has_ended: bool = False

    def take(self, line: Line, kind: Kind | None) -> None:
        """Take a line; the run has begun once it prints more than a banner, and ended with its verdict."""
        self.lines.append(line)
        if kind:
            self.seen[kind] += 1
            self.has_begun = self.has_begun or kind not in _BANNER
            self.has_ended = self.has_ended or kind is Kind.BOUNDS
        elif not self.has_begun:
            self.has_begun = _is_failure(line)

    def needs(self) -> int:
        """Return how many runs it takes to print these lines."""
        return max(self.seen[kind] for kind in _ONCE)


def _runs(stream: Sequence[_Told]) -> Iterator[World]:
    """Give the runs of one stream: those that follow each other, and those that print through each other."""
    runs = _split(stream)
    while runs:
        count = 1
        while count < runs[-1].needs() and count < len(runs) and not runs[-1 - count].has_ended:
            count += 1
        lines = [line for run in runs[-count:] for line in run.lines]
        del runs[-count:]
        if count == 1:
            yield World(lines=tuple(lines))
            continue
        for own in _deal(sorted(lines, key=lambda line: line.number), count):
            yield World(lines=tuple(own), is_interleaved=True, is_dealt=True)


def _split(stream: Sequence[_Told]) -> list[_Run]:
    """Return the runs by their banners.

    The lines of two banners may alternate, so that a line of a banner goes to the first run that has none of its kind
    and printed nothing else yet.
    """
    runs = [_Run([], Counter())]
    for line, kind in stream:
        run = runs[-1]
        if kind is None and run.has_begun and not run.has_ended:  # nearly always
            run.lines.append(line)
            continue
        if kind in _BANNER:
            silent = list(takewhile(lambda other: not other.has_begun, reversed(runs)))
            run = next((other for other in reversed(silent) if not other.seen[kind]), _Run([], Counter()))
        elif run.has_ended and _begins_anew(kind, line):
            run = _Run([], Counter())
        if run is not runs[-1] and not run.lines:
            runs.append(run)
        run.take(line, kind)
    return runs


def _begins_anew(kind: Kind | None, line: Line) -> bool:
    """Return whether a line after a summary begins a run without a banner: a table, or a launch that failed."""
    failure = failure_of(line.text) if kind is None else None
    return kind is Kind.TITLE or (failure is not None and failure.error_class is ErrorClass.LAUNCHER)


def _is_failure(line: Line) -> bool:
    failure = failure_of(line.text)
    return failure is not None and failure.error_class is not None


def _deal(lines: Sequence[Line], count: int) -> list[list[Line]]:
    """Return the lines of runs that print through each other without labels, of each kind the i-th to the i-th run."""
    dealt: list[list[Line]] = [[] for _ in range(count)]
    seen: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        tokens = line.text.lstrip("#").split()
        is_reported = line.text.startswith("#") or _kind(line) or (tokens and tokens[0].isdigit())
        key = tuple(tokens[:3])
        dealt[seen[key] % count if is_reported else 0].append(line)
        seen[key] += 1
    return dealt

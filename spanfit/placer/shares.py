"""Groups of columns whose minipods lie one after the other, what one group has over going to another.

The columns are cut into groups; each holds at most ``depth`` minipods, so that a column touches no more. A group that
lacks cells and has an empty place takes there a share of a minipod of a group that has too many. In as many groups as
the row spread, minipods fill whole rows of a group; or cells are dealt exactly, and a row that two minipods of a group
share has one of them, the glue, in another group as well. With fewer groups a row may be shared anywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from spanfit.placer.construct import flip
from spanfit.placer.exchanges import Ints, Items, exchange_items
from spanfit.placer.model import Grid, Problem
from spanfit.placer.stacks import arrange

_PARTITIONS = 10
_FIRST, _NEXT, _BEST, _ROUNDS = 12, 2, 3, 4
"""Layouts of the first run; new ones of each later run, the best that it searches further, and rounds for each."""
_MOST_LISTED = 24
_STEPS = 60
"""Exchanges of a round."""
_KICKS = 3
"""Blind exchanges where what is left over cannot be taken."""
_BLANKS = 3
"""Empty places that groups may have where there are minipods for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How columns are cut.

    Attributes
    ----------
    nrows : int
    widths : tuple of int
        Columns of each group.
    depth, row_spread : int
    is_whole : bool
        Minipods fill whole rows of a group.
    """

    nrows: int
    widths: tuple[int, ...]
    depth: int
    row_spread: int
    is_whole: bool

    @property
    def has_glue(self) -> bool:
        """Whether a row that two minipods of a group share needs one of them elsewhere."""
        return not self.is_whole and len(self.widths) == self.row_spread

    def unit(self, group: int) -> int:
        """Return of what number of cells the shares of a group are multiples."""
        return self.widths[group] if self.is_whole else 1


def layouts(nrows: int, ncolumns: int, depth: int, row_spread: int) -> list[Layout]:
    """Return layouts of columns of at most ``depth`` minipods, the most even first."""
    ways = zip_longest(*(partitions(ncolumns, ngroups)[:_PARTITIONS] for ngroups in (row_spread, row_spread - 1)))
    return [
        Layout(nrows=nrows, widths=widths, depth=depth, row_spread=row_spread, is_whole=is_whole)
        for way in ways
        for widths in way
        if widths is not None
        for is_whole in ((True, False) if len(widths) == row_spread else (False,))
        if is_whole or max(widths) > 1
    ]


def partitions(total: int, count: int) -> list[tuple[int, ...]]:
    """Return ways to cut a number into so many parts, the most even first; of large numbers only the most even."""
    if not 1 <= count <= total:
        return []
    if total > _MOST_LISTED:
        base, rest = divmod(total, count)
        return [(base + 1,) * rest + (base,) * (count - rest)]
    return sorted(_parts(total, count, total), key=lambda parts: sum(part * part for part in parts))


def _parts(total: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield from [(total,)] if total <= most else []
        return
    for part in range(min(most, total - count + 1), -(-total // count) - 1, -1):
        for others in _parts(total - part, count - 1, part):
            yield (part, *others)


class Sharing:
    """A search for shares of one layout, which can be continued."""

    def __init__(self, layout: Layout, free: Sequence[int]) -> None:
        self.layout, self.free = layout, list(free)
        ngroups, places = len(layout.widths), len(layout.widths) * layout.depth
        nblanks = max(places - len(free), _BLANKS)
        nodes = np.array([*free, *[0] * nblanks], dtype=np.int64)
        widths = np.array([*layout.widths, 0])
        most = np.where(widths > 0, nodes[:, None], 0)
        worth = most - most % np.maximum(widths, 1) if layout.is_whole else most
        self.items = Items(worth=worth, need=layout.nrows * widths, is_blank=nodes == 0)
        self.group = self._dealt(nodes, ngroups)
        self.lack = -1

    def _dealt(self, nodes: Ints, ngroups: int) -> Ints:
        """Return groups to start from: the largest minipods first, each to the group that needs most a place."""
        group, have = np.full(len(nodes), ngroups), [0] * ngroups
        room = [self.layout.depth] * ngroups
        for item in np.argsort(-nodes, kind="stable")[: sum(room)].tolist():
            taker = max(
                (g for g in range(ngroups) if room[g]),
                key=lambda g: (self.layout.nrows * self.layout.widths[g] - have[g]) / room[g],
            )
            group[item] = taker
            room[taker] -= 1
            have[taker] += int(self.items.worth[item, taker])
        return group

    def run(self, rounds: int, seed: int, stop: Callable[[], bool]) -> Grid | None:
        """Search on for so many rounds, and return a grid if one was found; its spreads are for the caller to check."""
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            draw = int(rng.integers(1 << 30))
            self.group, self.lack = exchange_items(self.items, self.group, steps=_STEPS, seed=draw, stop=stop)
            grid = None if self.lack else self._grid()
            if grid is not None or stop():
                return grid
            if not self.lack:
                for _ in range(_KICKS):
                    one, other = rng.integers(len(self.group), size=2)
                    self.group[[one, other]] = self.group[[other, one]]
        return None

    def _grid(self) -> Grid | None:
        shares = _Shares(self.layout, self.free, self.group.tolist())
        if not shares.even_out():
            return None
        return _glued(self.layout, shares.cells) if self.layout.has_glue else _side_by_side(self.layout, shares.cells)


class ShareSearch:
    """A search for a grid that reaches (a, b) over all layouts, which can be continued when there is more time."""

    def __init__(self, problem: Problem, a: int, b: int, seed: int) -> None:
        self.is_flipped = problem.ncolumns > problem.nrows
        nrows, ncolumns, depth, row_spread = problem.nrows, problem.ncolumns, a, b
        if self.is_flipped:
            nrows, ncolumns, depth, row_spread = ncolumns, nrows, b, a
        self.sharings = [Sharing(layout, problem.free) for layout in layouts(nrows, ncolumns, depth, row_spread)]
        self.tried: list[Sharing] = []
        self.seed, self.runs = seed, 0

    def run(self, stop: Callable[[], bool]) -> Grid | None:
        """Return a grid that should reach the pair, or None: a round of many layouts at first, then of the best too."""
        best = sorted(self.tried, key=lambda sharing: sharing.lack)[:_BEST]
        number = _NEXT if self.tried else _FIRST
        fresh, self.sharings = self.sharings[:number], self.sharings[number:]
        self.tried += fresh
        for sharing, rounds in [*((sharing, _ROUNDS) for sharing in best), *((sharing, 1) for sharing in fresh)]:
            self.runs += 1
            grid = sharing.run(rounds, self.seed + self.runs, stop)
            if grid is not None:
                return flip(grid) if self.is_flipped else grid
            if stop():
                return None
        return None


class _Shares:
    """How many cells each group has of each minipod, what groups have over, and what is left of minipods."""

    def __init__(self, layout: Layout, free: Sequence[int], group: Sequence[int]) -> None:
        self.layout, self.left = layout, list(free)
        self.cells: list[dict[int, int]] = [{} for _ in layout.widths]
        self.over = [-layout.nrows * width for width in layout.widths]
        for minipod, nodes in enumerate(free):
            if group[minipod] < len(self.cells):
                most = min(nodes, layout.nrows * layout.widths[group[minipod]])
                self._move(minipod, group[minipod], most - most % layout.unit(group[minipod]))

    def _move(self, minipod: int, group: int, cells: int) -> None:
        """Give cells of a minipod to a group; take them where they are fewer than none."""
        after = self.cells[group].pop(minipod, 0) + cells
        if after:
            self.cells[group][minipod] = after
        self.left[minipod] -= cells
        self.over[group] += cells

    def even_out(self) -> bool:
        """Fill what groups lack from what others have over, cut off the rest, and return whether all was filled."""
        for group in sorted(range(len(self.over)), key=lambda group: self.over[group]):
            while self.over[group] < 0:
                gift = max(self._gifts(group), default=(0, 0, 0, 0))
                if gift[0] <= 0:
                    return False
                self._give(group, *gift)
        for group in range(len(self.over)):
            self._cut(group)
        return not any(self.over)

    def _gifts(self, group: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield what a group could be given, as (cells, cells of that minipod at the donor, minipod, donor)."""
        unit, has_room = self.layout.unit(group), len(self.cells[group]) < self.layout.depth
        for minipod, left in enumerate(self.left):
            if has_room or minipod in self.cells[group]:
                holders = [g for g, cells in enumerate(self.cells) if g != group and minipod in cells]
                for donor in [*(g for g in holders if self.over[g] > 0), *([group] if left else [])]:
                    held = 0 if donor == group else self.cells[donor][minipod]
                    spare = 0 if donor == group else min(self.over[donor], held)
                    gift = min(left + spare, -self.over[group])
                    yield gift - gift % unit, held, minipod, donor

    def _give(self, group: int, gift: int, held: int, minipod: int, donor: int) -> None:
        taken = max(0, gift - self.left[minipod])
        if taken:
            unit = self.layout.unit(donor)
            self._move(minipod, donor, -min(held, -(-taken // unit) * unit))
        self._move(minipod, group, gift)

    def _cut(self, group: int) -> None:
        """Take from a group what it has over: cells beyond whole rows first where rows cannot be shared anywhere."""
        width, cells = self.layout.widths[group], self.cells[group]
        if self.layout.has_glue:
            for minipod in sorted(cells, key=lambda minipod: cells[minipod] % width):
                if 0 < cells[minipod] % width <= self.over[group]:
                    self._move(minipod, group, -(cells[minipod] % width))
        for minipod in sorted(cells, key=lambda minipod: -cells[minipod]):
            cut = min(self.over[group], cells[minipod])
            self._move(minipod, group, -(cut - cut % self.layout.unit(group)))


def _side_by_side(layout: Layout, cells: Sequence[dict[int, int]]) -> Grid | None:
    """Return the grid in which each group's minipods follow each other."""
    groups = []
    for width, shares in zip(layout.widths, cells, strict=True):
        line = [minipod for minipod in sorted(shares, key=lambda m: -shares[m]) for _ in range(shares[minipod])]
        groups.append([tuple(line[start : start + width]) for start in range(0, len(line), width)])
    return arrange(groups, layout.nrows)


def _glued(layout: Layout, cells: Sequence[dict[int, int]]) -> Grid | None:
    """Return a grid in which two minipods of a group share a row only where one of them fills another group's row.

    Each minipod's cells beyond whole rows share a row with the group's glue, a minipod that another group has too.
    """
    whole = [
        {m: count // width for m, count in shares.items()} for width, shares in zip(layout.widths, cells, strict=True)
    ]
    shared: list[dict[int, tuple[int, ...]]] = []
    for group, (width, shares) in enumerate(zip(layout.widths, cells, strict=True)):
        rests = {m: count % width for m, count in shares.items() if count % width}
        if not rests:
            continue
        glue, other = _glue(layout, cells, group)
        if other < 0:
            return None
        others = {m: rest for m, rest in rests.items() if m != glue}
        lent = sum(width - rest for rest in others.values())
        whole[group][glue] += (shares[glue] - lent) // width - shares[glue] // width
        whole[other][glue] -= len(others)
        for minipod, rest in others.items():
            shared.append({group: (minipod,) * rest + (glue,) * (width - rest), other: (glue,) * layout.widths[other]})
    if any(rows < 0 for counts in whole for rows in counts.values()) or len(shared) > layout.nrows:
        return None
    return _rows(layout, whole, shared)


def _glue(layout: Layout, cells: Sequence[dict[int, int]], group: int) -> tuple[int, int]:
    """Return the minipod of a group that fills most rows of it and of another group, and that group; -1 for none."""
    found = [
        (min(count // layout.widths[group], shares[minipod] // layout.widths[other]), minipod, other)
        for minipod, count in cells[group].items()
        for other, shares in enumerate(cells)
        if other != group and minipod in shares
    ]
    return max(found, default=(0, -1, -1))[1:]


def _rows(layout: Layout, whole: Sequence[dict[int, int]], shared: Sequence[dict[int, tuple[int, ...]]]) -> Grid | None:
    """Return the grid of the rows that minipods share, then of whole rows of each group."""
    columns = []
    for group, (width, counts) in enumerate(zip(layout.widths, whole, strict=True)):
        pure = iter([(minipod,) * width for minipod in counts for _ in range(counts[minipod])])
        lines = [row[group] if group in row else next(pure, ()) for row in shared]
        columns.append([*lines, *pure])
    if any(len(lines) != layout.nrows or not all(lines) for lines in columns):
        return None
    return tuple(tuple(cell for part in parts for cell in part) for parts in zip(*columns, strict=True))

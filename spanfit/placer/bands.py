"""Column groups that are stacks of sub-bands of minipods: what they hold, and what they lack of a whole grid.

The columns are cut into groups; in each group at most ``depth`` sub-bands lie on top of each other, each of one or more
minipods side by side. So a column touches at most ``depth`` minipods. Which sub-band of a group stands in which row is
free, so rows only need the average: the sub-bands' minipods, times their rows, must fit nrows * row_spread.
One group gives row bands; as many groups as the row spread gives column bands. The exact variant lets the minipods of
a group follow each other cell by cell; a row that two of them share costs one more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What stacks may be.

    Attributes
    ----------
    nrows, ncolumns : int
    depth : int
        Largest column spread.
    row_spread : int
        Largest row spread.
    ngroups : int
        Column groups.
    is_exact : bool
        Minipods of a group follow each other cell by cell instead of in whole rows of the group.
    """

    nrows: int
    ncolumns: int
    depth: int
    row_spread: int
    ngroups: int
    is_exact: bool = False

    @property
    def breadth(self) -> int:
        """Most minipods side by side in a sub-band."""
        return 1 if self.is_exact else self.row_spread - self.ngroups + 1


def _pieces(free: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Return sizes and owners of pieces, largest first; the largest are halved until there are ``count``."""
    pieces = sorted(((nodes, m) for m, nodes in enumerate(free) if nodes), key=lambda piece: -piece[0])
    while len(pieces) < count and pieces[0][0] > 1:
        size, owner = pieces.pop(0)
        pieces += [(size - size // 2, owner), (size // 2, owner)]
        pieces.sort(key=lambda piece: -piece[0])
    return [size for size, _ in pieces], [owner for _, owner in pieces]


def _minipods_by_rows(heights: Sequence[int], counts: Sequence[int], nrows: int) -> int:
    """Return the minipods times rows of a stack cut to nrows rows, the broadest first; a missing row counts as one."""
    used = sum([height * count for height, count in zip(heights, counts, strict=True)])
    excess = sum(heights) - nrows
    if excess <= 0:
        return used - excess
    for count, height in sorted(zip(counts, heights, strict=True), reverse=True):
        used -= count * min(excess, height)
        excess -= min(excess, height)
        if not excess:
            break
    return used


class Bands:
    """Which piece of a minipod sits in which sub-band (a slot; -1 is none), and how wide the groups are."""

    def __init__(self, shape: Shape, free: Sequence[int]) -> None:
        self.shape = shape
        nslots = shape.ngroups * shape.depth
        self.sizes, self.owners = _pieces(free, max(nslots, shape.depth * shape.row_spread * (shape.breadth > 1)))
        base, rest = divmod(shape.ncolumns, shape.ngroups)
        self.widths = [base + (group < rest) for group in range(shape.ngroups)]
        self.members: list[list[int]] = [[] for _ in range(nslots)]
        self.slot = [-1] * len(self.sizes)
        self.heights, self.short, self.usage = [0] * nslots, [0] * shape.ngroups, [0] * shape.ngroups
        self._deal()
        self.settle(range(nslots), range(shape.ngroups))

    def _deal(self) -> None:
        """Give the largest pieces first to the slot that needs most; then widen the sub-bands evenly."""
        depth, total = self.shape.depth, [0] * self.shape.ngroups
        room = [depth] * self.shape.ngroups
        dealt = min(len(self.sizes), len(self.members))
        for piece in range(dealt):
            group = max(
                (g for g in range(self.shape.ngroups) if room[g]),
                key=lambda g: (self.shape.nrows * self.widths[g] - total[g]) / room[g],
            )
            self.put(piece, group * depth + depth - room[group])
            room[group] -= 1
            total[group] += self.sizes[piece]
        mass = [sum(self.sizes[piece] for piece in found) for found in self.members]
        spare = min(len(self.sizes), depth * self.shape.row_spread) if self.shape.breadth > 1 else 0
        lightest = [(nodes, slot) for slot, nodes in enumerate(mass)]
        heapify(lightest)
        for piece in range(dealt, spare):
            nodes, slot = heappop(lightest)
            self.put(piece, slot)
            if len(self.members[slot]) < self.shape.breadth:
                heappush(lightest, (nodes + self.sizes[piece], slot))

    def put(self, piece: int, slot: int) -> None:
        """Move a piece to a slot; ``settle`` has to follow."""
        if self.slot[piece] >= 0:
            self.members[self.slot[piece]].remove(piece)
        if slot >= 0:
            self.members[slot].append(piece)
        self.slot[piece] = slot

    def refill(self, groups: Sequence[int]) -> None:
        """Put each piece alone into a slot of the group given for it; ngroups is none."""
        depth, ngroups = self.shape.depth, self.shape.ngroups
        room = [list(range(group * depth, (group + 1) * depth)) for group in range(ngroups)]
        for piece in range(len(self.sizes)):
            self.put(piece, -1)
        for piece, group in enumerate(groups):
            if group < ngroups:
                self.put(piece, room[group].pop())
        self.settle(range(len(self.members)), range(ngroups))

    def settle(self, slots: Iterable[int], groups: Iterable[int]) -> None:
        """Bring the heights of slots, and what groups lack and use, up to date."""
        for slot in slots:
            self.heights[slot] = self._height(slot)
        for group in groups:
            self._measure(group)

    def _height(self, slot: int) -> int:
        """Return the rows of a sub-band, the largest h with sum floor(size / h) >= width; its cells where exact."""
        sizes = [self.sizes[piece] for piece in self.members[slot]]
        if self.shape.is_exact or not sizes:
            return sum(sizes)
        width, nrows = self.widths[slot // self.shape.depth], self.shape.nrows
        if len(sizes) == 1:
            return min(sizes[0] // width, nrows)
        low, high = 0, min(sum(sizes) // width, nrows)
        while low < high:
            middle = (low + high + 1) // 2
            if sum([size // middle for size in sizes]) >= width:
                low = middle
            else:
                high = middle - 1
        return low

    def _measure(self, group: int) -> None:
        """Bring up to date a group's missing cells and the minipods times rows that it uses."""
        depth, nrows = self.shape.depth, self.shape.nrows
        start = group * depth
        heights = self.heights[start : start + depth]
        reached, width = sum(heights), self.widths[group]
        if self.shape.is_exact:
            self.short[group] = max(0, nrows * width - reached)
            return
        self.short[group] = max(0, nrows - reached) * width
        if self.shape.breadth == 1:
            self.usage[group] = nrows
            return
        counts = [len(found) for found in self.members[start : start + depth]]
        self.usage[group] = _minipods_by_rows(heights, counts, nrows)

    def cost(self) -> int:
        """Return the cells that are missing plus the minipods times rows beyond what the rows may use."""
        return sum(self.short) + max(0, sum(self.usage) - self.shape.nrows * self.shape.row_spread)

    def patterns(self, group: int) -> list[tuple[int, ...]]:
        """Return the minipods of a group's columns, one tuple for each of the nrows rows."""
        depth, width, nrows = self.shape.depth, self.widths[group], self.shape.nrows
        slots = range(group * depth, (group + 1) * depth)
        if self.shape.is_exact:
            pieces = [piece for slot in slots for piece in self.members[slot]]
            cells = [self.owners[piece] for piece in pieces for _ in range(self.sizes[piece])][: nrows * width]
            return [tuple(cells[start : start + width]) for start in range(0, len(cells), width)]
        found: list[tuple[int, ...]] = []
        for slot in sorted(slots, key=lambda slot: len(self.members[slot])):
            height = min(self.heights[slot], nrows - len(found))
            if height > 0:
                row = [self.owners[p] for p in self.members[slot] for _ in range(self.sizes[p] // height)]
                found += [tuple(row[:width])] * height
        return found

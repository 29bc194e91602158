"""Grids made of column groups, each a stack of sub-bands of minipods, found by seeded local search.

The columns are cut into groups; in each group at most ``depth`` sub-bands lie on top of each other, each of one or more
minipods side by side. So a column touches at most ``depth`` minipods. Which sub-band of a group stands in which row is
free, so rows only need the average: the sub-bands' minipods, times their rows, must fit nrows * row_spread.
One group gives row bands; as many groups as the row spread gives column bands. The exact variant lets the minipods of
a group follow each other cell by cell; a row that two of them share costs one more.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spanfit.placer.model import Grid

_COOLING = 0.02
_STEPS_BETWEEN_STOPS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a local search may build.

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


def build(shape: Shape, free: Sequence[int], *, iterations: int, seed: int, stop: Callable[[], bool]) -> Grid | None:
    """Return a grid of a shape, or None where the search found none; its spreads are for the caller to check."""
    search = _Search(shape, free, seed)
    if not search.run(iterations, stop):
        return None
    return _arrange([search.patterns(group) for group in range(shape.ngroups)], shape)


def _pieces(free: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Return sizes and owners of pieces, largest first; the largest are halved until there are ``count``."""
    pieces = sorted(((nodes, m) for m, nodes in enumerate(free) if nodes), key=lambda piece: -piece[0])
    while len(pieces) < count and pieces[0][0] > 1:
        size, owner = pieces.pop(0)
        pieces += [(size - size // 2, owner), (size // 2, owner)]
        pieces.sort(key=lambda piece: -piece[0])
    return [size for size, _ in pieces], [owner for _, owner in pieces]


class _Search:
    """Simulated annealing over which piece of a minipod sits in which sub-band, and how wide the groups are."""

    def __init__(self, shape: Shape, free: Sequence[int], seed: int) -> None:
        self.shape = shape
        self.random = random.Random(seed)
        nslots = shape.ngroups * shape.depth
        self.sizes, self.owners = _pieces(free, max(nslots, shape.depth * shape.row_spread * (shape.breadth > 1)))
        self.siblings = self._find_siblings()
        base, rest = divmod(shape.ncolumns, shape.ngroups)
        self.widths = [base + (group < rest) for group in range(shape.ngroups)]
        self.members: list[list[int]] = [[] for _ in range(nslots)]
        self.slot = [-1] * len(self.sizes)
        self._deal()
        self.heights = [self._height(slot) for slot in range(nslots)]
        self.short = [0] * shape.ngroups
        self.usage = [0] * shape.ngroups
        for group in range(shape.ngroups):
            self._measure(group)

    def _find_siblings(self) -> list[tuple[int, int]]:
        by_owner: dict[int, list[int]] = {}
        for piece, owner in enumerate(self.owners):
            by_owner.setdefault(owner, []).append(piece)
        return [(i, j) for found in by_owner.values() for i in found for j in found if i != j]

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
            self._put(piece, group * depth + depth - room[group])
            room[group] -= 1
            total[group] += self.sizes[piece]
        mass = [sum(self.sizes[piece] for piece in found) for found in self.members]
        spare = min(len(self.sizes), depth * self.shape.row_spread) if self.shape.breadth > 1 else 0
        for piece in range(dealt, spare):
            slot = min((s for s in range(len(mass)) if len(self.members[s]) < self.shape.breadth), key=mass.__getitem__)
            self._put(piece, slot)
            mass[slot] += self.sizes[piece]

    def _put(self, piece: int, slot: int) -> None:
        if self.slot[piece] >= 0:
            self.members[self.slot[piece]].remove(piece)
        if slot >= 0:
            self.members[slot].append(piece)
        self.slot[piece] = slot

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
        used = sum([height * count for height, count in zip(heights, counts, strict=True)]) + max(0, nrows - reached)
        excess = reached - nrows
        if excess > 0:
            for count, height in sorted(zip(counts, heights, strict=True), reverse=True):
                used -= count * min(excess, height)
                excess -= min(excess, height)
                if not excess:
                    break
        self.usage[group] = used

    def cost(self) -> int:
        """Return the cells that are missing plus the minipods times rows beyond what the rows may use."""
        return sum(self.short) + max(0, sum(self.usage) - self.shape.nrows * self.shape.row_spread)

    def run(self, iterations: int, stop: Callable[[], bool]) -> bool:
        """Search until nothing is missing, the steps are spent or ``stop`` says so; return whether all is there."""
        cost = self.cost()
        shape, source = self.shape, self.random
        heat = _COOLING * shape.nrows * shape.ncolumns / math.sqrt(shape.depth * shape.row_spread)
        for iteration in range(iterations):
            if cost <= 0 or (iteration % _STEPS_BETWEEN_STOPS == 0 and stop()):
                break
            undo = self._step()
            if undo is None:
                continue
            after = self.cost()
            temperature = heat * (1 - iteration / iterations) ** 2 + 1e-9
            if after <= cost or source.random() < math.exp((cost - after) / temperature):
                cost = after
            else:
                undo.restore(self)
        return cost <= 0

    def _step(self) -> "_Undo | None":
        draw = self.random.random()
        if draw < 0.1 and len(self.widths) > 1:
            return self._shift_width()
        if draw < 0.3 and self.siblings:
            return self._shift_size()
        if draw < 0.5 and (self.shape.breadth > 1 or len(self.sizes) < len(self.members)):
            return self._move()
        return self._swap()

    def _shift_width(self) -> "_Undo | None":
        giver, taker = self.random.sample(range(len(self.widths)), 2)
        if self.widths[giver] == 1:
            return None
        depth = self.shape.depth
        slots = [*range(giver * depth, (giver + 1) * depth), *range(taker * depth, (taker + 1) * depth)]
        undo = _Undo(self, slots, (giver, taker), widths=[(giver, self.widths[giver]), (taker, self.widths[taker])])
        self.widths[giver] -= 1
        self.widths[taker] += 1
        return undo.settle(self)

    def _shift_size(self) -> "_Undo | None":
        giver, taker = self.random.choice(self.siblings)
        if not self.sizes[giver]:
            return None
        amount = min(self.sizes[giver], self.random.choice((1, self.shape.ncolumns, self.sizes[giver] // 4 + 1)))
        sizes = [(giver, self.sizes[giver]), (taker, self.sizes[taker])]
        undo = _Undo(self, [self.slot[giver], self.slot[taker]], (), sizes=sizes)
        self.sizes[giver] -= amount
        self.sizes[taker] += amount
        return undo.settle(self)

    def _move(self) -> "_Undo | None":
        piece = self.random.randrange(len(self.sizes))
        target = -1 if self.random.random() < 0.15 else self.random.randrange(len(self.members))
        source = self.slot[piece]
        if target == source or (target >= 0 and len(self.members[target]) >= self.shape.breadth):
            return None
        undo = _Undo(self, [source, target], (), places=[(piece, source)])
        self._put(piece, target)
        return undo.settle(self)

    def _swap(self) -> "_Undo | None":
        one, other = self.random.randrange(len(self.sizes)), self.random.randrange(len(self.sizes))
        here, there = self.slot[one], self.slot[other]
        if here == there or self.sizes[one] == self.sizes[other]:
            return None
        undo = _Undo(self, [here, there], (), places=[(one, here), (other, there)])
        self._put(one, there)
        self._put(other, here)
        return undo.settle(self)

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


class _Undo:
    """What a step changed, so that it can be taken back."""

    def __init__(
        self,
        search: _Search,
        slots: Sequence[int],
        groups: Sequence[int],
        *,
        widths: Sequence[tuple[int, int]] = (),
        sizes: Sequence[tuple[int, int]] = (),
        places: Sequence[tuple[int, int]] = (),
    ) -> None:
        depth = search.shape.depth
        self.heights = [(slot, search.heights[slot]) for slot in slots if slot >= 0]
        touched = groups or {slot // depth for slot, _ in self.heights}
        self.groups = [(group, search.short[group], search.usage[group]) for group in touched]
        self.widths, self.sizes, self.places = widths, sizes, places

    def settle(self, search: _Search) -> "_Undo":
        """Bring the touched sub-bands and groups up to date after the step."""
        for slot, _ in self.heights:
            search.heights[slot] = search._height(slot)
        for group, _, _ in self.groups:
            search._measure(group)
        return self

    def restore(self, search: _Search) -> None:
        """Take the step back."""
        for group, width in self.widths:
            search.widths[group] = width
        for piece, size in self.sizes:
            search.sizes[piece] = size
        for piece, slot in self.places:
            search._put(piece, slot)
        for slot, height in self.heights:
            search.heights[slot] = height
        for group, short, usage in self.groups:
            search.short[group], search.usage[group] = short, usage


def _arrange(groups: Sequence[Sequence[tuple[int, ...]]], shape: Shape) -> Grid | None:
    """Put the groups side by side: rows of many minipods in one group meet rows of few in the others."""
    if any(len(rows) != shape.nrows for rows in groups):
        return None
    load = [0] * shape.nrows
    placed: list[list[tuple[int, ...]]] = []
    spread = [[len(set(row)) for row in rows] for rows in groups]
    for index in sorted(range(len(groups)), key=lambda g: -max(spread[g])):
        order = sorted(range(shape.nrows), key=load.__getitem__)
        rows = sorted(range(shape.nrows), key=lambda row, index=index: -spread[index][row])  # type: ignore[misc]
        column: list[tuple[int, ...]] = [()] * shape.nrows
        for target, row in zip(order, rows, strict=True):
            column[target] = groups[index][row]
            load[target] += spread[index][row]
        placed.append(column)
    return tuple(tuple(cell for column in placed for cell in column[row]) for row in range(shape.nrows))

"""Grids made of stacks of sub-bands (``bands``), found by seeded local search."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from spanfit.placer.bands import Bands, Shape
from spanfit.placer.exchanges import Items, exchange_items
from spanfit.placer.model import Grid

_COOLING = 0.02
_STEPS_BETWEEN_STOPS = 256
_STEPS_OF_EXCHANGE = 4
"""Steps of the annealing for one of the exchange, which looks at many more."""


def build(shape: Shape, free: Sequence[int], *, iterations: int, seed: int, stop: Callable[[], bool]) -> Grid | None:
    """Return a grid of a shape, or None where the search found none; its spreads are for the caller to check."""
    search = _Search(shape, free, seed)
    if not search.run(iterations, stop):
        return None
    return arrange([search.bands.patterns(group) for group in range(shape.ngroups)], shape.nrows)


class _Search:
    """Simulated annealing over which piece sits in which sub-band, its size, and how wide the groups are."""

    def __init__(self, shape: Shape, free: Sequence[int], seed: int) -> None:
        self.shape = shape
        self.random = random.Random(seed)
        self.bands = Bands(shape, free)
        self.siblings = self._find_siblings()

    def _find_siblings(self) -> list[tuple[int, int]]:
        by_owner: dict[int, list[int]] = {}
        for piece, owner in enumerate(self.bands.owners):
            by_owner.setdefault(owner, []).append(piece)
        return [(i, j) for found in by_owner.values() for i in found for j in found if i != j]

    def run(self, iterations: int, stop: Callable[[], bool]) -> bool:
        """Search until nothing is missing, the steps are spent or ``stop`` says so; return whether all is there."""
        if self.shape.breadth == 1 and iterations:
            self._exchange(iterations // _STEPS_OF_EXCHANGE, stop)
        cost = self.bands.cost()
        shape, source = self.shape, self.random
        heat = _COOLING * shape.nrows * shape.ncolumns / math.sqrt(shape.depth * shape.row_spread)
        for iteration in range(iterations):
            if cost <= 0 or (iteration % _STEPS_BETWEEN_STOPS == 0 and stop()):
                break
            undo = self._step()
            if undo is None:
                continue
            after = self.bands.cost()
            temperature = heat * (1 - iteration / iterations) ** 2 + 1e-9
            if after <= cost or source.random() < math.exp((cost - after) / temperature):
                cost = after
            else:
                undo.restore(self.bands)
        return cost <= 0

    def _exchange(self, steps: int, stop: Callable[[], bool]) -> None:
        """Exchange pieces between groups, one a sub-band, and keep the result if it lacks less."""
        shape, bands = self.shape, self.bands
        widths = np.array([*bands.widths, 0])
        sizes = np.array(bands.sizes + [0] * max(0, len(bands.members) - len(bands.sizes)))
        rows = np.minimum(sizes[:, None] // np.maximum(widths, 1), shape.nrows)
        worth = np.where(widths > 0, sizes[:, None] if shape.is_exact else rows * widths, 0)
        most = np.sort(worth.max(axis=1))[-len(bands.members) :].sum()
        if most < shape.nrows * shape.ncolumns:
            return
        group, lacks = exchange_items(
            Items(worth=worth, need=shape.nrows * widths, is_blank=np.zeros(len(sizes), dtype=bool)),
            self._groups(len(sizes)),
            steps=steps,
            seed=self.random.randrange(1 << 30),
            stop=stop,
        )
        if lacks < bands.cost():
            bands.refill(group[: len(bands.sizes)].tolist())

    def _groups(self, nitems: int) -> npt.NDArray[np.int64]:
        """Return the group of the first piece of each slot, ngroups for pieces in none; blanks fill empty slots."""
        shape, members = self.shape, self.bands.members
        group = np.full(nitems, shape.ngroups)
        group[[found[0] for found in members if found]] = [
            slot // shape.depth for slot, found in enumerate(members) if found
        ]
        blank = iter(np.flatnonzero(group == shape.ngroups)[::-1])
        for slot, found in enumerate(members):
            if not found:
                group[next(blank)] = slot // shape.depth
        return group

    def _step(self) -> "_Undo | None":
        draw = self.random.random()
        if draw < 0.1 and len(self.bands.widths) > 1:
            return self._shift_width()
        if draw < 0.3 and self.siblings:
            return self._shift_size()
        if draw < 0.5 and (self.shape.breadth > 1 or len(self.bands.sizes) < len(self.bands.members)):
            return self._move()
        return self._swap()

    def _shift_width(self) -> "_Undo | None":
        giver, taker = self.random.sample(range(len(self.bands.widths)), 2)
        if self.bands.widths[giver] == 1:
            return None
        depth = self.shape.depth
        slots = [*range(giver * depth, (giver + 1) * depth), *range(taker * depth, (taker + 1) * depth)]
        undo = _Undo(
            self.bands,
            slots,
            (giver, taker),
            widths=[(giver, self.bands.widths[giver]), (taker, self.bands.widths[taker])],
        )
        self.bands.widths[giver] -= 1
        self.bands.widths[taker] += 1
        return undo.settle(self.bands)

    def _shift_size(self) -> "_Undo | None":
        giver, taker = self.random.choice(self.siblings)
        if not self.bands.sizes[giver]:
            return None
        amount = min(
            self.bands.sizes[giver], self.random.choice((1, self.shape.ncolumns, self.bands.sizes[giver] // 4 + 1))
        )
        sizes = [(giver, self.bands.sizes[giver]), (taker, self.bands.sizes[taker])]
        undo = _Undo(self.bands, [self.bands.slot[giver], self.bands.slot[taker]], (), sizes=sizes)
        self.bands.sizes[giver] -= amount
        self.bands.sizes[taker] += amount
        return undo.settle(self.bands)

    def _move(self) -> "_Undo | None":
        piece = self.random.randrange(len(self.bands.sizes))
        target = -1 if self.random.random() < 0.15 else self.random.randrange(len(self.bands.members))
        source = self.bands.slot[piece]
        if target == source or (target >= 0 and len(self.bands.members[target]) >= self.shape.breadth):
            return None
        undo = _Undo(self.bands, [source, target], (), places=[(piece, source)])
        self.bands.put(piece, target)
        return undo.settle(self.bands)

    def _swap(self) -> "_Undo | None":
        one, other = self.random.randrange(len(self.bands.sizes)), self.random.randrange(len(self.bands.sizes))
        here, there = self.bands.slot[one], self.bands.slot[other]
        if here == there or self.bands.sizes[one] == self.bands.sizes[other]:
            return None
        undo = _Undo(self.bands, [here, there], (), places=[(one, here), (other, there)])
        self.bands.put(one, there)
        self.bands.put(other, here)
        return undo.settle(self.bands)


class _Undo:
    """What a step changed, so that it can be taken back."""

    def __init__(
        self,
        bands: Bands,
        slots: Sequence[int],
        groups: Sequence[int],
        *,
        widths: Sequence[tuple[int, int]] = (),
        sizes: Sequence[tuple[int, int]] = (),
        places: Sequence[tuple[int, int]] = (),
    ) -> None:
        depth = bands.shape.depth
        self.heights = [(slot, bands.heights[slot]) for slot in slots if slot >= 0]
        touched = groups or {slot // depth for slot, _ in self.heights}
        self.groups = [(group, bands.short[group], bands.usage[group]) for group in touched]
        self.widths, self.sizes, self.places = widths, sizes, places

    def settle(self, bands: Bands) -> "_Undo":
        """Bring the touched sub-bands and groups up to date after the step."""
        bands.settle([slot for slot, _ in self.heights], [group for group, _, _ in self.groups])
        return self

    def restore(self, bands: Bands) -> None:
        """Take the step back."""
        for group, width in self.widths:
            bands.widths[group] = width
        for piece, size in self.sizes:
            bands.sizes[piece] = size
        for piece, slot in self.places:
            bands.put(piece, slot)
        for slot, height in self.heights:
            bands.heights[slot] = height
        for group, short, usage in self.groups:
            bands.short[group], bands.usage[group] = short, usage


def arrange(groups: Sequence[Sequence[tuple[int, ...]]], nrows: int) -> Grid | None:
    """Put the groups side by side: rows of many minipods in one group meet rows of few in the others."""
    if any(len(rows) != nrows for rows in groups):
        return None
    load = [0] * nrows
    placed: list[Sequence[tuple[int, ...]]] = []
    spread = [[len(set(row)) for row in rows] for rows in groups]
    for index in sorted(range(len(groups)), key=lambda g: -max(spread[g])):
        touched = spread[index]
        if len(set(touched)) == len(set(load)) == 1:  # As they are is how the sorts below would leave them.
            placed.append(groups[index])
            continue
        order = sorted(range(nrows), key=load.__getitem__)
        rows = sorted(range(nrows), key=touched.__getitem__, reverse=True)
        column: list[tuple[int, ...]] = [()] * nrows
        for target, row in zip(order, rows, strict=True):
            column[target] = groups[index][row]
            load[target] += touched[row]
        placed.append(column)
    return tuple(tuple(chain.from_iterable(cells)) for cells in zip(*placed, strict=True))

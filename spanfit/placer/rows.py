"""Whole rows for columns whose sets of minipods are fixed: a flow, and exchanges of rows where a cut says so.

Rows of the same set of minipods are alike, so their cells are a flow: from a column of the rows to any minipod that
both the rows and the column may touch. Where a minipod gives more than it has, cells are moved along augmenting paths.
If none leads out of the minipods S that are reached, then the rows force too many cells into S, and a row that forces
many is exchanged for one that forces fewest; if the linear program of ``mixes`` holds all rows, there is such a row.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spanfit.placer.mixes import Bools, Floats, Ints, cover

_NEVER = 10.0
_MEMORY = 0.5
_FULLNESS = 1e-3


class _Flow:
    """Rows by their sets, and how many cells each column of them takes from each minipod."""

    def __init__(self, allowed: Bools, capacity: Ints) -> None:
        self.allowed, self.capacity = allowed, capacity
        self.sets: dict[bytes, int] = {}
        ncolumns, nminipods = allowed.shape
        self.open = np.zeros((16, ncolumns, nminipods), dtype=bool)
        self.cells = np.zeros((16, ncolumns, nminipods), dtype=np.int64)
        self.count = np.zeros(16, dtype=np.int64)
        self.over = -capacity.copy()

    def add(self, pattern: Ints, rows: int) -> None:
        """Add rows of the set of a pattern, their cells where the pattern has them."""
        members = np.zeros(len(self.capacity), dtype=bool)
        members[pattern] = True
        place = self._place(members.tobytes())
        if place == len(self.count):
            self.open, self.cells = (np.concatenate([old, np.zeros_like(old)]) for old in (self.open, self.cells))
            self.count = np.concatenate([self.count, np.zeros_like(self.count)])
        self.open[place] = self.allowed & members
        self.count[place] += rows
        self.cells[place, np.arange(len(pattern)), pattern] += rows
        self.over += rows * np.bincount(pattern, minlength=len(self.over))

    def _place(self, key: bytes) -> int:
        """Return the place of a set: its own, that of a set without rows, or a new one."""
        if key not in self.sets:
            empty = next((old for old, place in self.sets.items() if not self.count[place]), None)
            self.sets[key] = len(self.sets) if empty is None else self.sets.pop(empty)
        return self.sets[key]

    def remove_row(self, place: int) -> None:
        """Take one row of a set away, its cells from the minipods that lack most."""
        held = np.where(self.cells[place] > 0, self.over, np.iinfo(np.int64).min)
        minipods = held.argmax(axis=1)
        self.count[place] -= 1
        self.cells[place, np.arange(len(minipods)), minipods] -= 1
        self.over -= np.bincount(minipods, minlength=len(self.over))

    def fullness(self) -> Floats:
        """Return the share of each minipod's nodes that is taken."""
        return np.asarray((self.over + self.capacity) / np.maximum(self.capacity, 1))

    def drain(self) -> Bools | None:
        """Move cells until no minipod lacks any and return None, or return the minipods that are reached in vain."""
        while (self.over > 0).any():
            size = len(self.sets)
            held = self.cells[:size].reshape(-1, len(self.over)) > 0
            links = (held.T.astype(np.float32) @ self.open[:size].reshape(held.shape).astype(np.float32)) > 0
            path, reached = _path(links, self.over)
            if path is None:
                return reached
            self._shift(path)
        return None

    def _shift(self, path: list[int]) -> None:
        size = len(self.sets)
        moves, amount = [], min(int(self.over[path[0]]), -int(self.over[path[-1]]))
        for source, target in pairwise(path):
            fits = np.where(self.open[:size, :, target], self.cells[:size, :, source], 0)
            place = np.unravel_index(int(fits.argmax()), fits.shape)
            moves.append((place, source, target))
            amount = min(amount, int(fits[place]))
        for (q, j), source, target in moves:
            self.cells[q, j, source] -= amount
            self.cells[q, j, target] += amount
        self.over[path[0]] -= amount
        self.over[path[-1]] += amount

    def exchange(self, prices: Floats, row_spread: int) -> bool:
        """Exchange the dearest row for the cheapest, if that is cheaper; a cell costs its minipod's price."""
        table = np.where(self.allowed, prices, _NEVER)
        chosen = np.asarray(cover(table, row_spread), dtype=np.int64)
        pattern = chosen[table[:, chosen].argmin(axis=1)]
        lowest = table[np.arange(len(pattern)), pattern].sum()
        size = len(self.sets)
        costs = np.where(self.open[:size], prices, _NEVER).min(axis=2).sum(axis=1)
        costs = np.where(self.count[:size] > 0, costs, -1)
        dearest = int(costs.argmax())
        if lowest >= min(costs[dearest], _NEVER):
            return False
        self.remove_row(dearest)
        self.add(pattern, 1)
        return True

    def rows(self) -> Ints:
        """Return the minipod of each cell."""
        blocks = []
        for q in np.flatnonzero(self.count):
            columns = [np.repeat(np.arange(len(self.over)), column) for column in self.cells[q]]
            blocks.append(np.stack(columns, axis=1))
        return np.concatenate(blocks)


def _path(links: Bools, over: Ints) -> tuple[list[int] | None, Bools]:
    """Return the shortest way from a minipod that lacks cells to one with room, or None; and all that were reached."""
    reached = over > 0
    before = np.full(len(over), -1)
    front = np.flatnonzero(reached)
    while len(front):
        fresh = links[front].any(axis=0) & ~reached
        news = np.flatnonzero(fresh)
        before[news] = front[links[np.ix_(front, news)].argmax(axis=0)]
        reached = reached | fresh
        roomy = news[over[news] < 0]
        if len(roomy):
            path = [int(roomy[over[roomy].argmin()])]
            while before[path[-1]] >= 0:
                path.append(int(before[path[-1]]))
            return path[::-1], reached
        front = news
    return None, reached


def whole_rows_of(
    patterns: Ints,
    shares: Floats,
    allowed: Bools,
    capacity: Ints,
    row_spread: int,
    nrows: int,
    *,
    exchanges: int,
    stop: Callable[[], bool],
) -> npt.NDArray[np.int64] | None:
    """Return nrows whole rows near the given shares of patterns, or None where the exchanges do not lead to any.

    Parameters
    ----------
    patterns : array of shape (npatterns, ncolumns)
    shares : array of shape (npatterns,)
        Rows of each pattern, as fractions.
    allowed : array of shape (ncolumns, nminipods)
    capacity : array of shape (nminipods,)
    row_spread, nrows, exchanges : int
    stop : callable
    """
    flow = _Flow(allowed, capacity)
    shares = shares * min(1.0, nrows / shares.sum())
    whole = np.floor(shares + 1e-6).astype(np.int64)
    most = np.argsort(whole - shares, kind="stable")
    missing = nrows - int(whole.sum())
    whole[most[:missing]] += 1
    whole[most[0]] += nrows - int(whole.sum())
    for pattern, rows in zip(patterns, whole.tolist(), strict=True):
        if rows:
            flow.add(pattern, rows)
    prices = np.zeros(len(capacity))
    for _ in range(exchanges):
        reached = flow.drain()
        if reached is None:
            return flow.rows()
        prices = _MEMORY * prices + (1 - _MEMORY) * reached
        if stop() or not flow.exchange(prices + _FULLNESS * flow.fullness(), row_spread):
            return None
    return None

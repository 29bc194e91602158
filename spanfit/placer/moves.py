"""The fewest moves that give failed cells of a grid new nodes while no group touches more minipods than it may.

A cell whose node failed needs a node. A plan names cells and the minipod from which each gets a node: the failed
cells, and others whose nodes those take. A plan of n cells moves n ranks' nodes, failed ones included.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Grid, column_spreads, row_spreads

_TRIES = 300
"""Plans of one failed cell that are looked at."""
_VISITS, _CHOICES, _PARTS = 3, 2, 40
"""How often a minipod that lacks a node is continued, and the cells and parts of lines that are tried from it."""
_CONTINUED = 200
"""Minipods that are continued in all, for one failed cell; in 400 failures at 1,200 nodes each plan was among 55."""

Cell = tuple[int, int]
Plan = dict[Cell, int]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A grid with failed cells.

    Attributes
    ----------
    grid : Grid
    failed : tuple of (int, int)
        Cells whose node is gone.
    spare : tuple of int
        Nodes of each minipod that the job may take and does not hold.
    a, b : int
        The largest column and row spread that the mended grid may have.
    may : array of bool or None
        Which minipods each cell may lie in, of shape (rows, columns, minipods); None for all.
    """

    grid: Grid
    failed: tuple[Cell, ...]
    spare: tuple[int, ...]
    a: int
    b: int
    may: Bools | None = None


def applied(grid: Grid, plan: Mapping[Cell, int]) -> Grid:
    """Return a grid after a plan."""
    rows = [list(row) for row in grid]
    for (row, column), minipod in plan.items():
        rows[row][column] = minipod
    return tuple(map(tuple, rows))


def is_sound(damage: Damage, plan: Mapping[Cell, int]) -> bool:
    """Return whether a plan gives every failed cell a node and breaks neither room nor spreads nor the mask."""
    if set(damage.failed) - set(plan):
        return False
    need = [0] * len(damage.spare)
    for (row, column), minipod in plan.items():
        need[minipod] += 1
        if (row, column) not in damage.failed:
            need[damage.grid[row][column]] -= 1
        if damage.may is not None and not damage.may[row, column, minipod]:
            return False
    if any(nodes > room for nodes, room in zip(need, damage.spare, strict=True)):
        return False
    after = applied(damage.grid, plan)
    return max(column_spreads(after)) <= damage.a and max(row_spreads(after)) <= damage.b


def plan_moves(damage: Damage) -> Plan | None:
    """Return a plan with few moves, or None where none was found.

    Failed cells are mended one after another by the cheapest chain, whose links are single moves or the whole part that
    a row or column has in a minipod.
    """
    now, whole = damage, Plan()
    while now.failed:
        plan = next((plan for plan in islice(_Hurt(now).plans(), _TRIES) if _is_step_sound(now, plan)), None)
        if plan is None:
            return None
        whole |= plan
        need = Counter(plan.values())
        need.subtract(now.grid[row][column] for row, column in plan if (row, column) != now.failed[0])
        spare = tuple(nodes - need[minipod] for minipod, nodes in enumerate(now.spare))
        now = replace(now, grid=applied(now.grid, plan), failed=now.failed[1:], spare=spare)
    stay = {cell for cell, m in whole.items() if cell not in damage.failed and damage.grid[cell[0]][cell[1]] == m}
    return {cell: minipod for cell, minipod in whole.items() if cell not in stay}


def _is_step_sound(damage: Damage, plan: Plan) -> bool:
    """Return whether a plan mends the first failed cell and leaves the later ones alone."""
    is_alone = not set(plan) & set(damage.failed[1:])
    return is_alone and is_sound(replace(damage, failed=damage.failed[:1]), plan)


class _Hurt:
    """A grid whose first failed cell is to be mended, and what each cell and minipod allows there."""

    def __init__(self, damage: Damage) -> None:
        self.damage, self.cell = damage, damage.failed[0]
        self.grid = np.array(damage.grid, dtype=np.int64)
        nrows, ncolumns = self.grid.shape
        nminipods = len(damage.spare)
        self.in_row = _counts(self.grid, nminipods)
        self.in_column = _counts(self.grid.T, nminipods)
        self.is_movable = np.ones(self.grid.shape, dtype=bool)
        for row, column in damage.failed:
            self.is_movable[row, column] = False
        rows, columns = np.arange(nrows)[:, None], np.arange(ncolumns)[None, :]
        row_room = self._room(self.in_row, damage.b)[rows, self.grid]
        column_room = self._room(self.in_column, damage.a)[columns, self.grid]
        by_row = (self.in_row > 0)[:, None, :] | row_room[:, :, None]
        by_column = (self.in_column > 0)[None, :, :] | column_room[:, :, None]
        self.fits: Bools = by_row & by_column
        if damage.may is not None:
            self.fits &= damage.may
        self.column_fits = (self.in_column > 0)[:, None, :] | self._room(self.in_column, damage.a)[:, :, None]
        self.row_fits = (self.in_row > 0)[:, None, :] | self._room(self.in_row, damage.b)[:, :, None]

    @staticmethod
    def _room(counts: Ints, most: int) -> Bools:
        """Return whether a line may touch one more minipod once a cell has left each minipod."""
        touched = (counts > 0).sum(axis=1)[:, None]
        room: Bools = (touched - (counts == 1)) < most
        return room

    def plans(self) -> Iterator[Plan]:
        """Yield plans by rising number of moves; some break what interacting moves can break."""
        order = count()
        heap: list[tuple[int, int, tuple[tuple[Cell, int], ...], int, int]] = []

        def push(steps: tuple[tuple[Cell, int], ...], lacking: int, need: int) -> None:
            heappush(heap, (len(steps), next(order), steps, lacking, need))

        for minipod in np.flatnonzero(self.fits[self.cell]).tolist():
            push(((self.cell, minipod),), minipod, 1)
        for part, minipod in self._parts(int(self.grid[self.cell]), 1, through=self.cell):
            push(tuple((cell, minipod) for cell in part), minipod, len(part))
        visits: Counter[tuple[int, int]] = Counter()
        while heap and visits.total() < _CONTINUED:
            _, _, steps, lacking, need = heappop(heap)
            if self.damage.spare[lacking] >= need:
                yield dict(steps)
            elif visits[lacking, need] < _VISITS:
                visits[lacking, need] += 1
                taken = dict(steps)
                short = need - self.damage.spare[lacking]
                for cell, minipod in self._single(lacking, taken) if short == 1 else ():
                    push((*steps, (cell, minipod)), minipod, 1)
                for part, minipod in self._parts(lacking, short):
                    if not taken.keys() & set(part):
                        push((*steps, *((cell, minipod) for cell in part)), minipod, len(part))

    def _single(self, lacking: int, taken: Plan) -> Iterator[tuple[Cell, int]]:
        """Yield, for each minipod, some cells of the lacking one that fit there, far from earlier moves first."""
        places = np.argwhere((self.grid == lacking) & self.is_movable)
        busy_rows, busy_columns = {cell[0] for cell in taken}, {cell[1] for cell in taken}
        near = np.array([(row in busy_rows) + (column in busy_columns) for row, column in places], dtype=np.int64)
        places = places[np.argsort(near, kind="stable")]
        for minipod in range(len(self.damage.spare)):
            if minipod != lacking:
                fitting = places[self.fits[places[:, 0], places[:, 1], minipod]]
                for row, column in fitting[:_CHOICES]:
                    if (cell := (int(row), int(column))) not in taken:
                        yield cell, minipod

    def _parts(self, lacking: int, short: int, through: Cell | None = None) -> Iterator[tuple[list[Cell], int]]:
        """Yield what a row or column has in a minipod that is short of nodes, as a whole, and where it fits instead."""
        found = [
            *self._lines(lacking, short, through, is_row=True),
            *self._lines(lacking, short, through, is_row=False),
        ]
        has_room = self.damage.spare
        yield from sorted(found, key=lambda each: (len(each[0]), has_room[each[1]] < len(each[0])))[:_PARTS]

    def _lines(
        self, lacking: int, short: int, through: Cell | None, *, is_row: bool
    ) -> Iterator[tuple[list[Cell], int]]:
        grid, movable = (self.grid, self.is_movable) if is_row else (self.grid.T, self.is_movable.T)
        counts, across = (self.in_row, self.column_fits) if is_row else (self.in_column, self.row_fits)
        own = None if through is None else through[0 if is_row else 1]
        enough = counts[:, lacking] >= max(2, short)
        lines = np.flatnonzero(enough) if own is None else np.array([own])
        for line in lines[np.argsort(counts[lines, lacking], kind="stable")][:_PARTS].tolist():
            places = np.flatnonzero(grid[line] == lacking)
            if len(places) < 2 or (own is None and not movable[line, places].all()):
                continue
            for minipod in np.flatnonzero(across[places, lacking, :].all(axis=0)).tolist():
                if minipod != lacking:
                    cells = [(line, int(place)) if is_row else (int(place), line) for place in places]
                    yield cells, minipod


def _counts(grid: Ints, nminipods: int) -> Ints:
    """Return how many cells of each line lie in each minipod, of shape (lines, minipods)."""
    flat = grid + nminipods * np.arange(len(grid))[:, None]
    return np.bincount(flat.ravel(), minlength=nminipods * len(grid)).reshape(len(grid), nminipods)

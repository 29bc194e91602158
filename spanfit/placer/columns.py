"""Grids found by which minipods each column may touch: a local search over the sets by the value of a linear program.

Give every column j a set Y_j of at most a minipods; the pair (a, b) has a grid with these sets iff D rows fit, each of
at most b minipods. As fractions that is the linear program of ``mixes``. The search changes the sets by what the prices
say a change is worth. Whenever the program holds D rows, ``rows`` tries to make them whole; the search goes on to more
rows, and where it finds none for a while ``row_sets`` tries, since what is spare makes whole rows likelier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from spanfit.placer.bands import Shape
from spanfit.placer.construct import flip, shapes_one_way, transpose
from spanfit.placer.mixes import Basis, Bools, Floats, Ints, Mix, Stop, mix
from spanfit.placer.model import Grid, Problem
from spanfit.placer.row_sets import rows_by_sets
from spanfit.placer.rows import whole_rows_of
from spanfit.placer.stacks import column_sets

_HEAT = 0.003
_EXCHANGES = 80
_DRAFT_STEPS = 250
_DRAFTS = 3
_CLIMBS = 2
_POOL = 250
_COOLING = 0.995
_MOST_MINIPODS = 64
_SAME = 1e-4
_STALLED, _NEAR = 16, 0.3
"""Changes since the best value, and rows that the value may lie below it, for an integer program to make rows whole."""
_PIVOTS_BETWEEN_LOOKS = 2
"""Pivots of an integer program that count as a look at the allowance."""


def _worths(allowed: Bools, found: Mix, row_spread: int) -> tuple[Floats, Floats]:
    """Return, by column and minipod, what adding a minipod to a column's set would gain and dropping it would lose."""
    npatterns, ncolumns = found.patterns.shape
    lines = np.arange(npatterns)[:, None]
    members = np.zeros((npatterns, allowed.shape[1]), dtype=bool)
    members[lines, found.patterns] = True
    paid = found.prices[found.patterns]
    is_open = members | (members.sum(axis=1) < row_spread)[:, None]
    cheaper = np.maximum(paid[:, :, None] - found.prices, 0)
    gain = np.einsum("qjm,qm->jm", cheaper, is_open * found.rows[:, None])
    choice = np.where(members[:, None, :] & allowed, found.prices, 1.0)
    choice[lines, np.arange(ncolumns), found.patterns] = 1.0
    dearer = (choice.min(axis=2) - paid) * found.rows[:, None]
    loss = np.zeros_like(gain)
    np.add.at(loss, (np.broadcast_to(np.arange(ncolumns), paid.shape), found.patterns), dearer)
    return gain, loss


def _changed(allowed: Bools, found: Mix, depth: int, row_spread: int, rng: np.random.Generator) -> Bools:
    """Return the sets after one change that the prices commend, with some noise."""
    gain, loss = _worths(allowed, found, row_spread)
    scale = 0.02 * max(found.value, 1.0) / len(gain)
    gain = np.where(
        allowed, -np.inf, gain * rng.uniform(0.5, 1.5, gain.shape) + scale * rng.exponential(size=gain.shape)
    )
    loss = np.where(
        allowed, loss * rng.uniform(0.5, 1.5, loss.shape) + scale * rng.exponential(size=loss.shape), np.inf
    )
    is_full = allowed.sum(axis=1) >= depth
    cost = np.where(is_full, loss.min(axis=1), 0.0)
    column = int((gain.max(axis=1) - cost).argmax())
    after = allowed.copy()
    after[column, gain[column].argmax()] = True
    if is_full[column]:
        after[column, loss[column].argmin()] = False
    return after


class _Climb:
    """Sets of one start, and the answer of their linear program, on the way to more rows.

    Attributes
    ----------
    allowed, found, is_fresh
        The sets, their program's answer, and whether its rows were not tried to be made whole yet.
    pool : array of shape (npatterns, ncolumns)
        Patterns that were generated so far, the latest first.
    best, stalled : float, int
        The highest value so far, and changes since it was reached.
    tried : set of bytes
        The sets for which the integer program was tried.
    """

    def __init__(self, task: "_Task", allowed: Bools, seed: int, stop: Stop) -> None:
        self.task, self.allowed = task, allowed
        self.rng = np.random.default_rng(seed)
        self.pool = np.empty((0, len(allowed)), dtype=np.int64)
        self.found = self._mix(allowed, 0.0, stop, None)
        self.is_fresh = True
        self.best, self.stalled, self.tried = self.found.value, 0, set[bytes]()
        self.heat = _HEAT * task.nrows

    def _mix(self, allowed: Bools, least: float, stop: Stop, start: Basis | None) -> Mix:
        room = self.task.capacity.astype(float)
        found = mix(
            allowed, room, self.task.row_spread, least=least, warm=self._fitting(allowed), stop=stop, start=start
        )
        self.pool = np.concatenate([found.fresh, self.pool])[:_POOL]
        return found

    def _fitting(self, allowed: Bools) -> Ints:
        """Return the known patterns that the sets allow."""
        return self.pool[allowed[np.arange(len(allowed)), self.pool].all(axis=1)]

    def step(self, stop: Stop) -> Ints | None:
        """Make rows whole if there are enough, else change one set; return the rows if all are there."""
        task = self.task
        if self.is_fresh and self.found.value >= task.nrows - _SAME:
            self.is_fresh = False
            rows = whole_rows_of(
                self.found.patterns,
                self.found.rows,
                self.allowed,
                task.capacity,
                task.row_spread,
                task.nrows,
                exchanges=_EXCHANGES,
                stop=stop,
            )
            if rows is not None:
                return rows
        if self.stalled >= _STALLED and self.found.value >= max(task.nrows - _SAME, self.best - _NEAR):
            self.stalled, self.heat = 0, _HEAT * task.nrows
            rows = self._rows_by_sets(stop)
            if rows is not None:
                return rows
        self._change(stop)
        return None

    def _change(self, stop: Stop) -> None:
        """Change one set, and take it back where that costs too much for the heat."""
        after = _changed(self.allowed, self.found, self.task.depth, self.task.row_spread, self.rng)
        following = self._mix(after, self.found.value - 5 * self.heat, stop, self.found.basis)
        lost = self.found.value - following.value
        if not stop() and (lost <= 0 or self.rng.random() < np.exp(-lost / self.heat)):
            self.allowed, self.found, self.is_fresh = after, following, True
        self.stalled = 0 if self.found.value > self.best + _SAME else self.stalled + 1
        self.best = max(self.best, self.found.value)
        self.heat = max(self.heat * _COOLING, 1e-3)

    def _rows_by_sets(self, stop: Stop) -> Ints | None:
        """Return whole rows by the integer program, once for the same sets, and count its pivots as looks."""
        key = self.allowed.tobytes()
        if key in self.tried or stop():
            return None
        self.tried.add(key)
        task, patterns = self.task, np.concatenate([self.found.patterns, self._fitting(self.allowed)])
        seed = int(self.rng.integers(1 << 30))
        rows, npivots = rows_by_sets(
            self.allowed, task.capacity, patterns, task.row_spread, task.nrows, seed=seed, limit_s=task.left_s()
        )
        for _ in range(npivots // _PIVOTS_BETWEEN_LOOKS):
            stop()
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    capacity: Ints
    depth: int
    row_spread: int
    nrows: int
    left_s: Callable[[], float]


class ColumnSearch:
    """A search for a grid that reaches (a, b), which can be continued when there is more time."""

    def __init__(
        self, problem: Problem, a: int, b: int, seed: int, *, left_s: Callable[[], float] = lambda: inf
    ) -> None:
        self.is_flipped = problem.ncolumns > problem.nrows
        self.problem = transpose(problem) if self.is_flipped else problem
        depth, row_spread = (b, a) if self.is_flipped else (a, b)
        self.minipods = np.flatnonzero(problem.free)
        capacity = np.array(problem.free, dtype=np.int64)[self.minipods]
        self.task = _Task(
            capacity=capacity, depth=depth, row_spread=row_spread, nrows=self.problem.nrows, left_s=left_s
        )
        self.seed = seed
        self.climbs: list[_Climb] | None = None

    def run(self, stop: Stop) -> Grid | None:
        """Return a grid that should reach the pair, or None where none was found; there may be too many minipods."""
        if len(self.minipods) > _MOST_MINIPODS:
            return None
        if self.climbs is None:
            drafts = [self._draft(shape, stop) for shape in self._shapes()]
            self.climbs = sorted(drafts, key=lambda climb: -climb.found.value)[:_CLIMBS]
        while not stop():
            for climb in self.climbs:
                rows = climb.step(stop)
                if rows is not None:
                    grid = tuple(tuple(row) for row in self.minipods[rows].tolist())
                    return flip(grid) if self.is_flipped else grid
        return None

    def _shapes(self) -> list[Shape]:
        task, ncolumns = self.task, self.problem.ncolumns
        return shapes_one_way(task.nrows, ncolumns, task.depth, task.row_spread, most=_DRAFTS)

    def _draft(self, shape: Shape, stop: Stop) -> _Climb:
        free = self.task.capacity.tolist()
        sets = column_sets(shape, free, iterations=_DRAFT_STEPS, seed=self.seed, stop=stop)
        return _Climb(self.task, sets, self.seed, stop)

"""The state of a solve: the best grid so far, and stages that refute pairs of spreads or build grids for them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from spanfit.placer.baselines import BASELINES, Baseline
from spanfit.placer.bounds import refute, refute_whole_boxes, whole_boxes_work
from spanfit.placer.columns import ColumnSearch
from spanfit.placer.construct import Effort, attempts, flip, reaches, transpose
from spanfit.placer.highs import Engine, MipAnswer, MipStatus, run_mip
from spanfit.placer.mip import TypeModel, read_types, type_model, type_model_size
from spanfit.placer.model import (
    Grid,
    PlacementStatus,
    Problem,
    Solution,
    check_capacity,
    column_spreads,
    objective,
    row_spreads,
)
from spanfit.placer.paper import GroupUnit, solve_paper
from spanfit.placer.proofs import SAME, Proofs

_MIP_NEEDS_S = 0.45
_WORK_PER_S = 5e8
_BISECTION_CELLS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    grid: Grid
    solver: str
    rank: tuple[float, ...]


def _pair_rank(problem: Problem, a: int, b: int) -> tuple[float, int]:
    return round(problem.alpha * a + problem.beta * b, 9), a + b


def _rank(grid: Grid, problem: Problem) -> tuple[float, ...]:
    """Order grids by objective, then a + b, then the weighted mean spread, then the minipods used."""
    columns, rows = column_spreads(grid), row_spreads(grid)
    mean = problem.alpha * sum(columns) / len(columns) + problem.beta * sum(rows) / len(rows)
    return (*_pair_rank(problem, max(columns), max(rows)), round(mean, 9), len({m for row in grid for m in row}))


class Walk:
    """A walk over the pairs of spreads by rising objective, in stages of rising effort."""

    def __init__(self, problem: Problem, seed: int, left_s: Callable[[], float]) -> None:
        self.problem, self.seed, self.left_s = problem, seed, left_s
        self.proofs = Proofs(problem)
        self.tested: set[tuple[int, int]] = set()
        self.searches: dict[tuple[int, int], ColumnSearch] = {}
        self.best: _Found | None = None
        self.failure = ""

    def offer(self, grid: Grid, solver: str) -> None:
        """Keep a grid if it is better than the best so far."""
        found = _Found(grid=grid, solver=solver, rank=_rank(grid, self.problem))
        if self.best is None or found.rank < self.best.rank:
            self.best = found

    def offer_incumbents(self) -> None:
        """Keep the best of the baselines that are instant and of the paper's own answers."""
        for name, place in BASELINES.items():
            if name is not Baseline.TOPO_AWARE:
                self.offer(place(self.problem, self.seed), name)
        for unit in GroupUnit:
            self.offer(solve_paper(self.problem, unit=unit).grid, "paper, closed form")

    def offer_bisection(self) -> None:
        """Keep the bisection's grid if it is better; it takes seconds for large jobs, and is left out there."""
        if self.problem.ncells <= _BISECTION_CELLS and not self._is_over():
            self.offer(BASELINES[Baseline.TOPO_AWARE](self.problem, self.seed), Baseline.TOPO_AWARE)

    def _is_over(self) -> bool:
        return self.left_s() <= 0

    def _until(self, share: float) -> Callable[[], bool]:
        """Return whether a share of the time that is left now has passed."""
        least = self.left_s() * (1 - share)
        return lambda: self.left_s() <= max(least, 0.0)

    def _is_refuted(self, a: int, b: int) -> bool:
        """Return whether bounds refute a pair that no proof covers yet; each is tried once."""
        if (a, b) in self.tested:
            return False
        self.tested.add((a, b))
        return self.proofs.add(refute(self.problem, a, b))

    def open_pairs(self, *, with_ties: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the pairs that are not refuted and would better the best grid, by rising objective."""
        place = 0
        while not self._is_over() and self.proofs.is_left[place:].any():
            place += int(self.proofs.is_left[place:].argmax())
            a, b = self.proofs.pairs[place].tolist()
            rank = _pair_rank(self.problem, a, b)
            limit = None if self.best is None else self.best.rank[:2]
            if limit is not None and (rank >= limit if with_ties else rank[0] >= limit[0]):
                return
            place += 1
            if not self._is_refuted(a, b):
                yield a, b

    def is_open(self) -> bool:
        """Return whether time is left and a better pair is not refuted."""
        return next(self.open_pairs(), None) is not None

    def is_settled(self) -> bool:
        """Return whether the best grid is proven, every better pair refuted, whatever time is left."""
        return self.best is not None and not self.is_open() and not self.proofs.left_below(self.best.rank[0]).any()

    def lift_bound(self) -> None:
        """Refute every pair below the best grid that bounds can refute."""
        for _ in self.open_pairs():
            pass

    def _attempt(self, a: int, b: int, effort: Effort, share: float, rerun: int = 0) -> bool:
        stop = self._until(share)
        for grid in attempts(self.problem, a, b, effort=effort, seed=self.seed + rerun, stop=stop):
            if grid is not None:
                self.offer(grid, "construction")
                return True
        return False

    def leap(self, effort: Effort, *, share: float) -> None:
        """Find a better grid soon: try pairs ever further from the lowest open one, then halve the way back."""
        if next(self.open_pairs(), None) is None:
            return
        limit = np.inf if self.best is None else self.best.rank[0]
        places, low, high = np.flatnonzero(self.proofs.left_below(limit)).tolist(), -1, 0
        while not self._is_over() and not self._attempt_at(places[high], effort, share):
            if high == len(places) - 1:
                return
            low, high = high, min(2 * high + 1, len(places) - 1)
        while high - low > 1 and not self._is_over():
            middle = (low + high) // 2
            if self._attempt_at(places[middle], effort, share):
                high = middle
            else:
                low = middle

    def _attempt_at(self, place: int, effort: Effort, share: float) -> bool:
        a, b = self.proofs.pairs[place].tolist()
        return bool(self.proofs.is_left[place]) and not self._is_refuted(a, b) and self._attempt(a, b, effort, share)

    def climb(self, effort: Effort, *, share: float, rerun: int = 0) -> None:
        """Try to build a grid for each open pair from stacks of bands, each for a share of the time at most.

        The first that succeeds is the best of this effort. A rerun draws anew.
        """
        for a, b in self.open_pairs(with_ties=effort is Effort.QUICK):
            if self._attempt(a, b, effort, share, rerun):
                return

    def climb_by_columns(self, *, share: float) -> None:
        """Try to build a grid for each open pair by columns; the first that succeeds is the best of this effort.

        A pair may take a share of the time; the next time its search is continued.
        """
        for a, b in self.open_pairs():
            search = self.searches.setdefault((a, b), ColumnSearch(self.problem, a, b, self.seed))
            grid = search.run(self._until(share))
            if grid is not None and reaches(grid, self.problem, a, b):
                self.offer(grid, "columns")
                return

    def refute_wholly(self, *, share: float) -> None:
        """Refute open pairs by whole boxes where that takes no more than a share of the time left."""
        for a, b in list(self.open_pairs()):
            affordable = self.left_s() * share * _WORK_PER_S / 2  # What is found is counted again to check it.
            if not self._is_over() and whole_boxes_work(self.problem, a, b) <= affordable:
                self.proofs.add(refute_whole_boxes(self.problem, a, b))

    def settle(self, engine: Engine, *, most_flows: int) -> None:
        """Settle open pairs by the exact type model where it is small enough, each within all the time left."""
        for a, b in self.open_pairs():
            is_flipped, smaller, size = _smaller_way(self.problem, a, b)
            if size > most_flows or self.left_s() < _MIP_NEEDS_S:
                continue
            model = type_model(smaller, *((b, a) if is_flipped else (a, b)))
            answer = run_mip(model.mip, engine=engine, time_limit_s=self.left_s(), seed=self.seed)
            self.failure = answer.reason
            if answer.status is MipStatus.INFEASIBLE:
                self.proofs.add_model(a, b, engine)
            elif answer.status is MipStatus.FAILED:
                return
            grid = _read(model, answer, is_flipped=is_flipped)
            if grid is not None and reaches(grid, self.problem, a, b):
                self.offer(grid, f"type model, {engine}")
                return

    def solution(self, solve_s: float) -> Solution:
        """Return the best grid with the lowest objective that is not refuted as its bound."""
        assert self.best is not None
        check_capacity(self.best.grid, self.problem)
        value = objective(self.best.grid, self.problem)
        bound = min(value, self.proofs.bound())
        is_optimal = value - bound <= SAME
        certificate = self.proofs.explain(value if is_optimal else bound)
        return Solution(
            grid=tuple(tuple(row) for row in self.best.grid),
            objective=value,
            bound=value if is_optimal else bound,
            status=PlacementStatus.OPTIMAL if is_optimal else PlacementStatus.FEASIBLE,
            certificate=certificate if is_optimal or not self.failure else f"{certificate}; {self.failure}",
            solver=self.best.solver,
            solve_s=solve_s,
        )


def _smaller_way(problem: Problem, a: int, b: int) -> tuple[bool, Problem, int]:
    """Return (rows and columns exchanged, problem, flows) for the smaller of the two type models."""
    flipped = transpose(problem)
    upright, across = type_model_size(problem, b), type_model_size(flipped, a)
    return (True, flipped, across) if across < upright else (False, problem, upright)


def _read(model: TypeModel, answer: MipAnswer, *, is_flipped: bool) -> Grid | None:
    """Return the grid of an answer, or None where there is none or its rounded numbers make none."""
    if answer.values is None:
        return None
    try:
        grid = read_types(model, answer.values.tolist())
    except ValueError:
        return None
    return flip(grid) if is_flipped else grid

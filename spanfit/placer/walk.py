"""The state of a solve: the best grid so far, and stages that refute pairs of spreads or build grids for them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from spanfit.placer.baselines import BASELINES, Baseline
from spanfit.placer.bounds import refute, refute_whole_boxes, whole_boxes_work
from spanfit.placer.chains import chains
from spanfit.placer.columns import LOOK_S, ColumnSearch, can_search, is_compiled
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
from spanfit.placer.shares import ShareSearch
from spanfit.placer.worths import Worths

_MIP_NEEDS_S = 0.45
_WORK_PER_S, _PIECES_PER_S = 5e8, 3e8
"""Table entries that whole boxes and pieces look at in a second."""
_ROUND_S = 2e-3
"""What a round of pieces takes beside its tables."""
_PIECES_ROUNDS = 15
_STACKS_S = {Effort.DEAL: 4e-4, Effort.QUICK: 1.4e-3, Effort.NORMAL: 2.8e-3}
_SHARES_S = 2e-3
"""What stages take about between two looks at the allowance, with few minipods."""
_CHAINS_S = 4e-7
"""What chains take between two looks at the allowance, for each cell."""
_MINIPODS_OF_TWICE = 200
"""So many minipods take twice as long."""
_BISECTION_CELLS = 2000
_CHAIN_CELLS, _CHAIN_SLACK = 2000, 1.07
_LINES = 4

Build = Callable[[int, int, float], bool]
"""Tries to build and offer a grid for a pair within a share of the allowance, and tells whether it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    grid: Grid
    solver: str
    rank: tuple[float, ...]


def _pair_rank(problem: Problem, a: int, b: int) -> tuple[float, int]:
    return round(problem.value(a, b), 9), a + b


def _rank(grid: Grid, problem: Problem) -> tuple[float, ...]:
    """Order grids by objective, then a + b, then the weighted mean spread, then the minipods used."""
    columns, rows = column_spreads(grid), row_spreads(grid)
    mean = problem.alpha * sum(columns) / len(columns) + problem.beta * sum(rows) / len(rows)
    return (*_pair_rank(problem, max(columns), max(rows)), round(mean, 9), len({m for row in grid for m in row}))


class Walk:
    """A walk over the pairs of spreads by rising objective, in stages of rising effort."""

    def __init__(self, problem: Problem, seed: int, left_s: Callable[[], float], allowance_s: float) -> None:
        self.problem, self.seed, self.left_s = problem, seed, left_s
        self.nminipods = sum(nodes > 0 for nodes in problem.free)
        self.allowance_s = allowance_s
        self._slowness = 1 + self.nminipods / _MINIPODS_OF_TWICE
        self.proofs = Proofs(problem)
        self.tested: set[tuple[int, int]] = set()
        self.searches: dict[tuple[int, int], ColumnSearch] = {}
        self.sharings: dict[tuple[int, int], ShareSearch] = {}
        self.worths = Worths(problem)
        self.counted: set[tuple[int, int]] = set()
        self.stacked: set[tuple[Effort, int, int, int]] = set()
        self.chained: set[tuple[int, int]] = set()
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

    def _until(self, share: float, each_s: float) -> Callable[[], bool]:
        """Return whether a share of the allowance that is left now has been used, ``each_s`` every time it is asked."""
        least = max(self.allowance_s, 0.0) * (1 - share)

        def is_used() -> bool:
            self.allowance_s -= each_s
            return self.allowance_s <= least or self._is_over()

        return is_used

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

    @property
    def is_tight(self) -> bool:
        """Whether minipods hold so little more than the job needs, and it is so small, that chains are worth trying."""
        ncells = self.problem.ncells
        return ncells <= _CHAIN_CELLS and sum(self.problem.free) <= _CHAIN_SLACK * ncells

    def is_open(self) -> bool:
        """Return whether time is left and a better pair is not refuted."""
        return next(self.open_pairs(), None) is not None

    def _is_down_to(self, least_s: float) -> bool:
        return self.allowance_s <= max(least_s, 0.0) or self._is_over()

    def is_spent(self) -> bool:
        """Return whether the allowance or the time is used up."""
        return self._is_down_to(0.0)

    def is_settled(self) -> bool:
        """Return whether the best grid is proven, every better pair refuted, whatever time is left."""
        return self.best is not None and not self.is_open() and not self.proofs.left_below(self.best.rank[0]).any()

    def lift_bound(self) -> None:
        """Refute every pair below the best grid that bounds can refute."""
        for _ in self.open_pairs():
            pass

    def by_stacks(self, effort: Effort, rerun: int = 0) -> Build:
        """Return the building of grids from stacks of bands, once for each pair; a rerun draws anew."""

        def build(a: int, b: int, share: float) -> bool:
            if (effort, rerun, a, b) in self.stacked:
                return False
            self.stacked.add((effort, rerun, a, b))
            stop = self._until(share, self._slowness * _STACKS_S[effort])
            found = attempts(self.problem, a, b, effort=effort, seed=self.seed + rerun, stop=stop)
            return any(self._offer_built(grid, a, b, "construction") for grid in found)

        return build

    def by_shares(self, a: int, b: int, share: float) -> bool:
        """Build a grid from shares of minipods; the next time the search for the pair goes on."""
        search = self.sharings.setdefault((a, b), ShareSearch(self.problem, a, b, self.seed))
        return self._offer_built(search.run(self._until(share, self._slowness * _SHARES_S)), a, b, "shares")

    def by_chains(self, a: int, b: int, share: float) -> bool:
        """Build a grid as a chain, once for each pair."""
        if (a, b) in self.chained:
            return False
        self.chained.add((a, b))
        stop = self._until(share, _CHAINS_S * self.problem.ncells)
        found = chains(self.problem, a, b, seed=self.seed, stop=stop)
        return any(self._offer_built(grid, a, b, "chain") for grid in found)

    def by_quick_stacks_or_shares(self, a: int, b: int, share: float) -> bool:
        """Build a grid quickly in either way, each within the share."""
        return self.by_stacks(Effort.QUICK)(a, b, share) or self.by_shares(a, b, share)

    def by_columns(self, a: int, b: int, share: float) -> bool:
        """Build a grid by columns; the next time the search for the pair goes on."""
        if not can_search(self.nminipods):
            if not is_compiled():
                self.failure = (
                    "the compiled search by columns is missing (no C++ compiler at installation) or cannot be loaded"
                )
            return False
        if (a, b) not in self.searches:
            self.searches[a, b] = ColumnSearch(self.problem, a, b, self.seed)
        return self._offer_built(self.searches[a, b].run(self._until(share, LOOK_S)), a, b, "columns")

    def _offer_built(self, grid: Grid | None, a: int, b: int, solver: str) -> bool:
        if grid is None or not reaches(grid, self.problem, a, b):
            return False
        self.offer(grid, solver)
        return True

    def leap(self, build: Build, *, share: float, most: float) -> None:
        """Find a better grid soon: try pairs ever further from the lowest open one, then halve the way back.

        Each pair may take a share of the allowance, and all of them ``most`` of it.
        """
        if self.is_open():
            places = self._better_places()
            self._gallop(lambda step: self._builds_at(places[step], build, share), len(places), most)

    def leap_in_lines(self, build: Build, *, share: float, most: float) -> None:
        """Leap along lines of pairs at once: those whose spread of the greater weight is the same.

        Along a line grids are ever easier to find, which is not so along all pairs by rising objective. A step tries
        the pairs that lie so far from the lowest ones of their lines, those of the lowest objectives only.
        """
        spreads = self.proofs.pairs[:, int(self.problem.alpha <= self.problem.beta)]
        places = self._better_places()
        lines = [
            self._from_first_open([place for place in places if spreads[place] == spread])
            for spread in set(spreads[places].tolist())
        ]

        def builds(step: int) -> bool:
            abreast = sorted(line[step] for line in lines if step < len(line))[:_LINES]
            return any(self._builds_at(place, build, share) for place in abreast)

        if any(lines):
            self._gallop(builds, max(map(len, lines)), most)

    def _from_first_open(self, line: list[int]) -> list[int]:
        """Return a line from its first pair on that bounds do not refute."""
        for start, place in enumerate(line):
            if self.proofs.is_left[place] and not self._is_refuted(*self.proofs.pairs[place].tolist()):
                return line[start:]
        return []

    def _better_places(self) -> list[int]:
        """Return the places of the pairs that are not refuted and would better the best grid, by rising objective."""
        limit = np.inf if self.best is None else self.best.rank[0]
        return list(np.flatnonzero(self.proofs.left_below(limit)).tolist())

    def _gallop(self, builds: Callable[[int], bool], nsteps: int, most: float) -> None:
        """Try steps 0, 1, 3, 7, ... until one builds a grid, then halve the way back to the last that did not."""
        least = self.allowance_s * (1 - most)
        low, high = -1, 0
        while not self._is_down_to(least) and not builds(high):
            if high == nsteps - 1:
                return
            low, high = high, min(2 * high + 1, nsteps - 1)
        while high - low > 1 and not self._is_down_to(least):
            middle = (low + high) // 2
            if builds(middle):
                high = middle
            else:
                low = middle

    def _builds_at(self, place: int, build: Build, share: float) -> bool:
        """Return whether a grid was built for a pair, if it is not refuted and would better the best grid."""
        a, b = self.proofs.pairs[place].tolist()
        is_better = self.best is None or self.proofs.values[place] < self.best.rank[0] - SAME
        return is_better and bool(self.proofs.is_left[place]) and not self._is_refuted(a, b) and build(a, b, share)

    def climb(self, build: Build, *, share: float, most: float, with_ties: bool = False) -> None:
        """Try to build a grid for each open pair by rising objective; the first that succeeds is the best of its kind.

        Each pair may take a share of the allowance, and all of them ``most`` of it.
        """
        least = self.allowance_s * (1 - most)
        for a, b in self.open_pairs(with_ties=with_ties):
            if self._is_down_to(least) or build(a, b, share):
                return

    def refute_wholly(self, *, share: float) -> None:
        """Refute open pairs by whole boxes where that takes no more than a share of the allowance."""
        for a, b in list(self.open_pairs()):
            if self._is_over() or (a, b) in self.counted:
                continue
            work_s = whole_boxes_work(self.problem, a, b) / _WORK_PER_S
            if 2 * work_s <= self.allowance_s * share:  # What is found is counted again to check it.
                self.counted.add((a, b))
                self.allowance_s -= work_s
                self.proofs.add(refute_whole_boxes(self.problem, a, b))

    def refute_by_pieces(self, *, share: float) -> None:
        """Refute open pairs by the worths of pieces of columns, all of them within a share of the allowance."""
        least = self.allowance_s * (1 - share)
        for a, b in self.open_pairs():
            round_s = _ROUND_S + self.worths.work(a, b) / _PIECES_PER_S
            if self.allowance_s - round_s * _PIECES_ROUNDS >= least:
                self.proofs.add(self.worths.refute(a, b, self._until(share, round_s)))

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

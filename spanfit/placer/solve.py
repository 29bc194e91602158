"""Walks the pairs of spreads by rising objective until the bound meets a grid, or the time is over [edge]."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spanfit.errors import InfeasibleError, TimedOutError
from spanfit.placer import slabs
from spanfit.placer.baselines import BASELINES
from spanfit.placer.bounds import refute
from spanfit.placer.construct import Effort, attempts, flip, reaches, transpose
from spanfit.placer.highs import MipStatus, run_mip
from spanfit.placer.mip import paper_model, read_paper, read_types, type_model, type_model_size
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

_TYPE_MODEL_FLOWS = 3000
_MIP_NEEDS_S = 2.0
_POLISHING_SEEDS = 3
_NEAR_HALF = 0.05
_SAME = 1e-9


class GroupUnit(StrEnum):
    """What the paper's model places whole: PP groups (rows) or DP groups (columns)."""

    PP = "pp"
    DP = "dp"


class PaperMethod(StrEnum):
    """How Eq. 4-10 is solved."""

    MIP = "mip"
    CLOSED_FORM = "closed-form"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSolution:
    """The paper's answer.

    Attributes
    ----------
    unit : GroupUnit
    minipods_used, largest_split : int
        Y = sum y and T.
    objective : float
        Eq. 4: alpha Y + beta T where the unit is a PP group, beta Y + alpha T where it is a DP group.
    counted : float
        The counted Eq. 2 of the grid, never more than Eq. 4.
    grid : tuple of tuple of int
    is_optimal : bool
        Whether Eq. 4-10 was solved to its end; False for the closed form, which proves nothing.
    """

    unit: GroupUnit
    minipods_used: int
    largest_split: int
    objective: float
    counted: float
    grid: Grid
    is_optimal: bool


def check_feasible(problem: Problem) -> None:
    """Raise InfeasibleError, in numbers, where the minipods have too few free nodes."""
    total = sum(problem.free)
    if total < problem.ncells:
        raise InfeasibleError(
            f"the job needs {problem.ncells} nodes ({problem.nrows} x {problem.ncolumns}), {total} are free: "
            f"{', '.join(map(str, problem.free))} by minipod; free {problem.ncells - total} more nodes or ask for fewer"
        )


def solve(problem: Problem, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
    """Return the best grid found and a proven bound of its objective.

    Parameters
    ----------
    problem : Problem
    time_limit_s : float
        Wall-clock seconds; a grid no worse than every baseline and than the paper's own is returned in any case.
    seed : int
        The same seed gives the same grid wherever the time does not run out.

    Raises
    ------
    InfeasibleError
        If the minipods have too few free nodes.
    """
    check_feasible(problem)
    deadline = time.monotonic() + time_limit_s
    walk = _Walk(problem, seed, lambda: deadline - time.monotonic())
    walk.climb(Effort.QUICK)
    walk.polish()
    walk.settle_exactly()
    walk.climb(Effort.NORMAL)
    walk.climb(Effort.HARD)
    return walk.solution()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    grid: Grid
    solver: str
    rank: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """That neither (a, b) nor any lower pair of spreads has a grid."""

    a: int
    b: int
    text: str
    tightness: float

    def covers(self, a: int, b: int) -> bool:
        return a <= self.a and b <= self.b


def pairs_by_objective(problem: Problem) -> list[tuple[int, int]]:
    """Return every pair of spreads (a, b) that a grid may have, by rising alpha a + beta b, ties by a + b."""
    nminipods = sum(nodes > 0 for nodes in problem.free)
    pairs = [
        (a, b)
        for a in range(1, min(nminipods, problem.nrows) + 1)
        for b in range(1, min(nminipods, problem.ncolumns) + 1)
    ]
    return sorted(pairs, key=lambda pair: (_pair_rank(problem, *pair), pair))


def _pair_rank(problem: Problem, a: int, b: int) -> tuple[float, int]:
    return round(problem.alpha * a + problem.beta * b, 9), a + b


def _rank(grid: Grid, problem: Problem) -> tuple[float, ...]:
    """Order grids by objective, then a + b, then the weighted mean spread, then the minipods used."""
    columns, rows = column_spreads(grid), row_spreads(grid)
    mean = problem.alpha * sum(columns) / len(columns) + problem.beta * sum(rows) / len(rows)
    return (*_pair_rank(problem, max(columns), max(rows)), round(mean, 9), len({m for row in grid for m in row}))


class _Walk:
    """The state of a solve: the best grid so far and which pairs of spreads are refuted."""

    def __init__(self, problem: Problem, seed: int, left_s: Callable[[], float]) -> None:
        self.problem, self.seed, self.left_s = problem, seed, left_s
        self.pairs = pairs_by_objective(problem)
        self.proofs: list[_Proof] = []
        self.tested: set[tuple[int, int]] = set()
        self.best = min((self._found(grid, name) for name, grid in _incumbents(problem, seed)), key=lambda f: f.rank)

    def _found(self, grid: Grid, solver: str) -> _Found:
        check_capacity(grid, self.problem)
        return _Found(grid=grid, solver=solver, rank=_rank(grid, self.problem))

    def _offer(self, grid: Grid, solver: str) -> None:
        found = self._found(grid, solver)
        if found.rank < self.best.rank:
            self.best = found

    def _is_over(self) -> bool:
        return self.left_s() <= 0

    def _is_refuted(self, a: int, b: int) -> bool:
        if any(proof.covers(a, b) for proof in self.proofs):
            return True
        if (a, b) in self.tested:
            return False
        self.tested.add((a, b))
        certificate = refute(self.problem, a, b)
        if certificate is not None:
            tightness = float(certificate.reached / certificate.needed)
            self.proofs.append(_Proof(a=a, b=b, text=str(certificate), tightness=tightness))
        return certificate is not None

    def _open_pairs(self, *, with_ties: bool) -> Iterator[tuple[int, int]]:
        """Yield the pairs that are not refuted and would better the best grid, by rising objective."""
        for a, b in self.pairs:
            rank = _pair_rank(self.problem, a, b)
            is_better = rank < self.best.rank[:2] if with_ties else rank[0] < self.best.rank[0]
            if not is_better or self._is_over():
                return
            if not self._is_refuted(a, b):
                yield a, b

    def climb(self, effort: Effort) -> None:
        """Try to build a grid for each open pair; the first that succeeds is the best of this effort."""
        for a, b in self._open_pairs(with_ties=effort is Effort.QUICK):
            for grid in attempts(self.problem, a, b, effort=effort, seed=self.seed, stop=self._is_over):
                if grid is not None:
                    self._offer(grid, "construction")
                    return

    def polish(self) -> None:
        """Look for another grid of the same spreads with a lower mean spread or fewer minipods."""
        a, b = max(column_spreads(self.best.grid)), max(row_spreads(self.best.grid))
        for seed in range(self.seed + 1, self.seed + 1 + _POLISHING_SEEDS):
            for grid in attempts(self.problem, a, b, effort=Effort.QUICK, seed=seed, stop=self._is_over):
                if grid is not None:
                    self._offer(grid, "construction")
                if self._is_over():
                    return

    def settle_exactly(self) -> None:
        """Settle open pairs by the exact type model where it is small enough; each may take half of the time left."""
        for a, b in self._open_pairs(with_ties=False):
            is_flipped, smaller, size = _smaller_way(self.problem, a, b)
            if size > _TYPE_MODEL_FLOWS or self.left_s() < _MIP_NEEDS_S:
                continue
            model = type_model(smaller, *((b, a) if is_flipped else (a, b)))
            answer = run_mip(model.mip, time_limit_s=self.left_s() / 2, seed=self.seed)
            if answer.status is MipStatus.INFEASIBLE:
                text = f"({a}, {b}) has no grid (exact type model, by HiGHS)"
                self.proofs.append(_Proof(a=a, b=b, text=text, tightness=1.0))
            elif answer.values is not None:
                grid = read_types(model, answer.values.tolist())
                grid = flip(grid) if is_flipped else grid
                if reaches(grid, self.problem, a, b):
                    self._offer(grid, "type model, HiGHS")
                    return

    def solution(self) -> Solution:
        """Return the best grid with the lowest objective that is not refuted as its bound."""
        value = objective(self.best.grid, self.problem)
        pairs = ((self.problem.alpha * a + self.problem.beta * b, a, b) for a, b in self.pairs)
        covered = (low for low, a, b in pairs if not any(proof.covers(a, b) for proof in self.proofs))
        bound = min(value, next(covered, value))
        is_optimal = value - bound <= _SAME
        return Solution(
            grid=tuple(tuple(row) for row in self.best.grid),
            objective=value,
            bound=value if is_optimal else bound,
            status=PlacementStatus.OPTIMAL if is_optimal else PlacementStatus.FEASIBLE,
            certificate=self._explain(value if is_optimal else bound),
            solver=self.best.solver,
        )

    def _explain(self, bound: float) -> str:
        below = [pair for pair in self.pairs if _pair_rank(self.problem, *pair)[0] < round(bound, 9)]
        if not below:
            return "no pair of spreads lies lower"
        proofs = [proof for proof in self.proofs if any(proof.covers(a, b) for a, b in below)]
        tightest = max(proofs, key=lambda proof: proof.tightness)
        number = "the 1 pair" if len(below) == 1 else f"the {len(below)} pairs"
        return f"{number} of spreads below {bound:.4g} refuted, most tightly: {tightest.text}"


def _smaller_way(problem: Problem, a: int, b: int) -> tuple[bool, Problem, int]:
    """Return (rows and columns exchanged, problem, flows) for the smaller of the two type models."""
    flipped = transpose(problem)
    upright, across = type_model_size(problem, b), type_model_size(flipped, a)
    return (True, flipped, across) if across < upright else (False, problem, upright)


def _incumbents(problem: Problem, seed: int) -> Iterator[tuple[str, Grid]]:
    for baseline, place in BASELINES.items():
        yield baseline, place(problem, seed)
    for unit in GroupUnit:
        yield "paper, closed form", _paper_by_unit(problem, unit, PaperMethod.CLOSED_FORM, 0.0, seed).grid


def solve_paper(
    problem: Problem,
    *,
    by: PaperMethod = PaperMethod.CLOSED_FORM,
    unit: GroupUnit | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
) -> PaperSolution:
    """Return the answer of the paper's Eq. 4-10.

    Parameters
    ----------
    problem : Problem
    by : PaperMethod
        Verbatim by HiGHS, or by the near closed form.
    unit : GroupUnit, optional
        Unless given, the group of the dominant affinity: PP groups where beta >= alpha, else DP groups; within 0.05
        of alpha = 0.5 both are solved and the lower counted value is kept.

    Raises
    ------
    InfeasibleError
        If the minipods have too few free nodes.
    TimedOutError
        If HiGHS finds nothing in the time.
    """
    check_feasible(problem)
    if unit is not None:
        units: Sequence[GroupUnit] = [unit]
    elif abs(problem.alpha - problem.beta) <= 2 * _NEAR_HALF:
        units = list(GroupUnit)
    else:
        units = [GroupUnit.PP if problem.beta >= problem.alpha else GroupUnit.DP]
    answers = [_paper_by_unit(problem, each, PaperMethod(by), time_limit_s / len(units), seed) for each in units]
    return min(answers, key=lambda answer: round(answer.counted, 9))


def _paper_by_unit(problem: Problem, unit: GroupUnit, by: PaperMethod, time_limit_s: float, seed: int) -> PaperSolution:
    turned = problem if unit is GroupUnit.PP else transpose(problem)
    weights = turned.alpha, turned.beta
    is_optimal = False
    if by is PaperMethod.CLOSED_FORM:
        taken = slabs.paper_closed_form(turned.nrows, turned.ncolumns, turned.free, *weights)
    else:
        model = paper_model(turned.nrows, turned.ncolumns, turned.free, *weights)
        answer = run_mip(model.mip, time_limit_s=time_limit_s, seed=seed)
        if answer.values is None:
            raise TimedOutError(f"HiGHS found no solution of Eq. 4-10 in {time_limit_s:g} s; allow more time")
        taken, is_optimal = read_paper(model, answer.values.tolist()), answer.status is MipStatus.OPTIMAL
    grid = slabs.unit_grid(taken) if unit is GroupUnit.PP else flip(slabs.unit_grid(taken))
    used, split = slabs.minipods_used(taken), slabs.largest_split(taken)
    return PaperSolution(
        unit=unit,
        minipods_used=used,
        largest_split=split,
        objective=turned.alpha * used + turned.beta * split,
        counted=objective(grid, problem),
        grid=grid,
        is_optimal=is_optimal,
    )

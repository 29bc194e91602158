"""Solves a placement problem, by whichever solver is asked for [edge]."""

import time
from collections.abc import Callable
from enum import StrEnum

from spanfit.placer.construct import Effort
from spanfit.placer.highs import Engine, best_engine
from spanfit.placer.model import Problem, Solution, check_feasible
from spanfit.placer.paper import PaperMethod, solve_paper
from spanfit.placer.walk import Walk

_FLOWS = 3000
_EXACT_FLOWS = 60_000
_RERUNS = 20
_FIRST_COLUMNS_S = 0.12


class Solver(StrEnum):
    """Who looks for the grid."""

    FAST = "fast"
    EXACT = "exact"
    PAPER = "paper"
    PAPER_CLOSED_FORM = "paper, closed form"


def solve(
    problem: Problem,
    *,
    solver: Solver = Solver.FAST,
    time_limit_s: float = 10.0,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Solution:
    """Return the best grid found and a proven bound of its objective.

    Parameters
    ----------
    problem : Problem
    solver : Solver
        ``fast`` refutes pairs of spreads with certificates and constructs grids for those left; what stays open goes to
        the exact model. ``exact`` gives every pair that no certificate refutes to the exact model, by rising objective.
        ``paper`` solves Eq. 4-10 of arXiv 2509.15940 verbatim, and its closed form does without a solver; their bound
        is ours.
    time_limit_s : float
        Wall-clock seconds. Whatever the time, ``fast`` and ``exact`` are no worse than the baselines that are instant
        and than the paper's closed form; topo-aware, which takes seconds for large jobs, counts up to 2,000 nodes.
    seed : int
        The same seed gives the same grid wherever no stage is cut short; each has a share of the time.
    clock : callable
        Seconds that pass, for the time limit.

    Raises
    ------
    InfeasibleError
        If the minipods have too few free nodes.
    TimedOutError
        If ``paper`` finds nothing in the time.
    """
    check_feasible(problem)
    start = clock()
    walk = Walk(problem, seed, lambda: start + time_limit_s - clock())
    if solver is Solver.FAST:
        _fast(walk, time_limit_s)
    elif solver is Solver.EXACT:
        _exact(walk)
    else:
        _paper(walk, solver, time_limit_s)
    return walk.solution(clock() - start)


def _fast(walk: Walk, time_limit_s: float) -> None:
    walk.leap(Effort.DEAL, share=0.1)
    walk.climb(Effort.QUICK, share=0.04)
    if walk.is_settled():
        return
    walk.offer_incumbents()
    walk.leap(Effort.QUICK, share=0.05)
    walk.refute_wholly(share=0.1)
    walk.climb_by_columns(share=_FIRST_COLUMNS_S / max(1.0, time_limit_s))
    if walk.is_open():
        walk.offer_bisection()
    walk.settle(Engine.HIGHS, most_flows=_FLOWS)
    for rerun in range(_RERUNS):
        walk.climb(Effort.NORMAL, share=0.1, rerun=rerun)
        walk.climb_by_columns(share=0.3)
        walk.refute_wholly(share=0.5)
        if not walk.is_open():
            return


def _exact(walk: Walk) -> None:
    walk.offer_incumbents()
    walk.settle(best_engine(), most_flows=_EXACT_FLOWS)


def _paper(walk: Walk, solver: Solver, time_limit_s: float) -> None:
    method = PaperMethod.MIP if solver is Solver.PAPER else PaperMethod.CLOSED_FORM
    answer = solve_paper(walk.problem, by=method, time_limit_s=time_limit_s, seed=walk.seed)
    walk.offer(answer.grid, solver)
    walk.lift_bound()

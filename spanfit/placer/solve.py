"""Solves a placement problem, by whichever solver is asked for [edge]."""

import time
from collections.abc import Callable
from enum import StrEnum

from spanfit.placer.construct import Effort
from spanfit.placer.highs import Engine, best_engine
from spanfit.placer.model import Problem, Solution, check_feasible
from spanfit.placer.paper import PaperMethod, solve_paper
from spanfit.placer.walk import Walk

_FEW_FLOWS, _FLOWS = 200, 3000
_EXACT_FLOWS = 60_000
_RERUNS = 20


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
        The same seed gives the same grid, however fast or busy the machine: work is counted, and the clock only ends
        what takes much longer than it should, and the exact model, for which HiGHS takes what is left. Of a limit of a
        second or less, work takes nearly all; there a slow machine may end sooner.
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
    walk = Walk(problem, seed, lambda: start + time_limit_s - clock(), allowance_s(time_limit_s))
    if solver is Solver.FAST:
        _fast(walk)
    elif solver is Solver.EXACT:
        _exact(walk)
    else:
        _paper(walk, solver, time_limit_s)
    return walk.solution(clock() - start)


def allowance_s(time_limit_s: float) -> float:
    """Return the seconds of counted work in a time limit: the longer it is, the more is kept for a slow machine."""
    return 1.4 * min(1.0, time_limit_s) + 0.3 * max(0.0, time_limit_s - 1)


def _fast(walk: Walk) -> None:
    walk.leap(walk.by_stacks(Effort.DEAL), share=0.1, most=0.5)
    walk.climb(walk.by_stacks(Effort.QUICK), share=0.03, most=0.08, with_ties=True)
    if walk.is_settled():
        return
    walk.offer_incumbents()
    walk.climb(walk.by_columns, share=0.01, most=0.1)
    walk.leap_in_lines(walk.by_quick_stacks_or_shares, share=0.04, most=0.5)
    if walk.is_tight:
        walk.leap_in_lines(walk.by_chains, share=0.05, most=0.15)
    walk.climb(walk.by_columns, share=0.02, most=0.15)
    walk.refute_wholly(share=0.1)
    walk.refute_by_pieces(share=0.3)
    walk.climb(walk.by_columns, share=0.06, most=0.3)
    walk.settle(Engine.HIGHS, most_flows=_FEW_FLOWS)
    walk.climb(walk.by_columns, share=0.25, most=0.6)
    walk.leap_in_lines(walk.by_stacks(Effort.NORMAL), share=0.15, most=0.4)
    walk.climb(walk.by_shares, share=0.06, most=0.1)
    if walk.is_open():
        walk.offer_bisection()
    walk.settle(Engine.HIGHS, most_flows=_FLOWS)
    for rerun in range(1, _RERUNS):
        if walk.is_spent() or not walk.is_open():
            return
        walk.climb(walk.by_columns, share=0.3, most=0.6)
        walk.climb(walk.by_shares, share=0.1, most=0.2)
        walk.climb(walk.by_stacks(Effort.NORMAL, rerun), share=0.15, most=0.3)
        walk.refute_wholly(share=0.5)
        walk.refute_by_pieces(share=0.5)


def _exact(walk: Walk) -> None:
    walk.offer_incumbents()
    walk.settle(best_engine(), most_flows=_EXACT_FLOWS)


def _paper(walk: Walk, solver: Solver, time_limit_s: float) -> None:
    method = PaperMethod.MIP if solver is Solver.PAPER else PaperMethod.CLOSED_FORM
    answer = solve_paper(walk.problem, by=method, time_limit_s=time_limit_s, seed=walk.seed)
    walk.offer(answer.grid, solver)
    walk.lift_bound()

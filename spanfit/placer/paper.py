"""The paper's own placement: Eq. 4-10 of arXiv 2509.15940, verbatim on HiGHS or in its near closed form [edge]."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spanfit.errors import TimedOutError
from spanfit.placer import slabs
from spanfit.placer.construct import flip, transpose
from spanfit.placer.highs import MipStatus, run_mip
from spanfit.placer.mip import paper_model, read_paper
from spanfit.placer.model import Grid, Problem, check_feasible, objective

_NEAR_HALF = 0.05


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
            why = answer.reason or "allow more time"
            raise TimedOutError(f"HiGHS found no solution of Eq. 4-10 in {time_limit_s:g} s; {why}")
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

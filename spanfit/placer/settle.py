"""The fewest moves of small grids, proven by HiGHS on the model of every cell [edge]."""

from dataclasses import dataclass

from spanfit.placer.highs import MipStatus, run_mip
from spanfit.placer.mip import Builder, MipModel
from spanfit.placer.moves import Cell, Damage, Plan, plan_moves

EXACT_CELLS = 32
"""Grids of so many cells or fewer are settled exactly."""
_MIP_NEEDS_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A plan and whether no plan has fewer moves."""

    plan: Plan
    is_fewest: bool


def mend(damage: Damage, *, time_limit_s: float, seed: int = 0) -> Mended | None:
    """Return a plan with few moves, or None where none was found.

    A plan that moves failed cells only is the fewest; up to 32 cells HiGHS settles the others where a second is left.
    """
    plan = plan_moves(damage)
    if plan is not None and len(plan) == len(damage.failed):
        return Mended(plan=plan, is_fewest=True)
    if len(damage.grid) * len(damage.grid[0]) <= EXACT_CELLS and time_limit_s >= _MIP_NEEDS_S:
        status, exact = _fewest(damage, time_limit_s, seed)
        if exact is not None and (plan is None or len(exact) <= len(plan)):
            return Mended(plan=exact, is_fewest=status is MipStatus.OPTIMAL)
    return None if plan is None else Mended(plan=plan, is_fewest=False)


def _fewest(damage: Damage, time_limit_s: float, seed: int) -> tuple[MipStatus, Plan | None]:
    """Return how HiGHS ended, and its plan if any."""
    model, lies = cell_model(damage)
    answer = run_mip(model, time_limit_s=time_limit_s, seed=seed)
    if answer.values is None:
        return answer.status, None
    plan: Plan = {}
    for (cell, minipod), variable in lies.items():
        is_new = cell in damage.failed or damage.grid[cell[0]][cell[1]] != minipod
        if answer.values[variable] > 0.5 and is_new:
            plan[cell] = minipod
    return answer.status, plan


def cell_model(damage: Damage) -> tuple[MipModel, dict[tuple[Cell, int], int]]:
    """Return the model in which as many cells as can stay where they are, and the variable of each (cell, minipod)."""
    nrows, ncolumns, nminipods = len(damage.grid), len(damage.grid[0]), len(damage.spare)
    cells = [(row, column) for row in range(nrows) for column in range(ncolumns)]
    room = list(damage.spare)
    for row, column in set(cells) - set(damage.failed):
        room[damage.grid[row][column]] += 1
    build = Builder()
    lies = {
        (cell, m): build.variable(
            0,
            float(damage.may is None or damage.may[*cell, m]),
            is_integer=True,
            cost=-float(damage.grid[cell[0]][cell[1]] == m and cell not in damage.failed),
        )
        for cell in cells
        for m in range(nminipods)
    }
    in_row = [[build.variable(0, 1, is_integer=True) for _ in range(nminipods)] for _ in range(nrows)]
    in_column = [[build.variable(0, 1, is_integer=True) for _ in range(nminipods)] for _ in range(ncolumns)]
    for cell in cells:
        build.row([(lies[cell, m], 1.0) for m in range(nminipods)], 1, 1)
        for m in range(nminipods):
            for line in (in_row[cell[0]][m], in_column[cell[1]][m]):
                build.row([(lies[cell, m], 1.0), (line, -1.0)], upper=0)
    for lines, most in ((in_row, damage.b), (in_column, damage.a)):
        for touches in lines:
            build.row([(touch, 1.0) for touch in touches], upper=most)
    for m in range(nminipods):
        build.row([(lies[cell, m], 1.0) for cell in cells], upper=room[m])
    return build.finish(), lies

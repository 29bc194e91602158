"""Chooses among placements that the objective cannot tell apart: by further goals in their order, or by step time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count, islice

from spanfit.placer.construct import Effort, attempts
from spanfit.placer.joint import Weighing
from spanfit.placer.model import Grid, Problem, column_spreads, row_spreads
from spanfit.placer.search import Found, Task
from spanfit.placer.seats import Seated, seated
from spanfit.topology.model import RankMap

_SAME = 1e-9
_IDLE_SEEDS = 3
_MOST_BY_GOALS = 2
"""Others of a way that goals look at; a count, so that the same seed gives the same grid on any machine."""

StepTime = Callable[[RankMap], float]
"""Gives the predicted step of a rank map in seconds."""


class Goal(StrEnum):
    """What else a placement should have, once its objective is as low as it was found.

    A low mean spread (weighed by alpha and beta), few minipods, and many free nodes in minipods that it leaves whole.
    """

    MEAN_SPREAD = "mean-spread"
    MINIPODS = "minipods"
    ROOM = "room"


GOALS = (Goal.MEAN_SPREAD, Goal.MINIPODS, Goal.ROOM)
"""All goals, in the order in which they count unless said otherwise."""


def goal_key(grid: Grid, problem: Problem, goals: Sequence[Goal]) -> tuple[float, ...]:
    """Return what orders grids of one objective by goals, the best first."""
    used = {minipod for row in grid for minipod in row}
    columns, rows = column_spreads(grid), row_spreads(grid)
    of_goal = {
        Goal.MEAN_SPREAD: problem.alpha * sum(columns) / len(columns) + problem.beta * sum(rows) / len(rows),
        Goal.MINIPODS: len(used),
        Goal.ROOM: -sum(nodes for minipod, nodes in enumerate(problem.free) if minipod not in used),
    }
    return tuple(round(of_goal[goal], 9) for goal in goals)


def alternatives(grid: Grid, problem: Problem, *, seed: int, stop: Callable[[], bool]) -> Iterator[Grid]:
    """Yield a grid, then others whose largest spreads are no more, each once, until ``stop`` says so.

    A few seeds in a row that build nothing new end it too.
    """
    seen, idle = {grid}, 0
    yield grid
    a, b = max(column_spreads(grid)), max(row_spreads(grid))
    for number in count(seed + 1):
        known = len(seen)
        for built in attempts(problem, a, b, effort=Effort.QUICK, seed=number, stop=stop):
            if built is not None and (found := tuple(map(tuple, built))) not in seen:
                seen.add(found)
                yield found
        idle = 0 if len(seen) > known else idle + 1
        if idle == _IDLE_SEEDS or stop():
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Chooses among solved ways and their alternatives.

    Attributes
    ----------
    goals : tuple of Goal
    step_time_s : callable or None
        Where given, the predicted step decides among equals, before any goal, for as long as there is time; goals
        alone look at a few.
    is_over : callable
        Says that no more alternatives may be looked at.
    """

    goals: tuple[Goal, ...]
    step_time_s: StepTime | None
    is_over: Callable[[], bool]

    def best(self, task: Task, found: Sequence[Found], weighing: Weighing) -> Seated:
        """Return the best of the placements with the lowest objective."""
        first = [seated(task, each, each.solution.grid, weighing) for each in found]
        lowest = min(each.objective for each in first) + _SAME
        tied = [each for each in first if each.objective <= lowest]
        others = (each for one in tied for each in self._others(task, one, weighing) if each.objective <= lowest)
        return min(chain(tied, others), key=lambda each: self._key(each, weighing))

    def _others(self, task: Task, one: Seated, weighing: Weighing) -> Iterator[Seated]:
        """Yield others of a way, only the best by goals unless steps decide; pins and several blocks have none."""
        blocks, ground = one.found.offer.blocks, one.found.ground
        if len(blocks) > 1 or any(blocks[0].pins):
            return
        first, problem = one.found.solution.grid, weighing.problem(ground.nrows, ground.ncolumns, blocks[0].free)
        grids: Iterator[Grid] = islice(alternatives(first, problem, seed=weighing.seed, stop=self.is_over), 1, None)
        if self.step_time_s is None:
            few = [first, *islice(grids, _MOST_BY_GOALS)]
            best = min(few, key=lambda grid: goal_key(grid, problem, self.goals))
            grids = iter([best] if best is not first else [])
        for grid in grids:
            yield seated(task, one.found, grid, weighing)

    def _key(self, one: Seated, weighing: Weighing) -> tuple[float, ...]:
        free = [units * one.found.ground.unit for units in one.found.offer.pool.free]
        problem = weighing.problem(len(one.grid), len(one.grid[0]), free)
        goals = goal_key(one.grid, problem, self.goals)
        return goals if self.step_time_s is None else (self.step_time_s(one.rank_map), *goals)

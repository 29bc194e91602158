"""Chooses among placements that the objective cannot tell apart: by further goals in their order, or by step time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, count, islice, takewhile

from spanfit.placer.construct import Effort, attempts
from spanfit.placer.joint import Weighing
from spanfit.placer.model import EdgeBytes, Grid, Problem, column_spreads, objective, row_spreads
from spanfit.placer.search import Found, Task
from spanfit.placer.seats import Seated, seated
from spanfit.placer.strips import strips
from spanfit.placer.traffic import least_traffic
from spanfit.topology.model import RankMap

_SAME = 1e-9
_IDLE_SEEDS = 3
OTHERS_BY_GOALS = 7
"""Constructed grids of a way that goals look at; a count, so that the same seed gives the same grid on any machine."""

StepTime = Callable[[RankMap], float]
"""Gives the predicted step of a rank map in seconds."""


class Goal(StrEnum):
    """What else a placement should have, once its objective is as low as it was found.

    Few bytes between minipods in all, few over the busiest uplink, a low mean spread (weighed by alpha and beta), few
    minipods, and many free nodes in minipods that it leaves whole.
    """

    TRAFFIC = "traffic"
    UPLINK = "uplink"
    MEAN_SPREAD = "mean-spread"
    MINIPODS = "minipods"
    ROOM = "room"


GOALS = (Goal.MEAN_SPREAD, Goal.MINIPODS, Goal.ROOM)
"""All goals that any job has, in the order in which they count unless said otherwise."""
OF_BYTES = (Goal.TRAFFIC, Goal.UPLINK)
"""Goals that need to know what the job's edges carry; they come first where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """What is preferred among placements that count as equals.

    Attributes
    ----------
    goals : tuple of Goal
        In their order.
    edges : EdgeBytes or None
        What the edges of the grid carry; goals of bytes need it.
    tolerance : float
        By which share an objective may be above the lowest and still count as equal.
    """

    goals: tuple[Goal, ...] = GOALS
    edges: EdgeBytes | None = None
    tolerance: float = 0.0

    def limit(self, lowest: float) -> float:
        """Return the highest objective that counts as equal to the lowest one."""
        return lowest * (1 + self.tolerance) + _SAME

    def key(self, grid: Grid, problem: Problem) -> tuple[float, ...]:
        """Return what orders grids that count as equals, the best first; equal in all goals, by objective."""
        return (*goal_key(grid, problem, self.goals, self.edges), round(objective(grid, problem), 9))


def goal_key(grid: Grid, problem: Problem, goals: Sequence[Goal], edges: EdgeBytes | None = None) -> tuple[float, ...]:
    """Return what orders grids of one objective by goals, the best first; goals of bytes need the edges."""
    used = {minipod for row in grid for minipod in row}
    columns, rows = column_spreads(grid), row_spreads(grid)
    load = least_traffic(grid, len(problem.free), edges) if edges else None
    of_goal = {
        Goal.UPLINK: load.busiest_bytes if load else 0.0,
        Goal.TRAFFIC: load.total_bytes if load else 0.0,
        Goal.MEAN_SPREAD: problem.alpha * sum(columns) / len(columns) + problem.beta * sum(rows) / len(rows),
        Goal.MINIPODS: len(used),
        Goal.ROOM: -sum(nodes for minipod, nodes in enumerate(problem.free) if minipod not in used),
    }
    return tuple(round(of_goal[goal], 9) for goal in goals)


def alternatives(grid: Grid, problem: Problem, *, seed: int, stop: Callable[[], bool]) -> Iterator[Grid]:
    """Yield a grid, then constructed ones whose largest spreads are no more, each once, until ``stop`` says so.

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


def striped(grid: Grid, problem: Problem, preference: Preference, *, seed: int) -> list[Grid]:
    """Return grids of strips that count as equal to a grid, each once, the best by goals first."""
    found = set(strips(problem, most=preference.limit(objective(grid, problem)), seed=seed))
    return sorted(found - {grid}, key=lambda each: (preference.key(each, problem), each))


def _first_of_each_pair(grids: Iterable[Grid]) -> list[Grid]:
    """Return the first grid of each pair of largest spreads."""
    found: dict[tuple[int, int], Grid] = {}
    for grid in grids:
        found.setdefault((max(column_spreads(grid)), max(row_spreads(grid))), grid)
    return list(found.values())


def preferred(
    grid: Grid, problem: Problem, preference: Preference, *, seed: int, stop: Callable[[], bool] = lambda: False
) -> Grid:
    """Return the best by goals of a grid and of others that count as equal to it."""
    built = islice(alternatives(grid, problem, seed=seed, stop=stop), 1 + OTHERS_BY_GOALS)
    found = [*built, *striped(grid, problem, preference, seed=seed)]
    return min(found, key=lambda each: preference.key(each, problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Chooses among solved ways and their alternatives.

    Attributes
    ----------
    preference : Preference
    step_time_s : callable or None
        Where given, the predicted step decides among equals, before any goal, for as long as there is time; goals
        alone look at a few others only.
    is_over : callable
        Says that no more alternatives may be looked at.
    """

    preference: Preference
    step_time_s: StepTime | None
    is_over: Callable[[], bool]

    def best(self, task: Task, found: Sequence[Found], weighing: Weighing) -> Seated:
        """Return the best of the placements whose objective counts as the lowest."""
        first = [seated(task, each, each.solution.grid, weighing) for each in found]
        most = self.preference.limit(min(each.objective for each in first))
        tied = [each for each in first if each.objective <= most]
        others = (each for one in tied for each in self._others(task, one, weighing) if each.objective <= most)
        return min(chain(tied, others), key=lambda each: self._key(each, weighing))

    def _others(self, task: Task, one: Seated, weighing: Weighing) -> Iterator[Seated]:
        """Yield others of a way, only the best by goals unless steps decide; pins and several blocks have none."""
        blocks, ground = one.found.offer.blocks, one.found.ground
        if len(blocks) > 1 or any(blocks[0].pins):
            return
        first, problem = one.found.solution.grid, weighing.problem(ground.nrows, ground.ncolumns, blocks[0].free)
        preference = self._in_units(ground.unit)
        if self.step_time_s is None:
            best = preferred(first, problem, preference, seed=weighing.seed, stop=self.is_over)
            grids: Iterator[Grid] = iter([best] if best is not first else [])
        else:
            few = _first_of_each_pair(striped(first, problem, preference, seed=weighing.seed))
            built = islice(alternatives(first, problem, seed=weighing.seed, stop=self.is_over), 1, None)
            grids = chain(takewhile(lambda _: not self.is_over(), few), built)
        for grid in grids:
            yield seated(task, one.found, grid, weighing)

    def _in_units(self, unit: int) -> Preference:
        """Return the preference for grids each of whose rows stands for some rows of nodes."""
        edges = self.preference.edges
        if edges is None or unit == 1:
            return self.preference
        return replace(self.preference, edges=replace(edges, chain_bytes=unit * edges.chain_bytes))

    def _key(self, one: Seated, weighing: Weighing) -> tuple[float, ...]:
        free = [units * one.found.ground.unit for units in one.found.offer.pool.free]
        problem = weighing.problem(len(one.grid), len(one.grid[0]), free)
        goals = self.preference.key(one.grid, problem)
        return goals if self.step_time_s is None else (self.step_time_s(one.rank_map), *goals)

"""Solves the ways of a zone: blocks one by one, with pinned nodes, each way into one grid and one bound."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from spanfit.placer.construct import flip
from spanfit.placer.model import Grid, PlacementStatus, Problem, Reading, Solution, objective, row_spreads
from spanfit.placer.offers import Block, Offer, Zone
from spanfit.placer.solve import Solver, solve

_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """What a solve minimises and how long it may take.

    Attributes
    ----------
    alpha, beta, ep_weight : float
        Weights of the largest DP (column), PP (row) and EP spread.
    time_limit_s : float
    seed : int
    solver : Solver
    reading : Reading
        Of the spreads.
    """

    alpha: float
    beta: float
    time_limit_s: float
    seed: int = 0
    ep_weight: float = 0.0
    solver: Solver = Solver.FAST
    reading: Reading = Reading.COUNTED

    def value(self, a: int, b: int, e: int) -> float:
        """Return the objective of the largest DP, PP and EP spread."""
        count = self.reading.of
        return self.alpha * count(a) + self.beta * count(b) + self.ep_weight * count(e)

    def problem(self, nrows: int, ncolumns: int, free: Sequence[int]) -> Problem:
        """Return the problem of a grid under the weights of its columns and rows."""
        return Problem(
            nrows=nrows, ncolumns=ncolumns, free=tuple(free), alpha=self.alpha, beta=self.beta, reading=self.reading
        )

    def solve(self, nrows: int, ncolumns: int, free: Sequence[int]) -> Solution:
        """Return the solution of a grid under these weights, in this time."""
        problem = self.problem(nrows, ncolumns, free)
        return solve(problem, solver=self.solver, time_limit_s=self.time_limit_s, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """An offer, its best grid of units, and a bound over all grids that it allows."""

    offer: Offer
    solution: Solution


def solve_zone(zone: Zone, weighing: Weighing) -> list[Bounded]:
    """Return the solutions of the ways of a zone that have room; of shares between models as many as there is time for.

    Notes
    -----
    A way of several blocks has each solved by itself, under the given weights and under either alone, and the best
    combination is kept. No grid is below the whole grid with all nodes in one pool, nor, of its own way, below what
    one block costs by itself. Where not all ways of a zone are solved, only the pool bounds the others.
    """
    deadline = time.monotonic() + weighing.time_limit_s
    offers = [offer for offer in zone.offers if offer.is_possible]
    if zone.is_complete and all(len(offer.blocks) == 1 for offer in offers):
        each = replace(weighing, time_limit_s=weighing.time_limit_s / max(1, len(offers)))
        return [Bounded(offer=offer, solution=_solve_block(offer.blocks[0], each)) for offer in offers]
    pooled = _in_one_pool(offers[0].pool, replace(weighing, time_limit_s=weighing.time_limit_s / 4))
    each = replace(weighing, time_limit_s=weighing.time_limit_s / (6 * len(offers)))
    found: list[Bounded] = []
    for offer in sorted(offers, key=lambda offer: -min(len(block.rows) * len(block.columns) for block in offer.blocks)):
        if found and time.monotonic() > deadline:
            break
        found.append(Bounded(offer=offer, solution=_solve_blocks(offer, each, pooled)))
    if zone.is_complete and len(found) == len(offers):
        return found
    return [replace(each, solution=_bounded_by_pool(each.solution, pooled)) for each in found]


def _in_one_pool(pool: Block, weighing: Weighing) -> Solution:
    pooled = weighing.solve(len(pool.rows), len(pool.columns), pool.free)
    return replace(pooled, certificate=f"all nodes in one pool: {pooled.certificate}")


def _bounded_by_pool(solution: Solution, pooled: Solution) -> Solution:
    return _rated(solution.grid, solution.objective, pooled.bound, pooled.certificate, solution.solver)


def _solve_blocks(offer: Offer, weighing: Weighing, pooled: Solution) -> Solution:
    """Return the best combination of the solutions of an offer's blocks."""
    found = [[_solve_block(block, aim) for aim in _aims(weighing)] for block in offer.blocks]
    whole = weighing.problem(len(offer.pool.rows), len(offer.pool.columns), offer.pool.free)
    grids = (_combined(offer, [solution.grid for solution in choice]) for choice in product(*found))
    best = min(grids, key=lambda grid: round(objective(grid, whole), 9))
    alone = _block_bounds(offer, found, weighing)
    bound, certificate = max([(pooled.bound, pooled.certificate), *alone])
    return _rated(best, objective(best, whole), bound, certificate, found[0][0].solver)


def _rated(grid: Grid, value: float, bound: float, certificate: str, solver: str) -> Solution:
    is_optimal = value - bound <= _SAME
    return Solution(
        grid=tuple(map(tuple, grid)),
        objective=value,
        bound=value if is_optimal else bound,
        status=PlacementStatus.OPTIMAL if is_optimal else PlacementStatus.FEASIBLE,
        certificate=certificate,
        solver=solver,
    )


def _aims(weighing: Weighing) -> Iterator[Weighing]:
    yield weighing
    yield replace(weighing, alpha=0.0, beta=1.0)
    yield replace(weighing, alpha=1.0, beta=0.0)


def _block_bounds(offer: Offer, found: Sequence[Sequence[Solution]], weighing: Weighing) -> Iterator[tuple[float, str]]:
    """Yield what the whole costs at least by each block: where no minipod serves two, others add one to a group."""
    used = [{m for m, units in enumerate(block.units) if units} for block in offer.blocks]
    others = 0 if any(one & two for one, two in combinations(used, 2)) else len(offer.blocks) - 1
    added = others * (weighing.beta if _are_side_by_side(offer) else weighing.alpha)
    for solutions in found:
        more = f"; the others add {added:.4g}" if added else ""
        yield solutions[0].bound + added, f"one block alone: {solutions[0].certificate}{more}"


def _are_side_by_side(offer: Offer) -> bool:
    return offer.blocks[0].rows == offer.blocks[-1].rows


def _combined(offer: Offer, grids: Sequence[Grid]) -> Grid:
    """Return the whole grid: groups that go through all blocks join those that touch many with those that touch few."""
    if not _are_side_by_side(offer):
        turned = [replace(block, rows=block.columns, columns=block.rows) for block in offer.blocks]
        return flip(_combined(replace(offer, blocks=tuple(turned)), [flip(grid) for grid in grids]))
    nrows = len(grids[0])
    rows: list[dict[int, int]] = [{} for _ in range(nrows)]
    for block, grid in zip(offer.blocks, grids, strict=True):
        fewest_first = sorted(range(nrows), key=lambda row: len(set(rows[row].values())))
        most_first = sorted(zip(row_spreads(grid), grid, strict=True), key=lambda each: -each[0])
        for row, (_, cells) in zip(fewest_first, most_first, strict=True):
            rows[row].update(zip(block.columns, cells, strict=True))
    return tuple(tuple(cells[column] for column in sorted(cells)) for cells in rows)


def _solve_block(block: Block, weighing: Weighing) -> Solution:
    """Return the solution of a block in which every minipod gives at least its pinned units.

    Notes
    -----
    Where the best grid leaves pinned units out, others are given less room, in several ways, until there is no grid
    without them; the bound stays that of the block without pins.
    """
    size = len(block.rows), len(block.columns)
    first = weighing.solve(*size, block.free)
    if _are_pins_met(first.grid, block.pins):
        return first
    trimmed = {_trimmed(block, order) for order in _orders(block)}
    each = replace(weighing, time_limit_s=weighing.time_limit_s / len(trimmed))
    best = min((each.solve(*size, free) for free in sorted(trimmed)), key=lambda found: found.objective)
    certificate = f"without pinned nodes: {first.certificate}"
    return _rated(best.grid, best.objective, first.bound, certificate, best.solver)


def _are_pins_met(grid: Grid, pins: Sequence[int]) -> bool:
    given = [cell for row in grid for cell in row]
    return all(given.count(m) >= count for m, count in enumerate(pins) if count)


def _orders(block: Block) -> Iterator[list[int]]:
    """Yield orders in which minipods lose room: small ones first, large ones first, as they come."""
    minipods = range(len(block.free))
    yield sorted(minipods, key=lambda m: (block.pins[m] > 0, block.free[m]))
    yield sorted(minipods, key=lambda m: (block.pins[m] > 0, -block.free[m]))
    yield sorted(minipods, key=lambda m: block.pins[m] > 0)


def _trimmed(block: Block, order: Sequence[int]) -> tuple[int, ...]:
    """Return room such that no grid can leave a pinned unit out.

    A minipod gives at least p units where the room of all is above the cells by no more than its own is above p.
    """
    free = list(block.free)
    for minipod in order:
        for _ in range(free[minipod] - block.pins[minipod]):
            if sum(free) - block.size <= min(free[m] - pins for m, pins in enumerate(block.pins) if pins):
                return tuple(free)
            free[minipod] -= 1
    return tuple(free)

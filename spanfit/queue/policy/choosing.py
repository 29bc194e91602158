"""Which of the allowed nodes a job gets, in node-rank order: packed into few minipods, or as its grid is best laid."""

from functools import lru_cache

from spanfit.placer.model import Grid, Problem
from spanfit.placer.seats import orders
from spanfit.placer.solve import solve
from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.model.nodes import Ground, NodeSet, indices
from spanfit.queue.policy.packing import pack

_TIME_S = 0.4
"""Of counted work; too short for the exact model, which would start a process and be cut short by the real clock."""


def choose(job: QueueJob, ground: Ground, allowed: NodeSet) -> tuple[int, ...]:
    """Return a job's nodes out of the allowed ones, in node-rank order; an empty tuple where there are too few.

    A job without a grid, or one that fits a minipod, is packed. The grid of another is laid by the placer's fast solver
    on a clock that stands still: the solver counts its own work, so that the same nodes are chosen wherever and
    whenever it runs. Node ranks go down the columns: neighbours in a DP group are neighbours in rank, as in the order
    tp-cp-ep-dp-pp.
    """
    if job.nrows is None or job.ncolumns is None:
        return pack(job, ground, allowed)
    parts = [mask & allowed for mask in ground.masks]
    free = tuple(part.bit_count() for part in parts)
    if sum(free) < job.nnodes or max(free) >= job.nnodes:
        return pack(job, ground, allowed)
    grid = _grid(Problem(nrows=job.nrows, ncolumns=job.ncolumns, free=free, alpha=job.alpha, beta=1 - job.alpha))
    givers = {minipod: iter(indices(part)) for minipod, part in enumerate(parts)}
    return tuple(next(givers[minipod]) for column in zip(*grid, strict=True) for minipod in column)


@lru_cache(maxsize=256)
def _grid(problem: Problem) -> Grid:
    """Return the minipod of each cell, rows and columns in an order in which neighbours change minipods least."""
    grid = solve(problem, time_limit_s=_TIME_S, clock=lambda: 0.0).grid
    rows, columns = orders(grid)
    return tuple(tuple(grid[row][column] for column in columns) for row in rows)

"""The crossings of minipods in the arms of a job, and what one of each kind costs a step."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean

import numpy as np

from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, PP_ALIGNED
from spanfit.profiler import statistics
from spanfit.profiler.steps import StepTimes
from spanfit.results.schema import RunInfo
from spanfit.weights.model import CrossingCost, LaunchTimes, RemovedCrossings
from spanfit.weights.scaling import counts, prices
from spanfit.workload.job import Job, StepJob

_SINGULAR = 1e-9

Grid = Sequence[Sequence[object]]
"""The minipod of each cell of a job's grid of nodes, as rows of columns."""


def grids_of(steps: StepTimes, info: RunInfo, job: Job) -> dict[str, Grid]:
    """Return the minipods of a job's grid of nodes in each arm that gains look at."""
    cells = job.layout.node_cells(1 if isinstance(job, StepJob) else info.ngpus_per_node)
    found: dict[str, Grid] = {}
    for arm in (DP_ALIGNED, PP_ALIGNED, *steps.base_arms):
        nodes = map(int, steps.seats[arm].split(","))
        minipods = {cell: info.minipods[node] for cell, node in zip(cells, nodes, strict=True)}
        nrows, ncolumns = (1 + max(axis) for axis in zip(*cells, strict=True))
        found[arm] = tuple(tuple(minipods[row, column] for column in range(ncolumns)) for row in range(nrows))
    return found


def crossings(grid: Grid) -> tuple[int, int]:
    """Return the edges between two minipods of the rings down the columns, in row order, and of the chains along rows.

    Examples
    --------
    >>> crossings((("m0", "m0"), ("m1", "m1"), ("m0", "m1")))
    (4, 1)
    """
    rings = sum(above != below for column in zip(*grid, strict=True) for above, below in _around(column))
    chains = sum(left != right for row in grid for left, right in pairwise(row))
    return rings, chains


def _around(column: Sequence[object]) -> Iterator[tuple[object, object]]:
    return zip(column, (*column[1:], column[0]), strict=True)


def removed_crossings(grids: Mapping[str, Grid]) -> tuple[RemovedCrossings, ...]:
    """Return how many crossings each aligned arm has fewer than the mean misaligned one.

    Parameters
    ----------
    grids : mapping of str to Grid
        Of both aligned arms and at least one misaligned one. The result is empty where these do not tell both kinds
        apart, as where all arms sit alike.
    """
    base = [crossings(grid) for arm, grid in grids.items() if arm.startswith(MISALIGNED)]
    rings, chains = (mean(counts) for counts in zip(*base, strict=True))
    aligned = {arm: crossings(grids[arm]) for arm in (DP_ALIGNED, PP_ALIGNED)}
    removed = tuple(
        RemovedCrossings(arm=arm, dp=float(rings - own_rings), pp=float(chains - own_chains))
        for arm, (own_rings, own_chains) in aligned.items()
    )
    return removed if abs(np.linalg.det(counts(removed))) > _SINGULAR else ()


def crossing_costs(times: Sequence[LaunchTimes], removed: Sequence[RemovedCrossings]) -> tuple[CrossingCost, ...]:
    """Return the seconds of a step that a DP and a PP crossing cost, with intervals over launches.

    A crossing is one edge of a ring, or of a chain, between two minipods. What is below 0 cannot be told from nothing,
    or spanning helped; it stays as it was measured.

    Parameters
    ----------
    times : sequence of LaunchTimes
        At least one.
    removed : sequence of RemovedCrossings
        Of the DP-aligned and of the PP-aligned arm; without them there are no costs.

    Examples
    --------
    >>> removed = RemovedCrossings(arm="dp-aligned", dp=4, pp=0), RemovedCrossings(arm="pp-aligned", dp=0, pp=4)
    >>> costs = crossing_costs([LaunchTimes(launch=0, base_s=1.0, dp_aligned_s=0.8, pp_aligned_s=0.6)], removed)
    >>> [(cost.kind, round(cost.time_s.value, 3)) for cost in costs]
    [('dp', 0.05), ('pp', 0.1)]
    """
    if not removed:
        return ()
    saved_s = np.array([(each.base_s - each.dp_aligned_s, each.base_s - each.pp_aligned_s) for each in times])
    by_kind = saved_s @ prices(removed).T
    return tuple(
        CrossingCost(kind=kind, time_s=statistics.interval(by_kind[:, index]))
        for index, kind in enumerate(("dp", "pp"))
    )

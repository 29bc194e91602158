"""The placement problem and its answer.

A job is a grid of nodes: each row is a PP group, each column a DP group. Every cell gets a node; the spread of a group
is the number of minipods that it touches. The objective is alpha * a + beta * b, with a the largest column (DP) spread
and b the largest row (PP) spread (the counted reading of Eq. 2 of arXiv 2509.15940).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spanfit.topology.model import RankMap
from spanfit.workload.layout import ParallelLayout

SCHEMA_VERSION = 1


class PlacementStatus(StrEnum):
    """What is known of a placement's objective."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to place.

    Attributes
    ----------
    name : str
    layout : ParallelLayout
    ngpus_per_node : int
    gpu_model : str or None
        Only nodes of this model are used where it is given.
    command : tuple of str
        What each node runs once placed; used by the launch files.
    """

    name: str
    layout: ParallelLayout
    ngpus_per_node: int
    gpu_model: str | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A grid to fill from minipods.

    Attributes
    ----------
    nrows, ncolumns : int
    free : tuple of int
        Free nodes of each minipod.
    alpha, beta : float
        Weights of the largest column (DP) and row (PP) spread.
    """

    nrows: int
    ncolumns: int
    free: tuple[int, ...]
    alpha: float
    beta: float

    @property
    def ncells(self) -> int:
        """Nodes that the job needs."""
        return self.nrows * self.ncolumns


Grid = Sequence[Sequence[int]]
"""Minipod index of each cell, as rows of columns."""


def column_spreads(grid: Grid) -> tuple[int, ...]:
    """Return the minipods that each column (DP group) touches."""
    return tuple(len(set(column)) for column in zip(*grid, strict=True))


def row_spreads(grid: Grid) -> tuple[int, ...]:
    """Return the minipods that each row (PP group) touches."""
    return tuple(len(set(row)) for row in grid)


def objective(grid: Grid, problem: Problem) -> float:
    """Return alpha * largest column spread + beta * largest row spread."""
    return problem.alpha * max(column_spreads(grid)) + problem.beta * max(row_spreads(grid))


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A filled grid and what is known of it.

    Attributes
    ----------
    grid : tuple of tuple of int
        Minipod index of each cell.
    objective, bound : float
        ``bound`` <= every feasible objective.
    status : PlacementStatus
        optimal if the bound meets the objective.
    certificate : str
        How the bound was proven, in words.
    solver : str
        What found the grid.
    """

    grid: tuple[tuple[int, ...], ...]
    objective: float
    bound: float
    status: PlacementStatus
    certificate: str
    solver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A placed job, the content of ``placement.json``.

    Attributes
    ----------
    rank_map : RankMap
    cells : tuple of (int, int)
        Row (PP group) and column (DP group) of each node rank.
    minipods : tuple of str
        Minipod of each node rank.
    dp_spreads, pp_spreads : tuple of int
        Minipods that each DP group (column) and each PP group (row) touches.
    objective, bound : float
    status : PlacementStatus
    certificate, solver : str
    solve_s : float
    best_fit_objective : float
        The same objective of best-fit on the same free nodes, for comparison.
    best_fit_dp_spread, best_fit_pp_spread : int
    alpha, beta : float
    weights_hash : str
        SHA-256 of the weights file, "" where the weights were given by hand.
    cluster : str
    """

    schema_version: int
    job: JobSpec
    cluster: str
    rank_map: RankMap
    cells: tuple[tuple[int, int], ...]
    minipods: tuple[str, ...]
    dp_spreads: tuple[int, ...]
    pp_spreads: tuple[int, ...]
    objective: float
    bound: float
    status: PlacementStatus
    certificate: str
    solver: str
    solve_s: float
    best_fit_objective: float
    best_fit_dp_spread: int
    best_fit_pp_spread: int
    alpha: float
    beta: float
    weights_hash: str


def check_capacity(grid: Grid, problem: Problem) -> None:
    """Raise ValueError unless the grid has the problem's shape and no minipod gives more nodes than it has free."""
    if len(grid) != problem.nrows or any(len(row) != problem.ncolumns for row in grid):
        raise ValueError(f"grid is not {problem.nrows} x {problem.ncolumns}")
    used: dict[int, int] = {}
    for row in grid:
        for minipod in row:
            used[minipod] = used.get(minipod, 0) + 1
    over: Mapping[int, int] = {m: n for m, n in used.items() if not 0 <= m < len(problem.free) or n > problem.free[m]}
    if over:
        raise ValueError(f"minipods give more nodes than they have free: {over}")

"""The placement problem and its answer.

A job is a grid of nodes: each row is a PP group, each column a DP group. Every cell gets a node; the spread of a group
is the number of minipods that it touches. The objective is alpha * a + beta * b, with a the largest column (DP) spread
and b the largest row (PP) spread (the counted reading of Eq. 2 of arXiv 2509.15940).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import inf

from spanfit.errors import InfeasibleError
from spanfit.placer.rules import NO_RULES, Rules
from spanfit.topology.model import RankMap
from spanfit.workload.layout import ParallelLayout

SCHEMA_VERSION = 1


class PlacementStatus(StrEnum):
    """What is known of a placement's objective."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


class Reading(StrEnum):
    """How Eq. 2 and 3 of the paper are read: spreads as they count, or D as printed, which is 0 for one minipod."""

    COUNTED = "counted"
    LITERAL = "literal"

    def of(self, spread: int) -> int:
        """Return what a group that touches ``spread`` minipods counts in the objective."""
        return 0 if self is Reading.LITERAL and spread == 1 else spread


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeBytes:
    """Bytes that an edge between two nodes carries in a step.

    Attributes
    ----------
    ring_bytes : float
        V_d, what a node sends to the next of its DP rings.
    chain_bytes : float
        V_p, what the nodes of two neighbouring stages send each other, both ways together.
    """

    ring_bytes: float
    chain_bytes: float


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
    edges : EdgeBytes or None
        None where the job does not say what a step moves.
    """

    name: str
    layout: ParallelLayout
    ngpus_per_node: int
    gpu_model: str | None = None
    command: tuple[str, ...] = ()
    edges: EdgeBytes | None = None


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
    reading : Reading
        Of the spreads in the objective; it never falls when a spread grows.
    """

    nrows: int
    ncolumns: int
    free: tuple[int, ...]
    alpha: float
    beta: float
    reading: Reading = Reading.COUNTED

    @property
    def ncells(self) -> int:
        """Nodes that the job needs."""
        return self.nrows * self.ncolumns

    def value(self, a: int, b: int) -> float:
        """Return the objective of a grid whose largest column and row spread are a and b."""
        return self.alpha * self.reading.of(a) + self.beta * self.reading.of(b)


Grid = Sequence[Sequence[int]]
"""Minipod index of each cell, as rows of columns."""


def column_spreads(grid: Grid) -> tuple[int, ...]:
    """Return the minipods that each column (DP group) touches."""
    return tuple(len(set(column)) for column in zip(*grid, strict=True))


def row_spreads(grid: Grid) -> tuple[int, ...]:
    """Return the minipods that each row (PP group) touches."""
    return tuple(len(set(row)) for row in grid)


def objective(grid: Grid, problem: Problem) -> float:
    """Return alpha * largest column spread + beta * largest row spread, as the problem reads them."""
    return problem.value(max(column_spreads(grid)), max(row_spreads(grid)))


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
    solve_s : float
        Seconds that it took; solutions that differ in nothing else are equal.
    """

    grid: tuple[tuple[int, ...], ...]
    objective: float
    bound: float
    status: PlacementStatus
    certificate: str
    solver: str
    solve_s: float = field(default=0.0, compare=False)

    @property
    def gap(self) -> float:
        """The objective over the bound, less 1: by how much a better grid could be better at most."""
        if self.objective == self.bound:
            return 0.0
        return self.objective / self.bound - 1 if self.bound else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What a placement sends between minipods.

    Attributes
    ----------
    rings, chains : int
        Edges between minipods: of DP rings, each in minipod order, and of chains along PP groups.
    ranked_rings : int
        The same of rings in the order of the ranks.
    busiest : str
        The minipod whose uplink carries most, "" where volumes are not known.
    busiest_bytes, total_bytes : float or None
        Of that uplink, in and out together, and of all edges between minipods, in a step.
    """

    rings: int
    chains: int
    ranked_rings: int
    busiest: str = ""
    busiest_bytes: float | None = None
    total_bytes: float | None = None


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
    rules : Rules
        What it had to respect.
    choice : str
        What was chosen where the rules leave a choice: the zone, or the GPU models of its parts.
    spares : tuple of str
        Free nodes kept in the minipods that it uses.
    ep_weight : float
        Weight of the largest EP spread; alpha, beta and it sum to 1.
    ep_spreads : tuple of int
        Minipods that each EP group touches, column by column; () where EP groups stay inside nodes, or neither weights
        nor rules ask for them.
    crossing : Crossing or None
        None in files of earlier versions.
    accepted_stale : tuple of str
        Why the weights were stale, where they were used all the same.
    step_s : float or None
        Predicted time of a step, where a fabric was given to choose among equals by.
    reading : Reading
        Of the spreads in objectives and the bound.
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
    rules: Rules = NO_RULES
    choice: str = ""
    spares: tuple[str, ...] = ()
    ep_weight: float = 0.0
    ep_spreads: tuple[int, ...] = ()
    crossing: Crossing | None = None
    accepted_stale: tuple[str, ...] = ()
    step_s: float | None = None
    reading: Reading = Reading.COUNTED


def check_feasible(problem: Problem) -> None:
    """Raise InfeasibleError, in numbers, where the minipods have too few free nodes."""
    total = sum(problem.free)
    if total < problem.ncells:
        raise InfeasibleError(
            f"the job needs {problem.ncells} nodes ({problem.nrows} x {problem.ncolumns}), {total} are free: "
            f"{', '.join(map(str, problem.free))} by minipod; free {problem.ncells - total} more nodes or ask for fewer"
        )


def check_capacity(grid: Grid, problem: Problem) -> None:
    """Raise ValueError unless the grid has the problem's shape and no minipod gives more nodes than it has free."""
    if len(grid) != problem.nrows or any(len(row) != problem.ncolumns for row in grid):
        raise ValueError(f"grid is not {problem.nrows} x {problem.ncolumns}")
    used = Counter(chain.from_iterable(grid))
    over: Mapping[int, int] = {m: n for m, n in used.items() if not 0 <= m < len(problem.free) or n > problem.free[m]}
    if over:
        raise ValueError(f"minipods give more nodes than they have free: {over}")

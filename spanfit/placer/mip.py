"""Mixed-integer models of the placement problem, as arrays, and the reading of their solutions.

Two models: Eq. 4-10 of arXiv 2509.15940, whose units are whole groups; and the exact type model of one pair of
spreads, in which rows of the same minipods are counted instead of named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import Grid, Problem
from spanfit.placer.slabs import EPSILON, Taken, transport

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ORDERED_BY = 12
"""Minipods by whose touches the columns of the type model are ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MipModel:
    """Minimise cost @ x with row_lower <= A x <= row_upper and lower <= x <= upper.

    Attributes
    ----------
    cost, lower, upper : array of shape (nvariables,)
    is_integer : array of shape (nvariables,)
        1 where a variable is an integer.
    row_lower, row_upper : array of shape (nrows,)
    start, index, value : arrays
        A by rows, compressed: row i holds index[start[i]:start[i + 1]].
    """

    cost: Floats
    lower: Floats
    upper: Floats
    is_integer: Ints
    row_lower: Floats
    row_upper: Floats
    start: Ints
    index: Ints
    value: Floats


@dataclass(slots=True)
class Builder:
    """Variables and rows, collected one by one."""

    variables: list[tuple[float, float, float, int]] = field(default_factory=list)
    bounds: list[tuple[float, float]] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def variable(self, lower: float, upper: float, *, is_integer: bool, cost: float = 0.0) -> int:
        """Add a variable and return its place."""
        self.variables.append((cost, lower, upper, int(is_integer)))
        return len(self.variables) - 1

    def row(self, terms: Sequence[tuple[int, float]], lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add lower <= sum of factor * variable <= upper."""
        self.index += [variable for variable, _ in terms]
        self.value += [factor for _, factor in terms]
        self.start.append(len(self.index))
        self.bounds.append((lower, upper))

    def finish(self) -> MipModel:
        """Return the model of all that was added."""
        cost, lower, upper, is_integer = (np.array(column) for column in zip(*self.variables, strict=True))
        row_lower, row_upper = (np.array(column, dtype=float) for column in zip(*self.bounds, strict=True))
        return MipModel(
            cost=cost.astype(float),
            lower=lower.astype(float),
            upper=upper.astype(float),
            is_integer=is_integer.astype(np.int64),
            row_lower=row_lower,
            row_upper=row_upper,
            start=np.array(self.start, dtype=np.int64),
            index=np.array(self.index, dtype=np.int64),
            value=np.array(self.value, dtype=float),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperModel:
    """Eq. 4-10 for units of ``size`` nodes, with the places of y, s, p and T among the variables."""

    mip: MipModel
    size: int
    free: tuple[int, ...]
    used: tuple[int, ...]
    selected: tuple[tuple[int, ...], ...]
    share: tuple[tuple[int, ...], ...]
    largest: int


def paper_model(nunits: int, size: int, free: Sequence[int], used_weight: float, split_weight: float) -> PaperModel:
    """Return Eq. 4-10: minimise used_weight * sum y + split_weight * T over whole groups as units.

    Parameters
    ----------
    nunits, size : int
        Groups, and nodes of each.
    free : sequence of int
        Free nodes of each minipod; the capacity c_j is free / size.
    used_weight, split_weight : float
        Weights of the minipods used (alpha where the unit is a PP group) and of the largest split T.
    """
    build = Builder()
    minipods = range(len(free))
    used = [build.variable(0, 1, is_integer=True, cost=used_weight or EPSILON) for _ in minipods]
    selected = [[build.variable(0, 1, is_integer=True) for _ in minipods] for _ in range(nunits)]
    share = [[build.variable(0, 1, is_integer=False) for _ in minipods] for _ in range(nunits)]
    largest = build.variable(1, len(free), is_integer=False, cost=split_weight or EPSILON)
    for unit in range(nunits):
        build.row([*((s, 1.0) for s in selected[unit]), (largest, -1.0)], upper=0)  # (5)
        build.row([(p, 1.0) for p in share[unit]], 1, 1)  # (7)
        for s, p in zip(selected[unit], share[unit], strict=True):
            build.row([(p, 1.0), (s, -1.0)], upper=0)  # (8)
    for j in minipods:
        build.row([*((share[unit][j], 1.0) for unit in range(nunits)), (used[j], -free[j] / size)], upper=0)  # (6)
    return PaperModel(
        mip=build.finish(),
        size=size,
        free=tuple(free),
        used=tuple(used),
        selected=tuple(map(tuple, selected)),
        share=tuple(map(tuple, share)),
        largest=largest,
    )


def read_paper(model: PaperModel, values: Sequence[float]) -> Taken:
    """Return n_ij, the whole nodes that each unit takes from each minipod, from a solution of Eq. 4-10.

    Notes
    -----
    Nodes are whole and p_ij is not. For fixed y and s, the n_ij are a transportation problem, whose vertices are
    whole; so they are found again from the arcs of s as a maximum flow, at the same objective.
    """
    opened = [model.free[j] if values[y] > 0.5 else 0 for j, y in enumerate(model.used)]
    arcs = [[j for j, s in enumerate(unit) if values[s] > 0.5] for unit in model.selected]
    return transport(arcs, [model.size] * len(arcs), opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeModel:
    """The exact model of one pair of spreads, with the places of z and y among the variables.

    Attributes
    ----------
    mip : MipModel
    free : tuple of int
    types : tuple of tuple of int
        Sets of minipods that a row may touch.
    counts : tuple of int
        z, the rows of each type.
    touches : tuple of mapping
        y, for each column by minipod.
    """

    mip: MipModel
    free: tuple[int, ...]
    types: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    touches: tuple[Mapping[int, int], ...]


def type_model_size(problem: Problem, b: int) -> int:
    """Return the flow variables that the type model of a row spread needs."""
    nminipods = sum(nodes > 0 for nodes in problem.free)
    breadth = min(b, nminipods)
    return comb(nminipods, breadth) * breadth * problem.ncolumns


def type_model(problem: Problem, a: int, b: int) -> TypeModel:
    """Return the exact model of a pair of spreads: feasible iff some grid reaches (a, b).

    Notes
    -----
    z_B rows touch only the minipods B, |B| = min(b, K); in column j they take f_Bjm cells from minipod m. With
    sum z = D, sum over m of f_Bjm = z_B, sum over B of f_Bjm <= min(D, c_m) y_jm, sum over m of y_jm <= a and
    sum f <= c_m. Rows of a type are alike, so any z and f are a grid; f may be continuous once z and y are whole,
    because the rest is a flow. Columns are ordered by which of the first few minipods they touch, so that few solutions
    differ by their order only; of all minipods the factors, powers of 2, would drown a solver's tolerance.
    """
    build, nrows = Builder(), problem.nrows
    minipods = [m for m, nodes in enumerate(problem.free) if nodes]
    columns = range(problem.ncolumns)
    types = tuple(combinations(minipods, min(b, len(minipods))))
    counts = [build.variable(0, nrows, is_integer=True) for _ in types]
    touches = [{m: build.variable(0, 1, is_integer=True) for m in minipods} for _ in columns]
    flows = {
        (q, j, m): build.variable(0, min(nrows, problem.free[m]), is_integer=False)
        for q, members in enumerate(types)
        for j in columns
        for m in members
    }
    build.row([(z, 1.0) for z in counts], nrows, nrows)
    for q, members in enumerate(types):
        for j in columns:
            build.row([*((flows[q, j, m], 1.0) for m in members), (counts[q], -1.0)], 0, 0)
    for m in minipods:
        holders = [q for q, members in enumerate(types) if m in members]
        build.row([(flows[q, j, m], 1.0) for q in holders for j in columns], upper=problem.free[m])
        for j in columns:
            limit = float(min(nrows, problem.free[m]))
            build.row([*((flows[q, j, m], 1.0) for q in holders), (touches[j][m], -limit)], upper=0)
    for j in columns:
        build.row([(touches[j][m], 1.0) for m in minipods], upper=a)
    for j in columns[:-1]:
        this = [(touches[j][m], 2.0**place) for place, m in enumerate(minipods[:_ORDERED_BY])]
        following = [(touches[j + 1][m], -(2.0**place)) for place, m in enumerate(minipods[:_ORDERED_BY])]
        build.row(this + following, upper=0)
    return TypeModel(
        mip=build.finish(),
        free=problem.free,
        types=types,
        counts=tuple(counts),
        touches=tuple(touches),
    )


def read_types(model: TypeModel, values: Sequence[float]) -> Grid:
    """Return the grid of a solution of the type model, its flows made whole for its z and y."""
    sizes = [round(values[variable]) for variable in model.counts]
    units = [(q, j) for q, size in enumerate(sizes) for j in range(len(model.touches)) if size]
    arcs = [[m for m in model.types[q] if values[model.touches[j][m]] > 0.5] for q, j in units]
    taken = dict(zip(units, transport(arcs, [sizes[q] for q, _ in units], model.free), strict=True))
    rows: list[tuple[int, ...]] = []
    for q, size in enumerate(sizes):
        if size:
            flows = [taken[q, j] for j in range(len(model.touches))]
            columns = [[m for m in model.types[q] for _ in range(flow.get(m, 0))] for flow in flows]
            rows += zip(*columns, strict=True)
    return tuple(rows)

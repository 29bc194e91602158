"""Whole rows for columns whose sets of minipods are fixed, by an integer program over the sets of rows [edge].

Where ``rows`` finds none though the linear program of ``mixes`` holds enough: its last rows often need what is left of
minipods in other portions. Given sets B of minipods that rows may have, z_B rows of each, and the cells that columns of
the same choice within B take from each minipod: sum z = D, and no minipod gives more than it has. For whole z the rest
is a flow, so its cells are whole too.
"""

import random
from collections import Counter
from functools import reduce
from math import inf
from operator import or_

import numpy as np

from spanfit.placer.highs import solve_here
from spanfit.placer.mip import Builder, MipModel
from spanfit.placer.mixes import Bools, Ints
from spanfit.placer.slabs import transport

_SETS = 150
"""Sets of the program, unless more are known: more hold more answers, and take longer."""
_DRAWS = 10
_MOST_NODES = 20
_LIMIT_S = 0.4
"""Seconds that the program may take at most; of those that have an answer, most take half of that."""

RowSet = tuple[int, ...]


def rows_by_sets(
    allowed: Bools, capacity: Ints, patterns: Ints, row_spread: int, nrows: int, *, seed: int, limit_s: float = inf
) -> tuple[Ints | None, int]:
    """Return nrows whole rows of at most ``row_spread`` minipods, or None where none were found, and HiGHS's pivots.

    Parameters
    ----------
    allowed : array of shape (ncolumns, nminipods)
        Whether a column may touch a minipod.
    capacity : array of shape (nminipods,)
    patterns : array of shape (npatterns, ncolumns)
        Rows that the linear program made: their sets, and some that differ in one minipod, are what rows may have.
    row_spread, nrows : int
    seed : int
        Of which others these are.
    limit_s : float
        Seconds that are left.
    """
    known = sorted({tuple(sorted(set(pattern))) for pattern in patterns.tolist()})
    others = _drawn_sets(known, allowed, row_spread, _SETS - len(known), random.Random(seed))
    choices = [_choices(allowed, members) for members in [*known, *others]]
    model, counts = _model(choices, capacity, nrows)
    answer = solve_here(model, time_limit_s=max(0.0, min(_LIMIT_S, limit_s)), seed=0, most_nodes=_MOST_NODES)
    if answer.values is None:
        return None, answer.npivots
    sizes = [round(answer.values[place]) for place in counts]
    return _read(choices, sizes, capacity) if sum(sizes) == nrows else None, answer.npivots


def _drawn_sets(
    known: list[RowSet], allowed: Bools, row_spread: int, count: int, source: random.Random
) -> list[RowSet]:
    """Return up to so many other sets that serve every column: known ones with one more or one other minipod."""
    serves = [int("".join("1" if each else "0" for each in column), 2) for column in allowed.T.tolist()]
    everything, old, found = (1 << len(allowed)) - 1, set(known), set[RowSet]()
    for _ in range(_DRAWS * count):
        if len(found) == count:
            break
        members, other = list(source.choice(known)), source.randrange(len(serves))
        if len(members) == row_spread or source.random() < 0.5:
            members.remove(source.choice(members))
        drawn = tuple(sorted({*members, other}))
        if drawn not in old and reduce(or_, (serves[member] for member in drawn)) == everything:
            found.add(drawn)
    return sorted(found)


def _choices(allowed: Bools, members: RowSet) -> dict[RowSet, list[int]]:
    """Return the columns by what they may touch of a set."""
    columns: dict[RowSet, list[int]] = {}
    for column, may in enumerate(allowed[:, members].tolist()):
        columns.setdefault(tuple(m for m, is_open in zip(members, may, strict=True) if is_open), []).append(column)
    return columns


def _model(choices: list[dict[RowSet, list[int]]], capacity: Ints, nrows: int) -> tuple[MipModel, list[int]]:
    """Return the program, and the places of z among its variables."""
    build = Builder()
    counts = [build.variable(0, nrows, is_integer=True) for _ in choices]
    build.row([(count, 1.0) for count in counts], nrows, nrows)
    taken: list[Counter[int]] = [Counter() for _ in capacity]
    for count, columns in zip(counts, choices, strict=True):
        for minipods, members in columns.items():
            if len(minipods) == 1:
                taken[minipods[0]][count] += len(members)
                continue
            flows = [build.variable(0, nrows * len(members), is_integer=False) for _ in minipods]
            build.row([*((flow, 1.0) for flow in flows), (count, -float(len(members)))], 0, 0)
            for minipod, flow in zip(minipods, flows, strict=True):
                taken[minipod][flow] += 1
    for nodes, terms in zip(capacity.tolist(), taken, strict=True):
        if terms:
            build.row([(place, float(factor)) for place, factor in terms.items()], upper=nodes)
    return build.finish(), counts


def _read(choices: list[dict[RowSet, list[int]]], sizes: list[int], capacity: Ints) -> Ints | None:
    """Return the minipod of each cell, or None where rounded numbers make no rows."""
    chosen = [(columns, size) for columns, size in zip(choices, sizes, strict=True) if size]
    units = [(minipods, size * len(members)) for columns, size in chosen for minipods, members in columns.items()]
    try:
        taken = iter(transport([minipods for minipods, _ in units], [cells for _, cells in units], capacity.tolist()))
    except ValueError:
        return None
    blocks = []
    for columns, size in chosen:
        rows = np.empty((size, sum(map(len, columns.values()))), dtype=np.int64)
        for members in columns.values():
            cells = next(taken)
            rows[:, members] = np.repeat(list(cells), list(cells.values())).reshape(size, len(members))
        blocks.append(rows)
    return np.concatenate(blocks)

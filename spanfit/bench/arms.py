"""The placements of a training step that are compared: DP-aligned, PP-aligned, packed and every misaligned one.

A job with groups of one kind only, such as plain data parallelism, has one aligned arm, where a minipod holds it, and
its misaligned ones differ in the order of its ring.

A placement is drawn as the minipod of each cell of the job's grid (rows are PP groups, columns DP groups), row by row,
then given nodes. Rings run down the columns in row order, so the order of rows belongs to the placement: aligned arms
list rows minipod by minipod.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

DP_ALIGNED = "dp-aligned"
PP_ALIGNED = "pp-aligned"
PACKED = "packed"
MISALIGNED = "misaligned"
MOVED = "moved"
_ENUMERABLE = 20_000
MISALIGNED_LIMIT = 12
MISALIGNED_SAMPLE = 10

Cells = tuple[int, ...]
"""Minipod index of each cell, row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A placement of a job's grid: the node rank of each cell, row by row."""

    name: str
    node_ranks: tuple[int, ...]


def plan_arms(nrows: int, ncolumns: int, minipods: Sequence[Sequence[int]], seed: int) -> tuple[Arm, ...]:
    """Return the arms of a grid over minipods.

    Parameters
    ----------
    nrows, ncolumns : int
    minipods : sequence of sequence of int
        Node ranks of each minipod, all of which the job uses.
    seed : int
        Draws the misaligned placements where there are too many to run them all.

    Raises
    ------
    ValueError
        If the nodes do not fill the grid, or whole columns or rows do not fit the minipods.
    """
    sizes = [len(nodes) for nodes in minipods]
    if sum(sizes) != nrows * ncolumns:
        raise ValueError(f"the job needs {nrows * ncolumns} nodes; expected exactly so many, found {sum(sizes)}")
    drawn = {} if 1 in (nrows, ncolumns) else _both_aligned(nrows, ncolumns, sizes)
    sorted_order = [minipod for minipod, size in enumerate(sizes) for _ in range(size)]
    drawn[PACKED] = tuple(sorted_order[column * nrows + row] for row in range(nrows) for column in range(ncolumns))
    for index, cells in enumerate(misaligned(nrows, ncolumns, sizes, seed)):
        drawn[f"{MISALIGNED}-{index:02d}"] = cells
    return tuple(Arm(name=name, node_ranks=_seat(cells, minipods)) for name, cells in drawn.items())


def in_one_minipod(nrows: int, ncolumns: int, minipods: Sequence[Sequence[int]]) -> tuple[Arm, ...]:
    """Return the aligned arm of a grid of one row or column, where a minipod has room for it; else none."""
    fits = [nodes for nodes in minipods if len(nodes) >= nrows * ncolumns]
    if not fits or 1 not in (nrows, ncolumns):
        return ()
    name = DP_ALIGNED if ncolumns == 1 else PP_ALIGNED
    return (Arm(name=name, node_ranks=tuple(fits[0][: nrows * ncolumns])),)


def moved(arm: Arm, minipods: Sequence[Sequence[int]], count: int, seed: int) -> tuple[Arm, ...]:
    """Return an arm's placement with its nodes shuffled inside each minipod, so many times and each time otherwise.

    What they differ by in time is what the fabric below minipods and chance do.

    Raises
    ------
    ValueError
        If there are not so many.
    """
    rng = random.Random(f"{seed}/{arm.name}")
    cells = [[index for index, node in enumerate(arm.node_ranks) if node in nodes] for nodes in minipods]
    found = {arm.node_ranks: None}
    for _ in range(100 * count):
        if len(found) > count:
            break
        seats = list(arm.node_ranks)
        for indices in cells:
            shuffled = rng.sample(indices, len(indices))
            for index, other in zip(indices, shuffled, strict=True):
                seats[index] = arm.node_ranks[other]
        found[tuple(seats)] = None
    if len(found) <= count:
        raise ValueError(f"moves: found {len(found) - 1} ways to move nodes of {arm.name} inside minipods, not {count}")
    return tuple(
        Arm(name=f"{arm.name}-{MOVED}-{index:02d}", node_ranks=seats) for index, seats in enumerate([*found][1:])
    )


def _both_aligned(nrows: int, ncolumns: int, sizes: Sequence[int]) -> dict[str, Cells]:
    by_columns = _aligned(ncolumns, nrows, sizes, "DP")
    return {
        # Whole columns were laid out column by column; turn them into rows.
        DP_ALIGNED: tuple(by_columns[column * nrows + row] for row in range(nrows) for column in range(ncolumns)),
        PP_ALIGNED: _aligned(nrows, ncolumns, sizes, "PP"),
    }


def _aligned(ngroups: int, group_size: int, sizes: Sequence[int], kind: str) -> Cells:
    """Return cells group by group, each group in one minipod, minipods in order."""
    cells = [minipod for minipod, size in enumerate(sizes) for _ in range(size // group_size * group_size)]
    if len(cells) < ngroups * group_size:
        found = ", ".join(map(str, sizes))
        raise ValueError(
            f"minipods of {found} nodes do not hold {ngroups} whole {kind} groups of {group_size} nodes; "
            "choose degrees that divide the nodes of a minipod"
        )
    return tuple(cells[: ngroups * group_size])


def _seat(cells: Cells, minipods: Sequence[Sequence[int]]) -> tuple[int, ...]:
    nodes = [iter(minipod) for minipod in minipods]
    return tuple(next(nodes[minipod]) for minipod in cells)


def misaligned(nrows: int, ncolumns: int, sizes: Sequence[int], seed: int) -> tuple[Cells, ...]:
    """Return the placements in which every row and every column of several cells crosses minipods.

    All distinct ones (up to renaming minipods of equal size) where there are at most ``MISALIGNED_LIMIT``, else
    ``MISALIGNED_SAMPLE`` seeded draws.

    Raises
    ------
    ValueError
        If there is none, as in one minipod.
    """
    none = "no placement is misaligned in all kinds; expected dp or pp of at least 2 over 2 minipods"
    if max(nrows, ncolumns) < 2 or len(sizes) < 2:
        raise ValueError(none)
    if _assignments(sizes) > _ENUMERABLE:
        return _sample(nrows, ncolumns, sizes, random.Random(seed))
    found = list(dict.fromkeys(_enumerate(nrows, ncolumns, sizes)))
    if not found:
        raise ValueError(none)
    if len(found) <= MISALIGNED_LIMIT:
        return tuple(found)
    return tuple(sorted(random.Random(seed).sample(found, MISALIGNED_SAMPLE)))


def _assignments(sizes: Sequence[int]) -> int:
    total, left = 1, sum(sizes)
    for size in sizes:
        total *= comb(left, size)
        left -= size
    return total


def _enumerate(nrows: int, ncolumns: int, sizes: Sequence[int]) -> Iterator[Cells]:
    def extend(cells: Cells, left: list[int]) -> Iterator[Cells]:
        if len(cells) == nrows * ncolumns:
            if crosses(cells, ncolumns):
                yield _canonical(cells, sizes)
            return
        for minipod, room in enumerate(left):
            if room:
                left[minipod] -= 1
                yield from extend((*cells, minipod), left)
                left[minipod] += 1

    yield from extend((), list(sizes))


def _sample(nrows: int, ncolumns: int, sizes: Sequence[int], rng: random.Random) -> tuple[Cells, ...]:
    cells = [minipod for minipod, size in enumerate(sizes) for _ in range(size)]
    found: dict[Cells, None] = {}
    for _ in range(100 * MISALIGNED_SAMPLE):
        rng.shuffle(cells)
        if not _mend(cells, ncolumns, rng):
            break
        found[_canonical(tuple(cells), sizes)] = None
        if len(found) == MISALIGNED_SAMPLE:
            return tuple(found)
    raise ValueError(
        f"found only {len(found)} misaligned placements of {nrows} x {ncolumns}; expected {MISALIGNED_SAMPLE}"
    )


def _mend(cells: list[int], ncolumns: int, rng: random.Random) -> bool:
    """Swap cells of rows and columns that stay in one minipod; return whether all cross in the end.

    Chance alone never makes every row of a long, narrow grid cross.
    """
    indices = range(len(cells))
    groups = [indices[start : start + ncolumns] for start in indices[::ncolumns]]
    groups += [indices[column::ncolumns] for column in range(ncolumns)]
    for _ in range(100 * len(cells)):
        uncrossed = [group for group in groups if len(group) > 1 and len({cells[index] for index in group}) == 1]
        if not uncrossed:
            return True
        here, there = rng.choice(rng.choice(uncrossed)), rng.choice(indices)
        cells[here], cells[there] = cells[there], cells[here]
    return False


def crosses(cells: Cells, ncolumns: int) -> bool:
    """Return whether every row and every column of several cells touches at least two minipods."""
    rows = [cells[start : start + ncolumns] for start in range(0, len(cells), ncolumns)]
    return all(len(set(group)) > 1 for group in (*rows, *zip(*rows, strict=True)) if len(group) > 1)


def _canonical(cells: Cells, sizes: Sequence[int]) -> Cells:
    """Rename minipods of equal size by first appearance, so that mere renamings are one placement."""
    pools: dict[int, list[int]] = {}
    for minipod, size in enumerate(sizes):
        pools.setdefault(size, []).append(minipod)
    names: dict[int, int] = {}
    for minipod in cells:
        if minipod not in names:
            names[minipod] = pools[sizes[minipod]].pop(0)
    return tuple(names[minipod] for minipod in cells)

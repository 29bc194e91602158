"""Placements of whole groups as units, as in Eq. 4-10 of arXiv 2509.15940, and whole nodes from shares of units."""

from collections.abc import Mapping, Sequence

from spanfit.placer.model import Grid

EPSILON = 1e-3
"""Weight of a term that the affinities leave unpriced (alpha or beta is 0), so that no minipod or split is needless."""

Taken = Sequence[Mapping[int, int]]
"""For each unit, the nodes that it takes by minipod (n_ij of the paper's p_ij); minipods of none are left out."""


def paper_closed_form(nunits: int, size: int, free: Sequence[int], used_weight: float, split_weight: float) -> Taken:
    """Return n_ij of the near closed form of Eq. 4-10.

    Parameters
    ----------
    nunits, size : int
        Groups, and nodes of each.
    free : sequence of int
        Free nodes of each minipod.
    used_weight, split_weight : float
        Weights of the minipods used and of the largest split T.

    Notes
    -----
    Either no unit is split (T = 1) and the minipods that hold most whole units are used, as few as suffice; or the
    fewest minipods are used, largest first, and units follow each other through them. It equals Eq. 4-10 wherever the
    minipods used hold at least size - 1 nodes; with many tiny ones an intermediate T may be better.

    Raises
    ------
    ValueError
        If the minipods hold too few nodes.
    """
    largest = sorted(range(len(free)), key=lambda j: -free[j])
    candidates = [_fill(nunits, size, [(j, free[j]) for j in largest])]
    if sum(nodes // size for nodes in free) >= nunits:
        candidates.append(_fill(nunits, size, [(j, free[j] // size * size) for j in largest]))
    used, split = used_weight or EPSILON, split_weight or EPSILON
    return min(candidates, key=lambda taken: used * minipods_used(taken) + split * largest_split(taken))


def _fill(nunits: int, size: int, counts: Sequence[tuple[int, int]]) -> Taken:
    cells = [j for j, nodes in counts for _ in range(nodes)][: nunits * size]
    if len(cells) < nunits * size:
        raise ValueError(f"the minipods hold {len(cells)} nodes; expected {nunits * size}")
    units = [cells[start : start + size] for start in range(0, len(cells), size)]
    return [{j: unit.count(j) for j in dict.fromkeys(unit)} for unit in units]


def minipods_used(taken: Taken) -> int:
    """Return sum y, the minipods that any unit touches."""
    return len({minipod for unit in taken for minipod in unit})


def largest_split(taken: Taken) -> int:
    """Return T, the most minipods that a unit touches."""
    return max(len(unit) for unit in taken)


def unit_grid(taken: Taken) -> Grid:
    """Return the grid whose rows are the units, each with its nodes in minipod order."""
    return tuple(sorted(tuple(j for j in sorted(unit) for _ in range(unit[j])) for unit in taken))


def transport(arcs: Sequence[Sequence[int]], sizes: Sequence[int], capacity: Sequence[int]) -> Taken:
    """Return whole nodes n_ij for units that may take only from the minipods of their arcs, by augmenting paths.

    Parameters
    ----------
    arcs : sequence of sequence of int
        Minipods of each unit.
    sizes : sequence of int
        Nodes of each unit.
    capacity : sequence of int
        Nodes of each minipod.

    Raises
    ------
    ValueError
        If the arcs and the capacity do not admit every unit.
    """
    left = list(capacity)
    taken: list[dict[int, int]] = [{} for _ in arcs]
    for unit, size in enumerate(sizes):
        missing = size
        while missing:
            path = _augmenting_path(unit, arcs, taken, left)
            if path is None:
                raise ValueError(f"unit {unit} lacks {missing} of {size} nodes within its minipods")
            missing -= _augment(path, taken, left, missing)
    return [{j: nodes for j, nodes in unit.items() if nodes} for unit in taken]


_Path = list[tuple[int, int]]


def _augmenting_path(unit: int, arcs: Sequence[Sequence[int]], taken: Taken, left: Sequence[int]) -> _Path | None:
    """Return steps (unit, minipod) to a minipod with room; the unit of each step leaves the minipod of the last."""
    queue: list[_Path] = [[(unit, j)] for j in arcs[unit]]
    seen = set(arcs[unit])
    for path in queue:
        minipod = path[-1][1]
        if left[minipod]:
            return path
        for other, nodes in enumerate(taken):
            if nodes.get(minipod):
                fresh = [j for j in arcs[other] if j not in seen]
                seen.update(fresh)
                queue += [[*path, (other, j)] for j in fresh]
    return None


def _augment(path: _Path, taken: Sequence[dict[int, int]], left: list[int], most: int) -> int:
    leaving = [(path[place + 1][0], path[place][1]) for place in range(len(path) - 1)]
    amount = min(most, left[path[-1][1]], *(taken[unit][j] for unit, j in leaving))
    for unit, j in leaving:
        taken[unit][j] -= amount
    for unit, j in path:
        taken[unit][j] = taken[unit].get(j, 0) + amount
    left[path[-1][1]] -= amount
    return amount

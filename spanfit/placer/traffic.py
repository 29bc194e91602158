"""What a grid sends between minipods: crossings of its rings and chains, and the bytes of every uplink.

Each column (DP group) is a ring, each row (PP group) a chain in the order of the columns. A crossing is an edge
between two minipods; it loads the uplinks of both. What an edge carries is stated per node and step.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.placer.model import EdgeBytes, Grid

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """Edges of a grid between minipods.

    Attributes
    ----------
    ring_ends, chain_ends : tuple of int
        Ends of crossing edges at each minipod; every edge has two.
    ranked_rings : int
        Crossings of the rings in the order of the rows, which is that of the ranks; a ring in minipod order, which
        ``ring_ends`` counts, has never more.
    """

    ring_ends: tuple[int, ...]
    chain_ends: tuple[int, ...]
    ranked_rings: int

    @property
    def rings(self) -> int:
        """Crossings of all rings, each in minipod order."""
        return sum(self.ring_ends) // 2

    @property
    def chains(self) -> int:
        """Crossings of all chains."""
        return sum(self.chain_ends) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes between minipods in a step.

    Attributes
    ----------
    busiest : int
        The minipod whose uplink carries most, in and out together.
    busiest_bytes, total_bytes : float
    """

    busiest: int
    busiest_bytes: float
    total_bytes: float


def crossings(grid: Grid, nminipods: int) -> Crossings:
    """Return the exact crossings of a grid: rings in minipod order, which enter and leave each minipod once.

    Notes
    -----
    A column over s > 1 minipods crosses s times, so all rings together cross about a P times; a row in which the
    minipod changes k times crosses k times, at least b - 1.

    Examples
    --------
    >>> found = crossings(((0, 0), (1, 1), (0, 1)), 2)
    >>> found.rings, found.ranked_rings, found.chains
    (4, 4, 1)
    """
    cells = np.array(grid, dtype=np.int64)
    touched, _ = touches(cells, nminipods)
    spans = touched.sum(axis=1)
    left, right = cells[:, :-1], cells[:, 1:]
    changes = left != right
    ends = np.concatenate([left[changes], right[changes]])
    return Crossings(
        ring_ends=_ints(2 * touched[spans > 1].sum(axis=0)),
        chain_ends=_ints(np.bincount(ends, minlength=nminipods)),
        ranked_rings=int((cells != np.roll(cells, 1, axis=0)).sum()),
    )


def touches(cells: Ints, nminipods: int) -> tuple[Bools, Bools]:
    """Return which minipods each column and each row touches, of shapes (columns, minipods) and (rows, minipods)."""
    nrows, ncolumns = cells.shape
    columns, rows = np.zeros((ncolumns, nminipods), dtype=bool), np.zeros((nrows, nminipods), dtype=bool)
    columns[np.arange(ncolumns)[None, :], cells] = True
    rows[np.arange(nrows)[:, None], cells] = True
    return columns, rows


def _ints(values: Ints) -> tuple[int, ...]:
    return tuple(map(int, values))


def traffic(found: Crossings, edges: EdgeBytes) -> Traffic:
    """Return the bytes of the busiest uplink and of all edges between minipods.

    Notes
    -----
    The total is V_d times the ring crossings and V_p times the chain crossings, about a P V_d + (b - 1) D V_p; so
    alpha = P V_d / (P V_d + D V_p) makes the objective a measure of it, and another alpha does not.
    """
    pairs = zip(found.ring_ends, found.chain_ends, strict=True)
    loads = [ring * edges.ring_bytes + chain * edges.chain_bytes for ring, chain in pairs]
    busiest = max(range(len(loads)), key=lambda m: loads[m])
    return Traffic(busiest=busiest, busiest_bytes=loads[busiest], total_bytes=sum(loads) / 2)


def least_traffic(grid: Grid, nminipods: int, edges: EdgeBytes) -> Traffic:
    """Return the bytes of a grid whose chains cross as rarely as their spreads allow, whatever the order of columns.

    Examples
    --------
    >>> least_traffic(((0, 1, 0), (0, 1, 0)), 2, EdgeBytes(ring_bytes=10, chain_bytes=1))
    Traffic(busiest=0, busiest_bytes=2.0, total_bytes=2.0)
    """
    columns, rows = touches(np.array(grid, dtype=np.int64), nminipods)
    rings, spans = columns[columns.sum(axis=1) > 1], rows.sum(axis=1)
    ring_ends = 2 * rings.sum(axis=0)
    chain_ends = (2 * (spans - 1) / spans) @ rows
    loads = ring_ends * edges.ring_bytes + chain_ends * edges.chain_bytes
    busiest = int(loads.argmax())
    return Traffic(busiest=busiest, busiest_bytes=float(loads[busiest]), total_bytes=float(loads.sum() / 2))

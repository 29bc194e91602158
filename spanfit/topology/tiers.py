"""How far apart nodes are, as arrays: a code per node and tier, spans of groups, the tier that joins two nodes."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanfit.topology.model import Cluster


def tier_codes(cluster: Cluster, node_names: Sequence[str]) -> NDArray[np.int32]:
    """Return the switch of each named node at each tier as a number, shape (nnodes, ntiers), closest tier first.

    Two nodes have the same code at a tier where the whole path of their switches is the same; codes count from 0 in
    the order of first appearance. ValueError names the nodes that the cluster lacks.
    """
    seen: list[dict[tuple[str, ...], int]] = [{} for _ in cluster.tiers]
    codes = np.empty((len(node_names), len(cluster.tiers)), dtype=np.int32)
    for row, node in enumerate(cluster.select(node_names)):
        for column, known in enumerate(seen):
            codes[row, column] = known.setdefault(node.fabric[column:], len(known))
    return codes


def spans(codes: NDArray[np.int32], groups: Iterable[Sequence[int]], tier_index: int) -> NDArray[np.int64]:
    """Return how many switches of a tier each group touches, shape (ngroups,); groups hold rows of ``codes``."""
    column = codes[:, tier_index]
    return np.array([np.unique(column[list(group)]).size for group in groups], dtype=np.int64)


def pairwise_tier(codes: NDArray[np.int32], i: ArrayLike, j: ArrayLike) -> NDArray[np.int64]:
    """Return what joins nodes i and j: 0 the same node, 1 the same switch of the closest tier, 2 of the next, ...

    ``i`` and ``j`` are rows of ``codes`` and are broadcast against each other; ntiers + 1 means that no switch joins
    them. Ask for the pairs you need: all pairs of 12,500 nodes would be 1.2 GB.
    """
    rows_i, rows_j = np.broadcast_arrays(np.asarray(i), np.asarray(j))
    # Paths are nested: nodes that share a switch share every one above it, so the differing tiers come first.
    differing = (codes[rows_i] != codes[rows_j]).sum(axis=-1, dtype=np.int64)
    return np.asarray(np.where(rows_i == rows_j, 0, differing + 1))

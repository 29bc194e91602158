"""A sum of decision trees as plain arrays: walked by numpy, checked when they come from a file.

Trees have numeric splits (at most a threshold goes left), categorical ones (a set of codes goes left), and say of each
split where a missing value goes. That is all that scikit-learn's histogram gradient boosting uses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

CATEGORY_WORDS = 8
"""A set of categories is eight words of 32 bits."""
_CELLS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Trees one behind the other; children are indices into the whole arrays and come after their parent.

    Attributes
    ----------
    baseline : array of float64, shape (1,)
        What is added to the sum of the leaves.
    roots : array of int32, shape (ntrees,)
    feature, left, right : array of int32, shape (nnodes,)
        ``left`` of a leaf is -1.
    threshold, value : array of float64, shape (nnodes,)
    missing_left : array of bool, shape (nnodes,)
    categories : array of int32, shape (nnodes,)
        Row of ``bits`` of a categorical split, -1 of a numeric one.
    bits : array of uint32, shape (nsets, 8)
        Codes that go left.
    known : array of uint32, shape (nfeatures, 8)
        Codes of a categorical feature that occurred in training; others are missing values.
    """

    baseline: Floats
    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools
    value: Floats
    categories: Ints
    bits: npt.NDArray[np.uint32]
    known: npt.NDArray[np.uint32]

    def predict(self, table: Floats) -> Floats:
        """Return the baseline plus the leaf of every tree, for each row."""
        if not len(self.roots):
            return np.full(len(table), self.baseline[0])
        step = max(1, _CELLS // len(self.roots))
        parts = [self._sum(table[start : start + step]) for start in range(0, len(table), step)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _sum(self, table: Floats) -> Floats:
        nodes = np.tile(self.roots, (len(table), 1))
        rows = np.broadcast_to(np.arange(len(table))[:, None], nodes.shape)
        inner = self.left[nodes] >= 0
        while inner.any():
            at = nodes[inner]
            nodes[inner] = np.where(
                self._goes_left(at, table[rows[inner], self.feature[at]]), self.left[at], self.right[at]
            )
            inner = self.left[nodes] >= 0
        total: Floats = self.baseline[0] + self.value[nodes].sum(axis=1)
        return total

    def _goes_left(self, nodes: Ints, values: Floats) -> Bools:
        is_set = self.categories[nodes] >= 0
        codes = np.where(is_set & (values >= 0) & (values < 32 * CATEGORY_WORDS), values, 0).astype(np.int64)
        words, shifts = codes // 32, (codes % 32).astype(np.uint32)
        is_known = (self.known[self.feature[nodes], words] >> shifts) & 1
        is_missing = np.isnan(values) | (is_set & ((is_known == 0) | (values < 0) | (values >= 32 * CATEGORY_WORDS)))
        in_set = ((self.bits[np.maximum(self.categories[nodes], 0), words] >> shifts) & 1).astype(bool)
        chosen = np.where(is_set, in_set, values <= self.threshold[nodes])
        return np.where(is_missing, self.missing_left[nodes], chosen)

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[np.generic]]:
        """Return every array by ``prefix.name``, ready for a file."""
        return {f"{prefix}.{item.name}": getattr(self, item.name) for item in fields(self)}


_DTYPES = {
    "baseline": np.float64,
    "threshold": np.float64,
    "value": np.float64,
    "missing_left": np.bool_,
    "bits": np.uint32,
    "known": np.uint32,
}


def forest_from(arrays: Mapping[str, npt.NDArray[np.generic]], prefix: str, nfeatures: int) -> Forest:
    """Return a forest from the arrays of a file.

    Raises
    ------
    ValueError
        If an array is missing, has another type or length, or points where no walk would end.
    """
    found = {}
    for item in fields(Forest):
        key, dtype = f"{prefix}.{item.name}", _DTYPES.get(item.name, np.int32)
        if key not in arrays:
            raise ValueError(f"found no array {key}")
        if arrays[key].dtype != dtype:
            raise ValueError(f"{key}: found type {arrays[key].dtype}, expected {np.dtype(dtype)}")
        found[item.name] = arrays[key]
    forest = Forest(**found)  # type: ignore[arg-type]
    problem = _problem(forest, nfeatures)
    if problem:
        raise ValueError(f"{prefix}: {problem}")
    return forest


def _problem(forest: Forest, nfeatures: int) -> str | None:
    """Return what is wrong with the arrays of a forest, None where nothing is."""
    count = len(forest.feature)
    nodes = ("threshold", "left", "right", "missing_left", "value", "categories")
    if any(getattr(forest, name).shape != (count,) for name in nodes) or forest.baseline.shape != (1,):
        return "found arrays of different lengths, expected one value a node"
    sets = forest.bits.ndim == 2 and forest.bits.shape[1] == CATEGORY_WORDS and len(forest.bits) >= 1
    if not sets or forest.known.shape != (nfeatures, CATEGORY_WORDS):
        return f"found sets of categories of another shape, expected rows of {CATEGORY_WORDS} words"
    inner = np.flatnonzero(forest.left >= 0)
    children = np.concatenate([forest.left[inner], forest.right[inner]])
    if (children <= np.concatenate([inner, inner])).any() or (children >= count).any():
        return "found a node whose child is not behind it"
    features, categories = forest.feature[inner], forest.categories
    if ((features < 0) | (features >= nfeatures)).any() or (categories >= len(forest.bits)).any():
        return f"found a split on feature or set that is not there; expected features below {nfeatures}"
    if forest.roots.ndim != 1 or ((forest.roots < 0) | (forest.roots >= count)).any():
        return "found a root that is no node"
    if not np.isfinite(forest.value).all() or not np.isfinite(forest.baseline).all():
        return "found a leaf that is no number"
    return None

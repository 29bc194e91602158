"""Gradient boosting of runtimes on scikit-learn, and its trees as arrays that need no scikit-learn to be walked."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from spanfit.errors import FitError
from spanfit.queue.jct.features import CATEGORICAL
from spanfit.queue.jct.search import Family, Parameters, Raw, Sample, log_uniform, pick
from spanfit.queue.jct.targets import Target, encoded
from spanfit.queue.jct.trees import CATEGORY_WORDS, Forest

LIBRARY = f"scikit-learn {sklearn.__version__}"
VERIFIED_ROWS = 1000
_LOSSES = {Target.LOG: "squared_error", Target.BINS: "squared_error", Target.POISSON: "poisson"}

Floats = npt.NDArray[np.float64]


def draw_parameters(rng: np.random.Generator) -> Parameters:
    """Return parameters of a boosting, drawn at random."""
    return {
        "learning_rate": log_uniform(rng, 0.02, 0.2),
        "max_iter": pick(rng, (50, 100, 200, 300)),
        "max_leaf_nodes": pick(rng, (4, 8, 15, 31)),
        "min_samples_leaf": pick(rng, (10, 30, 100, 200)),
        "l2_regularization": pick(rng, (0.0, 1.0, 10.0, 100.0)),
        "max_features": pick(rng, (0.2, 0.5, 1.0)),
    }


def fit_mean(target: Target, parameters: Parameters, sample: Sample, seed: int) -> Forest:
    """Return trees fitted to the mean; what they give is in the space of the target."""
    return _fit(_LOSSES[target], None, parameters, sample.table, encoded(target, sample.runtime_s), seed)


def fit_quantile(level: float, parameters: Parameters, sample: Sample, seed: int) -> Forest:
    """Return trees fitted to a quantile of the logarithm of the runtime."""
    return _fit("quantile", level, parameters, sample.table, encoded(Target.LOG, sample.runtime_s), seed)


def _raw(target: Target, parameters: Parameters, sample: Sample, seed: int) -> Raw:
    return fit_mean(target, parameters, sample, seed).predict


GBM = Family(name="gradient boosting", draw=draw_parameters, fit=_raw)


def _fit(loss: str, level: float | None, parameters: Parameters, table: Floats, values: Floats, seed: int) -> Forest:
    whole = {name: int(parameters[name]) for name in ("max_iter", "max_leaf_nodes", "min_samples_leaf")}
    estimator = HistGradientBoostingRegressor(
        loss=loss,
        quantile=level,
        categorical_features=list(_categorical(table)),
        early_stopping=False,
        random_state=seed,
        **(parameters | whole),
    )
    used = _without_empty(table)
    with threadpool_limits(1, user_api="openmp"):
        # More threads gain little on so few rows, and lose much where cores are shared.
        estimator.fit(used, values)
    forest = exported(estimator, table.shape[1])
    verify(forest, estimator, used, loss)
    return forest


def _categorical(table: Floats) -> range:
    return range(min(len(CATEGORICAL), table.shape[1]))


def _without_empty(table: Floats) -> Floats:
    """Return a table whose columns that hold no value at all are constant, since a boosting refuses those.

    A tree never splits on a constant column, so that walking the table as it was gives the same.
    """
    empty = np.flatnonzero(~(~np.isnan(table)).any(axis=0))
    if not len(empty):
        return table
    filled = table.copy()
    filled[:, empty] = 0.0
    return filled


def exported(estimator: HistGradientBoostingRegressor, nfeatures: int) -> Forest:
    """Return the trees of a fitted boosting as arrays.

    scikit-learn keeps them in private attributes, whose layout may change; ``verify`` compares what the arrays give
    with what the estimator gives, so that a change is an error at training and never a wrong forecast.
    """
    trees = [predictor for (predictor,) in estimator._predictors]
    nodes = np.concatenate([tree.nodes for tree in trees])
    sizes = np.array([len(tree.nodes) for tree in trees])
    roots = _starts(sizes)
    offsets = np.repeat(roots, sizes)
    sets = [np.asarray(tree.raw_left_cat_bitsets).reshape(-1, CATEGORY_WORDS) for tree in trees]
    set_offsets = np.repeat(_starts(np.array([len(part) for part in sets])), sizes)
    is_leaf, is_set = nodes["is_leaf"].astype(bool), nodes["is_categorical"].astype(bool)
    feature = np.where(is_leaf, 0, nodes["feature_idx"])
    categories = np.where(is_set, nodes["bitset_idx"] + set_offsets, -1)
    ranked = np.concatenate([*sets, np.zeros((1, CATEGORY_WORDS))]).astype(np.uint32)
    return Forest(
        baseline=np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(1),
        roots=roots.astype(np.int32),
        feature=feature.astype(np.int32),
        threshold=nodes["num_threshold"].astype(np.float64),
        left=np.where(is_leaf, -1, nodes["left"] + offsets).astype(np.int32),
        right=np.where(is_leaf, -1, nodes["right"] + offsets).astype(np.int32),
        missing_left=nodes["missing_go_to_left"].astype(bool),
        value=nodes["value"].astype(np.float64),
        categories=categories.astype(np.int32),
        bits=_coded(ranked, feature[is_set], categories[is_set], _codes(estimator)),
        known=_known(_codes(estimator), nfeatures),
    )


def _starts(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


def _codes(estimator: Any) -> list[npt.NDArray[np.int64]]:
    """Return the codes of each category that were fitted to, in the order in which the estimator ranks them."""
    found = estimator._preprocessor.named_transformers_["encoder"].categories_
    return [codes[~np.isnan(codes)].astype(np.int64) for codes in found]


def _coded(
    ranked: npt.NDArray[np.uint32],
    feature: npt.NDArray[np.int64],
    sets: npt.NDArray[np.int64],
    codes: list[npt.NDArray[np.int64]],
) -> npt.NDArray[np.uint32]:
    """Return sets of codes from sets of their ranks; ``feature`` is that of the split that uses each of ``sets``."""
    bits = _flags(ranked)
    coded = np.zeros_like(bits)
    for category, known in enumerate(codes):
        rows = sets[feature == category]
        coded[np.ix_(rows, known)] = bits[rows, : len(known)]
    return _words(coded)


def _known(codes: list[npt.NDArray[np.int64]], nfeatures: int) -> npt.NDArray[np.uint32]:
    known = np.zeros((nfeatures, 32 * CATEGORY_WORDS), dtype=bool)
    for category, values in enumerate(codes):
        known[category, values] = True
    return _words(known)


def _flags(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Return each bit of rows of words, the lowest first."""
    shifts = np.arange(32, dtype=np.uint32)
    flags: npt.NDArray[np.bool_] = ((words[:, :, None] >> shifts) & 1).astype(bool).reshape(len(words), -1)
    return flags


def _words(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Return rows of words of rows of bits; what ``_flags`` takes apart."""
    powers = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    parts = flags.reshape(len(flags), CATEGORY_WORDS, 32).astype(np.uint32)
    words: npt.NDArray[np.uint32] = (parts * powers).sum(axis=2, dtype=np.uint32)
    return words


def verify(forest: Forest, estimator: Any, table: Floats, loss: str) -> None:
    """Raise FitError unless the arrays give what the estimator gives, on rows from all over the table."""
    some = table[:: max(1, len(table) // VERIFIED_ROWS)]
    ours = forest.predict(some)
    with threadpool_limits(1, user_api="openmp"):
        theirs = estimator.predict(some)
    theirs = np.log(theirs) if loss == "poisson" else theirs
    worst = float(np.max(np.abs(ours - theirs)))
    if not worst <= 1e-6 * max(1.0, float(np.max(np.abs(theirs)))) or math.isnan(worst):
        raise FitError(
            f"trees of {LIBRARY}: as arrays they differ from the estimator by {worst:.3g}; expected none. This version "
            "keeps its trees in another layout: install the one of constraints.txt"
        )

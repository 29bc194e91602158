"""A small neural net for runtimes: the other predictor of the paper, with the same features and the same search."""

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits

from spanfit.queue.jct.features import CATEGORICAL
from spanfit.queue.jct.search import Family, Parameters, Raw, Sample, log_uniform, pick
from spanfit.queue.jct.targets import Target, encoded

LAYERS = ((64,), (128,), (64, 32), (128, 64))

Floats = npt.NDArray[np.float64]


def draw_parameters(rng: np.random.Generator) -> Parameters:
    """Return parameters of a net, drawn at random; ``layers`` is an index into ``LAYERS``."""
    return {
        "layers": pick(rng, range(len(LAYERS))),
        "alpha": log_uniform(rng, 1e-5, 1e-1),
        "learning_rate_init": log_uniform(rng, 3e-4, 5e-3),
        "batch_size": pick(rng, (64, 128, 256)),
    }


def fit_net(target: Target, parameters: Parameters, sample: Sample, seed: int) -> Raw:
    """Return what a net fitted to the mean gives, in the space of the target.

    Categories are one-hot, numbers standardised by what was fitted to, missing ones 0 with a column that says so. The
    values are scaled too. It stops when a tenth of the jobs, held out, has not improved for eight rounds.
    """
    prepare = _preparing(sample.table)
    values = encoded(target, sample.runtime_s)
    centre = 0.0 if target is Target.POISSON else float(values.mean())
    scale = float(values.mean() if target is Target.POISSON else values.std()) or 1.0
    net = MLPRegressor(
        loss="poisson" if target is Target.POISSON else "squared_error",
        hidden_layer_sizes=LAYERS[int(parameters["layers"])],
        alpha=parameters["alpha"],
        learning_rate_init=parameters["learning_rate_init"],
        batch_size=int(min(parameters["batch_size"], len(sample) // 2)),
        max_iter=80,
        early_stopping=True,
        n_iter_no_change=8,
        random_state=seed,
    )
    # One thread: the products are too small to share, and threads that wait for one another lose where cores are busy.
    with warnings.catch_warnings(), threadpool_limits(1):
        # Eighty rounds are the budget; that one more would still have helped is no fault of the data.
        warnings.simplefilter("ignore", ConvergenceWarning)
        net.fit(prepare(sample.table), (values - centre) / scale)

    def raw(table: Floats) -> Floats:
        given = net.predict(prepare(table))
        found: Floats = np.log(np.maximum(given * scale, 1e-9)) if target is Target.POISSON else given * scale + centre
        return found

    return raw


NET = Family(name="neural net", draw=draw_parameters, fit=fit_net)


def _preparing(fitted: Floats) -> Raw:
    """Return a function from a table to the inputs of a net, with the scales of a fitted table."""
    ncategories = len(CATEGORICAL)
    sizes = [int(np.nanmax(column, initial=-1)) + 1 for column in fitted[:, :ncategories].T]
    numbers = fitted[:, ncategories:]
    counts = np.maximum((~np.isnan(numbers)).sum(axis=0), 1)
    means = np.nansum(numbers, axis=0) / counts
    scales = np.sqrt(np.nansum((numbers - means) ** 2, axis=0) / counts)
    scales[scales == 0] = 1.0
    sometimes = np.isnan(numbers).any(axis=0)

    def prepare(table: Floats) -> Floats:
        hot = [
            column[:, None] == np.arange(size)[None, :]
            for column, size in zip(table[:, :ncategories].T, sizes, strict=True)
        ]
        rest = table[:, ncategories:]
        scaled = np.clip(np.nan_to_num((rest - means) / scales), -10, 10)
        return np.hstack([*hot, scaled, np.isnan(rest[:, sometimes])]).astype(np.float64)

    return prepare

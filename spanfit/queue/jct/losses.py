"""How far forecasts of runtimes are from the truth: what chooses predictors, and what is reported. numpy."""

import numpy as np
import numpy.typing as npt

from spanfit.queue.jct.targets import BIN_S

Floats = npt.NDArray[np.float64]


def deviance(forecast_s: Floats, runtime_s: Floats) -> float:
    """Return the mean Poisson deviance of forecasts in intervals of ten minutes, by which predictors are chosen.

    Like the squared error it is smallest in expectation where the forecast is the mean, but the few longest jobs of a
    heavy tail do not decide it alone.
    """
    truth, mean = runtime_s / BIN_S, forecast_s / BIN_S
    logs = np.log(np.maximum(truth, 1e-300) / mean)
    return float(np.mean(2 * (np.where(truth > 0, truth * logs, 0.0) - truth + mean)))


def pinball(bound: Floats, truth: Floats, quantile: float) -> float:
    """Return the mean pinball loss of a quantile.

    >>> pinball(np.array([1.0, 1.0]), np.array([0.0, 2.0]), 0.9)
    0.5
    """
    above = truth - bound
    return float(np.mean(np.maximum(quantile * above, (quantile - 1) * above)))


def bin_errors(forecast_s: Floats, runtime_s: Floats) -> Floats:
    """Return errors in intervals of ten minutes: those of the numbers of the intervals, as of a classifier.

    >>> bin_errors(np.array([590.0, 610.0]), np.array([10.0, 10.0]))
    array([0., 1.])
    """
    errors: Floats = np.floor(forecast_s / BIN_S) - np.floor(runtime_s / BIN_S)
    return errors

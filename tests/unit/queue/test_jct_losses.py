import numpy as np
import pytest

from spanfit.queue.jct.losses import bin_errors, deviance, pinball
from spanfit.queue.jct.targets import BIN_S


def test_the_mean_has_the_smallest_deviance() -> None:
    runtime_s = np.random.default_rng(1).lognormal(6, 2, 50_000)
    best = deviance(np.full(len(runtime_s), runtime_s.mean()), runtime_s)
    assert best < deviance(np.full(len(runtime_s), 0.8 * runtime_s.mean()), runtime_s)
    assert best < deviance(np.full(len(runtime_s), 1.25 * runtime_s.mean()), runtime_s)
    assert deviance(np.array([BIN_S]), np.array([0.0])) == pytest.approx(2.0)


def test_errors_are_those_of_interval_numbers() -> None:
    assert bin_errors(np.array([0.0, 599.9, 600.0, 6000.0]), np.array([599.0, 600.0, 0.0, 0.0])).tolist() == [
        0,
        -1,
        1,
        10,
    ]


def test_the_quantile_has_the_smallest_pinball_loss() -> None:
    truth = np.random.default_rng(2).normal(size=20_000)
    losses = [pinball(np.full(len(truth), level), truth, 0.9) for level in (1.0, 1.2816, 1.6)]
    assert min(losses) == losses[1]

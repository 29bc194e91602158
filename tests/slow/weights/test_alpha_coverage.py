import math

import numpy as np
import pytest

from spanfit.weights.fit import fit_alpha
from spanfit.weights.shares import share_of

DRAWS = 2000
INTERIOR = [(0.3, 0.3), (0.08, 0.35), (0.5, 0.15), (1.14, 0.27), (0.06, 0.06), (0.02, 0.05)]
BORDER = [(0.0, 0.3), (0.3, 0.0), (-0.3, 0.3), (0.3, -0.02), (0.0, 0.05), (0.0, 0.0)]


def coverage(gain_dp: float, gain_pp: float, nlaunches: int, seed: int) -> tuple[float, float]:
    """Return how often the interval of alpha holds the truth, and how wide it is in the median.

    The noise is that of quiet jobs: what is shared with the base is 2% a launch, an arm's own 1 to 1.5%.
    """
    rng = np.random.default_rng(seed)
    truth = share_of(gain_dp, gain_pp)
    base = rng.normal(0, 0.02, (DRAWS, nlaunches))
    dp = math.log1p(gain_dp) + base - rng.normal(0, 0.01, base.shape)
    pp = math.log1p(gain_pp) + base - rng.normal(0, 0.015, base.shape)
    fits = [fit_alpha(list(zip(*pair, strict=True))).estimate for pair in zip(dp.tolist(), pp.tolist(), strict=True)]
    bounds = [(fit.ci_low, fit.ci_high) for fit in fits if fit.ci_low is not None and fit.ci_high is not None]
    assert len(bounds) == DRAWS
    held = np.mean([low - 1e-12 <= truth <= high + 1e-12 for low, high in bounds])
    return float(held), float(np.median([high - low for low, high in bounds]))


@pytest.mark.parametrize("nlaunches", [3, 6, 12])
@pytest.mark.parametrize("gains", INTERIOR)
def test_intervals_of_alpha_cover_interior_truths(gains: tuple[float, float], nlaunches: int) -> None:
    held, _ = coverage(*gains, nlaunches, seed=nlaunches)
    assert held >= 0.93
    # Gains as small as the noise are often not told from 0, and flat intervals hold every truth.
    if min(gains) > 0.05:
        assert held <= 0.97


@pytest.mark.parametrize("nlaunches", [3, 6, 12])
@pytest.mark.parametrize("gains", BORDER)
def test_intervals_of_alpha_cover_truths_at_the_borders(gains: tuple[float, float], nlaunches: int) -> None:
    held, _ = coverage(*gains, nlaunches, seed=10 + nlaunches)
    assert held >= 0.93


def test_more_launches_narrow_the_interval() -> None:
    widths = [coverage(0.08, 0.35, nlaunches, seed=1)[1] for nlaunches in (3, 6, 12, 24)]
    assert widths == sorted(widths, reverse=True)
    assert widths[1] / widths[3] == pytest.approx(2.57 / 2.07 * 2, rel=0.1)

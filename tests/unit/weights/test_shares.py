import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.weights.shares import Pair, fit_share, share_of

SHARE = st.floats(-1, 2, allow_nan=False)


def pair(first: float, second: float, sd: float, correlation: float = 0.0) -> Pair:
    return Pair(
        first=first,
        second=second,
        first_variance=sd**2,
        second_variance=sd**2,
        covariance=correlation * sd**2,
    )


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [(0, 2.3, 0.0), (0.77, 1.8, 0.30), (1.4, 0, 1.0), (-3, 2, 0.0), (0, 0, 0.5), (-1, -2, 0.5)],
)
def test_worked_values_of_the_paper(first: float, second: float, share: float) -> None:
    assert share_of(first, second) == pytest.approx(share, abs=0.005)


def test_the_orders_of_the_l20_cluster() -> None:
    # Table 2: the 7B job gains 1.4% DP-aligned, the 14B job 0.5% PP-aligned; what the other arm gains is less.
    assert share_of(1.4, 0.5) > 0.5 > share_of(0.2, 0.5)


@given(SHARE, SHARE, st.floats(1e-3, 0.5), st.floats(-0.9, 0.9))
def test_the_estimate_lies_in_its_interval_and_the_other_share_is_its_mirror(
    first: float, second: float, sd: float, correlation: float
) -> None:
    found = fit_share(pair(first, second, sd, correlation), 2.0)
    other = fit_share(pair(second, first, sd, correlation), 2.0)
    share, mirror = found.estimate, other.estimate
    assert share.ci_low is not None and share.ci_high is not None
    assert mirror.ci_low is not None and mirror.ci_high is not None
    assert 0 <= share.ci_low <= share.value <= share.ci_high <= 1
    assert (share.ci_low, share.ci_high) == pytest.approx((1 - mirror.ci_high, 1 - mirror.ci_low), abs=1e-5)
    assert found.is_flat == other.is_flat == (max(first, second) - 2 * sd <= 0)


def test_an_interval_is_that_of_the_ratio_where_errors_are_small() -> None:
    # The delta method: sd(r) = sqrt(((1 - r) sd)^2 + (r sd)^2) / (first + second) for independent parts.
    found = fit_share(pair(0.3, 0.1, 0.002), 1.96).estimate
    half = 1.96 * math.hypot(0.25 * 0.002, 0.75 * 0.002) / 0.4
    assert (found.ci_low, found.ci_high) == pytest.approx((0.75 - half, 0.75 + half), rel=1e-3)


def test_a_shared_error_of_the_base_counts_once() -> None:
    alone, shared = (fit_share(pair(0.3, 0.3, 0.05, correlation), 1.96).estimate for correlation in (0.0, 0.9))
    widths = [
        each.ci_high - each.ci_low for each in (alone, shared) if each.ci_high is not None and each.ci_low is not None
    ]
    assert widths[1] < widths[0] / 2


def test_intervals_cover_where_errors_are_known() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.05, (1000, 2))
    held = []
    for dp, pp in (noise + np.array([0.3, 0.1])).tolist():
        share = fit_share(pair(dp, pp, 0.05), 1.96).estimate
        held.append(share.ci_low is not None and share.ci_high is not None and share.ci_low <= 0.75 <= share.ci_high)
    assert 0.93 <= np.mean(held) <= 0.97

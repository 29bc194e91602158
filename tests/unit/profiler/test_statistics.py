import math
import random
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.results.schema import Estimate, format_estimate
from spanfit.units import format_bandwidth, format_percent
from tests.unit.profiler.factory import MEASUREMENT, framed

VALUES = [0.11, 0.25, 0.18, 0.31, 0.16]
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def test_interval_is_that_of_scipy() -> None:
    expected = stats.ttest_1samp(VALUES, 0).confidence_interval(0.95)
    found = statistics.interval(VALUES)
    assert found.ci_low == pytest.approx(expected.low)
    assert found.ci_high == pytest.approx(expected.high)
    assert found.value == pytest.approx(np.mean(VALUES))


def test_one_unit_has_no_interval() -> None:
    found = statistics.mapped(statistics.interval([2.0]), math.exp)
    assert found == Estimate(value=math.exp(2.0), ci_low=None, ci_high=None)
    assert statistics.half_width(found) is None
    assert statistics.cost_of_telling([2.0], 0.03) is None
    assert statistics.p_above([2.0], 0.0) == statistics.p_below([2.0], 3.0) == 1.0


@pytest.mark.parametrize("bound", [0.0, 0.12, 0.3, 0.5])
def test_one_sided_claims_are_the_two_sided_test_of_scipy(bound: float) -> None:
    expected = stats.ttest_1samp(VALUES, bound).pvalue
    mean = float(np.mean(VALUES))
    assert statistics.p_above(VALUES, bound) == pytest.approx(expected if mean > bound else 1.0)
    assert statistics.p_below(VALUES, bound) == pytest.approx(expected if mean < bound else 1.0)


def test_equal_values_leave_no_doubt() -> None:
    assert statistics.p_above([0.25, 0.25, 0.25], 0.1) == 0.0
    assert statistics.p_above([0.25, 0.25, 0.25], 0.25) == 1.0


def test_a_decreasing_map_swaps_the_bounds() -> None:
    found = statistics.mapped(Estimate(value=2.0, ci_low=1.0, ci_high=4.0), lambda value: 1 / value)
    assert found == Estimate(value=0.5, ci_low=0.25, ci_high=1.0)


def closed_test(values: Sequence[float], index: int) -> float:
    """Adjusted p by the definition: the largest Bonferroni p over every subset of the family that holds the member."""
    others = [other for other in range(len(values)) if other != index]
    subsets = [(index, *rest) for size in range(len(values)) for rest in combinations(others, size)]
    return max(min(1.0, len(subset) * min(values[member] for member in subset)) for subset in subsets)


@given(p_values)
def test_holm_is_the_closed_test(values: list[float]) -> None:
    expected = [closed_test(values, index) for index in range(len(values))]
    assert statistics.holm(values) == pytest.approx(expected)


def test_units_are_launches_with_their_communicators() -> None:
    rows = framed([MEASUREMENT] * 7)
    rows["launch"] = [0, 0, 0, 0, 0, 1, 1]
    rows["comm_id"] = ["a", "a", "a", "b", "b", "a", "a"]
    rows["time_s"] = [1.0, 2.0, 900.0, 4.0, 4.0, 8.0, 8.0]
    logs = statistics.unit_logs(rows, ["operation"])
    assert np.exp(logs).tolist() == pytest.approx([2.0, 4.0, 8.0])
    assert np.exp(statistics.launch_logs(logs, ["operation"])).tolist() == pytest.approx([math.sqrt(8), 8.0])


@pytest.mark.parametrize("time_s", [0.0, -1.0, math.nan])
def test_an_ok_row_without_a_time_is_refused(time_s: float) -> None:
    rows = framed([MEASUREMENT])
    rows["time_s"] = time_s
    with pytest.raises(FitError, match="case case, launch 0: time_s: found"):
        statistics.ok_rows(rows)


@pytest.mark.parametrize(("sd", "target"), [(0.05, 0.03), (0.02, 0.01), (0.001, 0.03), (0.2, 0.01)])
def test_units_needed_is_the_fewest(sd: float, target: float) -> None:
    def half(nunits: int) -> float:
        return float(stats.t.ppf(0.975, nunits - 1)) * sd / math.sqrt(nunits)

    brute = next(nunits for nunits in range(2, 10_000) if half(nunits) <= target)
    assert statistics.units_needed(sd, target) == brute


def test_the_cost_targets_something_narrower_than_what_is_known() -> None:
    values = [0.0, 0.002, -0.002, 0.001, -0.001, 0.0]
    now = statistics.half_width(statistics.interval(values))
    cost = statistics.cost_of_telling(values, 0.03)
    assert now is not None and cost is not None
    assert now / 2 <= cost[0] < now and cost[1] >= 1
    assert statistics.cost_of_telling([0.01, 0.02], 0.03) == (0.03, 4)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(value=47.8e6, ci_low=47.1e6, ci_high=48.5e6), "47.8 MB/s [47.1, 48.5]"),
        (Estimate(value=998e3, ci_low=990e3, ci_high=1.01e6), "998 kB/s [990 kB/s, 1.01 MB/s]"),
        (Estimate(value=998e3, ci_low=None, ci_high=None), "998 kB/s (one unit: no interval)"),
    ],
)
def test_estimates_are_read_with_their_interval(estimate: Estimate, text: str) -> None:
    assert format_estimate(estimate, format_bandwidth) == text


def test_signs_stay_in_the_interval() -> None:
    estimate = Estimate(value=-0.463, ci_low=-0.5, ci_high=0.01)
    assert format_estimate(estimate, format_percent) == "−46.3% [−50.0, 1.0]"


@pytest.mark.parametrize(("low", "high"), [(None, 1.0), (1.0, None), (2.0, 1.0)])
def test_broken_intervals_are_refused(low: float | None, high: float | None) -> None:
    with pytest.raises(ValueError, match="ci_low"):
        Estimate(value=1.0, ci_low=low, ci_high=high)


def test_units_of_one_per_launch_are_the_plain_interval_widened_past_a_final_claim() -> None:
    values = [*VALUES, 0.2, 0.22]
    six, seven = statistics.interval(values[:6]), statistics.interval(values)
    assert statistics.unit_interval(values[:6], range(6)) == six
    widened = statistics.unit_interval(values, range(7))
    assert widened.value == pytest.approx(seven.value)
    assert statistics.half_width(widened) == pytest.approx(statistics.WIDENING * (statistics.half_width(seven) or 0))


def test_units_of_one_launch_give_the_interval_of_that_launch() -> None:
    assert statistics.unit_interval(VALUES, [3] * 5) == statistics.interval(VALUES)
    assert statistics.unit_interval([1.0], [0]) == Estimate(value=1.0, ci_low=None, ci_high=None)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=4), min_size=2, max_size=6), st.randoms())
def test_launches_weigh_alike_and_the_order_of_units_does_not_matter(
    launches: list[list[float]], rng: random.Random
) -> None:
    values = np.concatenate([np.array(launch) for launch in launches])
    owners = np.repeat(np.arange(len(launches)), [len(launch) for launch in launches])
    found = statistics.unit_interval(values, owners)
    assert found.value == pytest.approx(np.mean([np.mean(launch) for launch in launches]), abs=1e-9)
    order = rng.sample(range(len(values)), len(values))
    assert statistics.unit_interval(values[order], owners[order]).ci_low == pytest.approx(found.ci_low, abs=1e-9)

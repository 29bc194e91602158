import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.profiler.bottleneck import Load, fit_links
from spanfit.profiler.statistics import FloatArray
from tests.unit.profiler.fluid import flow_times


def load_of(*paths: list[int]) -> Load:
    longest = max(map(len, paths))
    padded = [path + [-1] * (longest - len(path)) for path in paths]
    return Load(paths=np.array(padded, dtype=np.intp), volume_bytes=100.0)


def filled(load: Load, capacities: FloatArray) -> list[float]:
    """Return max-min fair rates by raising all flows together in small steps until a way of theirs is full."""
    rates, growing = [0.0] * len(load.paths), set(range(len(load.paths)))
    ways = [[way for way in path if way >= 0] for path in load.paths.tolist()]
    step = float(capacities.min()) / 500
    while growing:
        for flow in growing:
            rates[flow] += step
        for way, capacity in enumerate(capacities):
            if sum(rate for rate, path in zip(rates, ways, strict=True) if way in path) >= capacity - step / 2:
                growing -= {flow for flow, path in enumerate(ways) if way in path}
    return rates


def test_flows_share_a_way_and_take_what_others_leave() -> None:
    load = load_of([0], [0, 2], [2])
    assert load.fair_rates(np.array([10.0, 1, 4, 1])).tolist() == [8, 2, 2]


@given(st.integers(0, 10_000))
def test_fair_rates_agree_with_filling_in_small_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = [rng.choice(6, size=rng.integers(1, 4), replace=False).tolist() for _ in range(rng.integers(1, 7))]
    capacities, load = rng.uniform(1, 4, 6), load_of(*paths)
    assert load.fair_rates(capacities) == pytest.approx(filled(load, capacities), rel=0.03)


def test_a_way_without_an_end_limits_nothing() -> None:
    assert load_of([0]).fair_rates(np.array([np.inf])).tolist() == [np.inf]


def test_unfair_shares_do_not_bias_a_shared_link() -> None:
    load = load_of([0, 4], [2, 4])
    # The first flow takes 8 of 10 bytes a second and ends after 12.5 s; the second has 2, then all of it.
    fit = fit_links([load], [np.array([[12.5, 20.0]])], ["host", "host", "leaf"])
    assert fit.capacities[2] == pytest.approx(10.0)


def test_of_two_links_that_all_flows_cross_either_may_be_slow() -> None:
    loads = [load_of([0, 6, 9, 3], [4, 6, 9, 11]), load_of([0, 11]), load_of([4, 3])]
    capacities = np.repeat([20.0, 20, 20, 8, 30, 20], 2)
    times = [flow_times(load, capacities)[None] for load in loads]
    fit = fit_links(loads, times, ["host", "host", "host", "leaf", "leaf", "host"])
    assert fit.capacities[[3, 4]].tolist() == pytest.approx([8, 8])
    assert (fit.ties[3], fit.ties[4]) == ((4,), (3,))
    assert not fit.is_bound[3] and not fit.is_bound[4]


def test_a_link_that_holds_nothing_back_is_a_bound_and_one_without_flows_has_no_rate() -> None:
    loads = [load_of([0, 6, 3]), load_of([2, 6, 1]), load_of([0, 6, 5]), load_of([4, 6, 3]), load_of([2, 5])]
    capacities = np.repeat([5.0, 10, 10, 100, 1], 2)
    times = [flow_times(load, capacities)[None] for load in loads]
    fit = fit_links(loads, times, ["host", "host", "host", "leaf", "leaf"])
    assert fit.is_bound[3] and fit.capacities[3] <= 100
    assert not fit.is_bound[0] and fit.capacities[0] == pytest.approx(5)
    assert np.isnan(fit.capacities[4])

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.profiler.predict.sharing import Conduct, Flow, Sharing, Use, use_of

CONDUCT = Conduct(rates_bytes_per_s=(10.0, 10.0, 4.0, 4.0), burst_bytes=0.0, peak_bytes_per_s=1e9)


def finish(
    sharing: Sharing, wanted: list[tuple[float, Use, float]], carried_bytes: dict[int, float] | None = None
) -> list[float]:
    """Return when each (start, use, size) ends, and add what each link carries."""
    ends_s = [0.0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=lambda index: wanted[index][0])
    while waiting or sharing.flows:
        soonest_s = sharing.settle()
        next_s = min(soonest_s, wanted[waiting[0]][0]) if waiting else soonest_s
        if carried_bytes is not None:
            for link, rate in [(link, share * flow.rate) for flow in sharing.flows for link, share in flow.use]:
                carried_bytes[link] = carried_bytes.get(link, 0.0) + rate * (next_s - sharing.now_s)
        if waiting and wanted[waiting[0]][0] <= soonest_s:
            index = waiting.pop(0)
            start_s, use, size_bytes = wanted[index]
            for flow in sharing.advance(start_s):
                flow.on_end()

            def end(index: int = index) -> None:
                ends_s[index] = sharing.now_s

            sharing.start(Flow(use, size_bytes, index, end))
            continue
        for flow in sharing.advance(soonest_s):
            flow.on_end()
    return ends_s


def test_two_flows_on_a_link_halve_it_and_the_longer_one_then_has_it_alone() -> None:
    use: Use = ((0, 1.0),)
    assert finish(Sharing(CONDUCT, 0), [(0.0, use, 10.0), (0.0, use, 30.0)]) == pytest.approx([2.0, 4.0])


def test_what_a_flow_cannot_use_goes_to_the_others() -> None:
    flows = [(0.0, ((0, 1.0), (2, 1.0)), 4.0), (0.0, ((0, 1.0),), 6.0)]
    assert finish(Sharing(CONDUCT, 0), flows) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("seed", range(20))
def test_shares_may_be_as_unlike_as_doubles_allow(seed: int) -> None:
    unlike = replace(CONDUCT, spread=15.0, redraw_s=1e9)
    paths = [(0, 2), (0,), (0, 3), (2,), (1, 3), (0, 1)]
    flows = [(0.0, use_of([path]), 4.0) for path in paths]
    ends_s = finish(Sharing(unlike, seed), flows)
    # Link 0 carries 16 bytes at 10 a second, and is idle for no longer than the others take.
    assert 1.6 * (1 - 1e-6) <= max(ends_s) <= 1.6 + 3.0


def test_a_collective_loads_a_link_as_often_as_its_edges_cross_it() -> None:
    use = use_of([(0, 2), (2,), (1,)])
    assert dict(use) == {0: 1.0, 2: 2.0, 1: 1.0}
    assert finish(Sharing(CONDUCT, 0), [(0.0, use, 10.0)]) == pytest.approx([5.0])


def test_a_bucket_gives_time_against_size_a_negative_intercept() -> None:
    bursts = replace(CONDUCT, rates_bytes_per_s=(1e6, 1e6), burst_bytes=1e5)
    times_s = [finish(Sharing(bursts, 0), [(0.0, ((0, 1.0),), size)])[0] for size in (1e6, 2e6)]
    slope = (times_s[1] - times_s[0]) / 1e6
    assert slope == pytest.approx(1e-6)
    assert times_s[0] - slope * 1e6 == pytest.approx(-0.1, rel=0.01)


def test_a_bucket_fills_in_a_rest_and_more_slowly_where_the_link_is_slower() -> None:
    def second_s(rate: float) -> float:
        bursts = replace(CONDUCT, rates_bytes_per_s=(rate, rate), burst_bytes=1e5)
        start_s = 9e5 / rate + 0.05
        ends_s = finish(Sharing(bursts, 0), [(0.0, ((0, 1.0),), 1e6), (start_s, ((0, 1.0),), 1e6)])
        return ends_s[1] - start_s

    assert second_s(1e6) == pytest.approx(0.95, rel=0.01)
    assert second_s(5e5) == pytest.approx((1e6 - 0.05 * 5e5) / 5e5, rel=0.01)


def test_three_flows_both_ways_cost_the_efficiency_and_two_do_not() -> None:
    both = replace(CONDUCT, both_ways_efficiency=0.9)
    up: Use = ((0, 1.0),)
    down: Use = ((1, 1.0),)
    assert finish(Sharing(both, 0), [(0.0, up, 10.0), (0.0, down, 10.0)]) == pytest.approx([1.0, 1.0])
    three = finish(Sharing(both, 0), [(0.0, up, 5.0), (0.0, up, 5.0), (0.0, down, 10.0)])
    assert three[:2] == pytest.approx([1 / 0.9] * 2)


def test_unfair_shares_are_drawn_from_the_seed_and_leave_the_last_end_where_it_was() -> None:
    unfair = replace(CONDUCT, spread=0.5)
    flows: list[tuple[float, Use, float]] = [(0.0, ((0, 1.0),), 10.0)] * 4
    ends_s = finish(Sharing(unfair, 3), flows)
    assert ends_s == finish(Sharing(unfair, 3), flows) != finish(Sharing(unfair, 4), flows)
    assert max(ends_s) == pytest.approx(4.0) and min(ends_s) < 3.9


LINKS = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
FLOWS = st.lists(
    st.tuples(st.floats(0, 5), LINKS.map(lambda links: tuple((link, 1.0) for link in links)), st.floats(1, 1e4)),
    min_size=1,
    max_size=8,
)


@given(FLOWS, st.floats(0, 2e4), st.floats(0, 1), st.floats(0.5, 1))
def test_no_link_carries_more_than_its_rate_and_its_bucket_and_no_byte_is_lost(
    flows: list[tuple[float, Use, float]], burst_bytes: float, spread: float, efficiency: float
) -> None:
    conduct = Conduct(
        rates_bytes_per_s=(1000.0, 700.0, 400.0, 2000.0),
        burst_bytes=burst_bytes,
        peak_bytes_per_s=1e6,
        spread=spread,
        both_ways_efficiency=efficiency,
    )
    sharing = Sharing(conduct, 1)
    carried_bytes: dict[int, float] = {}
    ends_s = finish(sharing, flows, carried_bytes)
    for link, rate in enumerate(conduct.rates_bytes_per_s):
        own = [(start_s, size) for start_s, use, size in flows if link in dict(use)]
        assert carried_bytes.get(link, 0.0) == pytest.approx(sum(size for _, size in own), rel=1e-6, abs=1e-3)
        if own:
            lasted_s = max(ends_s) - min(start_s for start_s, _ in own)
            assert carried_bytes[link] <= (rate * lasted_s + burst_bytes) * (1 + 1e-6) + 1
    assert all(end_s >= start_s for end_s, (start_s, _, _) in zip(ends_s, flows, strict=True))


@given(st.permutations(range(6)), st.floats(0, 2e4))
def test_flows_of_kinds_that_shared_links_before_share_them_as_then(order: list[int], burst_bytes: float) -> None:
    paths = [(0, 2), (0,), (0, 3), (2,), (1, 3), (0, 1)]
    conduct = replace(CONDUCT, burst_bytes=burst_bytes, both_ways_efficiency=0.9)

    def rates(*orders: Sequence[int]) -> list[float]:
        sharing = Sharing(conduct, 0)
        for chosen in orders:
            sharing.flows.clear()
            for index in chosen:
                sharing.start(Flow(use_of([paths[index]]), 100.0, index, lambda: None))
            sharing.settle()
        return [flow.rate for flow in sorted(sharing.flows, key=lambda flow: str(flow.connection))]

    assert rates(order, range(6)) == pytest.approx(rates(range(6)))


@given(FLOWS)
def test_every_flow_has_a_full_link_on_which_none_has_more(flows: list[tuple[float, Use, float]]) -> None:
    sharing = Sharing(CONDUCT, 0)
    for index, (_, use, size) in enumerate(flows):
        sharing.start(Flow(use, size, index, lambda: None))
    sharing.settle()
    for flow in sharing.flows:
        full = []
        for link, _ in flow.use:
            on_link = [other.rate for other in sharing.flows if link in dict(other.use)]
            is_full = sum(on_link) >= CONDUCT.rates_bytes_per_s[link] * (1 - 1e-9)
            full.append(is_full and flow.rate >= max(on_link) * (1 - 1e-9))
        assert any(full)

import math

from hypothesis import given
from hypothesis import strategies as st

from spanfit.queue.model.nodes import indices
from spanfit.queue.policy.slots import Timeline, Window, lowest, prefer

sets = st.sets(st.integers(0, 200))
few = st.integers(0, 255)
moments = st.integers(0, 12).map(float)


def bits(nodes: set[int]) -> int:
    return sum(1 << node for node in nodes)


@given(sets, sets, st.integers(0, 250))
def test_preferred_nodes_come_first_and_are_as_many_as_asked(first: set[int], nodes: set[int], count: int) -> None:
    found = set(indices(prefer(bits(first), bits(nodes), count)))
    assert found <= nodes
    assert len(found) == min(count, len(nodes))
    assert len(found & first) == min(count, len(first & nodes))


@given(sets, st.integers(0, 250))
def test_the_lowest_nodes_of_a_set(nodes: set[int], count: int) -> None:
    assert indices(lowest(bits(nodes), count)) == tuple(sorted(nodes)[:count])


def free_at(at_s: float, free: int, ends: list[tuple[float, int]], windows: list[tuple[int, float, float]]) -> int:
    """Return what is free at a moment, from what is told of it alone."""
    for end_s, nodes in ends:
        free |= nodes if end_s <= at_s else 0
    for nodes, start_s, lasts_s in windows:
        free &= ~nodes if start_s <= at_s < start_s + lasts_s else -1
    return free


@given(
    few,
    st.lists(st.tuples(moments, few), max_size=4),
    st.lists(st.tuples(few, moments, moments), max_size=3),
    st.integers(1, 8),
    moments,
    few,
)
def test_the_earliest_slot_is_the_first_whole_moment_that_fits(
    free: int,
    ends: list[tuple[float, int]],
    windows: list[tuple[int, float, float]],
    nnodes: int,
    lasts_s: float,
    usable: int,
) -> None:
    ends = sorted((end_s, nodes) for end_s, nodes in ends if end_s > 0)
    made = [Window(nodes=nodes, start_s=start_s, end_s=start_s + more_s) for nodes, start_s, more_s in windows]
    found_s, found = Timeline(0.0, free, ends, made).earliest(nnodes, lasts_s, usable)
    for start in range(40):
        left = usable
        for moment in range(start, start + int(lasts_s) + 1):
            left &= free_at(moment, free, ends, windows)
        if left.bit_count() >= nnodes:
            assert (found_s, found) == (start, left)
            return
    assert (found_s, found) == (math.inf, 0)

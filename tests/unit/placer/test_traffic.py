from hypothesis import given
from hypothesis import strategies as st

from spanfit.placer.model import EdgeBytes, Grid
from spanfit.placer.traffic import Traffic, crossings, traffic

grids = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[st.integers(0, 3)] * width), min_size=1, max_size=6).map(tuple)
)


def counted(grid: Grid, *, is_sorted: bool) -> tuple[int, int]:
    """Return the crossings of rings and chains, edge by edge."""
    rings = 0
    for column in zip(*grid, strict=True):
        order = sorted(column) if is_sorted else list(column)
        rings += sum(order[i] != order[i - 1] for i in range(len(order)))
    return rings, sum(row[i] != row[i + 1] for row in grid for i in range(len(row) - 1))


@given(grids)
def test_crossings_are_those_of_each_edge(grid: Grid) -> None:
    found = crossings(grid, 4)
    assert (found.rings, found.chains) == counted(grid, is_sorted=True)
    assert found.ranked_rings == counted(grid, is_sorted=False)[0] >= found.rings


def test_an_edge_loads_the_uplinks_of_both_of_its_minipods() -> None:
    found = crossings(((0, 1), (0, 1), (2, 1)), 4)
    assert found.ring_ends == (2, 0, 2, 0)
    assert found.chain_ends == (2, 3, 1, 0)
    volumes = EdgeBytes(ring_bytes=10, chain_bytes=1)
    assert traffic(found, volumes) == Traffic(busiest=0, busiest_bytes=22, total_bytes=2 * 10 + 3)


def test_a_job_in_one_minipod_sends_nothing_between_them() -> None:
    found = crossings(((1, 1), (1, 1)), 2)
    assert traffic(found, EdgeBytes(ring_bytes=10, chain_bytes=1)).total_bytes == 0

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.placer.baselines import best_fit
from spanfit.placer.model import Problem, column_spreads, objective, row_spreads
from spanfit.queue.model.nodes import Ground
from spanfit.queue.policy.choosing import choose
from spanfit.queue.policy.packing import fewest
from tests.unit.queue.factory import ground, job


def grid_of(given_ground: Ground, order: tuple[int, ...], nrows: int, ncolumns: int) -> list[list[int]]:
    """Return the minipod of each cell, ranks going down the columns."""
    minipods = [given_ground.minipods[node] for node in order]
    return [[minipods[column * nrows + row] for column in range(ncolumns)] for row in range(nrows)]


def test_a_job_that_fits_a_minipod_gets_the_tightest() -> None:
    given_ground = ground(6, 4, 5)
    assert given_ground.members(sum(1 << node for node in choose(job("j", 4), given_ground, given_ground.everything)))[
        0
    ].startswith("b")


@pytest.mark.parametrize(
    ("nnodes", "free", "expected"),
    [
        (4, (6, 4, 5), [(1, 4)]),
        (7, (6, 4, 5), [(0, 6), (1, 1)]),
        (10, (6, 4, 5), [(0, 6), (1, 4)]),
        (11, (6, 4, 5), [(0, 6), (2, 5)]),
        (15, (6, 4, 5), [(0, 6), (1, 4), (2, 5)]),
        (1, (0, 3), [(1, 1)]),
    ],
)
def test_packing_uses_few_minipods_and_leaves_the_roomy_whole(
    nnodes: int, free: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    assert fewest(nnodes, free) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 30))
def test_packing_gives_what_was_asked_from_as_few_minipods_as_can_be(free: list[int], nnodes: int) -> None:
    given_ground = ground(*(9 for _ in free))
    allowed = sum(1 << (9 * minipod + node) for minipod, count in enumerate(free) for node in range(count))
    order = choose(job("j", nnodes), given_ground, allowed)
    if sum(free) < nnodes:
        assert order == ()
        return
    assert len(set(order)) == nnodes
    assert all(allowed >> node & 1 for node in order)
    used = len({given_ground.minipods[node] for node in order})
    fullest = sorted(free, reverse=True)
    assert sum(fullest[: used - 1]) < nnodes


def test_the_grid_of_a_job_is_laid_by_its_weights() -> None:
    given_ground = ground(4, 4)
    for alpha, dp_spread, pp_spread in ((0.2, 2, 1), (0.8, 1, 2)):
        given_job = job("j", 8, nrows=4, ncolumns=2, alpha=alpha)
        grid = grid_of(given_ground, choose(given_job, given_ground, given_ground.everything), 4, 2)
        assert (max(column_spreads(grid)), max(row_spreads(grid))) == (dp_spread, pp_spread)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_a_grid_is_no_worse_than_best_fit(seed: int) -> None:
    source = random.Random(seed)
    nrows, ncolumns = source.choice(((4, 2), (6, 3), (3, 4), (8, 2)))
    given_ground = ground(*(source.randint(4, 12) for _ in range(4)))
    allowed = sum(1 << node for node in range(len(given_ground.names)) if source.random() < 0.9)
    given_job = job("j", nrows * ncolumns, nrows=nrows, ncolumns=ncolumns, alpha=source.choice((0.2, 0.5, 0.8)))
    order = choose(given_job, given_ground, allowed)
    if not order:
        assert allowed.bit_count() < given_job.nnodes
        return
    assert len(set(order)) == given_job.nnodes
    assert all(allowed >> node & 1 for node in order)
    free = tuple((mask & allowed).bit_count() for mask in given_ground.masks)
    problem = Problem(nrows=nrows, ncolumns=ncolumns, free=free, alpha=given_job.alpha, beta=1 - given_job.alpha)
    grid = grid_of(given_ground, order, nrows, ncolumns)
    assert objective(grid, problem) <= objective(best_fit(problem), problem) + 1e-9

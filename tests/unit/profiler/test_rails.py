from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from spanfit.profiler.rails import Twin, accused, find_twins
from spanfit.results.schema import Measurement
from tests.unit.profiler.factory import MEASUREMENT, Noise, framed, measured

Slow = dict[tuple[int, int], float]
"""How many times as long a group takes on a rail if it holds a node."""


def twins_of(groups: Sequence[tuple[int, ...]], slow: Slow, *, nrails: int = 2, launches: int = 6) -> tuple[Twin, ...]:
    cases: list[tuple[Measurement, float]] = [
        (
            replace(MEASUREMENT, nodes=",".join(map(str, nodes)), draw=draw, rail=rail, nranks=len(nodes)),
            0.01 * max([1.0, *(slow.get((rail, node), 1.0) for node in nodes)]),
        )
        for draw, nodes in enumerate(groups)
        for rail in range(nrails)
    ]
    noise = Noise(launch=0.2, unit=0.005, row=0.01)
    return find_twins(framed(measured(np.random.default_rng(1), cases, launches=launches, noise=noise)))


def test_twins_of_healthy_rails_are_fine_whatever_launches_differ_by() -> None:
    twins = twins_of([(0, 1, 2, 3), (4, 5, 6, 7)], {}, nrails=4)
    assert len(twins) == 2 * 4
    assert all(twin.is_fine and not twin.is_slow for twin in twins)
    assert accused(twins) == ()


def test_a_slow_group_has_its_ratio_to_the_usual_rail() -> None:
    twins = twins_of([(0, 1, 2, 3)], {(2, 1): 8.0}, nrails=4)
    (slow,) = [twin for twin in twins if twin.is_slow]
    assert (slow.rail, slow.nodes) == (2, (0, 1, 2, 3))
    assert slow.ratio.value == pytest.approx(8, rel=0.05)
    (accusation,) = accused(twins)
    assert (accusation.rail, accusation.nodes, accusation.nslow, accusation.ntested) == (2, (0, 1, 2, 3), 1, 1)


def test_an_effect_that_does_not_matter_is_no_slow_twin() -> None:
    twins = twins_of([(0, 1, 2, 3)], {(0, 1): 1.02}, launches=12)
    assert not any(twin.is_slow for twin in twins)


def test_groups_that_are_fine_clear_their_nodes_and_slow_ones_share_the_culprit() -> None:
    groups = [(0, 1, 2), (2, 3, 4), (0, 3, 5), (1, 5, 4)]
    (accusation,) = accused(twins_of(groups, {(1, 2): 2.0}))
    assert (accusation.rail, accusation.nodes, accusation.nslow, accusation.ntested) == (1, (2,), 2, 2)


def test_two_slow_links_are_two_accusations() -> None:
    found = accused(twins_of([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)], {(0, 1): 3.0, (1, 4): 2.0}))
    assert [(accusation.rail, accusation.nodes) for accusation in found] == [(0, (1,)), (1, (4,))]


def test_groups_that_do_something_else_clear_nobody() -> None:
    small = replace(MEASUREMENT, size_bytes=8)
    cases = [
        (replace(case, rail=rail), 0.01 * (1 + rail * (case is MEASUREMENT)))
        for case in (MEASUREMENT, small)
        for rail in (0, 1)
    ]
    frame = framed(measured(np.random.default_rng(2), cases, noise=Noise(unit=0.005, row=0.01)))
    (accusation,) = accused(find_twins(frame))
    assert accusation.nodes == (0, 1, 2, 3)
    assert (accusation.nslow, accusation.ntested) == (1, 2)


def test_groups_of_every_gpu_or_of_a_single_rail_have_no_twins() -> None:
    rng = np.random.default_rng(3)
    assert find_twins(framed(measured(rng, [(MEASUREMENT, 0.01)]))) == ()
    assert find_twins(framed(measured(rng, [(replace(MEASUREMENT, rail=1), 0.01)]))) == ()


def test_the_units_of_a_single_launch_replicate() -> None:
    cases = [(replace(MEASUREMENT, rail=rail), 0.01 * (1 + rail)) for rail in (0, 1)]
    rows = [
        replace(row, launch=0, comm_id=f"0.0.{row.launch}")
        for row in measured(np.random.default_rng(4), cases, noise=Noise(unit=0.005, row=0.01))
    ]
    assert [twin.is_slow for twin in find_twins(framed(rows))] == [False, True]

"""Noise is drawn beside the arms of all jobs, and must share links with one of them."""

import pytest

from spanfit.bench.beside import crossed, noise_beside
from spanfit.bench.noise import Mix, PlacementClass
from tests.unit.bench.test_noise import table, tree

SIXTEEN = [tuple(range(node, node + 16, 2)) for node in (0, 1)]
"""Arms over the first two of the tree's minipods, which have eight nodes each under two leaves."""


def test_noise_that_finds_no_place_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        noise_beside(table(Mix.EQUAL, (6,), PlacementClass.LEAF), tree(), [[0]], 1)
    assert str(caught.value) == (
        "noise noise: a job of 6 nodes has no place of class leaf on the 31 nodes left over; lower nodes or "
        "utilisation, name another class, or draw with another seed"
    )
    with pytest.raises(ValueError, match=r"noise noise: no job fits 0.1 of the 12 nodes left over; expected more"):
        noise_beside(table(Mix.EQUAL, (6,), utilisation=0.1), tree(), [range(12), range(8, 20)], 1)


def test_noise_that_crosses_switches_but_no_links_of_an_arm_is_refused() -> None:
    with pytest.raises(
        ValueError, match="noise noise: shares no uplink with an arm of a job, so it would disturb none"
    ):
        noise_beside(table(Mix.EQUAL, (4,), PlacementClass.CORE), tree(), SIXTEEN, 1)
    (job,) = noise_beside(table(Mix.EQUAL, (4,), PlacementClass.LEAF, utilisation=0.25), tree(), SIXTEEN, 1)
    assert min(job.node_ranks) >= 16
    # An arm in the third minipod alone crosses no minipod, but its leaves; so does noise there.
    inside = [*SIXTEEN, (16, 20)]
    found = noise_beside(table(Mix.EQUAL, (4,), PlacementClass.MINIPOD), tree(), inside, 1)
    assert {node // 8 for job in found for node in job.node_ranks} == {2, 3}


def test_a_switch_is_crossed_where_a_group_has_nodes_below_it_and_elsewhere() -> None:
    fabric = tree().fabric
    assert crossed(tree(), [(0, 1)]) == set(), "under one leaf"
    assert crossed(tree(), [(0, 4)]) == {fabric[0], fabric[4]}, "two leaves of a minipod"
    core = {fabric[0], fabric[8], fabric[0][1:], fabric[8][1:]}
    assert crossed(tree(), [(0, 8), (2, 3)]) == core

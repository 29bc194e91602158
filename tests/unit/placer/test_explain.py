import pytest

from spanfit.placer.explain import explain
from spanfit.placer.place import place
from spanfit.placer.rules import Rules
from tests.unit.placer.test_place import cluster, job


def test_one_more_node_is_worth_what_solving_again_says() -> None:
    """Pod 1 holds five whole rows of two; with one more node of its own it would hold the whole job."""
    given_cluster = cluster(2, 11)
    placed = place(job(6, 2), given_cluster, alpha=0.4, beta=0.6)
    found = {use.minipod: use for use in explain(placed, given_cluster)}
    assert placed.objective == pytest.approx(0.4 * 2 + 0.6)
    assert found["pod1"].gain == pytest.approx(0.4)
    assert found["pod0"].gain == 0
    assert next(iter(found)) == "pod1"
    assert (found["pod1"].free, found["pod1"].taken, found["pod1"].pp_groups) == (11, 10, 5)
    assert (found["pod0"].dp_groups, found["pod0"].widest) == (2, 2)


def test_what_is_not_looked_at_is_none() -> None:
    given_cluster = cluster(7, 7)
    placed = place(job(6, 2), given_cluster, alpha=0.4, beta=0.6, rules=Rules(pinned=("p0n0",)))
    assert {use.gain for use in explain(placed, given_cluster)} == {None}
    assert {use.gain for use in explain(placed, given_cluster, time_limit_s=0)} == {None}

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.topology.model import Cluster, Node
from spanfit.topology.tiers import pairwise_tier, spans, tier_codes

# Few names on purpose: switches of different parents share names, and only their paths tell them apart.
fabrics = st.lists(st.tuples(*[st.sampled_from("ab")] * 3), min_size=1, max_size=12)


def make_cluster(fabrics: list[tuple[str, ...]]) -> Cluster:
    nodes = tuple(Node(name=f"n{index}", fabric=fabric) for index, fabric in enumerate(fabrics))
    return Cluster(name="c", tiers=("leaf", "minipod", "core"), nodes=nodes)


def joining_tier(one: Node, two: Node) -> int:
    if one.name == two.name:
        return 0
    shared = [tier for tier in range(3) if one.fabric[tier:] == two.fabric[tier:]]
    return min(shared) + 1 if shared else 4


@given(fabrics)
def test_pairs_meet_where_their_paths_do(fabrics: list[tuple[str, ...]]) -> None:
    cluster = make_cluster(fabrics)
    codes = tier_codes(cluster, [node.name for node in cluster.nodes])
    rows = np.arange(len(fabrics))
    expected = [[joining_tier(one, two) for two in cluster.nodes] for one in cluster.nodes]
    assert pairwise_tier(codes, rows[:, None], rows[None, :]).tolist() == expected
    assert pairwise_tier(codes, 0, len(fabrics) - 1) == expected[0][-1]


@given(fabrics, st.data())
def test_spans_count_the_switches_that_a_group_touches(fabrics: list[tuple[str, ...]], data: st.DataObject) -> None:
    cluster = make_cluster(fabrics)
    codes = tier_codes(cluster, [node.name for node in cluster.nodes])
    rows = st.lists(st.integers(0, len(fabrics) - 1), min_size=1)
    groups = data.draw(st.lists(rows, max_size=4))
    expected = [len({cluster.minipod(cluster.nodes[row]) for row in group}) for group in groups]
    assert spans(codes, groups, 1).tolist() == expected


def test_codes_follow_the_names_asked_for() -> None:
    cluster = make_cluster([("l", "m", "c"), ("l", "m2", "c"), ("k", "m", "c")])
    assert tier_codes(cluster, ["n2", "n0", "n1"]).tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
    with pytest.raises(ValueError, match="no such node in cluster c: n9"):
        tier_codes(cluster, ["n0", "n9"])

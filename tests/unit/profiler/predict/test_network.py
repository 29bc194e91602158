import pytest

from spanfit.errors import ConfigError
from spanfit.profiler.predict.network import Wiring, build_network
from spanfit.topology.model import Cluster, Node, RankMap
from tests.unit.profiler.predict.factory import cluster, network


def labels(found: Cluster, source: int, target: int) -> list[str]:
    net = network(found)
    return [net.links[link].label() for link in net.path(source, target)]


def test_a_flow_inside_a_minipod_loads_two_hosts_and_one_across_both_uplinks_as_well() -> None:
    assert labels(cluster(), 0, 1) == ["host m0h0 up", "host m0h1 down"]
    assert labels(cluster(), 0, 5) == ["host m0h0 up", "minipod m0 up", "minipod m1 down", "host m1h1 down"]


def test_leaves_have_uplinks_of_their_own_where_a_minipod_has_several() -> None:
    nodes = tuple(Node(name=f"n{i}", fabric=(f"l{i // 2}", f"m{i // 4}", "core")) for i in range(8))
    found = Cluster(name="leaves", tiers=("leaf", "minipod", "core"), nodes=nodes)
    assert labels(found, 0, 2) == ["host n0 up", "leaf l0 up", "leaf l1 down", "host n2 down"]
    assert len(labels(found, 0, 7)) == 6
    assert [network(found).joined(0, other) for other in (0, 1, 2, 4)] == [0, 1, 2, 3]


def test_nodes_that_no_switch_joins_meet_above_the_top() -> None:
    nodes = tuple(Node(name=f"n{i}", fabric=(f"m{i // 2}",)) for i in range(4))
    found = Cluster(name="flat", tiers=("minipod",), nodes=nodes)
    assert labels(found, 0, 3) == ["host n0 up", "minipod m0 up", "minipod m1 down", "host n3 down"]


def test_ranks_of_a_node_load_no_link() -> None:
    found = cluster()
    net = build_network(found, RankMap(node_names=("m0h0", "m1h0"), ngpus_per_node=2))
    assert net.path(0, 1) == () and len(net.path(1, 2)) == 4


def test_a_tier_that_is_called_as_links_of_nodes_are_is_refused() -> None:
    found = Cluster(name="odd", tiers=("host", "minipod"), nodes=(Node(name="n0", fabric=("s0", "m0")),))
    with pytest.raises(ConfigError, match="cluster odd: tiers: found 'host'"):
        Wiring(found)


def test_a_stranger_is_named() -> None:
    with pytest.raises(ValueError, match="m9h9"):
        build_network(cluster(), RankMap(node_names=("m9h9",), ngpus_per_node=1))

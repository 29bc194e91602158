import math

import pytest

from spanfit.collectives import Collective
from spanfit.errors import ConfigError
from spanfit.profiler.predict.collectives import Library, Part, double_tree, ring_segments, shape, whole
from spanfit.profiler.predict.sharing import Sharing, Use
from spanfit.profiler.predict.simulation import Simulation
from tests.unit.profiler.predict.factory import PLAIN, RATE, cluster, network

POD, SORTED, ALTERNATING = (0, 1, 2, 3), (0, 1, 4, 5), (0, 4, 1, 5)


def gloo_s(collective: Collective, ranks: tuple[int, ...], size_bytes: float) -> float:
    net = network(cluster())
    simulation = Simulation(net.route, Sharing(PLAIN.conduct(net), 0), 0.0)
    for me in range(len(ranks)):
        simulation.spawn(Part(simulation, ranks, me, 0, 0.0).run(collective, size_bytes))
    return simulation.run()


@pytest.mark.parametrize(("ranks", "slowdown"), [(POD, 1), (SORTED, 1), (ALTERNATING, 2)])
def test_a_ring_of_gloo_takes_what_its_busiest_link_carries(ranks: tuple[int, ...], slowdown: int) -> None:
    assert gloo_s(Collective.ALL_REDUCE, ranks, 8e6) == pytest.approx(slowdown * 2 * 3 / 4 * 8e6 / RATE, rel=1e-6)
    assert gloo_s(Collective.ALL_GATHER, ranks, 8e6) == pytest.approx(slowdown * 3 / 4 * 8e6 / RATE, rel=1e-6)


def test_reduce_scatter_of_gloo_moves_what_its_all_reduce_does() -> None:
    assert gloo_s(Collective.REDUCE_SCATTER, POD, 4e6) == gloo_s(Collective.ALL_REDUCE, POD, 4e6)


def test_two_ranks_reduce_both_ways_at_once() -> None:
    assert gloo_s(Collective.ALL_REDUCE, (0, 1), 4e6) == pytest.approx(4e6 / RATE, rel=1e-6)


def test_a_broadcast_of_gloo_is_a_binomial_tree_that_sends_to_all_children_at_once() -> None:
    assert gloo_s(Collective.BROADCAST, (0, 1), 1e6) == pytest.approx(1.0)
    assert gloo_s(Collective.BROADCAST, POD, 1e6) == pytest.approx(3.0)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_a_broadcast_of_gloo_is_counted_along_the_tree_that_it_takes(n: int) -> None:
    found, net = shape(Library.GLOO, Collective.BROADCAST, n, 1e6), network(cluster())
    sent: list[tuple[int, int]] = []

    def noted(source: int, target: int) -> Use:
        sent.append((source, target))
        return net.route(source, target)[0]

    simulation = Simulation(lambda *edge: (noted(*edge), 1.0), Sharing(PLAIN.conduct(net), 0), 0.0)
    for me in range(n):
        simulation.spawn(Part(simulation, tuple(range(n)), me, 0, 0.0).run(Collective.BROADCAST, 1e6))
    simulation.run()
    assert sorted(found.edges) == sorted(sent) and found.edge_bytes == 1e6


def test_all_to_all_sends_every_share_at_once() -> None:
    assert gloo_s(Collective.ALL_TO_ALL, POD, 4e6) == pytest.approx(3.0)


def test_segments_are_at_most_a_mebibyte_and_two_a_rank_at_least() -> None:
    assert [ring_segments(4, size) for size in (1 << 20, 8 << 20, 9 << 20, 64 << 20)] == [8, 8, 12, 64]


@pytest.mark.parametrize(
    ("collective", "factor"),
    [(Collective.ALL_REDUCE, 1.5), (Collective.ALL_GATHER, 0.75), (Collective.REDUCE_SCATTER, 0.75)],
)
def test_a_ring_of_nccl_carries_its_busbw_volume_on_each_edge(collective: Collective, factor: float) -> None:
    flow = whole(network(cluster()), Library.NCCL, collective, ALTERNATING, 4e6)
    assert flow.edge_bytes == factor * 4e6
    assert sorted(share for _, share in flow.use) == [1.0] * 8 + [2.0] * 4


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 32])
def test_both_trees_of_nccl_reach_every_rank_in_few_steps(n: int) -> None:
    trees = double_tree(n)
    for tree in trees:
        parents = dict(tree)
        assert len(parents) == n - 1
        for rank in range(n):
            depth = 0
            while rank in parents:
                rank, depth = parents[rank], depth + 1
            assert depth <= math.log2(n) + 1


def test_a_tree_of_nccl_moves_half_of_the_buffer_each_way_on_an_edge() -> None:
    flow = whole(network(cluster()), Library.NCCL_TREE, Collective.ALL_REDUCE, POD, 4e6)
    assert flow.edge_bytes == 2e6 and flow.hops == 4
    assert sum(share for _, share in flow.use) == 2 * 2 * 2 * 3


def test_a_collective_that_is_not_modelled_is_named() -> None:
    with pytest.raises(ConfigError, match=r"gather.*expected all_reduce"):
        whole(network(cluster()), Library.NCCL, Collective.GATHER, POD, 1e6)
    with pytest.raises(ConfigError, match=r"barrier.*gloo"):
        gloo_s(Collective.BARRIER, POD, 1e6)

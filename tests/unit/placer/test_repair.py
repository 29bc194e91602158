from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from spanfit.errors import ConfigError, InfeasibleError
from spanfit.placer.model import Placement
from spanfit.placer.place import place
from spanfit.placer.repair import Repair
from spanfit.placer.repair import repair as repair_exactly
from spanfit.placer.rules import OneModel, Rules
from spanfit.placer.verify import verify
from spanfit.topology.model import Cluster, NodeState
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.test_place import cluster, job, node
from tests.unit.placer.test_rules import experts, mixed

repair = partial(repair_exactly, time_limit_s=1)
"""Too short for HiGHS, which tests of real processes start."""


def running(given_cluster: Cluster, placement: Placement, *down: str) -> Cluster:
    """Return the cluster with the job on it, and some nodes down."""
    states = dict.fromkeys(placement.rank_map.node_names, NodeState.ALLOCATED) | dict.fromkeys(down, NodeState.DOWN)
    nodes = (replace(node, state=states.get(node.name, node.state)) for node in given_cluster.nodes)
    return replace(given_cluster, nodes=tuple(nodes))


def check(found: Repair, old: Placement, now: Cluster, *failed: str) -> None:
    """Assert that a repair is what it says."""
    verify(found.placement, now, held=old.rank_map.node_names)
    assert not set(failed) & set(found.placement.rank_map.node_names)
    changed = {
        rank: (was, new)
        for rank, (was, new) in enumerate(
            zip(old.rank_map.node_names, found.placement.rank_map.node_names, strict=True)
        )
        if was != new
    }
    assert {move.node_rank: (move.old, move.new) for move in found.moves} == changed
    assert len(changed) == found.options[0].nmoves


def test_a_spare_of_the_same_minipod_is_one_move() -> None:
    given_cluster = cluster(7, 7)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7, rules=Rules(spares=1))
    failed = old.rank_map.node_names[3]
    now = running(given_cluster, old, failed)
    found = repair(old, now, [failed])
    check(found, old, now, failed)
    assert [move.old for move in found.moves] == [failed]
    assert found.moves[0].new in old.spares
    assert found.options[0].is_fewest
    assert found.placement.objective == old.objective
    assert len(found.placement.spares) == 1


def test_nodes_that_the_cluster_calls_down_count_as_failed() -> None:
    given_cluster = cluster(8, 8)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7)
    failed, drained = old.rank_map.node_names[0], old.rank_map.node_names[5]
    now = running(given_cluster, old, drained)
    found = repair(old, now, [failed])
    check(found, old, now, failed, drained)
    assert {failed, drained} < {move.old for move in found.moves}, "the failed rank's row moves whole"


def test_a_wider_spread_is_traded_for_what_cannot_be_kept() -> None:
    """Six whole rows in two minipods; the one free node is in a third."""
    given_cluster = cluster(6, 6, 1)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7)
    assert (max(old.dp_spreads), max(old.pp_spreads)) == (2, 1)
    failed = old.rank_map.node_names[0]
    now = running(given_cluster, old, failed)
    found = repair(old, now, [failed])
    check(found, old, now, failed)
    assert found.placement.objective > old.objective
    assert found.again_objective <= found.placement.objective
    assert found.options[0].objective == min(option.objective for option in found.options)


def test_few_moves_are_preferred_where_they_are_asked_for() -> None:
    """Keeping rows whole takes both nodes of a row along; a single move splits the row."""
    given_cluster = cluster(6, 6, 2)
    old = place(job(6, 2), given_cluster, alpha=0.05, beta=0.95)
    failed = old.rank_map.node_names[0]
    now = running(given_cluster, old, failed)
    kept, few = repair(old, now, [failed]), repair(old, now, [failed], max_moves=1)
    check(kept, old, now, failed)
    check(few, old, now, failed)
    assert (len(kept.moves), len(few.moves)) == (2, 1)
    assert kept.placement.objective < few.placement.objective


def test_rules_hold_after_a_failure() -> None:
    given_cluster = mixed({"A100": (4, 5), "H100": (5, 5)})
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7, rules=Rules(one_model=OneModel.DP))
    failed = old.rank_map.node_names[0]
    now = running(given_cluster, old, failed)
    check(repair(old, now, [failed]), old, now, failed)


def test_an_ep_group_is_mended_inside_its_domain() -> None:
    given_cluster = experts((2, 2), 5)
    spec = job(8, 2, layout=ParallelLayout(dp=8, pp=2, tp=8, ep=4))
    old = place(spec, given_cluster, alpha=0.5, beta=0.5, rules=Rules(ep_within="accelerator"))
    failed = old.rank_map.node_names[0]
    now = running(given_cluster, old, failed)
    found = repair(old, now, [failed])
    check(found, old, now, failed)
    assert found.moves[0].new[:4] == failed[:4]
    taken = running(given_cluster, old, failed, found.moves[0].new)
    with pytest.raises(InfeasibleError):
        repair(old, taken, [failed])


def test_what_cannot_be_mended_is_said_in_numbers() -> None:
    given_cluster = cluster(6, 6)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7)
    failed = old.rank_map.node_names[0]
    with pytest.raises(InfeasibleError, match="has lost nodes: 1; other free nodes: 0"):
        repair(old, running(given_cluster, old, failed), [failed])
    with pytest.raises(ConfigError, match="found ghost; expected nodes of the placement"):
        repair(old, given_cluster, ["ghost"])


@pytest.mark.parametrize(("alpha", "spreads"), [(0.05, (3, 2)), (0.95, (2, 3))])
def test_the_cheaper_of_two_wider_spreads_is_taken(alpha: float, spreads: tuple[int, int]) -> None:
    """The failed cell may take a node of a minipod that its row touches already, or of one that its column does."""
    given_cluster, pods = cluster(4, 3, 4), ((0, 0, 1), (0, 0, 1), (2, 2, 2))
    old = place(job(3, 3), given_cluster, alpha=alpha, beta=1 - alpha)
    numbers = [count(), count(), count()]
    names = tuple(f"p{pods[row][column]}n{next(numbers[pods[row][column]])}" for row, column in old.cells)
    old = replace(old, rank_map=replace(old.rank_map, node_names=names), dp_spreads=(2, 2, 2), pp_spreads=(2, 2, 1))
    now = running(given_cluster, old, "p0n0")
    found = repair(old, now, ["p0n0"], max_moves=1)
    check(found, old, now, "p0n0")
    assert (max(found.placement.dp_spreads), max(found.placement.pp_spreads), len(found.moves)) == (*spreads, 1)


def test_pinned_nodes_stay_after_a_failure_and_cannot_be_replaced() -> None:
    given_cluster = cluster(6, 6, 2)
    old = place(job(6, 2), given_cluster, alpha=0.05, beta=0.95)
    failed, mate = old.rank_map.node_names[0], old.rank_map.node_names[6]
    pinned = replace(old, rules=Rules(pinned=(mate,)))
    now = running(given_cluster, old, failed)
    assert mate in {move.old for move in repair(old, now, [failed]).moves}, "the row moves whole where it may"
    found = repair(pinned, now, [failed])
    check(found, pinned, now, failed)
    with pytest.raises(ConfigError, match="which the placement pins"):
        repair(pinned, running(given_cluster, old, mate), [failed])


def test_a_cluster_that_lacks_nodes_of_the_placement_is_refused() -> None:
    given_cluster = cluster(7, 7)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7)
    first, second = old.rank_map.node_names[:2]
    nodes = tuple(node for node in given_cluster.nodes if node.name != second)
    with pytest.raises(ConfigError, match=f"has nodes {second}, which cluster made does not"):
        repair(old, replace(given_cluster, nodes=nodes), [first])


def test_spares_that_others_have_taken_are_no_longer_told() -> None:
    given_cluster = cluster(7, 7)
    old = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7, rules=Rules(spares=1))
    failed = next(name for name in old.rank_map.node_names if name[:2] == old.spares[0][:2])
    now = running(given_cluster, old, failed)
    taken = {old.spares[1]: NodeState.ALLOCATED}
    now = replace(now, nodes=tuple(replace(node, state=taken.get(node.name, node.state)) for node in now.nodes))
    found = repair(old, now, [failed])
    assert (found.moves[0].new, found.placement.spares) == (old.spares[0], ())


def test_a_mended_job_in_a_zone_is_bounded_by_all_zones() -> None:
    """Mending splits the job over two minipods of its core; the other core would hold it in one."""
    nodes = [node(f"{core}{i}", "leaf", f"{core}pod{i // 14}") for core in ("x", "y") for i in range(14)]
    nodes += [node("x14", "leaf", "xpod1"), node("x15", "leaf", "xpod1")]
    nodes = [replace(each, fabric=(*each.fabric[:2], each.name[0])) for each in nodes]
    both = Cluster(name="two", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    old = place(job(6, 2), both, alpha=0.3, beta=0.7, rules=Rules(within="core"))
    assert old.choice == "x"
    failed = old.rank_map.node_names[0]
    spare = {f"x{i}" for i in range(14)} - set(old.rank_map.node_names)
    now = running(both, old, failed, *spare)
    found = repair(old, now, [failed])
    check(found, old, now, failed)
    assert found.again_objective == found.placement.bound == 1 < found.placement.objective

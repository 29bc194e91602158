import math
import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.campaign_file import CampaignFile, Launcher, LaunchFile, PairsFile
from spanfit.bench.case import BenchCase, CaseKind, Concurrency
from spanfit.bench.groups import NodeTree
from spanfit.bench.plan import plan_cases
from spanfit.bench.tournament import PairRound, plan_rounds, standard_error, tournament
from spanfit.collectives import Collective

TIERS = ("leaf", "minipod", "core")


def tree_of(nnodes: int, per_leaf: int, leaves_per_minipod: int) -> NodeTree:
    per_minipod = per_leaf * leaves_per_minipod
    return NodeTree(
        tiers=TIERS, fabric=tuple((f"l{n // per_leaf}", f"m{n // per_minipod}", "core") for n in range(nnodes))
    )


def tier_of(tree: NodeTree, pair: tuple[int, int]) -> str:
    a, b = (tree.fabric[node] for node in pair)
    return next((tier for tier, left, right in zip(TIERS, a, b, strict=True) if left == right), "")


def are_disjoint(chosen: PairRound) -> bool:
    nodes = [node for pair in chosen.pairs for node in pair]
    return len(nodes) == len(set(nodes))


def campaign_of(scan: PairsFile, ranks_per_node: int = 1) -> CampaignFile:
    launch = LaunchFile(launcher=Launcher.SSH, ranks_per_node=ranks_per_node)
    return CampaignFile(name="scan", cluster="cluster.toml", launch=launch, pairs=scan)


SCAN = PairsFile(sizes=(1 << 20,))


def cases_of(scan: PairsFile, nnodes: int = 4, ranks_per_node: int = 1) -> tuple[BenchCase, ...]:
    return plan_cases(campaign_of(scan, ranks_per_node), tree_of(nnodes, 2, 1))


@given(st.integers(0, 65))
def test_in_a_tournament_every_two_nodes_meet_once_in_the_fewest_rounds(nnodes: int) -> None:
    nodes = random.Random(nnodes).sample(range(1000), nnodes)
    rounds = tournament(nodes)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert sorted(map(sorted, met)) == sorted(map(sorted, combinations(nodes, 2)))
    assert len(rounds) == max(0, nnodes - 1 + nnodes % 2)
    assert all(are_disjoint(PairRound(tier="", pairs=pairs)) for pairs in rounds)


def test_up_to_64_nodes_all_pairs_are_planned() -> None:
    assert plan_rounds(tree_of(64, 8, 2), None, 0) == tuple(
        PairRound(tier="", pairs=pairs) for pairs in tournament(range(64))
    )
    assert len(plan_rounds(tree_of(65, 8, 2), None, 0)) < 64


def test_a_sample_gives_each_node_that_many_partners_of_each_tier() -> None:
    tree = tree_of(160, 8, 4)
    rounds = plan_rounds(tree, 5, 1)
    assert [chosen.tier for chosen in rounds] == ["leaf"] * 5 + ["minipod"] * 5 + ["core"] * 5
    assert all(are_disjoint(chosen) and len(chosen.pairs) == 80 for chosen in rounds)
    assert {tier_of(tree, pair) == chosen.tier for chosen in rounds for pair in chosen.pairs} == {True}


def test_in_a_small_leaf_all_partners_are_met_once() -> None:
    tree = tree_of(66, 3, 2)
    within = [pair for chosen in plan_rounds(tree, 16, 2) if chosen.tier == "leaf" for pair in chosen.pairs]
    assert len(within) == len({frozenset(pair) for pair in within}) == 22 * 3


def test_a_minipod_of_more_than_half_of_the_nodes_keeps_nodes_over() -> None:
    fabric = tuple((f"l{n}", "m0" if n < 60 else "m1", "core") for n in range(80))
    across = [r for r in plan_rounds(NodeTree(tiers=TIERS, fabric=fabric), 4, 3) if r.tier == "core"]
    assert [len(chosen.pairs) for chosen in across] == [20] * 4
    assert len({pair for chosen in across for pair in chosen.pairs}) > 60


def test_nodes_under_no_common_switch_are_paired_too() -> None:
    fabric = tuple((f"l{n // 2}", f"m{n // 2}", f"c{n // 2}") for n in range(8))
    rounds = plan_rounds(NodeTree(tiers=TIERS, fabric=fabric), 2, 4)
    assert [chosen.tier for chosen in rounds] == ["leaf", "", ""]


def test_the_same_seed_gives_the_same_sample() -> None:
    tree = tree_of(100, 10, 2)
    assert plan_rounds(tree, 3, 7) == plan_rounds(tree, 3, 7) != plan_rounds(tree, 3, 8)


def test_the_standard_error_is_what_draws_of_partners_show() -> None:
    rng = np.random.default_rng(5)
    means = rng.normal(0, 0.1, (4000, 16)).mean(axis=1)
    assert means.std() == pytest.approx(standard_error(0.1, 16), rel=0.05)


def test_a_round_is_one_case_and_one_way_pairs_run_both_ways_apart() -> None:
    cases = cases_of(SCAN)
    assert {case.kind for case in cases} == {CaseKind.PAIRS}
    assert len(cases) == 2 * 3
    for number, pairs in enumerate(tournament(range(4))):
        groups = {case.groups for case in cases if case.draw == number}
        assert groups == {pairs, tuple((b, a) for a, b in pairs)}


def test_an_exchange_needs_one_direction_only() -> None:
    assert len(cases_of(replace(SCAN, operation=Collective.EXCHANGE))) == 3


def test_a_scan_of_rails_is_a_whole_scan_for_each_with_a_rank_a_node() -> None:
    cases = cases_of(replace(SCAN, rails=True), ranks_per_node=2)
    plain = cases_of(SCAN)
    assert [case.rail for case in cases].count(0) == [case.rail for case in cases].count(1) == len(plain)
    assert {replace(case, rail=-1) for case in cases} == set(plain)


def test_alone_is_a_case_for_each_pair() -> None:
    cases = cases_of(replace(SCAN, concurrency=(Concurrency.ALONE,)))
    assert [len(case.groups) for case in cases] == [1] * 12
    assert {case.groups[0] for case in cases} == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_a_scan_that_nodes_or_sizes_cannot_give_is_refused() -> None:
    with pytest.raises(ValueError, match="pairs: found fewer than two nodes"):
        cases_of(SCAN, nnodes=1)
    with pytest.raises(ValueError, match=r"pairs.sizes: found 3 B, expected at least one element of float32"):
        cases_of(replace(SCAN, sizes=(3,)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operation": Collective.ALL_REDUCE}, r"pairs.operation: found all_reduce, expected one of send, exchange"),
        ({"concurrency": (Concurrency.PAIR,)}, r"pairs.concurrency: found pair, expected all or alone"),
        ({"concurrency": ()}, r"pairs.concurrency: found nothing"),
    ],
)
def test_what_is_no_scan_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        campaign_of(replace(SCAN, **changes))  # type: ignore[arg-type]


def test_1250_nodes_get_few_disjoint_rounds_with_a_stated_error() -> None:
    rounds = plan_rounds(tree_of(1250, 16, 10), None, 0)
    assert len(rounds) == 15 + 16 + 16
    assert all(are_disjoint(chosen) for chosen in rounds)
    assert math.isclose(standard_error(0.04, 16), 0.01)

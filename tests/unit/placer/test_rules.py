"""Placements under hard constraints, each verified from the cluster's own nodes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import ConfigError, InfeasibleError
from spanfit.placer.choose import Goal
from spanfit.placer.model import Placement, PlacementStatus
from spanfit.placer.offers import shares
from spanfit.placer.place import place
from spanfit.placer.rules import OneModel, Rules
from spanfit.placer.verify import verify
from spanfit.topology.model import Cluster, NodeState
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.test_place import cluster, job, node


def mixed(sizes: dict[str, tuple[int, ...]]) -> Cluster:
    """Return a cluster of minipods of these sizes, each of one GPU model."""
    nodes = [
        node(f"{model}-{minipod}-{index}", "leaf", f"{model}-{minipod}", gpu_model=model)
        for model, each in sizes.items()
        for minipod, size in enumerate(each)
        for index in range(size)
    ]
    return Cluster(name="mixed", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def placed(given_cluster: Cluster, rules: Rules, *, alpha: float = 0.3, dp: int = 6, pp: int = 2) -> Placement:
    found = place(job(dp, pp), given_cluster, alpha=alpha, beta=1 - alpha, rules=rules)
    verify(found, given_cluster)
    return found


def test_excluded_and_reserved_nodes_are_used_as_the_rules_say() -> None:
    given_cluster = cluster(8, 6)
    found = placed(given_cluster, Rules(excluded=("p0n0", "p0n1")))
    assert not {"p0n0", "p0n1"} & set(found.rank_map.node_names)
    nodes = tuple(replace(each, state=NodeState.RESERVED) for each in given_cluster.nodes)
    reserved = replace(given_cluster, nodes=nodes)
    assert placed(reserved, Rules(use_reserved=True)).status is PlacementStatus.OPTIMAL
    with pytest.raises(InfeasibleError, match=r"has 0 free \(of 14 nodes 14 reserved\).*use 12 of the 14 reserved"):
        placed(reserved, Rules())


@pytest.mark.parametrize("pinned", [("p2n0",), ("p2n0", "p2n1", "p2n2"), ("p0n0", "p1n3", "p2n2")])
def test_pinned_nodes_are_used_though_the_best_grid_leaves_them_out(pinned: tuple[str, ...]) -> None:
    given_cluster = cluster(12, 4, 3)
    assert set(placed(given_cluster, Rules()).minipods) == {"pod0"}
    found = placed(given_cluster, Rules(pinned=pinned))
    assert set(pinned) <= set(found.rank_map.node_names)
    assert found.bound == 1 < found.objective


def test_spares_stay_in_every_minipod_that_is_used() -> None:
    found = placed(cluster(7, 7), Rules(spares=1))
    assert sorted(name[:2] for name in found.spares) == ["p0", "p1"]
    with pytest.raises(InfeasibleError, match=r"10 of them usable; nearest change: add 2 more; or keep fewer than 2"):
        placed(cluster(7, 7), Rules(spares=2))


def test_a_job_stays_within_one_switch_of_a_tier() -> None:
    nodes = [node(f"{core}{i}", "leaf", f"{core}pod{i % 2}") for core in ("x", "y") for i in range(12)]
    nodes = [replace(each, fabric=(*each.fabric[:2], each.name[0])) for each in nodes]
    two_cores = Cluster(name="two", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    found = placed(two_cores, Rules(within="core"))
    assert len({name[0] for name in found.rank_map.node_names}) == 1
    assert found.choice in ("x", "y")
    with pytest.raises(InfeasibleError, match=r"needs 16 nodes of 8 GPUs, under one core; .*12 of them usable at most"):
        placed(two_cores, Rules(within="core"), dp=8)


def test_each_group_is_on_one_model() -> None:
    given_cluster = mixed({"A100": (4, 4), "H100": (5, 5)})
    by_column = placed(given_cluster, Rules(one_model=OneModel.DP))
    assert by_column.choice == "1 on A100, 1 on H100"
    assert by_column.certificate.endswith("; the others add 0.7")
    by_row = placed(given_cluster, Rules(one_model=OneModel.PP))
    assert "on A100" in by_row.choice and "on H100" in by_row.choice
    with pytest.raises(InfeasibleError, match=r"12 nodes .* of one GPU model for the job; .*10 of them usable at most"):
        placed(given_cluster, Rules(one_model=OneModel.JOB))


def test_shares_that_are_not_tried_are_bounded_by_one_pool() -> None:
    """Fourteen rows are too many to try every share: only a bound that holds for all of them may be printed."""
    found = placed(mixed({"A100": (8, 9), "H100": (9, 8)}), Rules(one_model=OneModel.PP), dp=14)
    assert found.certificate.startswith("all nodes in one pool: ")


def test_stages_are_on_the_models_that_they_name() -> None:
    given_cluster = mixed({"A100": (3, 3), "H100": (6, 5)})
    found = placed(given_cluster, Rules(stage_models=("H100", "A100", "H100")), dp=4, pp=3)
    assert (max(found.dp_spreads), max(found.pp_spreads)) == (2, 2)
    with pytest.raises(
        InfeasibleError, match=r"8 of A100 for 2 stages, 4 of H100 for 1 stage; .*nearest change: add 2"
    ):
        placed(given_cluster, Rules(stage_models=("A100", "H100", "A100")), dp=4, pp=3)


def experts(domains: tuple[int, ...], size: int) -> Cluster:
    """Return minipods of some accelerator domains, each of ``size`` nodes."""
    nodes = [
        node(f"p{minipod}d{domain}n{index}", "leaf", f"pod{minipod}", accelerator_domain=f"{minipod}-{domain}")
        for minipod, count in enumerate(domains)
        for domain in range(count)
        for index in range(size)
    ]
    return Cluster(name="nvl", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def test_ep_groups_stay_in_an_accelerator_domain() -> None:
    spec = job(8, 2, layout=ParallelLayout(dp=8, pp=2, tp=8, ep=4))
    given_cluster = experts((2, 2), 5)
    found = place(spec, given_cluster, alpha=0.5, beta=0.5, rules=Rules(ep_within="accelerator"))
    verify(found, given_cluster)
    assert found.ep_spreads == (1,) * 4
    with pytest.raises(
        InfeasibleError,
        match=r"as 4 EP groups of 4, each in one accelerator domain; .*room for 1 more whole groups of 4",
    ):
        place(
            spec,
            experts((1, 1), 9),
            alpha=0.5,
            beta=0.5,
            rules=Rules(ep_within="accelerator", excluded=("p0d0n0", "p0d0n1")),
        )


def test_spares_of_ep_groups_stay_in_their_domains() -> None:
    spec = job(8, 2, layout=ParallelLayout(dp=8, pp=2, tp=8, ep=4))
    given_cluster = experts((2, 2), 5)
    rules = Rules(ep_within="accelerator", spares=1)
    found = place(spec, given_cluster, alpha=0.5, beta=0.5, rules=rules)
    verify(found, given_cluster)
    assert len({name[:4] for name in found.spares}) == 4
    with pytest.raises(InfeasibleError, match="4 more whole groups of 4"):
        place(spec, experts((2, 2), 5), alpha=0.5, beta=0.5, rules=replace(rules, spares=2))


def test_weighed_ep_groups_are_proven_by_both_kinds_of_grids() -> None:
    spec = job(6, 2, layout=ParallelLayout(dp=6, pp=2, tp=8, ep=3))
    given_cluster = cluster(5, 5, 5)
    whole = place(spec, given_cluster, alpha=0.1, beta=0.1, ep_weight=0.8)
    torn = place(spec, given_cluster, alpha=0.1, beta=0.8, ep_weight=0.1)
    for found in (whole, torn):
        verify(found, given_cluster)
        assert found.status is PlacementStatus.OPTIMAL
        assert "EP groups add " in found.certificate
    with pytest.raises(InfeasibleError):
        place(spec, given_cluster, alpha=0.1, beta=0.1, ep_weight=0.8, rules=Rules(ep_within="minipod"))
    assert (max(whole.ep_spreads), max(torn.pp_spreads)) == (2, 1)


def test_goals_choose_among_equals_in_their_order() -> None:
    given_cluster = cluster(13, 7, 7)
    for goals in ((Goal.ROOM,), (Goal.MINIPODS, Goal.ROOM)):
        found = place(job(6, 2), given_cluster, alpha=0.0, beta=1.0, goals=goals)
        verify(found, given_cluster)
    assert set(found.minipods) == {"pod0"}


def test_predicted_step_time_chooses_among_equals() -> None:
    given_cluster = cluster(6, 6, 6)
    times: list[float] = []

    def step_time_s(rank_map: object) -> float:
        times.append(1 / (1 + len(times)))
        return times[-1]

    found = place(job(6, 2), given_cluster, alpha=0.3, beta=0.7, step_time_s=step_time_s, time_limit_s=2)
    verify(found, given_cluster)
    assert found.step_s == min(times)


def test_rules_that_name_what_there_is_not_are_told_at_once() -> None:
    wrong = Rules(excluded=("ghost",), pinned=("p0n0", "spirit"), within="rack", ep_within="core", stage_models=("A",))
    with pytest.raises(ConfigError) as caught:
        place(job(6, 2), cluster(8, 8), alpha=0.3, beta=0.7, rules=wrong)
    for text in ("ghost", "spirit", "within: found rack", "ep_within: found core", "expected 2, one for each stage"):
        assert text in str(caught.value)
    with pytest.raises(ValueError, match="both excluded and pinned"):
        Rules(excluded=("a",), pinned=("a",))


@given(st.integers(1, 40), st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_shares_sum_to_the_groups_and_fit(lines: int, room: list[int]) -> None:
    found = list(shares(lines, room))
    assert all(
        sum(share) == lines and all(0 <= n <= most for n, most in zip(share, room, strict=True)) for share in found
    )
    assert bool(found) == (sum(room) >= lines)
    assert len(set(found)) == len(found)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=2, max_size=4), st.integers(0, 3), st.sampled_from((0.2, 0.5, 0.8)))
def test_placements_with_pins_and_spares_hold(sizes: list[int], npins: int, alpha: float) -> None:
    given_cluster = cluster(*sizes)
    pinned = tuple(each.name for each in given_cluster.nodes[-npins:]) if npins else ()
    try:
        placed(given_cluster, Rules(pinned=pinned, spares=1), alpha=alpha, dp=4)
    except InfeasibleError as error:
        assert "nearest change" in str(error) or "spares" in str(error) or "pinned" in str(error)


def two_cores(per_core: int) -> Cluster:
    nodes = [node(f"{core}{i}", "leaf", f"{core}pod{i % 2}") for core in ("x", "y") for i in range(per_core)]
    nodes = [replace(each, fabric=(*each.fabric[:2], each.name[0])) for each in nodes]
    return Cluster(name="two", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def test_pinned_nodes_choose_the_zone_and_the_model() -> None:
    """The other zone or model would do as well, but has none of the pinned nodes."""
    for name in ("x3", "y5"):
        found = placed(two_cores(12), Rules(within="core", pinned=(name,)))
        assert (found.choice, name in found.rank_map.node_names) == (name[0], True)
    given_cluster = mixed({"A100": (7, 7), "H100": (7, 7)})
    for rule in OneModel:
        for name in ("A100-1-0", "H100-0-3"):
            found = placed(given_cluster, Rules(one_model=rule, pinned=(name,)))
            assert name in found.rank_map.node_names


@pytest.mark.parametrize(
    ("given_cluster", "rules"),
    [
        (two_cores(12), Rules(within="core", pinned=("x0", "y0"))),
        (mixed({"A100": (8, 8), "H100": (8, 8)}), Rules(one_model=OneModel.JOB, pinned=("A100-0-0", "H100-0-0"))),
        (cluster(7, 7), Rules(spares=1, pinned=tuple(f"p0n{index}" for index in range(7)))),
    ],
)
def test_pinned_nodes_that_other_rules_leave_out_are_told(given_cluster: Cluster, rules: Rules) -> None:
    with pytest.raises(InfeasibleError, match=rf"at least 1 of its {len(rules.pinned)} pinned nodes cannot be used"):
        placed(given_cluster, rules)


def test_a_pinned_node_beside_the_whole_ep_groups_of_its_domain_is_told() -> None:
    spec = job(8, 2, layout=ParallelLayout(dp=8, pp=2, tp=8, ep=4))
    rules = Rules(ep_within="accelerator", pinned=tuple(f"p0d0n{index}" for index in range(5)))
    with pytest.raises(InfeasibleError, match="at least 1 of its 5 pinned nodes"):
        place(spec, experts((2, 2), 5), alpha=0.5, beta=0.5, rules=rules)


def test_a_spare_is_of_the_model_that_it_may_replace() -> None:
    nodes = [
        node(f"p{pod}{model}{index}", "leaf", f"pod{pod}", gpu_model=model)
        for pod in range(2)
        for model in ("A100", "H100")
        for index in range(7)
    ]
    shared = Cluster(name="shared", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    found = placed(shared, Rules(one_model=OneModel.JOB, spares=1))
    assert {name[2:6] for name in found.spares} == {found.choice}


def test_many_models_of_which_few_shares_are_tried_prove_only_what_one_pool_does() -> None:
    given_cluster = mixed(dict.fromkeys(("A", "B", "C", "D", "E"), (6, 6, 6)))
    found = placed(given_cluster, Rules(one_model=OneModel.DP), dp=6, pp=3)
    assert found.certificate.startswith("all nodes in one pool: ")


def test_slices_and_hosts_of_several_models_are_no_nodes_for_a_job() -> None:
    nodes = [node(f"n{index}", "leaf", "pod0", gpu_model="h100") for index in range(4)]
    nodes += [
        node("sliced", "leaf", "pod0", ngpus=0, gpu_model=None),
        node("both", "leaf", "pod0", gpu_model="h100+h200"),
    ]
    given_cluster = Cluster(name="odd", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    with pytest.raises(InfeasibleError, match=r"1 under 8 GPUs; 1 h100\+h200, not h100"):
        place(job(6, 1, gpu_model="h100"), given_cluster, alpha=0.5, beta=0.5)
    with pytest.raises(InfeasibleError, match=r"1 under 8 GPUs; 1 of several models \(h100\+h200\)"):
        place(job(6, 1), given_cluster, alpha=0.5, beta=0.5, rules=Rules(one_model=OneModel.DP))
    assert "sliced" not in place(job(5, 1), given_cluster, alpha=0.5, beta=0.5).rank_map.node_names


def test_what_groups_on_one_model_lack_is_told() -> None:
    """Nine and four nodes hold three whole columns of four; a fourth takes three more of the first."""
    given_cluster = mixed({"A100": (5, 4), "H100": (2, 2)})
    with pytest.raises(InfeasibleError, match=r"13 free .*, 13 of them usable .*; nearest change: add 3 more"):
        placed(given_cluster, Rules(one_model=OneModel.DP), dp=4, pp=4)

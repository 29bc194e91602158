from collections.abc import Callable
from dataclasses import replace

import pytest

from spanfit.errors import ConfigError, InfeasibleError
from spanfit.placer.constraints import free_nodes
from spanfit.placer.model import JobSpec, Placement, PlacementStatus
from spanfit.placer.place import choose_weights, place
from spanfit.placer.verify import verify
from spanfit.results.schema import Estimate
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.weights.model import SCHEMA_VERSION as WEIGHTS_VERSION
from spanfit.weights.model import Source, Volumes, WeightEntry, WeightSet
from spanfit.workload.layout import MEGATRON_PP_FIRST, ParallelLayout


def node(name: str, leaf: str, minipod: str, **fields: object) -> Node:
    plain = Node(name=name, fabric=(leaf, minipod, "core"), ngpus=8, gpu_model="H100")
    return replace(plain, **fields)  # type: ignore[arg-type]


def cluster(*sizes: int) -> Cluster:
    """Return a cluster with minipods of these sizes, their nodes dealt in turn to two leaves."""
    nodes = [
        node(f"p{minipod}n{index}", f"leaf{index % 2}", f"pod{minipod}")
        for minipod, size in enumerate(sizes)
        for index in range(size)
    ]
    return Cluster(name="made", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def job(dp: int, pp: int, tp: int = 8, **fields: object) -> JobSpec:
    plain = JobSpec(name="job", layout=ParallelLayout(dp=dp, pp=pp, tp=tp), ngpus_per_node=8)
    return replace(plain, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", MEGATRON_PP_FIRST])
@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_a_placement_is_what_it_says_in_every_order_of_ranks(order: str, alpha: float) -> None:
    spec = job(6, 2, layout=ParallelLayout(dp=6, pp=2, tp=8, order=order))
    given = cluster(7, 5, 6)
    placed = place(spec, given, alpha=alpha, beta=1 - alpha)
    verify(placed, given)
    assert placed.cells == spec.layout.node_cells(8)
    assert placed.status is PlacementStatus.OPTIMAL
    expected = (2, 1) if alpha == 0.2 else (1, 2)
    assert (max(placed.dp_spreads), max(placed.pp_spreads)) == expected
    assert placed.best_fit_objective >= placed.objective


def test_several_replicas_may_share_a_node() -> None:
    given = cluster(4, 4)
    placed = place(job(8, 2, tp=4), given, alpha=0.5, beta=0.5)
    verify(placed, given)
    assert (len(placed.cells), placed.rank_map.nranks) == (8, 64)


def test_only_idle_nodes_with_enough_gpus_of_the_model_are_used() -> None:
    nodes = (
        node("idle", "l", "p"),
        node("unknown", "l", "p", ngpus=None),
        node("busy", "l", "p", state=NodeState.ALLOCATED),
        node("down", "l", "p", state=NodeState.DOWN),
        node("small", "l", "p", ngpus=4),
        node("other", "l", "p", gpu_model="A100"),
        node("unnamed", "l", "p", gpu_model=None),
    )
    given = Cluster(name="mixed", tiers=("leaf", "minipod", "core"), nodes=nodes)
    names = [found.name for found in free_nodes(job(1, 1, gpu_model="H100"), given)]
    assert names == ["idle", "unknown"]
    assert len(free_nodes(job(1, 1), given)) == 4


def test_too_few_nodes_are_told_by_minipod() -> None:
    with pytest.raises(InfeasibleError, match=r"needs 12 nodes of 8 GPUs; cluster made has 9 free .*pod1 5"):
        place(job(6, 2), cluster(4, 5), alpha=0.5, beta=0.5)


def test_minipods_of_two_cores_with_the_same_name_are_two() -> None:
    nodes = [Node(name=f"{core}{i}", fabric=("leaf", "pod", core)) for core in ("x", "y") for i in range(2)]
    given = Cluster(name="twins", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    placed = place(job(2, 2), given, alpha=0.2, beta=0.8)
    verify(placed, given)
    assert set(placed.minipods) == {"x/pod", "y/pod"}
    assert placed.dp_spreads == (2, 2)


def test_nodes_of_a_leaf_stay_together() -> None:
    placed = place(job(4, 2), cluster(8), alpha=0.2, beta=0.8)
    by_cell = dict(zip(placed.cells, placed.rank_map.node_names, strict=True))
    parity = [int(by_cell[cell][-1]) % 2 for cell in sorted(by_cell)]
    assert parity == sorted(parity)


def test_weights_that_are_no_shares_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected shares of one"):
        place(job(2, 1), cluster(4), alpha=0.7, beta=0.7)


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (lambda p: replace(p, objective=p.objective + 1), "objective is"),
        (lambda p: replace(p, bound=p.bound + 1), "is above the objective"),
        (lambda p: replace(p, bound=p.bound - 1), "status is optimal"),
        (lambda p: replace(p, dp_spreads=(1, 1)), "spreads are"),
        (lambda p: replace(p, minipods=p.minipods[::-1]), "minipods are not"),
        (lambda p: replace(p, cells=p.cells[::-1]), "cells are not"),
        (lambda p: replace(p, rank_map=replace(p.rank_map, node_names=("p0n0",) * 12)), "two node ranks"),
        (lambda p: replace(p, rank_map=replace(p.rank_map, node_names=("ghost", "p0n0"))), "ghost are not free"),
    ],
)
def test_verify_names_what_is_broken(breakage: Callable[[Placement], Placement], message: str) -> None:
    given = cluster(6, 6)
    placed = place(job(6, 2), given, alpha=0.2, beta=0.8)
    with pytest.raises(ValueError, match=message):
        verify(breakage(placed), given)


def entry(name: str, gpu_model: str) -> WeightEntry:
    share = Estimate(value=0.5, ci_low=0.4, ci_high=0.6)
    return WeightEntry(
        job=name,
        gpu_model=gpu_model,
        dp=6,
        pp=2,
        alpha=share,
        beta=share,
        gain_dp=share,
        gain_pp=share,
        is_flat=False,
        is_provisional=False,
        base_arms=(),
        compute="wait",
        launches=8,
        source=Source.MEASURED,
        volumes=Volumes(dp_bytes=3e6, pp_bytes=1e6, r1=0.75, r2=3.0),
    )


def weights(*entries: WeightEntry) -> WeightSet:
    return WeightSet(
        schema_version=WEIGHTS_VERSION,
        run_ids=(),
        cluster="made",
        created_at="2026-01-01T00:00:00+00:00",
        spanfit_version="0",
        entries=entries,
    )


def test_weights_are_chosen_by_name_then_alone_then_by_gpu_model() -> None:
    dense, sparse, old = entry("dense", "H100"), entry("moe", "H100"), entry("dense", "A100")
    h100, a100 = job(6, 2, gpu_model="H100"), job(6, 2, gpu_model="A100")
    assert choose_weights(weights(dense, sparse), h100, "moe") is sparse
    assert choose_weights(weights(dense, old), h100, "dense") is dense
    assert choose_weights(weights(dense), a100) is dense
    assert choose_weights(weights(dense, sparse, old), a100) is old
    with pytest.raises(ConfigError, match=r"2 entries of GPU model H100: dense \(H100\), moe \(H100\); .*--entry"):
        choose_weights(weights(dense, sparse, old), h100)
    with pytest.raises(ConfigError, match=r"no entry named gone; they have dense \(H100\)"):
        choose_weights(weights(dense), h100, "gone")
    with pytest.raises(ConfigError, match="no entry of GPU model unknown"):
        choose_weights(weights(dense, old), job(6, 2))

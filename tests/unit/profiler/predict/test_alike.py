import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.profiler.predict import alike
from spanfit.profiler.predict.alike import Roles, representatives
from spanfit.profiler.predict.collectives import Library, whole
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.ranks import everyone, run_step
from spanfit.profiler.predict.traffic import link_loads, link_traffic
from spanfit.workload.program import Collect, Send
from spanfit.workload.script import Script
from tests.unit.profiler.predict.alike import PARAMETERS, PLACED, placed, told_apart
from tests.unit.workload.factory import job as hybrid
from tests.unit.workload.factory import program_of


@settings(max_examples=10, deadline=None)
@given(PLACED, st.sampled_from(["nowhere", "switch", "node"]))
def test_classes_are_those_that_all_programs_tell_apart(found: tuple[Script, Network], kind: str) -> None:
    script, network = found
    roles = Roles(script, network)
    places = {"nowhere": np.zeros(script.nranks, dtype=np.int64), "switch": roles.switches, "node": roles.nodes}[kind]
    assert roles.classes(places).tolist() == told_apart(script, network, places.tolist())


@settings(max_examples=10, deadline=None)
@given(PLACED, st.sampled_from(Library))
def test_links_carry_what_all_programs_send(found: tuple[Script, Network], library: Library) -> None:
    script, network = found
    loads = [0.0] * len(network.links)
    for rank in range(script.nranks):
        for each in program_of(script, rank):
            if isinstance(each, Send):
                for link in network.path(rank, each.peer):
                    loads[link] += each.size_bytes
            elif isinstance(each, Collect) and each.group[0] == rank:
                flow = whole(network, library, each.collective, each.group, each.size_bytes)
                for link, share in flow.use:
                    loads[link] += share * flow.edge_bytes
    assert link_loads(script, network, library).tolist() == pytest.approx(loads)
    moved = link_traffic(script, network, library)
    uplinks = [load for link, load in zip(network.links, loads, strict=True) if link.link_class != "host"]
    assert moved.busiest_bytes == pytest.approx(max(uplinks, default=0.0), abs=1)


def test_replicas_that_share_a_node_load_its_links_as_often_as_they_have_groups() -> None:
    # Four replicas of a tensor-parallel pair on each of eight nodes: each ring leaves a node once, not four times.
    script, network = placed(hybrid(dp=32, pp=1, tp=2), 8, None)
    assert len(representatives(script, network, Library.NCCL, is_unfair=False).programs) < 8
    all_s, few_s = times_s(script, network, Library.NCCL)
    assert few_s == pytest.approx(all_s, rel=1e-6)


def times_s(script: Script, network: Network, library: Library) -> tuple[float, float]:
    """Return the step of all ranks and of those that stand for them."""
    casts = everyone(script, network, library), representatives(script, network, library, is_unfair=False)
    all_s, few_s = (run_step(cast, network, PARAMETERS, library, 0) for cast in casts)
    return all_s, few_s


@pytest.mark.parametrize(("dp", "pp", "tp"), [(36, 2, 1), (18, 4, 1), (20, 4, 1), (9, 4, 2)])
@pytest.mark.parametrize("library", [Library.NCCL, Library.NCCL_TREE])
def test_ranks_differ_by_who_shares_their_node(dp: int, pp: int, tp: int, library: Library) -> None:
    # Stages of so many ranks end in the middle of a node of eight: its link carries less of each than others do.
    all_s, few_s = times_s(*placed(hybrid(dp=dp, pp=pp, tp=tp), 8, None), library)
    assert few_s == pytest.approx(all_s, rel=1e-3)


@pytest.mark.parametrize(("dp", "pp", "tp", "ngpus"), [(36, 2, 1, 8), (18, 4, 1, 8), (8, 4, 2, 2)])
def test_beyond_the_most_classes_the_busiest_uplink_stands_for_its_like(
    dp: int, pp: int, tp: int, ngpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "MOST_SIMULATED", 16)
    for seed in range(4):
        script, network = placed(hybrid(dp=dp, pp=pp, tp=tp, microbatches=4), ngpus, seed)
        roles = Roles(script, network)
        assert roles.classes(roles.switches, 16).max() >= 16
        all_s, few_s = times_s(script, network, Library.NCCL)
        assert 0.9 * all_s < few_s < 1.03 * all_s

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.profiler.predict.alike import Roles, representatives
from spanfit.profiler.predict.collectives import Library, whole
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.ranks import everyone, run_step
from spanfit.profiler.predict.traffic import link_loads, link_traffic
from spanfit.workload.program import Collect, Send
from spanfit.workload.script import Script
from tests.unit.profiler.predict.alike import PARAMETERS, PLACED, placed, told_apart
from tests.unit.workload.factory import job as hybrid


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
        for each in script.program(rank):
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
    few = representatives(script, network, Library.NCCL, is_unfair=False)
    all_s, few_s = (
        run_step(cast, network, PARAMETERS, Library.NCCL, 0) for cast in (everyone(script, network, Library.NCCL), few)
    )
    assert len(few.programs) < 8
    assert few_s == pytest.approx(all_s, rel=1e-6)

"""Whether ranks that are alike may run as one, in jobs of every strategy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.profiler.predict.alike import lanes, representatives
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.ranks import everyone, run_step, shortened
from spanfit.workload.script import Script
from tests.unit.profiler.predict.alike import PARAMETERS, PLACED


@settings(max_examples=40, deadline=None)
@given(PLACED, st.sampled_from([Library.NCCL, Library.NCCL_TREE]))
def test_ranks_that_are_alike_run_as_one_to_rounding(found: tuple[Script, Network], library: Library) -> None:
    script, network = found
    in_nodes, anywhere = lanes(script, network, library), representatives(script, network, library, is_unfair=False)
    casts = everyone(script, network, library), in_nodes, shortened(in_nodes, PARAMETERS, {}), anywhere
    run_s = [run_step(cast, network, PARAMETERS, library, 0) for cast in casts]
    assert run_s == pytest.approx([run_s[0]] * 4, rel=1e-6)

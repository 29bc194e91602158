from dataclasses import replace

from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.fit import fit_parameters
from tests.unit.profiler.predict.curves import SHAPES, simulated
from tests.unit.profiler.predict.factory import PLAIN, cluster

TRUTH = replace(PLAIN, rates_bytes_per_s={"host": 5e7, "minipod": 8e7}, burst_bytes=2e4, call_s=1e-4, start_s=1e-4)
EIGHT = cluster()
PAIRS_ALONE = [shape for shape in SHAPES if shape[1] == 2 and shape[-1] == "alone"]
ALONE_SHOW = {"rate of host", "burst_bytes", "start_s", "latency_s", "reduction_s_per_byte", "call_s"}
SHARING_SHOWS = {"rate of minipod", "both_ways_efficiency", "spread"}


def test_what_flows_alone_do_not_show_is_said_to_be_no_fit_and_where_it_comes_from() -> None:
    found = fit_parameters([simulated(EIGHT, TRUTH, Library.NCCL, 1, PAIRS_ALONE)], EIGHT, Library.NCCL)
    assert set(found.not_fitted) == SHARING_SHOWS | {"peak_bytes_per_s", "redraw_s"}
    assert found.not_fitted["spread"] == found.not_fitted["both_ways_efficiency"] == "assumed"
    assert found.not_fitted["rate of minipod"].startswith("the most that micro-patterns were seen to carry")
    assert not ALONE_SHOW & set(found.not_fitted)

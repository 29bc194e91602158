from collections.abc import Sequence
from dataclasses import replace

from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.fit import fit_parameters
from tests.unit.profiler.predict.curves import SHAPES, simulated
from tests.unit.profiler.predict.factory import PLAIN, cluster

TRUTH = replace(PLAIN, rates_bytes_per_s={"host": 5e7, "minipod": 8e7}, burst_bytes=2e4, call_s=1e-4, start_s=1e-4)
EIGHT = cluster()
PAIRS_ALONE = [shape for shape in SHAPES if shape[1] == 2 and shape[-1] == "alone"]
SHARING_SHOWS = {"rate of minipod", "both_ways_efficiency", "spread"}
NOTHING_SHOWS = {"peak_bytes_per_s", "redraw_s"}


def not_fitted(library: Library, shapes: Sequence[tuple[str, int, int, str, str]]) -> dict[str, str]:
    return fit_parameters([simulated(EIGHT, TRUTH, library, 1, shapes)], EIGHT, library).not_fitted


def test_what_groups_alone_do_not_show_is_said_to_be_no_fit_and_where_it_comes_from() -> None:
    found = not_fitted(Library.NCCL, PAIRS_ALONE)
    assert set(found) >= SHARING_SHOWS | NOTHING_SHOWS
    assert found["spread"] == found["both_ways_efficiency"] == "assumed"
    assert found["rate of minipod"].startswith("the most that micro-patterns were seen to carry")
    # NCCL's collectives add up in no time of their own, and what a call takes is less than times are known to.
    assert found["reduction_s_per_byte"] == found["call_s"] == "a guess that micro-patterns hardly corrected"
    assert not {"rate of host", "burst_bytes"} & set(found)


def test_messages_alone_do_not_show_what_collectives_take() -> None:
    sends = [("send", nnodes, span, "sorted", "alone") for nnodes in (2, 4) for span in (1, 2)]
    assert {"reduction_s_per_byte", "call_s"} <= set(not_fitted(Library.GLOO, sends))

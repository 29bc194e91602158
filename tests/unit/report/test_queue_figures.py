import re
import xml.etree.ElementTree as ET

import pytest

from spanfit.queue.simulate.outcome import JobOutcome, ReplayOutcome, ReservationSpan, Series, Totals
from spanfit.report.queue_figures import Moments, calendar_figure, delays_figure, levels_figure
from spanfit.results.schema import Estimate
from tests.unit.queue.factory import ground

MOMENTS = Moments(job_id="big & <bold>", announced_s=3600.0, arrives_s=7200.0)


def outcome(retention: dict[str, tuple[tuple[float, float], ...]], found: float | None) -> ReplayOutcome:
    times_s = tuple(600.0 * index for index in range(20))
    job = JobOutcome(
        job_id=MOMENTS.job_id,
        nnodes=6,
        is_announced=True,
        submitted_s=3600.0,
        wanted_s=7200.0,
        started_s=7200.0,
        ended_s=None,
        waited_s=0.0,
        retention=found,
    )
    return ReplayOutcome(
        nnodes=8,
        ngpus_per_node=8,
        jobs=(job,),
        series=Series(
            times_s=times_s,
            allocated=tuple(8 - index % 3 for index in range(20)),
            up=(8,) * 20,
            held=(0,) * 20,
            waiting=(0,) * 20,
            fragmented=(0.0,) * 20,
            retention=retention,
        ),
        totals=Totals(
            span_s=12_000.0, allocated=0, free=0, idle=0, held=0, fragmented=0, preempted=0, failed=0, npreemptions=0,
            nfailures=0,
        ),
        calendar=(),
    )  # fmt: skip


def lines_of(svg: str, colour: str) -> int:
    return len(re.findall(rf"stroke: {colour}", svg))


def blocks(svg: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of the blocks in the axes: closed paths of four corners, clipped."""
    found = []
    for path in re.findall(r'<path d="([^"]*)"[^>]*clip-path', svg):
        numbers = [float(text) for text in re.findall(r"-?[\d.]+", path)]
        xs, ys = numbers[0::2], numbers[1::2]
        if len(xs) == 4 and min(xs) < max(xs) and min(ys) < max(ys):
            found.append((min(xs), min(ys), max(xs), max(ys)))
    return found


def test_levels_have_a_line_for_each_way_and_retention_only_where_there_is_a_plan() -> None:
    planned = outcome({MOMENTS.job_id: ((3600.0, 0.8), (5400.0, 0.4))}, 0.1)
    drawn = levels_figure({"spanfit": planned, "packing": outcome({}, None)}, MOMENTS, before_s=1800.0, after_s=1800.0)
    ET.fromstring(drawn)
    assert "big &amp; &lt;bold&gt;" in drawn and "8 nodes in all" in drawn
    # Allocation and retention and the key of the legend; the way without a plan has two.
    assert lines_of(drawn, "#1f2933") == 3
    assert lines_of(drawn, "#0173b2") == 2
    assert drawn == levels_figure(
        {"spanfit": planned, "packing": outcome({}, None)}, MOMENTS, before_s=1800.0, after_s=1800.0
    )


@pytest.mark.parametrize("high", [None, 900.0])
def test_delays_are_minutes_by_class_and_way(high: float | None) -> None:
    low = None if high is None else 0.0
    known = {"1": Estimate(value=600.0, ci_low=low, ci_high=high)}
    drawn = delays_figure({"spanfit": known, "paper": {**known, "128+": known["1"]}}, "what it is")
    ET.fromstring(drawn)
    assert ">1 node<" in drawn and ">128+ nodes<" in drawn and ">2-7 nodes<" not in drawn
    told = "10 (no interval)" if high is None else "10 [0, 15]"
    assert drawn.count(told) == 3


def test_a_calendar_shows_each_job_reserved_and_running_and_stacks_those_at_one_time() -> None:
    spans = (
        ReservationSpan(job_id="one", nodes=0b0011, from_s=0.0, to_s=3600.0, is_running=False),
        ReservationSpan(job_id="one", nodes=0b0011, from_s=3600.0, to_s=7200.0, is_running=True),
        ReservationSpan(job_id="two", nodes=0b1100, from_s=1800.0, to_s=7200.0, is_running=False),
    )
    drawn = calendar_figure(spans, ground(4, 2), zero_s=3600.0, counted_from="then")
    ET.fromstring(drawn)
    for text in ("one reserved", "one running", "two reserved", "two running", ">a<", ">b<", "hours from then"):
        assert text in drawn, text
    boxes = blocks(drawn)
    assert len(boxes) == 3
    for index, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[index + 1 :]:
            apart = (
                min(right, other[2]) - max(left, other[0]) < 0.01 or min(bottom, other[3]) - max(top, other[1]) < 0.01
            )
            assert apart, (boxes[index], other)

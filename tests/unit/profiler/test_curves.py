import math
from dataclasses import replace

import numpy as np
import pytest

from spanfit.collectives import Collective, busbw
from spanfit.profiler.curves import SpanCurvePoint, fit_curves, join_curves
from spanfit.profiler.statistics import Verdict
from spanfit.results.schema import Estimate, Measurement
from tests.unit.profiler.factory import MEASUREMENT, Noise, failed, framed, measured


def holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.ci_low is not None and estimate.ci_high is not None
    return estimate.ci_low <= truth <= estimate.ci_high


def spans(ratio: float, time_s: float = 0.02, size_bytes: int = 1 << 20) -> list[tuple[Measurement, float]]:
    case = replace(MEASUREMENT, size_bytes=size_bytes)
    return [(case, time_s), (replace(case, span=2), time_s * ratio)]


def by_span(points: tuple[SpanCurvePoint, ...]) -> dict[int, SpanCurvePoint]:
    assert len({point.span for point in points}) == len(points)
    return {point.span: point for point in points}


def test_time_and_busbw_recover_the_truth() -> None:
    noise = Noise(launch=0.0, unit=0.01, row=0.02)
    rows = measured(np.random.default_rng(1), spans(4.0), repetitions=9, noise=noise)
    for span, truth in ((1, 0.02), (2, 0.08)):
        point = by_span(fit_curves(framed(rows)))[span]
        assert point.time_s is not None and point.busbw_bytes_per_s is not None
        assert holds(point.time_s, truth)
        assert holds(point.busbw_bytes_per_s, busbw(Collective.ALL_REDUCE, 4, 1 << 20, truth))
        assert point.busbw_bytes_per_s.value == pytest.approx(1.5 * (1 << 20) / truth, rel=0.03)
        assert (point.nsamples, point.nunits, point.nfailed, point.is_provisional) == (54, 6, 0, False)


def test_the_loss_at_four_to_one_is_75_percent() -> None:
    points = by_span(fit_curves(framed(measured(np.random.default_rng(2), spans(4.0)))))
    assert points[1].loss is None
    loss = points[2].loss
    assert loss is not None
    assert holds(loss.estimate, 0.75)
    assert loss.estimate.value == pytest.approx(0.75, abs=0.02)
    assert loss.verdict is Verdict.SLOWER
    assert loss.sentence.startswith("slower: loses 7")


def test_pairing_by_launch_takes_the_launch_out_of_the_loss() -> None:
    noise = Noise(launch=1.0, unit=0.0, row=0.0)
    points = by_span(fit_curves(framed(measured(np.random.default_rng(3), spans(1.25), noise=noise))))
    loss, time_s = points[2].loss, points[2].time_s
    assert loss is not None and time_s is not None
    assert loss.estimate.value == pytest.approx(0.2)
    assert holds(loss.estimate, loss.estimate.value)
    assert time_s.ci_low is not None and time_s.ci_high is not None
    assert time_s.ci_high > 2 * time_s.ci_low


def test_intervals_cover_and_no_false_loss_is_claimed() -> None:
    noise = Noise(launch=0.0, unit=0.1, row=0.1)
    cases = [case for size in range(200) for case in spans(1.0, size_bytes=1024 + size)]
    points = fit_curves(framed(measured(np.random.default_rng(4), cases, noise=noise)))
    times = [holds(point.time_s, 0.02) for point in points if point.time_s]
    losses = [point.loss for point in points if point.loss]
    assert len(times) == 400 and len(losses) == 200
    assert 0.92 <= np.mean(times) <= 0.98
    assert 0.92 <= np.mean([holds(loss.estimate, 0.0) for loss in losses]) <= 0.98
    assert {loss.verdict for loss in losses} == {Verdict.CANNOT_TELL}


def test_no_loss_is_told_from_precise_data() -> None:
    noise = Noise(unit=0.003, row=0.003)
    loss = by_span(fit_curves(framed(measured(np.random.default_rng(5), spans(1.0), noise=noise))))[2].loss
    assert loss is not None and loss.estimate.ci_high is not None
    assert loss.verdict is Verdict.NO_SLOWER
    assert loss.sentence.startswith(f"no slower than {100 * loss.estimate.ci_high:.1f}%: ")


def test_a_loss_too_small_to_matter_is_no_claim_of_slower() -> None:
    noise = Noise(unit=0.0, row=0.0)
    loss = by_span(fit_curves(framed(measured(np.random.default_rng(6), spans(1.02), noise=noise))))[2].loss
    assert loss is not None
    assert loss.estimate.value == pytest.approx(1 - 1 / 1.02)
    assert loss.verdict is Verdict.NO_SLOWER


def test_a_loss_told_from_0_but_not_from_the_smallest_that_matters_is_no_claim() -> None:
    logs = [0.015, 0.020, 0.025, 0.030, 0.035, 0.020]
    narrow = [replace(MEASUREMENT, launch=launch) for launch in range(6)]
    wide = [replace(row, span=2, time_s=math.exp(log)) for row, log in zip(narrow, logs, strict=True)]
    loss = by_span(fit_curves(framed(narrow + wide)))[2].loss
    assert loss is not None and loss.estimate.ci_low is not None and loss.estimate.ci_high is not None
    assert 0 < loss.estimate.ci_low < loss.estimate.value < 0.03 < loss.estimate.ci_high
    assert loss.verdict is Verdict.CANNOT_TELL


def test_noise_is_answered_with_what_more_measuring_would_cost() -> None:
    noise = Noise(unit=0.2, row=0.1)
    rows = measured(np.random.default_rng(7), spans(1.05), launches=3, noise=noise)
    point = by_span(fit_curves(framed(rows)))[2]
    assert point.loss is not None and point.is_provisional
    assert point.loss.verdict is Verdict.CANNOT_TELL
    assert "more launches would narrow it to ± 3.0%" in point.loss.sentence


def test_one_launch_has_no_interval_and_claims_nothing() -> None:
    point = by_span(fit_curves(framed(measured(np.random.default_rng(8), spans(4.0), launches=1))))[2]
    assert point.time_s is not None and point.loss is not None
    assert point.time_s.ci_low is None and point.loss.estimate.ci_low is None
    assert point.is_provisional and point.loss.verdict is Verdict.CANNOT_TELL
    assert "one unit: no interval" in point.loss.sentence and "5 more launches" in point.loss.sentence


def test_other_rank_orders_are_compared_with_the_sorted_span_1() -> None:
    cases = [*spans(1.5), (replace(MEASUREMENT, span=2, rank_order="alternating"), 0.06)]
    points = fit_curves(framed(measured(np.random.default_rng(9), cases)))
    assert [(point.span, point.rank_order) for point in points] == [(1, "sorted"), (2, "sorted"), (2, "alternating")]
    losses = {point.rank_order: point.loss for point in points if point.span == 2}
    assert losses["sorted"] is not None and losses["alternating"] is not None
    assert holds(losses["sorted"].estimate, 1 / 3)
    assert holds(losses["alternating"].estimate, 2 / 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "all_gather"},
        {"size_bytes": 1 << 21},
        {"dtype": "bfloat16"},
        {"redop": "max"},
        {"nranks": 8},
        {"nnodes": 2},
        {"concurrency": "alone"},
    ],
)
def test_nothing_is_pooled_or_compared_across_kinds_of_case(changes: dict[str, object]) -> None:
    other = replace(MEASUREMENT, span=2, **changes)  # type: ignore[arg-type]
    points = fit_curves(framed(measured(np.random.default_rng(10), [(MEASUREMENT, 0.02), (other, 0.08)])))
    assert [point.nunits for point in points] == [6, 6]
    assert [point.loss for point in points] == [None, None]


def test_failed_rows_are_counted_and_a_case_that_always_fails_is_a_point() -> None:
    rows = measured(np.random.default_rng(11), spans(2.0))
    rows = [failed(row) if row.span == 2 else row for row in rows]
    rows[0] = failed(rows[0])
    points = by_span(fit_curves(framed(rows)))
    assert (points[1].nsamples, points[1].nfailed) == (17, 1)
    assert (points[2].nsamples, points[2].nfailed, points[2].nunits) == (0, 18, 0)
    assert (points[2].time_s, points[2].busbw_bytes_per_s, points[2].loss) == (None, None, None)


def test_groups_of_a_unit_are_no_units_of_their_own() -> None:
    rows = measured(np.random.default_rng(12), [(MEASUREMENT, 0.02)], launches=2)
    rows += [replace(row, group=1, time_s=3 * row.time_s) for row in rows]
    (point,) = fit_curves(framed(rows))
    assert (point.nsamples, point.nunits) == (12, 2)
    one = [np.median([math.log(row.time_s) for row in rows if row.launch == launch]) for launch in (0, 1)]
    assert point.time_s is not None
    assert point.time_s.value == pytest.approx(math.exp(float(np.mean(one))))


def test_steps_are_no_collectives() -> None:
    assert fit_curves(framed([replace(MEASUREMENT, kind="step")])) == ()


def test_interference_compares_each_group_with_itself_alone() -> None:
    alone = replace(MEASUREMENT, concurrency="alone")
    cases = [(alone, 0.02), (MEASUREMENT, 0.04), (replace(MEASUREMENT, group=1, nodes="4,5,6,7"), 0.4)]
    points = {p.concurrency: p for p in fit_curves(framed(measured(np.random.default_rng(13), cases)))}
    assert points["alone"].interference is None
    found = points["all"].interference
    assert found is not None
    assert holds(found.estimate, 0.5) and found.estimate.value == pytest.approx(0.5, abs=0.03)
    assert found.verdict is Verdict.SLOWER and found.sentence.startswith("slower: loses ")


@pytest.mark.parametrize("changes", [{"draw": 1}, {"span": 2}, {"nodes": "4,5,6,7"}, {"rail": 0}, {"size_bytes": 2048}])
def test_groups_that_were_not_measured_alone_have_no_interference(changes: dict[str, object]) -> None:
    other = replace(MEASUREMENT, **changes)  # type: ignore[arg-type]
    cases = [(replace(MEASUREMENT, concurrency="alone"), 0.02), (other, 0.04)]
    points = fit_curves(framed(measured(np.random.default_rng(14), cases)))
    assert [point.interference for point in points] == [None, None]


def test_rails_are_never_pooled_and_each_is_compared_with_itself() -> None:
    cases = [
        (replace(MEASUREMENT, rail=rail, span=span, group=rail), 0.01 * (1 + 3 * rail) * span)
        for rail in (0, 1)
        for span in (1, 2)
    ]
    frame = framed(measured(np.random.default_rng(15), cases))
    points = {(point.rail, point.span): point for point in fit_curves(frame)}
    assert set(points) == {(0, 1), (0, 2), (1, 1), (1, 2)}
    for rail in (0, 1):
        time_s, loss = points[rail, 1].time_s, points[rail, 2].loss
        assert time_s is not None and time_s.value == pytest.approx(0.01 * (1 + 3 * rail), rel=0.3)
        assert loss is not None and loss.estimate.value == pytest.approx(0.5, abs=0.05)
    assert [curve.rail for curve in join_curves(frame, fit_curves(frame))] == [0, 0, 1, 1]


def test_pairs_are_no_collectives_and_a_barrier_has_no_busbw() -> None:
    barrier = replace(MEASUREMENT, operation="barrier", size_bytes=0)
    (point,) = fit_curves(framed([replace(MEASUREMENT, kind="pairs"), barrier]))
    assert point.operation == "barrier" and point.time_s is not None and point.busbw_bytes_per_s is None

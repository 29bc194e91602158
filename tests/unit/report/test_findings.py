import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from spanfit.placer.model import PlacementStatus
from spanfit.profiler.curves import SpanLoss, fit_curves
from spanfit.profiler.gains import fit_gains
from spanfit.profiler.statistics import Verdict
from spanfit.report.findings import Tone, gain_findings, loss_findings, placement_finding, weight_findings
from spanfit.results.schema import Estimate, Measurement
from spanfit.weights.model import Source
from tests.unit.profiler.factory import Noise, framed, measured, step_cases
from tests.unit.report.factory import ARMS, QUIET, entry, estimate, placed, span_cases

INTERVAL = r"−?[\d.]+% \[−?[\d.]+, −?[\d.]+\]"
LOUD = Noise(launch=0.1, unit=0.3, row=0.1)


def made(*cases: tuple[Measurement, float], launches: int = 6, noise: Noise = QUIET, seed: int = 1) -> pd.DataFrame:
    return framed(measured(np.random.default_rng(seed), cases, launches=launches, repetitions=2, noise=noise))


def test_a_loss_is_told_with_its_interval_order_and_groups() -> None:
    (finding,) = loss_findings(fit_curves(made(*span_cases({1: 0.02, 2: 0.08}, rank_order="alternating"))))
    assert (finding.tone, finding.subject) == (Tone.LOSS, "all_reduce, 1 MiB,")
    told = rf"over 2 minipods in alternating order when all groups run at once loses {INTERVAL} against one minipod\."
    assert re.fullmatch(told, finding.text)
    assert "loses 7" in finding.text


def test_each_rail_has_a_finding_of_its_own() -> None:
    cases = [
        (replace(case, rail=rail), time_s)
        for rail, wide_s in ((0, 0.02), (1, 0.08))
        for case, time_s in span_cases({1: 0.02, 2: wide_s})
    ]
    found = loss_findings(fit_curves(made(*cases)))
    assert [(finding.tone, finding.subject) for finding in found] == [
        (Tone.LOSS, "all_reduce, 1 MiB, rail 1,"),
        (Tone.NO_LOSS, "all_reduce, 1 MiB, rail 0,"),
    ]


def test_no_loss_is_told_with_its_interval() -> None:
    (finding,) = loss_findings(fit_curves(made(*span_cases({1: 0.02, 2: 0.02}, concurrency="alone"))))
    told = rf"over 2 minipods in sorted order with one group alone it loses less than 3% \({INTERVAL}\)\."
    assert finding.tone is Tone.NO_LOSS and re.fullmatch(told, finding.text)


def test_what_the_data_cannot_tell_is_said() -> None:
    (finding,) = loss_findings(fit_curves(made(*span_cases({1: 0.02, 2: 0.02}), noise=LOUD)))
    told = rf"over 2 minipods in sorted order when all groups run at once the data cannot tell a loss \({INTERVAL}\)\."
    assert finding.tone is Tone.CANNOT_TELL and re.fullmatch(told, finding.text)


def test_one_launch_tells_nothing_and_says_so() -> None:
    (finding,) = loss_findings(fit_curves(made(*span_cases({1: 0.02, 2: 0.08}), launches=1)))
    assert finding.tone is Tone.CANNOT_TELL
    assert "the data cannot tell a loss (" in finding.text and "one unit: no interval" in finding.text
    assert finding.text.endswith("Provisional: 1 launch, at least 6 make a final claim.")


def test_few_launches_make_a_loss_provisional() -> None:
    (finding,) = loss_findings(fit_curves(made(*span_cases({1: 0.02, 2: 0.08}), launches=3)))
    assert finding.tone is Tone.LOSS and finding.text.endswith(
        "Provisional: 3 launches, at least 6 make a final claim."
    )


@pytest.mark.parametrize(
    ("estimate", "told"),
    [
        (
            Estimate(value=0.02, ci_low=0.01, ci_high=0.035),
            "the data cannot tell whether the loss reaches 3% (2.0% [1.0, 3.5])",
        ),
        (
            Estimate(value=0.5, ci_low=0.2, ci_high=0.7),
            "once all comparisons of the run are allowed for (50.0% [20.0, 70.0])",
        ),
    ],
)
def test_an_interval_above_zero_that_tells_nothing_says_why(estimate: Estimate, told: str) -> None:
    *_, wide = fit_curves(made(*span_cases({1: 0.02, 2: 0.02})))
    loss = SpanLoss(estimate=estimate, nlaunches=6, verdict=Verdict.CANNOT_TELL, sentence="")
    (finding,) = loss_findings([replace(wide, loss=loss)])
    assert told in finding.text and finding.tone is Tone.CANNOT_TELL


def test_a_collective_tells_its_worst_and_its_smallest_loss_and_what_is_unsure() -> None:
    cases = [
        *span_cases({1: 0.02, 2: 0.04, 4: 0.08}),
        *span_cases({1: 0.02, 2: 0.02, 4: 0.02}, concurrency="alone"),
    ]
    (finding,) = loss_findings(fit_curves(made(*cases)))
    first, second, third = finding.text.split("; ")
    assert first.startswith("over 4 minipods") and "loses 7" in first
    assert re.match(r"its smallest sure loss is (49|50)\.\d% .*, over 2 minipods", second)
    assert third.startswith("over 4 minipods") and third.endswith(", and likewise in 1 other case.")


def test_the_worst_collective_comes_first_at_its_largest_size() -> None:
    cases = [*span_cases({1: 0.02, 2: 0.03}), *span_cases({1: 0.02, 2: 0.08}, operation="send_recv")]
    cases += [(replace(case, size_bytes=1 << 22), 4 * time_s) for case, time_s in cases]
    findings = loss_findings(fit_curves(made(*cases)))
    assert [finding.subject for finding in findings] == ["send_recv, 4 MiB,", "all_reduce, 4 MiB,"]


def test_a_run_of_one_span_has_no_losses() -> None:
    assert loss_findings(fit_curves(made(*span_cases({1: 0.02})))) == ()


def test_gains_are_told_best_first_with_intervals() -> None:
    (finding,) = gain_findings(fit_gains(made(*step_cases(ARMS))))
    assert (finding.tone, finding.subject) == (Tone.GAIN, "Job balanced:")
    best, same, worst = finding.text.split("; ")
    assert re.match(rf"dp-aligned gains {INTERVAL} in throughput over misaligned placements$", best)
    assert same.startswith("packed ") and re.match(rf"pp-aligned is slower \({INTERVAL}\)", worst)
    assert re.search(r"The slowest of the 2 misaligned placements takes 1\.2\d? \[", finding.text)


@pytest.mark.parametrize(
    ("noise", "tone", "told"),
    [
        (QUIET, Tone.NO_GAIN, r"dp-aligned is the same within 1% \("),
        (LOUD, Tone.CANNOT_TELL, "for dp-aligned the data cannot tell"),
    ],
)
def test_no_gain_and_cannot_tell_differ(noise: Noise, tone: Tone, told: str) -> None:
    arms = step_cases({"dp-aligned": 0.5, "misaligned-00": 0.5})
    (finding,) = gain_findings(fit_gains(made(*arms, noise=noise)))
    assert finding.tone is tone and re.match(told, finding.text)


def test_gains_of_few_launches_are_provisional() -> None:
    (finding,) = gain_findings(fit_gains(made(*step_cases(ARMS), launches=2)))
    assert finding.text.endswith("Provisional: 2 launches, at least 6 make a final claim.")


@pytest.mark.parametrize(
    ("low", "value", "high", "told"),
    [
        (0.6, 0.7, 0.8, "alpha is 0.700 [0.600, 0.800]: DP crossings of minipods weigh more than PP crossings."),
        (0.1, 0.2, 0.3, "alpha is 0.200 [0.100, 0.300]: PP crossings of minipods weigh more than DP crossings."),
        (0.4, 0.6, 0.8, "alpha is 0.600 [0.400, 0.800]; the data cannot tell which crossings of minipods weigh more."),
    ],
)
def test_weights_say_which_crossings_weigh_more(low: float, value: float, high: float, told: str) -> None:
    alpha = Estimate(value=value, ci_low=low, ci_high=high)
    (finding,) = weight_findings([entry(alpha=alpha, beta=estimate(1 - value))])
    assert (finding.subject, finding.text) == ("Job balanced (2 × 2):", told)


def test_weights_that_are_flat_negative_or_provisional_say_so() -> None:
    flat = entry(
        alpha=Estimate(value=0.5, ci_low=0, ci_high=1), beta=Estimate(value=0.5, ci_low=0, ci_high=1), is_flat=True
    )
    negative = entry(gain_pp=estimate(-0.02), is_provisional=True, launches=3)
    first, second = weight_findings([flat, negative])
    assert "neither gain can be told from 0" in first.text
    assert "The gain of its PP-aligned placement is −2.0% [−3.0, −1.0] and counts as none." in second.text
    assert second.text.endswith("Provisional: 3 launches, at least 6 make a final claim.")


def test_a_placement_is_told_beside_best_fit_and_unproven_ones_with_their_bound() -> None:
    grid = [["m0", "m0"], ["m1", "m1"]]
    proven = placement_finding(placed(grid))
    assert proven.text == (
        "placed on 4 nodes with objective 1.3, proven optimal: DP groups touch at most 2 minipods (best-fit 3), "
        "PP groups at most 1 minipod (best-fit 2); best-fit has objective 2.7."
    )
    open_ = placement_finding(placed(grid, status=PlacementStatus.FEASIBLE, bound=1.0))
    assert "not proven optimal (no placement is below 1)" in open_.text


def test_weights_that_were_not_measured_say_so() -> None:
    bare = Estimate(value=0.7, ci_low=None, ci_high=None)
    (by_hand,) = weight_findings([entry(source=Source.HAND, alpha=bare, beta=estimate(0.3))])
    assert by_hand.text == "alpha is 0.700, without an interval. It was given by hand."
    (predicted,) = weight_findings([entry(source=Source.PREDICTED)])
    assert predicted.text.endswith("weigh more than PP crossings. It was predicted, not measured.")

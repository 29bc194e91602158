from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from spanfit.profiler.cases import CaseKey, CaseTimes, case_times
from spanfit.profiler.compare import CaseComparison, Comparison, compare_runs
from spanfit.profiler.statistics import FloatArray, Verdict
from tests.unit.profiler.factory import MEASUREMENT, Noise, failed, framed, measured
from tests.unit.profiler.test_cases import KEY, PARTS, STARTUP

QUIET = [-0.010, 0.004, 0.007, -0.003, 0.009, -0.007]
"""Log times of six launches, whose mean is 0."""


def times(logs: Sequence[float] | FloatArray, resolution: float = 0.0) -> CaseTimes:
    return CaseTimes(
        unit_logs=np.array(logs), launches=tuple(range(len(logs))), nfailed=0, reason="", resolution=resolution
    )


def change(log_ratio: float, *, by: float = 1.0, resolution: float = 0.0, threshold: float = 0.03) -> CaseComparison:
    """Return the comparison of a case whose B takes exp(log_ratio) as long; ``by`` scales the noise of both."""
    noise = np.array(QUIET) * by
    compared = compare_runs(
        {KEY: times(noise, resolution)}, {KEY: times(noise[::-1] + log_ratio, resolution)}, threshold
    )
    (case,) = compared.cases
    return case


@pytest.mark.parametrize(
    ("log_ratio", "by", "verdict", "words"),
    [
        (0.1, 1, Verdict.SLOWER, "slower: 10.5% [9.4, 11.6]"),
        (-0.1, 1, Verdict.FASTER, "faster: −9.5% [−10.4, −8.6]"),
        (0.001, 1, Verdict.SAME, "the same within 3.0%: 0.1% [−0.9, 1.1]"),
        (0.02, 0.1, Verdict.SAME, "the same within 3.0%: 2.0% [1.9, 2.1]"),
        (0.028, 1, Verdict.CANNOT_TELL, "launches in each run would narrow it to ± 0.7%"),
        (0.1, 15, Verdict.CANNOT_TELL, "launches in each run would tell it from none"),
    ],
)
def test_verdicts(log_ratio: float, by: float, verdict: Verdict, words: str) -> None:
    case = change(log_ratio, by=by)
    assert case.verdict is verdict
    assert words in case.sentence
    assert case.is_finding == (verdict is Verdict.SLOWER)
    assert case.change is not None and case.change.value == pytest.approx(np.expm1(log_ratio))


def test_a_real_change_under_the_threshold_is_no_finding_and_under_a_smaller_threshold_is_one() -> None:
    assert change(0.02, by=0.1).p_value == pytest.approx(0, abs=1e-6)
    assert not change(0.02, by=0.1).is_finding
    assert change(0.02, by=0.1, threshold=0.01).is_finding


def test_one_launch_cannot_tell_and_says_why() -> None:
    (case,) = compare_runs({KEY: times([0.0])}, {KEY: times(np.array(QUIET) + 0.5)}).cases
    assert case.verdict is Verdict.CANNOT_TELL and not case.is_finding and case.is_provisional
    assert case.p_value is None and case.change is not None and case.change.ci_low is None
    assert "one launch in A cannot say how launches differ; 6 in each run would" in case.sentence
    (case,) = compare_runs({KEY: times([0.0])}, {KEY: times([1.0])}).cases
    assert "one launch in A and B cannot say" in case.sentence


def test_the_family_of_cases_is_corrected() -> None:
    alone = change(0.1, by=7)
    assert alone.is_finding and alone.p_value is not None
    keys = [replace(KEY, size_bytes=1 << power) for power in range(10, 40)]
    noise = np.array(QUIET) * 7
    b = {key: times(noise[::-1] + (0.1 if key == keys[3] else 0)) for key in keys}
    compared = compare_runs({key: times(noise) for key in keys}, b)
    hidden = next(case for case in compared.cases if case.case == keys[3])
    assert hidden.p_value == pytest.approx(min(1, 30 * alone.p_value))
    assert not compared.has_findings


def test_a_difference_within_the_printed_digits_is_none() -> None:
    assert change(0.05).is_finding
    unsure = change(0.05, resolution=0.03)
    assert unsure.verdict is Verdict.CANNOT_TELL and unsure.p_value == 1.0
    assert unsure.sentence.endswith("the printed digits leave ± 6.1% open")
    assert change(0.2, resolution=0.03).is_finding
    assert change(0.0, resolution=0.03).verdict is Verdict.CANNOT_TELL
    assert change(0.0, resolution=0.005).verdict is Verdict.SAME


CASES = [(MEASUREMENT, 0.02), (replace(MEASUREMENT, span=2), 0.08)]


def compared(b: Sequence[tuple[object, float]], *extra: object) -> Comparison:
    rng = np.random.default_rng(1)
    noise = Noise(launch=0.01, unit=0.005, row=0.01)
    rows_a, rows_b = measured(rng, CASES, noise=noise), measured(rng, b, noise=noise)  # type: ignore[arg-type]
    return compare_runs(case_times(framed(rows_a)), case_times(framed([*rows_b, *extra])))  # type: ignore[list-item]


def test_runs_of_other_nodes_and_draws_are_matched_by_what_was_measured() -> None:
    moved = [(replace(case, nodes="7,8,9", draw=5), 1.3 * time_s) for case, time_s in CASES]
    found = compared(moved)
    assert [case.verdict for case in found.cases] == [Verdict.SLOWER] * 2
    assert found.summary() == {"slower": 2, "faster": 0, "same": 0, "cannot tell": 0, "newly failing": 0}
    assert (found.only_a, found.only_b) == ((), ())


def test_findings_come_first_and_cases_of_one_run_are_named() -> None:
    other = replace(MEASUREMENT, operation="all_gather")
    found = compared([(CASES[1][0], 0.16), (MEASUREMENT, 0.02), (other, 1.0)])
    assert [(case.case.span, case.verdict) for case in found.cases] == [(2, Verdict.SLOWER), (1, Verdict.SAME)]
    assert found.only_a == () and [key.operation for key in found.only_b] == ["all_gather"]


def test_a_case_that_fails_in_b_only_is_a_finding_even_if_its_other_launches_are_as_fast() -> None:
    found = compared(CASES, failed(replace(MEASUREMENT, launch=6)))
    first = found.cases[0]
    assert first.is_newly_failing and first.is_finding and first.verdict is Verdict.SAME
    assert first.sentence.startswith("fails: 1 row without a time (rank 3 died); the same within")
    assert found.summary()["newly failing"] == 1


def test_a_case_that_only_b_has_and_only_fails_is_a_finding() -> None:
    died = failed(replace(MEASUREMENT, size_bytes=0, redop=""))
    first, *others = compared(CASES, died).cases
    assert first.is_finding and first.sentence == "fails: 1 row without a time (rank 3 died)"
    assert first.case.size_bytes == 0 and not any(case.is_finding for case in others)


def test_what_failed_before_is_no_finding_and_is_said() -> None:
    lost: dict[CaseKey, CaseTimes] = {KEY: replace(times([]), nfailed=3, reason="no route")}
    (mended,) = compare_runs(lost, {KEY: times(QUIET)}).cases
    assert not mended.is_finding and mended.change is None
    assert mended.sentence == "cannot tell: A has 3 rows without a time (no route)"
    (still,) = compare_runs(lost, lost).cases
    assert not still.is_finding and still.sentence.count("no route") == 2
    (broken,) = compare_runs({KEY: times(QUIET)}, lost).cases
    assert broken.is_finding and broken.sentence == "fails: 3 rows without a time (no route)"
    (worse,) = compare_runs({KEY: replace(times(QUIET), nfailed=1, reason="slow")}, lost).cases
    assert worse.is_finding
    often = {KEY: replace(times(QUIET), nfailed=1, reason="slow")}
    (flaky,) = compare_runs(often, often).cases
    assert not flaky.is_finding and flaky.verdict is Verdict.SAME


def test_a_start_up_that_fails_in_b_is_found_under_its_parts() -> None:
    found = compare_runs(case_times(framed(PARTS)), case_times(framed([failed(STARTUP)])))
    assert [case.case.operation for case in found.cases] == ["communicator", "first_all_reduce"]
    assert all(case.is_finding for case in found.cases) and found.only_a == found.only_b == ()

import math
from dataclasses import replace

import numpy as np
import pytest

from spanfit.bench.case import COMMUNICATION
from spanfit.errors import FitError
from spanfit.profiler.gains import JobGains, PlacementGain, fit_gains, lacking_base, seconds_per_launch
from spanfit.profiler.statistics import Verdict
from spanfit.results.schema import Estimate, Measurement
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, framed, measured, step_cases

EXACT = Noise(launch=0.5, unit=0.0, row=0.0)
ARMS = {
    "dp-aligned": 0.486,
    "pp-aligned": 0.390,
    "packed": 0.525,
    "misaligned-00": 0.400,
    "misaligned-01": 0.525,
    "misaligned-02": 0.800,
}


def gains_of(rows: list[Measurement]) -> JobGains:
    (job,) = fit_gains(framed(rows))
    return job


def by_arm(job: JobGains) -> dict[str, PlacementGain]:
    return {gain.arm: gain for gain in job.gains}


def holds(estimate: Estimate | None, truth: float) -> bool:
    assert estimate is not None and estimate.ci_low is not None and estimate.ci_high is not None
    return estimate.ci_low <= truth <= estimate.ci_high


def test_gains_are_exact_without_noise_whatever_the_launches_do() -> None:
    job = gains_of(measured(np.random.default_rng(1), step_cases(ARMS), noise=EXACT))
    assert job.base_arms == ("misaligned-00", "misaligned-01", "misaligned-02")
    assert {arm: gain.gain.value for arm, gain in by_arm(job).items()} == {
        "dp-aligned": pytest.approx(0.525 / 0.486 - 1),
        "pp-aligned": pytest.approx(0.525 / 0.390 - 1),
        "packed": pytest.approx(0.0, abs=1e-12),
    }
    assert job.misaligned_ratio is not None
    assert job.misaligned_ratio.value == pytest.approx(2.0)
    assert np.array(job.log_gain_pairs) == pytest.approx(
        np.tile([math.log(0.525 / 0.486), math.log(0.525 / 0.390)], (6, 1))
    )


def test_a_faster_arm_is_said_to_be_faster() -> None:
    job = gains_of(measured(np.random.default_rng(2), step_cases(ARMS), repetitions=9))
    gains = by_arm(job)
    assert gains["pp-aligned"].verdict is Verdict.FASTER
    assert gains["pp-aligned"].sentence.startswith("faster by ")
    assert not gains["pp-aligned"].is_provisional and gains["pp-aligned"].nunits == 6


def test_a_slower_arm_is_said_to_be_slower() -> None:
    job = gains_of(measured(np.random.default_rng(3), step_cases({**ARMS, "dp-aligned": 1.0}), repetitions=9))
    assert by_arm(job)["dp-aligned"].verdict is Verdict.SLOWER
    assert by_arm(job)["dp-aligned"].sentence.startswith("slower by 4")


def test_arms_within_one_percent_are_the_same() -> None:
    noise = Noise(unit=0.001, row=0.001)
    job = gains_of(measured(np.random.default_rng(4), step_cases(ARMS), noise=noise))
    assert by_arm(job)["packed"].verdict is Verdict.SAME
    assert by_arm(job)["packed"].sentence.startswith("the same within 1%: ")


def test_what_cannot_be_told_names_its_price_in_time() -> None:
    arms = {"dp-aligned": 10.0, "misaligned-00": 10.0}
    rows = measured(np.random.default_rng(5), step_cases(arms), repetitions=6, noise=Noise(unit=0.03, row=0.0))
    sentence = by_arm(gains_of(rows))["dp-aligned"].sentence
    assert sentence.startswith("not told apart: ") and sentence.endswith(" would tell 1%")
    launch_s = sum(row.time_s for row in rows) / 6
    more = int(sentence.split("(")[1].split(" launches")[0])
    assert f"about {more * launch_s / 3600:.0f} more hours" in sentence
    (priced,) = fit_gains(framed(rows), 30.0)
    assert f"about {more * 30 / 60:.0f} more minutes ({more} launches)" in priced.gains[0].sentence


def test_a_launch_takes_its_share_of_the_run() -> None:
    assert seconds_per_launch(RUN) == 100.0
    assert seconds_per_launch(replace(RUN, launches=0)) is None
    assert seconds_per_launch(replace(RUN, ended_at=RUN.started_at)) is None
    assert seconds_per_launch(replace(RUN, ended_at="some day")) is None


def placed(arms: dict[str, tuple[float, str]]) -> list[tuple[Measurement, float]]:
    """Return the step cases of arms with their times and nodes."""
    cases = step_cases({arm: time_s for arm, (time_s, _) in arms.items()})
    return [(replace(case, nodes=arms[case.arm][1]), time_s) for case, time_s in cases]


MOVED = {
    "dp-aligned": (0.5, "0,1,2,3"),
    "dp-aligned-moved-00": (0.51, "1,0,2,3"),
    "misaligned-00": (0.8, "0,2,1,3"),
    "mine": (0.5, "0,1,2,3"),
    "pp-aligned": (0.4, "0,2,3,1"),
}


def test_equal_arms_and_moved_ones_are_compared_with_each_other() -> None:
    rows = measured(np.random.default_rng(14), placed(MOVED), noise=EXACT)
    job = gains_of(rows)
    assert {gain.arm for gain in job.gains} == {"dp-aligned", "dp-aligned-moved-00", "mine", "pp-aligned"}
    moved, same = job.pairs
    assert (moved.arm, moved.other, moved.is_same) == ("dp-aligned-moved-00", "dp-aligned", False)
    assert moved.gain.value == pytest.approx(0.5 / 0.51 - 1) and moved.verdict is Verdict.SLOWER
    assert (same.arm, same.other, same.is_same) == ("mine", "dp-aligned", True)
    assert same.gain.value == pytest.approx(0.0, abs=1e-12) and same.verdict is Verdict.SAME
    assert same.sentence.startswith("the same within 1%: ")


def test_an_arm_is_moved_only_where_what_was_moved_is_there() -> None:
    arms = {arm: how for arm, how in MOVED.items() if arm not in ("dp-aligned", "mine")}
    assert gains_of(measured(np.random.default_rng(15), placed(arms), noise=EXACT)).pairs == ()


def test_communication_is_a_share_of_the_step() -> None:
    rows = measured(np.random.default_rng(16), step_cases(ARMS), noise=EXACT)
    waits = [
        replace(row, operation=row.operation + COMMUNICATION, time_s=row.time_s * (0.2 + 0.1 * (row.arm == "packed")))
        for row in rows
        if row.arm != "pp-aligned"
    ]
    gains = by_arm(job := gains_of(rows + waits))
    assert job.base_communication is not None and job.base_communication.value == pytest.approx(0.2)
    assert [gains[arm].communication is None for arm in ("dp-aligned", "packed", "pp-aligned")] == [False, False, True]
    packed = gains["packed"].communication
    assert packed is not None and packed.value == pytest.approx(0.3) and packed.ci_low == pytest.approx(0.3)


def test_a_step_without_waiting_has_no_share_of_it() -> None:
    rows = measured(np.random.default_rng(17), step_cases(ARMS), noise=EXACT)
    waits = [replace(row, operation=row.operation + COMMUNICATION, time_s=0.0) for row in rows]
    assert gains_of(rows + waits).base_communication is None


def test_a_gain_just_told_from_0_is_no_claim_beside_another_one() -> None:
    step = replace(MEASUREMENT, kind="step", operation="balanced", compute="wait")
    base = [replace(step, arm="misaligned-00", launch=launch) for launch in range(6)]
    logs = [-0.003, 0.006, 0.015, 0.021, 0.030, 0.039]
    dp = [replace(row, arm="dp-aligned", time_s=math.exp(-log)) for row, log in zip(base, logs, strict=True)]
    assert [gain.verdict for gain in gains_of(base + dp).gains] == [Verdict.FASTER]
    pp = [replace(row, arm="pp-aligned") for row in dp]
    family = gains_of(base + dp + pp).gains
    assert [gain.verdict for gain in family] == [Verdict.CANNOT_TELL, Verdict.CANNOT_TELL]
    assert family[0].gain == gains_of(base + dp).gains[0].gain


def test_a_launch_without_the_whole_base_counts_nowhere() -> None:
    rows = measured(np.random.default_rng(7), step_cases(ARMS), noise=EXACT)
    rows = [row for row in rows if not (row.launch == 5 and row.arm == "misaligned-02")]
    job = gains_of(rows)
    assert len(job.base_arms) == 3
    assert (job.launches, job.left_out_launches) == ((0, 1, 2, 3, 4), (5,))
    assert by_arm(job)["packed"].gain.value == pytest.approx(0.0, abs=1e-12)
    assert by_arm(job)["packed"].is_provisional


def test_an_arm_that_mostly_fails_leaves_the_base_and_is_counted() -> None:
    rows = measured(np.random.default_rng(8), step_cases(ARMS), noise=EXACT)
    rows = [failed(row) if row.arm == "misaligned-02" and row.launch > 0 else row for row in rows]
    job = gains_of(rows)
    assert job.base_arms == ("misaligned-00", "misaligned-01")
    assert job.nfailed == 15 and job.launches == (0, 1, 2, 3, 4, 5)


def test_an_aligned_arm_pairs_only_where_it_ran() -> None:
    rows = measured(np.random.default_rng(9), step_cases(ARMS), noise=EXACT)
    rows = [failed(row) if row.arm == "pp-aligned" and row.launch < 2 else row for row in rows]
    job = gains_of(rows)
    assert by_arm(job)["pp-aligned"].nunits == 4 and by_arm(job)["dp-aligned"].nunits == 6
    assert len(job.log_gain_pairs) == 4


def test_one_launch_claims_nothing() -> None:
    gain = by_arm(gains_of(measured(np.random.default_rng(10), step_cases(ARMS), launches=1)))["pp-aligned"]
    assert gain.gain.ci_low is None and gain.is_provisional
    assert gain.verdict is Verdict.CANNOT_TELL
    assert "one unit: no interval" in gain.sentence and "(5 launches)" in gain.sentence


def test_modes_of_compute_are_never_mixed() -> None:
    rows = measured(np.random.default_rng(11), step_cases(ARMS), noise=EXACT)
    rows += [replace(row, compute="none", time_s=row.time_s / 2) for row in rows]
    none, wait = fit_gains(framed(rows))
    assert (none.compute, wait.compute) == ("none", "wait")
    assert wait.base_time_s.value == pytest.approx(2 * none.base_time_s.value)


def test_jobs_without_a_base_are_all_named_and_cost_the_others_nothing() -> None:
    cases = [*step_cases({"packed": 1.0}, "one"), *step_cases({"dp-aligned": 1.0}, "two")]
    alone = framed(measured(np.random.default_rng(12), cases))
    first, second = lacking_base(alone)
    assert first.startswith("job one: found packed; expected") and second.startswith("job two: found dp-aligned;")
    with pytest.raises(FitError) as caught:
        fit_gains(alone)
    assert str(caught.value).splitlines() == [first, second]
    frame = framed(measured(np.random.default_rng(12), [*cases, *step_cases(ARMS, "whole")]))
    assert [job.job for job in fit_gains(frame)] == ["whole"]
    assert lacking_base(frame) == (first, second)


def test_collectives_are_no_steps() -> None:
    assert fit_gains(framed([MEASUREMENT])) == ()

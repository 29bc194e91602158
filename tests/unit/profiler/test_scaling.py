from collections.abc import Callable

import pytest

from spanfit.errors import FitError
from spanfit.profiler.scaling import ScalingCurve, fit_scaling
from spanfit.profiler.sweep import swept_jobs
from tests.unit.profiler.factory import Noise
from tests.unit.profiler.test_sweep import ARMS, JOB, jobs_of, run_of

EXACT = Noise(launch=0.3, unit=0.0, row=0.0)


def curves(time_s: Callable[[int], float], numbers: tuple[int, ...], noise: Noise | None = None) -> list[ScalingCurve]:
    """Return the curves of a job with ``numbers`` of replicas whose step takes ``time_s`` of its ranks."""
    jobs = [JOB | {"name": f"dp{dp}", "dp": dp} for dp in numbers]
    times = {f"dp{dp}": {"packed": time_s(2 * dp), "misaligned-00": 2 * time_s(2 * dp)} for dp in numbers}
    return list(fit_scaling(swept_jobs([run_of(jobs, times, noise=noise)])))


def test_efficiency_is_exact_without_noise() -> None:
    packed, base = curves(lambda nranks: 0.5 + 0.01 * nranks, (8, 2, 4), EXACT)
    assert (packed.arm, base.arm) == ("packed", "misaligned")
    assert [point.nranks for point in packed.points] == [4, 8, 16]
    assert packed.points[0].efficiency is None
    found = [point.efficiency.value for point in packed.points if point.efficiency]
    assert found == pytest.approx([0.54 / 0.58, 0.54 / 0.66])
    assert packed.sentence == "3 numbers of ranks cannot tell a knee, 5 or more could"
    assert base.points[1].time_s.value == pytest.approx(2 * packed.points[1].time_s.value, rel=0.5)


def test_throughput_counts_the_sequences_of_a_step() -> None:
    quiet = Noise(launch=0.0, unit=0.0, row=0.0)
    packed, _ = curves(lambda nranks: 0.5, (2, 4), quiet)
    # 4 microbatches a replica and two ranks a replica, in half a second.
    assert [point.throughput_per_rank_per_s.value for point in packed.points] == pytest.approx([4.0, 4.0])
    jobs = [JOB | {"name": f"dp{dp}", "dp": dp, "nmicrobatches": 16 // dp} for dp in (2, 4)]
    strong, *_ = fit_scaling(swept_jobs([run_of(jobs, {"dp2": ARMS, "dp4": ARMS}, noise=quiet)]))
    efficiencies = [point.efficiency.value for point in strong.points if point.efficiency]
    assert efficiencies == pytest.approx([0.5]), "as long a step for half the work of a rank"


def test_a_knee_is_named_where_there_is_one() -> None:
    bent, _ = curves(lambda nranks: 0.5 + 0.02 * max(0, nranks - 16), (2, 4, 6, 8, 12, 16, 24))
    assert bent.knee_nranks is not None and bent.knee_nranks.value == pytest.approx(16, rel=0.15)
    assert bent.sentence.startswith("efficiency falls faster from 1")
    straight, _ = curves(lambda nranks: 0.5 + 0.005 * nranks, (2, 4, 6, 8, 12, 16, 24))
    level, _ = curves(lambda nranks: 0.5, (2, 4, 6, 8, 12, 16, 24))
    for curve in (straight, level):
        assert curve.knee_nranks is None
        assert curve.sentence == "no knee within what was measured, 4 to 48 ranks"


def test_runs_join_in_one_curve_with_wider_intervals() -> None:
    small, large = JOB | {"name": "a"}, JOB | {"name": "b", "dp": 8}
    together = fit_scaling(swept_jobs([run_of([small, large], {"a": ARMS, "b": ARMS})]))
    runs = [run_of([small], {"a": ARMS}, "one"), run_of([large], {"b": ARMS}, "two", minipods=("m0", "m1", "m2"))]
    apart = fit_scaling(swept_jobs(runs))
    paired, unpaired = (curve[0].points[1].efficiency for curve in (together, apart))
    assert paired is not None and unpaired is not None
    assert paired.ci_low is not None and unpaired.ci_low is not None
    assert paired.value - paired.ci_low < 0.3 * (unpaired.value - unpaired.ci_low), "launches differ by a tenth"


def test_jobs_that_are_otherwise_unlike_form_curves_of_their_own() -> None:
    heavy = {"gradient_bytes": 1 << 24}
    jobs = [JOB | {"name": f"{name}{dp}", "dp": dp} | more for name, more in (("a", {}), ("b", heavy)) for dp in (2, 4)]
    found = fit_scaling(jobs_of(*jobs))
    assert [[point.job for point in curve.points] for curve in found if curve.arm == "packed"] == [
        ["a2", "a4"],
        ["b2", "b4"],
    ]


def test_no_curve_and_numbers_of_ranks_that_come_twice_are_refused() -> None:
    with pytest.raises(FitError, match=r"found job of one \(4 ranks\); expected a job at two numbers of ranks"):
        fit_scaling(jobs_of(JOB))
    with pytest.raises(FitError, match="job of a, job of b: found the same job with as many ranks twice"):
        fit_scaling(swept_jobs([run_of([JOB], {"job": ARMS}, "a"), run_of([JOB], {"job": ARMS}, "b")]))

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.sweep import Run, SweptJob, contrast, differing, swept_jobs
from spanfit.results.schema import Measurement, RunInfo
from tests.unit.profiler.factory import RUN, Noise, framed, measured, step_cases

JOB: dict[str, Any] = {
    "name": "job",
    "dp": 2,
    "pp": 2,
    "nmicrobatches": 4,
    "activation_bytes": 1 << 20,
    "gradient_bytes": 1 << 20,
    "forward_s": 0.006,
    "backward_s": 0.012,
    "schedule": "gpipe",
    "compute": "wait",
}
MODEL = {"name": "small", "layers": 4, "hidden": 64, "experts": None, "source": "made", "parameters": 1000}
ARMS = {"dp-aligned": 0.4, "packed": 0.5, "misaligned-00": 0.6}


def described_run(
    jobs: list[dict[str, Any]],
    times: Mapping[str, Mapping[str, float]],
    run_id: str = "one",
    *,
    noise: Noise | None = None,
    launches: int = 6,
    **info: Any,
) -> tuple[RunInfo, list[Measurement]]:
    """Return a run of jobs; ``times`` has the arms of each job with their seconds."""
    cases = []
    for job in jobs:
        nranks = job.get("dp", 2) * job.get("pp", 2)
        steps = step_cases(times[job["name"]], job["name"])
        cases += [(replace(step, run_id=run_id, nranks=nranks, nnodes=nranks), time_s) for step, time_s in steps]
    rng = np.random.default_rng([*map(ord, run_id)])
    rows = measured(rng, cases, noise=noise or Noise(unit=0.005, row=0.01), launches=launches)
    return replace(RUN, run_id=run_id, spec={"jobs": jobs}, launches=launches, **info), rows


def run_of(*arguments: Any, **info: Any) -> Run:
    """Return a run as the store reads it."""
    described, rows = described_run(*arguments, **info)
    return described, framed(rows)


def jobs_of(*jobs: dict[str, Any], **info: Any) -> tuple[SweptJob, ...]:
    return swept_jobs([run_of(list(jobs), dict.fromkeys([job["name"] for job in jobs], ARMS), **info)])


def test_what_differs_is_found_and_names_are_no_difference() -> None:
    found = differing(jobs_of(JOB, JOB | {"name": "larger", "activation_bytes": 1 << 22}))
    assert found == {"activation_bytes": (float(1 << 20), float(1 << 22))}
    assert differing(jobs_of(JOB)) == {}


def test_models_that_differ_in_one_thing_differ_in_it_and_others_by_their_names() -> None:
    small = JOB | {"model": MODEL}
    deep = JOB | {"name": "deep", "model": MODEL | {"name": "deep", "layers": 8, "parameters": 2000}}
    moe = JOB | {"name": "moe", "model": MODEL | {"name": "moe", "hidden": 32, "experts": {"number": 8, "top_k": 2}}}
    assert differing(jobs_of(small, deep)) == {"model.layers": (8.0, 4.0)}, "by the names of jobs"
    assert differing(jobs_of(small, moe)) == {"model": ("small", "moe")}


def test_a_degree_of_experts_is_no_difference_to_a_model_that_has_none() -> None:
    experts = {"number": 8, "top_k": 2}
    dense = JOB | {"model": MODEL, "layout": {"ep": 1}}
    moe = [
        JOB | {"name": f"moe{ep}", "model": MODEL | {"name": "moe", "experts": experts}, "layout": {"ep": ep}}
        for ep in (2, 4)
    ]
    assert differing(jobs_of(dense, moe[0])) == {"model": ("small", "moe")}
    assert differing(jobs_of(*moe)) == {"layout.ep": (2.0, 4.0)}
    assert set(differing(jobs_of(dense, *moe))) == {"model", "layout.ep"}


def test_noise_beside_a_job_is_a_thing_and_none_is_noise_that_uses_no_node() -> None:
    busy = {"name": "busy", "mix": "equal", "nodes": [2], "placement": ["core"], "utilisation": 0.6, "used": 0.5}
    busy["drawn"] = {"busy-00": ["n4", "n6"]}
    full, wild = busy | {"name": "full", "used": 1.0, "drawn": {}}, busy | {"name": "wild", "mix": "power-law"}
    large = busy | {"name": "large", "nodes": [4], "utilisation": 0.5}
    names = ["job", "job+busy", "job+full", "job+wild", "job+large"]
    jobs = [JOB | {"name": name} for name in names]
    info, frame = run_of(jobs, dict.fromkeys(names, ARMS))
    run = replace(info, spec=info.spec | {"noise": [busy, full, wild | {"nodes": [4]}, large]}), frame
    by_name = {job.steps.job: job for job in swept_jobs([run])}
    quiet, half, whole, other, larger = (by_name[name] for name in names)
    assert differing([quiet, half, whole]) == {"noise.used": (0.0, 0.5, 1.0)}, "of the nodes, not what was asked for"
    assert differing([half, larger]) == {"noise.nodes": (2.0, 4.0)}
    assert differing([half, other]) == {"noise": ("busy", "wild")}
    assert differing([quiet, half, other]) == {"noise": ("none", "busy", "wild")}


def test_noise_that_a_run_does_not_describe_is_refused() -> None:
    with pytest.raises(FitError, match=r"run one: steps beside noise busy were measured, but spec.noise does not"):
        jobs_of(JOB | {"name": "job+busy"})


def test_a_limit_of_ctas_is_a_thing() -> None:
    limited = jobs_of(JOB, *(JOB | {"name": f"job@cta-{cta}"} for cta in (4, 8)))
    assert differing(limited) == {"cta": ("none", 4.0, 8.0)}


def test_settings_of_runs_are_things_too() -> None:
    def of(run_id: str, **info: Any) -> Run:
        return run_of([JOB], {"job": ARMS}, run_id, **info)

    slow = of("b", truth={"host": 400e6, "uplink": 200e6})
    limited = of("c", environment={"OMP_NUM_THREADS": "1", "NCCL_MAX_CTAS": "8"})
    wide = of("d", minipods=("m0", "m1", "m2", "m3"))
    assert differing(swept_jobs([of("a"), slow])) == {"rate.uplink": (400e6, 200e6)}
    assert differing(swept_jobs([of("a"), limited])) == {"NCCL_MAX_CTAS": ("none", 8.0)}
    assert differing(swept_jobs([of("a"), wide])) == {"minipods": (2.0, 4.0)}


def test_runs_without_steps_and_jobs_without_a_description_are_refused() -> None:
    info, frame = run_of([JOB], {"job": ARMS})
    with pytest.raises(FitError, match="runs one: found no training steps"):
        swept_jobs([(info, frame[frame["kind"] != "step"])])
    with pytest.raises(FitError, match=r"run one: steps of job with compute 'wait' .* does not describe"):
        swept_jobs([(replace(info, spec={"jobs": []}), frame)])


def swept(run_id: str) -> SweptJob:
    (job,) = jobs_of(JOB, run_id=run_id)
    return job


def test_a_contrast_within_a_run_is_paired_by_launch() -> None:
    rng = np.random.default_rng(1)
    launch = pd.Series(rng.normal(0, 1, 7))
    one, other = launch + rng.normal(0, 0.01, 7), launch + 0.1 + rng.normal(0, 0.01, 7)
    found = contrast([swept("a"), swept("a")], [one, other.drop(3)], [-1.0, 1.0])
    assert found is not None
    assert found.estimate() == statistics.interval((other - one).drop(3))


def test_a_contrast_between_runs_is_welchs() -> None:
    from scipy import stats

    rng = np.random.default_rng(2)
    one, other = pd.Series(rng.normal(0, 0.01, 6)), pd.Series(rng.normal(0.02, 0.05, 9))
    found = contrast([swept("a"), swept("b")], [one, other], [-1.0, 1.0])
    expected = stats.ttest_ind(other, one, equal_var=False)
    assert found is not None and found.p_value == pytest.approx(expected.pvalue)
    assert found.estimate().ci_low == pytest.approx(expected.confidence_interval(0.95).low)


def test_a_contrast_of_one_launch_has_no_interval_and_of_none_is_none() -> None:
    one, other = pd.Series([1.0]), pd.Series([2.0, 3.0], index=[5, 6])
    found = contrast([swept("a"), swept("b")], [one, other], [-1.0, 1.0])
    assert found is not None and found.value == 1.5
    assert found.estimate().ci_low is None and found.p_value == 1.0
    assert contrast([swept("a"), swept("a")], [one, other], [-1.0, 1.0]) is None


def test_contrasts_cover_what_runs_of_unlike_scatter_differ_by() -> None:
    rng = np.random.default_rng(3)
    jobs = [swept("a"), swept("a"), swept("b")]
    held = []
    for _ in range(400):
        shared = rng.normal(0, 0.1, 6)
        logs = [pd.Series(shared + rng.normal(0, 0.02, 6)) for _ in range(2)] + [pd.Series(rng.normal(0.3, 0.05, 8))]
        found = contrast(jobs, logs, [-0.5, -0.5, 1.0])
        assert found is not None
        low, high = found.estimate().ci_low, found.estimate().ci_high
        assert low is not None and high is not None
        held.append(low <= 0.3 <= high)
    assert 0.92 <= np.mean(held) <= 0.98


def test_the_run_is_part_of_a_jobs_name() -> None:
    info: RunInfo = run_of([JOB], {"job": ARMS})[0]
    assert swept(info.run_id).name == "job of one"

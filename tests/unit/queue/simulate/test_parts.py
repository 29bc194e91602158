import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from spanfit.errors import ConfigError
from spanfit.queue.jct.model import write_model
from spanfit.queue.model.events import NodesDown, NodesUp
from spanfit.queue.model.rules import PolicyName
from spanfit.queue.simulate.faults import FaultRates, faults
from spanfit.queue.simulate.ledger import stranded_nodes
from spanfit.queue.simulate.metrics import allocation_at, delays_of
from spanfit.queue.simulate.outcome import JobOutcome, Series
from spanfit.queue.simulate.scenario import Announcement, Scenario, even_ground, parse_way, run_scenario, with_way
from spanfit.queue.simulate.scenario_file import read_scenario
from spanfit.queue.simulate.sources import Recorded, Steady, Synthetic
from spanfit.queue.simulate.summaries import summarize
from spanfit.queue.simulate.sweep import Case, CaseFigures, plan_cases, run_cases
from spanfit.queue.simulate.workload import JobMix, Telling, Told, forecasts_of, replay_jobs, scaled, steady_jobs
from spanfit.queue.traces.reading import JobState, TraceJob
from spanfit.queue.traces.synthetic import SyntheticShape
from tests.unit.queue.factory import ground
from tests.unit.queue.test_jct_model import MODEL

MIX = JobMix(shares={1: 0.5, 2: 0.3, 4: 0.2}, median_s=1200.0, log_sd=0.8)
SCENARIO = Scenario(
    name="small",
    ground=even_ground(3, 24),
    source=Steady(mix=MIX, span_s=6 * 3600.0, load=0.8),
    announced=(
        Announcement(
            job_id="lpj", nnodes=12, announced_s=7200.0, expected_s=10800.0, arrives_s=10800.0, runtime_s=1800.0
        ),
    ),
    fault_rates=FaultRates(between_s=100 * 3600.0, repair_s=3600.0),
)


def traced(submit_s: float, runtime_s: float, nnodes: int = 1, limit_s: float | None = None) -> TraceJob:
    return TraceJob(
        job_id=f"j{submit_s:g}",
        submit_s=submit_s,
        start_s=submit_s,
        end_s=submit_s + runtime_s,
        nnodes=nnodes,
        state=JobState.COMPLETED,
        time_limit_s=limit_s,
    )


def outcome(waited_s: float, started_s: float | None = 0.0) -> JobOutcome:
    return JobOutcome(
        job_id="a", nnodes=1, is_announced=False, submitted_s=0, wanted_s=0, started_s=started_s, ended_s=None,
        waited_s=waited_s,
    )  # fmt: skip


def test_stranded_nodes_are_those_that_a_job_drawn_by_its_nodes_does_not_fit() -> None:
    # Nodes asked for: 2 by jobs of 1, 4 by one of 4; 3 free nodes hold the former only, one of 9 says nothing.
    assert stranded_nodes([1, 1, 4, 9], 4) == pytest.approx((0, 4 / 6, 2 * 4 / 6, 3 * 4 / 6, 0))
    assert stranded_nodes([9], 4) == (0.0,) * 5


def test_delays_count_what_never_started() -> None:
    delays = delays_of([outcome(0), outcome(100), outcome(200, started_s=None)])
    assert (delays.njobs, delays.mean_s, delays.p50_s, delays.p95_s, delays.nnever) == (3, 100, 100, 190, 1)


def test_allocation_is_that_of_the_last_point_before() -> None:
    series = Series(
        times_s=(0, 10), allocated=(4, 8), up=(8, 8), held=(0, 0), waiting=(0, 0), fragmented=(0, 0), retention={}
    )
    assert [allocation_at(series, 8, at_s) for at_s in (0, 9.9, 10, 99)] == [0.5, 0.5, 1, 1]
    with pytest.raises(ValueError, match="begins after"):
        allocation_at(series, 8, -1)


def test_nodes_fail_and_come_back_at_their_rates_and_in_turn() -> None:
    rates = FaultRates(between_s=900.0, repair_s=100.0)
    found = list(islice(faults(50, rates, start_s=1000.0, seed=3), 20_000))
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)
    of_one = [each for each in found if each.nodes == 1 << 7]
    assert all(isinstance(each, (NodesDown, NodesUp)[index % 2]) for index, each in enumerate(of_one))
    gaps = np.diff([1000.0, *(each.at_s for each in of_one)])
    # 200 gaps of each kind: their means are within 4 standard errors, 30%.
    assert fmean(gaps[0::2]) == pytest.approx(900, rel=0.3)
    assert fmean(gaps[1::2]) == pytest.approx(100, rel=0.3)
    assert found[:9] == list(islice(faults(50, rates, start_s=1000.0, seed=3), 9))
    with pytest.raises(ValueError, match="expected both above 0"):
        FaultRates(between_s=0.0, repair_s=1.0)


def test_drawn_jobs_bring_the_load_they_should() -> None:
    jobs = steady_jobs(MIX, nnodes=100, load=0.7, start_s=50.0, end_s=50.0 + 1e6, seed=1)
    brought = sum(job.nnodes * job.runtime_s for job in jobs) / (100 * 1e6)
    assert brought == pytest.approx(0.7, rel=0.03)
    assert all(50.0 <= job.submit_s <= 50.0 + 1e6 for job in jobs)
    assert all(job.time_limit_s is not None and job.time_limit_s >= job.runtime_s for job in jobs)


def test_a_trace_is_drawn_together_to_a_load() -> None:
    jobs = scaled([traced(100, 50, 2), traced(300, 100)], nnodes=4, load=0.5)
    # 200 node-seconds over 4 nodes at half load take 100 s.
    assert [(job.submit_s, job.runtime_s) for job in jobs] == [(100, 50), (200, 100)]
    with pytest.raises(ValueError, match="all submitted at"):
        scaled([traced(1, 1), traced(1, 2)], nnodes=4, load=0.5)


def test_forecasts_are_calibrated_perfect_or_limits() -> None:
    jobs = [traced(index, 1000.0, limit_s=3600.0) for index in range(4000)]
    drawn = forecasts_of(jobs, Telling(log_sd=0.6, quantile=0.9), seed=1)
    assert fmean(forecast.upper_s >= 1000 for forecast in drawn) == pytest.approx(0.9, abs=0.02)
    assert fmean(math.log(forecast.upper_s / forecast.mean_s) for forecast in drawn) == pytest.approx(
        0.6 * 1.2816 - 0.18, abs=1e-4
    )
    (perfect,) = forecasts_of(jobs[:1], Telling(told=Told.PERFECT), seed=1)
    assert (perfect.mean_s, perfect.upper_s) == (1000, 1000)
    (limit,) = forecasts_of(jobs[:1], Telling(told=Told.LIMIT), seed=1)
    assert (limit.mean_s, limit.upper_s) == (3600, 3600)


def test_jobs_beyond_the_cluster_are_left_out_and_some_may_be_stopped() -> None:
    jobs = [traced(index, 10, nnodes=1 + index % 9) for index in range(900)]
    found = replay_jobs(jobs, forecasts_of(jobs, Telling(), 1), nnodes=8, preemptable_share=0.25, seed=1)
    assert len(found) == 800
    assert fmean(each.job.is_preemptable for each in found) == pytest.approx(0.25, abs=0.05)


def test_the_same_seed_gives_the_same_replay_and_ways_share_the_jobs() -> None:
    first, again = (run_scenario(SCENARIO, 5) for _ in range(2))
    assert first == again
    other = run_scenario(with_way(SCENARIO, parse_way("packing/limit")), 5)
    assert [job.submitted_s for job in other.jobs] == [job.submitted_s for job in first.jobs]
    assert other != first
    assert run_scenario(SCENARIO, 6) != first


def test_synthetic_and_recorded_jobs_are_drawn_as_they_say() -> None:
    origin_s, jobs = Synthetic(shape=SyntheticShape.SHARED, njobs=200, days=2.0, load=0.5).draw(50, 1)
    assert origin_s == min(job.submit_s for job in jobs)
    span_s = max(job.submit_s for job in jobs) - origin_s
    assert sum(job.nnodes * job.runtime_s for job in jobs) / (50 * span_s) == pytest.approx(0.5)
    recorded = (traced(5, 1), traced(9, 1))
    assert Recorded(jobs=recorded).draw(50, 1) == Recorded(jobs=recorded).draw(50, 2) == (5, recorded)


def test_a_predictor_tells_runtimes_where_the_scenario_has_one() -> None:
    with pytest.raises(ValueError, match="found model, but no predictor"):
        with_way(SCENARIO, parse_way("spanfit/model"))


def test_everything_wrong_with_a_scenario_is_told() -> None:
    lpj = SCENARIO.announced[0]
    with pytest.raises(ValueError) as told:
        Scenario(
            name="wrong",
            ground=ground(4, 4),
            source=Recorded(jobs=()),
            announced=(
                lpj,
                Announcement(
                    job_id="lpj", nnodes=6, nrows=4, ncolumns=2, announced_s=9.0, expected_s=5.0, arrives_s=9.0,
                    runtime_s=1.0,
                ),
            ),
        )  # fmt: skip
    for part in ("names lpj, lpj", "12 nodes, expected 1 to 8", "4 rows and 2 columns", "announced after it arrives"):
        assert part in str(told.value)


@pytest.mark.parametrize("text", ["", "spanfit/", "fifo", "paper/never", "spanfit/limit/limit"])
def test_a_way_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected one of spanfit, paper"):
        parse_way(text)


def test_a_way_has_its_label() -> None:
    assert parse_way("paper/limit").label == "paper/limit"
    assert with_way(SCENARIO, parse_way("paper/limit")).rules.policy is PolicyName.PAPER


def test_sweeps_give_intervals_and_paired_differences() -> None:
    results = [
        CaseFigures(scenario="s", way=way, seed=seed, figures={"x": value, "gone": None})
        for way, values in {"a": (1.0, 2.0, 3.0), "b": (2.0, 3.5, 5.0)}.items()
        for seed, value in enumerate(values)
    ]
    first, second = summarize(results, ["a", "b"])
    assert (first.estimate.value, first.difference) == (2.0, None)
    assert second.difference is not None and second.difference.ci_low is not None
    # Differences 1, 1.5, 2: mean 1.5, standard deviation 0.5, Student's t of 2 degrees of freedom 4.3027.
    assert second.difference.value == 1.5
    assert second.difference.ci_low == pytest.approx(1.5 - 4.3027 * 0.5 / math.sqrt(3), abs=1e-4)


def test_a_sweep_in_one_process_runs_every_case() -> None:
    ways = [parse_way("spanfit"), parse_way("packing")]
    cases = plan_cases([SCENARIO], ways, [1, 2])
    assert [(case.seed, case.way.label) for case in cases] == [
        (1, "spanfit"), (1, "packing"), (2, "spanfit"), (2, "packing"),
    ]  # fmt: skip
    results = list(run_cases(cases[:2], {}))
    assert [result.way for result in results] == ["spanfit", "packing"]
    assert results[0].figures["start_delay_s:lpj"] == 0.0


def same(case: Case) -> Case:
    return case


def test_several_processes_that_would_all_sweep_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"OMPI_COMM_WORLD_SIZE: found 3 MPI processes .* -m mpi4py.futures"):
        list(run_cases([], {"OMPI_COMM_WORLD_SIZE": "3"}, same))
    assert list(run_cases([], {"OMPI_COMM_WORLD_SIZE": "1"}, same)) == []


FILE = """
name = "two"
[cluster]
minipods = 2
nodes = 8
[jobs]
preemptable_share = 0.5
[jobs.trace]
file = "jobs.txt"
kind = "sacct"
load = 0.5
[[announced]]
name = "lpj"
nodes = 4
rows = 2
columns = 2
announced = "1h"
arrives = "2h"
runtime = "30m"
[faults]
between = "100h"
repair = "1h"
[rules]
policy = "paper"
interval = "30s"
[replay]
checkpoint = "10m"
until = "1d"
"""
SACCT = """JobID|User|Partition|Submit|Start|End|State|NNodes|Timelimit|JobName
1|u|p|2026-01-05T00:00:00|2026-01-05T00:00:10|2026-01-05T01:00:10|COMPLETED|2|02:00:00|a
2|u|p|2026-01-05T00:30:00|2026-01-05T00:30:10|2026-01-05T01:00:10|COMPLETED|1|02:00:00|b
"""


def test_a_scenario_file_says_everything(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(FILE)
    (tmp_path / "jobs.txt").write_text(SACCT)
    scenario = read_scenario(tmp_path / "scenario.toml", lambda _: ground(1))
    assert (scenario.rules.policy, scenario.rules.interval_s) == (PolicyName.PAPER, 30.0)
    assert (scenario.replay.checkpoint_s, scenario.replay.until_s) == (600.0, 86400.0)
    assert scenario.announced[0].expected_s == 7200.0
    assert scenario.fault_rates == FaultRates(between_s=360_000.0, repair_s=3600.0)
    assert isinstance(scenario.source, Recorded) and len(scenario.source.jobs) == 2
    assert run_scenario(scenario, 1).jobs[-1].delay_s == 0.0


def test_every_mistake_of_a_scenario_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    wrong = FILE.replace("minipods = 2\n", "").replace('"30m"', '"soon"').replace('"30s"', '"0s"')
    wrong = wrong.replace('"100h"', '"0s"').replace("sacct", "pbs").replace("0.5\n[jobs", "1.5\n[jobs")
    path.write_text(wrong)
    with pytest.raises(ConfigError) as told:
        read_scenario(path, lambda _: ground(1))
    for part in (
        "cluster: expected either file, or both minipods and nodes",
        "announced.lpj.runtime: found 'soon'",
        "rules: interval:",
        "faults.between: found '0s', expected at least 1s",
        "jobs.trace.kind: found 'pbs'",
        "preemptable_share: found 1.5",
    ):
        assert part in str(told.value), part
    assert all(line.startswith(str(path)) for line in str(told.value).splitlines())


def test_a_scenario_may_name_a_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(FILE.replace("minipods = 2\nnodes = 8", 'file = "c.toml"'))
    (tmp_path / "jobs.txt").write_text(SACCT)
    asked: list[Path] = []

    def read(cluster: Path) -> object:
        asked.append(cluster)
        return ground(3, 3)

    assert read_scenario(path, read).ground == ground(3, 3)  # type: ignore[arg-type]
    assert asked == [tmp_path / "c.toml"]


def test_a_predictor_that_knows_the_trace_already_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(FILE + '[forecast]\ntold = "model"\nmodel = "model.npz"\n')
    (tmp_path / "jobs.txt").write_text(SACCT)
    write_model(tmp_path / "model.npz", MODEL)
    assert read_scenario(path, lambda _: ground(1)).forecaster is not None
    late = replace(MODEL, info=replace(MODEL.info, last_end_s=2e9))
    write_model(tmp_path / "model.npz", late)
    with pytest.raises(ConfigError, match=r"learnt from jobs up to .* after the trace begins"):
        read_scenario(path, lambda _: ground(1))

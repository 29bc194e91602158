"""The paper's replay (arXiv 2509.15940, App. H): a large job is announced at 18:00 for 22:00 on a busy cluster.

2,024 nodes in 23 minipods of 88, kept near 0.9 allocated by drawn jobs; at 18:00 the queue hears of a job of 1,200
nodes (a grid of 150 x 8) that comes at 22:00. Each way of queueing sees the same jobs, forecast errors and failures:

- ``spanfit`` reserves by upper forecasts; ``paper`` is the paper's Algorithm 1, which reserves by mean forecasts;
- ``packing`` is reserving-and-packing, best effort: it packs what comes and holds nothing for the announced job;
- ``spanfit/limit`` and ``paper/limit`` know time limits only, as without a predictor;
- ``easy`` backfills by time limits; for it an announced job is one like others once it comes.

Figures are means over seeds with the 95% interval of Student's t; differences to spanfit are seed by seed.
``retention`` is the share of planned nodes that others held when the job came, ``short`` the share of its nodes that
were free nowhere, ``late`` the minutes from its arrival to its start, counted to the end of the replay four hours later
where it never starts; ``spread`` what the placer minimises for it, 0.3 times its DP spread plus 0.7 times its PP
spread, over the seeds in which it started; ``delay`` the minutes that a job submitted from 18:00 to 22:00 waited until
then, ``idle`` the GPU-hours that were free in that time while a job waited, ``lost`` those of preempted work that was
done again.

Jobs are drawn (mix and times below), so that the figures compare ways of queueing and say nothing about a real
cluster. ``--log-sd`` makes runtimes more unequal: with heavy tails no policy can empty 1,200 nodes in four hours.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from spanfit.queue.simulate.faults import FaultRates
from spanfit.queue.simulate.metrics import allocation_at
from spanfit.queue.simulate.outcome import ReplayOutcome
from spanfit.queue.simulate.replay import ReplayRules
from spanfit.queue.simulate.scenario import Announcement, Scenario, Way, even_ground, parse_way, run_scenario, with_way
from spanfit.queue.simulate.sources import Steady
from spanfit.queue.simulate.summaries import summarize
from spanfit.queue.simulate.sweep import Case, CaseFigures, plan_cases, run_cases
from spanfit.queue.simulate.workload import JobMix, Telling
from spanfit.results.schema import Estimate

HOUR_S = 3600.0
WARM_UP_S = 12 * HOUR_S
"""From the first submission (06:00) to 18:00."""
NOTICE_S, AFTER_S = 4 * HOUR_S, 4 * HOUR_S
LPJ = "lpj"
MIX = JobMix(shares={1: 0.50, 2: 0.15, 4: 0.15, 8: 0.13, 16: 0.05, 32: 0.02}, median_s=50 * 60.0, log_sd=1.0)
WAYS = ("spanfit", "paper", "packing", "spanfit/limit", "paper/limit", "easy")
ALPHA = 0.3
COLUMNS = (
    "allocation_18",
    "allocation_22",
    "retention",
    "short",
    "late_min",
    "spread",
    "delay_min",
    "idle_gpu_h",
    "lost_gpu_h",
)


def evening(log_sd: float, preemptable_share: float) -> Scenario:
    """Return the scenario; runtimes keep their mean whatever their spread."""
    median_s = MIX.median_s * float(np.exp((MIX.log_sd**2 - log_sd**2) / 2))
    return Scenario(
        name="evening",
        ground=even_ground(23, 2024),
        source=Steady(
            mix=replace(MIX, log_sd=log_sd, median_s=median_s), span_s=WARM_UP_S + NOTICE_S + AFTER_S, load=0.9
        ),
        announced=(
            Announcement(
                job_id=LPJ,
                nnodes=1200,
                announced_s=WARM_UP_S,
                expected_s=WARM_UP_S + NOTICE_S,
                arrives_s=WARM_UP_S + NOTICE_S,
                runtime_s=48 * HOUR_S,
                nrows=150,
                ncolumns=8,
                alpha=ALPHA,
            ),
        ),
        telling=Telling(log_sd=0.5),
        preemptable_share=preemptable_share,
        fault_rates=FaultRates(between_s=10000 * HOUR_S, repair_s=4 * HOUR_S),
        replay=ReplayRules(until_s=WARM_UP_S + NOTICE_S + AFTER_S),
    )


def measure(case: Case) -> CaseFigures:
    """Return the figures of one evening."""
    outcome = run_scenario(with_way(case.scenario, case.way), case.seed)
    (lpj,) = (job for job in outcome.jobs if job.job_id == LPJ)
    told_s, due_s = WARM_UP_S, WARM_UP_S + NOTICE_S
    delays_s = [
        min(due_s, due_s if job.started_s is None else job.started_s) - job.wanted_s
        for job in outcome.jobs
        if told_s <= job.wanted_s < due_s
    ]
    gpu_h = outcome.ngpus_per_node / HOUR_S
    late_s = AFTER_S if lpj.delay_s is None else lpj.delay_s
    figures: dict[str, float | None] = {
        "allocation_18": allocation_at(outcome.series, outcome.nnodes, told_s),
        "allocation_22": allocation_at(outcome.series, outcome.nnodes, due_s - 1),
        "retention": lpj.retention,
        "short": lpj.short,
        "late_min": late_s / 60,
        "on_time": float(late_s <= case.scenario.rules.interval_s),
        "delay_min": float(np.mean(delays_s)) / 60,
        "idle_gpu_h": idle_node_s(outcome, told_s, due_s) * gpu_h,
        "lost_gpu_h": outcome.totals.preempted * gpu_h,
        "spread": ALPHA * lpj.dp_spread + (1 - ALPHA) * lpj.pp_spread if lpj.dp_spread else None,
        "dp_spread": lpj.dp_spread or None,
        "pp_spread": lpj.pp_spread or None,
    }
    return CaseFigures(scenario=case.scenario.name, way=case.way.label, seed=case.seed, figures=figures)


def idle_node_s(outcome: ReplayOutcome, from_s: float, to_s: float) -> float:
    """Return the node-seconds that were free and in service between two times while a job waited."""
    series = outcome.series
    times_s = np.array(series.times_s)
    inside = (from_s <= times_s) & (times_s < to_s) & (np.array(series.waiting) > 0)
    free = np.array(series.up) - np.array(series.allocated)
    return float(free[inside].sum()) * float(times_s[1] - times_s[0])


def cell(estimate: Estimate) -> str:
    """Return a mean and half its interval."""
    if estimate.ci_high is None:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:.3g} ± {estimate.ci_high - estimate.value:.2g}"


def show(results: Sequence[CaseFigures], ways: Sequence[str], console: Console, title: str) -> dict[str, object]:
    """Print tables of means and of differences, and return the means by way."""
    summaries = {(each.way, each.name): each for each in summarize(results, ways)}
    nseeds = len({result.seed for result in results})
    means = Table("way", *COLUMNS, "on time", title=f"{title}: means over {nseeds} seeds, 95% intervals")
    differences = Table("way", *COLUMNS, title=f"{title}: differences to {ways[0]}, seed by seed")
    figures: dict[str, object] = {}
    for way in ways:
        known = {name: summaries.get((way, name)) for name in (*COLUMNS, "on_time", "dp_spread", "pp_spread")}
        on_time = known["on_time"]
        assert on_time is not None
        cells = [cell(each.estimate) if (each := known[name]) else "-" for name in COLUMNS]
        means.add_row(way, *cells, f"{on_time.estimate.value * nseeds:.0f} of {nseeds}")
        if way != ways[0]:
            paired = (known[name] for name in COLUMNS)
            differences.add_row(way, *(cell(each.difference) if each and each.difference else "-" for each in paired))
        figures[way] = {name: round(each.estimate.value, 4) for name, each in known.items() if each}
    console.print(means)
    console.print(differences)
    return figures


def main() -> None:
    """Print the tables, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 seeds instead of 30: within a minute")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds")
    parser.add_argument("--seeds", type=int, default=30, help="how many")
    parser.add_argument("--log-sd", type=float, default=MIX.log_sd, help="of runtimes; their mean stays")
    parser.add_argument("--preemptable", type=float, default=0.0, help="share of jobs that may be stopped")
    arguments = parser.parse_args()
    console, started_s = Console(width=170), time.monotonic()
    nseeds = 3 if arguments.quick else arguments.seeds
    names = WAYS[:4] if arguments.quick else WAYS
    seeds = range(arguments.seed, arguments.seed + nseeds)
    scenario = evening(arguments.log_sd, arguments.preemptable)
    ways: list[Way] = [parse_way(name) for name in names]
    results = list(run_cases(plan_cases([scenario], ways, seeds), os.environ, measure))
    title = f"log sd of runtimes {arguments.log_sd:g}, {arguments.preemptable:.0%} preemptable"
    figures = show(results, names, console, title)
    seconds = round(time.monotonic() - started_s, 1)
    print(json.dumps({"benchmark": "replay", "nseeds": nseeds, "ways": figures, "seconds": seconds}))


if __name__ == "__main__":
    main()

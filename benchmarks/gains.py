"""What arms of training steps gain on an emulated fabric, whether verdicts are right, and whether equal arms are equal.

Gains: 2 minipods x 4 hosts, 400 Mbit/s a host and an uplink (1:4), two jobs of opposite volumes, DP 4 x PP 2 GPipe, in
every arm, six launches. The PP-heavy job must gain most PP-aligned, the DP-heavy one DP-aligned, by a difference whose
interval allows the claim. ``verdicts`` counts what was told: which of its two aligned arms wins for each job, whether
each gains or loses, and of arms that are one placement under two names that they are not told apart. ``inside_max`` is
the largest change by moving nodes inside minipods.

A/A, simulated: 1,000 campaigns of six launches of a DP-aligned arm under two names beside two misaligned ones, the
noise that of the testbed: on the log scale what a launch adds to all (sd 10%), to each arm (sd 2%, Student's t with 3
degrees of freedom) and to each step (sd 4%, t with 3), a ramp of 3% over a launch's random order of arms, 0.5% a launch
of drift, and one step in a hundred that stalls for 0.1 s. ``aa_coverage`` is the share whose interval holds 0.

A/A, real: 20 short campaigns, twelve launches each, of two jobs of DP 2 x PP 2 on 2 minipods x 2 hosts. Of the calm
one, which communicates for a tenth of its step, the DP-aligned arm is measured a second time as "packed"; of the
contended one the PP-aligned arm, whose gradients all cross the core, is measured a second time by a placement file.
Each campaign counts once for either, if the interval holds 0. One misaligned arm of each is measured beside them, as
its base.

``--torch`` instead trains models in the torch engine and by proxies with the same volumes, in the same arms of one
campaign on links of 100 Mbit/s, and compares who wins in each pair of arms where both intervals allow a verdict, and
the ratios of arms' times: ``torch_ratio_worst`` is the most by which one engine's ratio is off the other's.
"""

import argparse
import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED
from spanfit.bench.campaign_file import Launcher
from spanfit.bench.training.shapes import model_for
from spanfit.launch import fabric as fabrics
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.profiler import statistics
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.gains import JobGains, fit_gains, seconds_per_launch
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.profiler.steps import StepTimes, step_times
from spanfit.profiler.sweep import Run
from spanfit.profiler.ways import Way, open_worlds
from spanfit.results.schema import Estimate
from spanfit.topology.readers.cluster_toml import render_cluster
from spanfit.units import format_percent
from spanfit.workload.dtypes import Dtype

RATE_BITS_PER_S = 400e6
LAUNCHES = 6
PP_HEAVY, DP_HEAVY = "pp-heavy", "dp-heavy"
JOBS = {PP_HEAVY: (1 << 20, 1 << 20), DP_HEAVY: (128 << 10, 8 << 20)}
"""Bytes of the activations of a microbatch and of the gradients of a stage."""
WINNERS = {PP_HEAVY: PP_ALIGNED, DP_HEAVY: DP_ALIGNED}
EXPECTED = {
    (PP_HEAVY, DP_ALIGNED): Verdict.SLOWER,
    (PP_HEAVY, PP_ALIGNED): Verdict.FASTER,
    (DP_HEAVY, DP_ALIGNED): Verdict.FASTER,
}
"""What the DP-heavy job gains PP-aligned hangs on which placements are the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A testbed that is up, and where its campaigns live."""

    folder: Path
    fabric: Fabric
    way: Way

    def run(
        self, name: str, text: str, seed: int, launches: int, arms: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Run:
        """Run a campaign of some ``[[jobs]]``, of some in these arms only, and return what it measured."""
        head = f'name = "{name}"\ncluster = "cluster.toml"\nseed = {seed}\nlaunches = {launches}\n'
        launch = '[launch]\nlauncher = "testbed"\ntestbed = "testbed.toml"\n'
        path = self.folder / f"{name}.toml"
        path.write_text(head + launch + text)
        campaign = Campaign(path, self.folder / "runs")
        campaign.cases = tuple(
            case for case in campaign.cases if case.operation not in arms or case.arm in arms[case.operation]
        )
        campaign.run(lambda progress: None, self.way)
        return campaign.store.read(campaign.run_id)


@contextlib.contextmanager
def on_testbed(hosts_per_minipod: int, rate_bits_per_s: float = RATE_BITS_PER_S) -> Iterator[Bench]:
    """Give a testbed of two minipods for the time of the block."""
    links = dict.fromkeys((LinkClass.HOST, LinkClass.MINIPOD), LinkShape(rate_bits_per_s=rate_bits_per_s))
    fabric = Fabric(
        name=f"gains-{os.getpid()}", minipods=2, leaves_per_minipod=1, hosts_per_leaf=hosts_per_minipod, links=links
    )
    rates = "".join(f'[links.{kind}]\nrate = "{rate_bits_per_s:.0f}bit"\n' for kind in links)
    bed = beds.up(fabric, attached=True)
    try:
        with tempfile.TemporaryDirectory() as name, open_worlds(Launcher.TESTBED, fabric) as way:
            folder = Path(name)
            head = f'name = "{fabric.name}"\nminipods = 2\nhosts_per_leaf = {hosts_per_minipod}\n'
            (folder / "testbed.toml").write_text(head + rates)
            (folder / "cluster.toml").write_text(render_cluster(fabrics.cluster(fabric)))
            yield Bench(folder=folder, fabric=fabric, way=way)
    finally:
        bed.down()


def job_text(name: str, dp: int, volumes: tuple[int, int], more: str, share: float = 1.0) -> str:
    """Return a ``[[jobs]]`` table of a GPipe step of two stages and 4 microbatches, or of a share of it."""
    activation, gradient = (round(share * volume) for volume in volumes)
    sizes = f'microbatches = 4\nactivation = "{activation}"\ngradient = "{gradient}"\n'
    compute = f'forward = "{6 * share}ms"\nbackward = "{12 * share}ms"\n'
    return f'[[jobs]]\nname = "{name}"\ndp = {dp}\npp = 2\n{sizes}{compute}warmup = 1\n{more}\n'


def measure_gains(seed: int, quick: bool) -> tuple[list[StepTimes], tuple[JobGains, ...]]:
    """Return the steps and gains of both jobs in every arm."""
    launches, share, more = (2, 0.5, "repetitions = 1") if quick else (LAUNCHES, 1.0, "repetitions = 3\nmoves = 2")
    text = "".join(job_text(name, 4, volumes, more, share) for name, volumes in JOBS.items())
    with on_testbed(4) as bench:
        info, frame = bench.run("gains", text, seed, launches)
    return list(step_times(frame)), fit_gains(frame, seconds_per_launch(info))


def check(steps: list[StepTimes], gains: tuple[JobGains, ...]) -> list[tuple[str, str, str, bool]]:
    """Return what was told, what it should be, and whether that is so; what cannot be told is no verdict."""
    rows = []
    for job in steps:
        winner = winner_of(job.log_ratios(DP_ALIGNED, PP_ALIGNED).to_numpy(dtype=float))
        if winner:
            rows.append((f"{job.job}, the better arm", winner, WINNERS[job.job], winner == WINNERS[job.job]))
    for job_gains in gains:
        for gain in job_gains.gains:
            expected = EXPECTED.get((job_gains.job, gain.arm))
            if expected and gain.verdict is not Verdict.CANNOT_TELL:
                rows.append((f"{job_gains.job}, {gain.arm}", gain.sentence, expected, gain.verdict is expected))
        for pair in (pair for pair in job_gains.pairs if pair.is_same):
            is_right = pair.verdict not in (Verdict.FASTER, Verdict.SLOWER)
            if not is_right or pair.verdict is Verdict.SAME:
                rows.append((f"{pair.job}, {pair.arm} = {pair.other}", pair.sentence, "same", is_right))
    return rows


def winner_of(dp_over_pp: FloatArray) -> str | None:
    """Return the better of the aligned arms by the log throughput of one less the other's; None of no claim."""
    estimate = statistics.interval(dp_over_pp)
    if not is_apart(estimate):
        return None
    return DP_ALIGNED if estimate.value > 0 else PP_ALIGNED


def is_apart(estimate: Estimate) -> bool:
    """Return whether there is an interval, and it excludes 0."""
    return estimate.ci_low is not None and estimate.ci_high is not None and not estimate.ci_low <= 0 <= estimate.ci_high


def inside_max(gains: tuple[JobGains, ...]) -> float | None:
    """Return the largest change by moving nodes inside minipods, None where none was moved."""
    moves = [abs(pair.gain.value) for job in gains for pair in job.pairs if not pair.is_same]
    return max(moves, default=None)


AA_ARMS = {DP_ALIGNED: 0.38, "packed": 0.38, "misaligned-00": 0.5, "misaligned-01": 0.7}
"""Seconds of a step; the first two are the same placement."""


def heavy(rng: np.random.Generator, sd: float, shape: tuple[int, ...]) -> FloatArray:
    """Return draws of Student's t with 3 degrees of freedom, scaled to a standard deviation."""
    return np.asarray(rng.standard_t(3, shape) * sd / math.sqrt(3))


def simulate(rng: np.random.Generator, ncampaigns: int, repetitions: int = 4) -> pd.DataFrame:
    """Return the measurements of many campaigns in one frame, each a job of its own."""
    shape = (ncampaigns, LAUNCHES, len(AA_ARMS), repetitions)
    order = rng.random(shape[:3]).argsort(axis=-1)
    systematic = (
        rng.normal(0, 0.1, (*shape[:2], 1))
        + heavy(rng, 0.02, shape[:3])
        + 0.03 * order / (len(AA_ARMS) - 1)
        + 0.005 * np.arange(LAUNCHES)[:, None]
    )
    times_s = np.array(list(AA_ARMS.values()))[:, None] * np.exp(systematic[..., None] + heavy(rng, 0.04, shape))
    times_s += 0.1 * (rng.random(shape) < 0.01)
    campaign, launch, arm, repetition = (index.ravel() for index in np.indices(shape))
    names = np.array(list(AA_ARMS))
    return pd.DataFrame(
        {
            "kind": "step",
            "operation": np.char.add("campaign-", np.char.zfill(campaign.astype(str), 4)),
            "compute": "wait",
            "nranks": 8,
            "launch": launch,
            "comm_id": np.char.add(launch.astype(str), ".0.0"),
            "case_id": names[arm],
            "arm": names[arm],
            "nodes": np.array(["0,1,2,3", "0,1,2,3", "0,2,1,3", "0,3,1,2"])[arm],
            "repetition": repetition,
            "time_s": times_s.ravel(),
            "status": "ok",
        }
    )


def simulated_coverage(seed: int, ncampaigns: int) -> float:
    """Return how often the interval of two equal arms holds 0."""
    rng = np.random.default_rng(seed)
    frames = (simulate(rng, min(250, ncampaigns - done)) for done in range(0, ncampaigns, 250))
    pairs = [pair for frame in frames for job in fit_gains(frame) for pair in job.pairs]
    assert len(pairs) == ncampaigns
    return float(np.mean([not is_apart(pair.gain) for pair in pairs]))


EQUAL = {"calm": (DP_ALIGNED, "packed"), "contended": (PP_ALIGNED, "again")}
"""Of each job two arms that are one placement."""
EQUAL_LAUNCHES = 12
"""Launches scatter more than steps do here: of six, intervals of the contended job reach 1 to 4%."""


def measure_equals(seed: int, ncampaigns: int, launches: int) -> dict[str, list[Estimate]]:
    """Return for each job the gain of one of its equal arms over the other in each of many short campaigns."""
    calm = job_text("calm", 2, (64 << 10, 256 << 10), "repetitions = 8", share=2.0)
    contended = job_text("contended", 2, (64 << 10, 1 << 20), 'repetitions = 9\nplacements = ["again.json"]')
    arms = {job: (*pair, "misaligned-00") for job, pair in EQUAL.items()}
    found: dict[str, list[Estimate]] = {job: [] for job in EQUAL}
    with on_testbed(2) as bench:
        names = [host.name for host in fabrics.hosts(bench.fabric)]
        cells = [[0, 0], [0, 1], [1, 0], [1, 1]]
        again = {"schema_version": 1, "rank_map": {"node_names": names}, "cells": cells}
        (bench.folder / "again.json").write_text(json.dumps(again))
        for number in range(ncampaigns):
            for job in fit_gains(bench.run(f"equal-{number:02d}", calm + contended, seed + number, launches, arms)[1]):
                found[job.job] += [pair.gain for pair in job.pairs]
    return found


def held(estimates: list[Estimate]) -> str:
    """Return in how many of them the interval holds 0."""
    return f"{sum(not is_apart(estimate) for estimate in estimates)}/{len(estimates)}"


def widest(estimates: list[Estimate]) -> float:
    """Return the largest half width of the intervals."""
    return max(statistics.half_width(estimate) or math.inf for estimate in estimates)


def middle(estimates: list[Estimate]) -> float:
    """Return the median half width of the intervals."""
    return median(statistics.half_width(estimate) or math.inf for estimate in estimates)


def show(steps: list[StepTimes], gains: tuple[JobGains, ...], console: Console) -> list[tuple[str, str, str, bool]]:
    """Print the gains and the verdicts; return these."""
    table = Table("job", "arm", "step", "communication", "over the base", title="Gains")
    for job in gains:
        for gain in job.gains:
            share = format_percent(gain.communication.value) if gain.communication else ""
            table.add_row(job.job, gain.arm, f"{gain.time_s.value * 1e3:.0f} ms", share, gain.sentence)
        for pair in job.pairs:
            table.add_row(job.job, f"{pair.arm} over {pair.other}", "", "", pair.sentence)
    console.print(table)
    rows = check(steps, gains)
    verdicts = Table("what", "told", "expected", "right", title="Verdicts")
    for what, told, expected, is_right in rows:
        verdicts.add_row(what, told, expected, "yes" if is_right else "NO")
    console.print(verdicts)
    return rows


def run_all(seed: int, quick: bool, console: Console) -> dict[str, Any]:
    """Measure and simulate everything; return the figures."""
    started_s = time.monotonic()
    steps, gains = measure_gains(seed, quick)
    rows = show(steps, gains, console)
    coverage = simulated_coverage(seed, 250 if quick else 1000)
    equals = measure_equals(seed, *((1, 3) if quick else (20, EQUAL_LAUNCHES)))
    table = Table("job", "intervals that hold 0", "half width, median", "widest", title="Equal arms, real")
    for job, estimates in equals.items():
        table.add_row(job, held(estimates), *map(format_percent, (middle(estimates), widest(estimates))))
    console.print(table)
    inside = inside_max(gains)
    return {
        "verdicts": len(rows),
        "right": sum(row[-1] for row in rows),
        "inside_max": None if inside is None else round(inside, 4),
        "aa_coverage": round(coverage, 4),
        "aa_real": held(equals["contended"]),
        "aa_half_width": round(middle(equals["contended"]), 4),
        "aa_half_width_max": round(widest(equals["contended"]), 4),
        "aa_real_calm": held(equals["calm"]),
        "aa_half_width_calm": round(middle(equals["calm"]), 4),
        "aa_half_width_calm_max": round(widest(equals["calm"]), 4),
        "seconds": round(time.monotonic() - started_s, 1),
    }


TORCH_JOBS = {PP_HEAVY: (1 << 20, 1 << 20), DP_HEAVY: (128 << 10, 4 << 20)}
"""As ``JOBS``, smaller: two rings share the core."""
TORCH_RATE_BITS_PER_S = 100e6
"""So slow that compute, which torch cannot leave out, is a fifth of a step at most, though ranks share cores."""
FLOPS_PER_S = 1e10
"""About what a rank has of a core, for the proxies' waits."""


def torch_text(folder: Path) -> str:
    """Write the models of both jobs; return their ``[[jobs]]`` tables, each for the proxy and for torch."""
    text, models = "", ""
    for name, (activation_bytes, gradient_bytes) in TORCH_JOBS.items():
        model = model_for(
            name, nstages=2, activation_bytes=activation_bytes, gradient_bytes=gradient_bytes, dtype=Dtype.FLOAT32
        )
        keys = {key: value for key, value in asdict(model).items() if key != "name" and value is not None}
        models += f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        shared = f'dp = 2\npp = 2\nmodel = "{name}"\nmodels = "models.toml"\nglobal_batch = 8\nmicrobatch = 1\n'
        shared += 'dtype = "float32"\nschedule = "gpipe"\nwarmup = 1\nrepetitions = 2\n'
        proxy = f'compute = "wait"\nflops_per_s = {FLOPS_PER_S}\n'
        text += f'[[jobs]]\nname = "{name}-proxy"\n{shared}{proxy}'
        text += f'[[jobs]]\nname = "{name}-torch"\n{shared}engine = "torch"\n'
    (folder / "models.toml").write_text(models)
    return text


def run_torch(seed: int, quick: bool, console: Console) -> dict[str, Any]:
    """Measure both engines in one campaign; return how they agree over all pairs of arms."""
    launches = 2 if quick else LAUNCHES
    with on_testbed(2, TORCH_RATE_BITS_PER_S) as bench:
        _, frame = bench.run("engines", torch_text(bench.folder), seed, launches)
    if refused := sorted(set(frame.loc[frame["status"] != "ok", "reason"])):
        console.print(f"not measured: {'; '.join(refused)}")
    by_name = {job.job: job for job in step_times(frame)}
    table = Table("job", "arms", "proxy", "torch", "ratio of ratios", title="Proxy against torch: time over time")
    agree: list[bool] = []
    worst: float | None = None
    for name in TORCH_JOBS:
        proxy, torch = by_name[f"{name}-proxy"], by_name[f"{name}-torch"]
        for a, b in combinations([arm for arm in proxy.table if arm in torch.table], 2):
            ours, theirs = (statistics.interval(job.log_ratios(b, a)) for job in (proxy, torch))
            off = math.expm1(abs(ours.value - theirs.value))
            worst = max(worst or 0.0, off)
            if is_apart(ours) and is_apart(theirs):
                agree.append((ours.value > 0) == (theirs.value > 0))
            ratios = (f"{math.exp(estimate.value):.3f}" for estimate in (ours, theirs))
            table.add_row(name, f"{a} / {b}", *ratios, format_percent(off))
        if share := proxy.waiting_share(list(proxy.table)):
            ratio = math.exp(float((torch.table - proxy.table).stack().median()))
            console.print(
                f"{name}: compute is {format_percent(1 - share.value)} of a step of the proxy; torch takes {ratio:.3g} "
                "times as long"
            )
    console.print(table)
    return {
        "torch_same_winner": f"{sum(agree)}/{len(agree)}" if agree else None,
        "torch_ratio_worst": None if worst is None else round(worst, 4),
    }


def main() -> None:
    """Run what is asked for, and print the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="half the step, fewer launches and campaigns, no moves: a minute"
    )
    parser.add_argument("--torch", action="store_true", help="compare proxies with the torch engine, and nothing else")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if refusal := beds.refusal():
        raise SystemExit(refusal)
    console = Console(width=150)
    run = run_torch if arguments.torch else run_all
    figures = run(arguments.seed, arguments.quick, console)
    print(json.dumps({"benchmark": "gains", **figures}))


if __name__ == "__main__":
    main()

"""Predict the step times of placements from micro-patterns, then measure those placements and compare.

A testbed of 2 minipods x 4 hosts, hosts and uplinks 400 Mbit/s (1:4). Two campaigns of micro-patterns are measured and
fitted; no step is. Then steps of three jobs in two shapes (4 x 2 GPipe, 2 x 4 1F1B) are measured in placements drawn
from the 35 ways to share 8 nodes out to 8 cells, interleaved in every launch, and each is compared with its prediction.

An error is |log(predicted / measured)|, measured being the mean over launches of the log of the median step. Kendall's
tau counts the pairs of placements of one job and shape whose measured 95% intervals do not overlap. The scale error is
the median error of predictions whose parameters were fitted on 2 x 2 hosts. Some placements are measured again with
uplinks of 200 and 800 Mbit/s: predictions are given the uplink rate, scaled from the fitted one, and nothing else.
With --quick neither of these is measured, nor are there launches enough for a tau over intervals of launches: those are
over repetitions.
"""

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean, median

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from spanfit.bench.case import BenchCase
from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.launch.fabric import cluster as fabric_cluster
from spanfit.profiler import statistics
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.curves import curves_document, fit_curves, join_curves
from spanfit.profiler.curves_file import CurvesFile
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.fit import fit_parameters
from spanfit.profiler.predict.parameters import ParametersFile
from spanfit.profiler.predict.step import StepPredictor, seated
from spanfit.results.schema import Estimate
from spanfit.topology.readers.cluster_toml import render_cluster

RATE_BITS_PER_S = 4e8
OTHER_RATES = (2e8, 8e8)
JOBS = {"pp-heavy": ("1M", "1M"), "dp-heavy": ("128K", "8M"), "balanced": ("512K", "4M")}
SHAPES = ((4, 2, "gpipe"), (2, 4, "1f1b"))
UPLINK = "minipod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    launches: int
    placements_per_shape: int
    repetitions: int
    other_placements: int
    fits_small: bool


FULL = Scale(launches=3, placements_per_shape=10, repetitions=3, other_placements=1, fits_small=True)
QUICK = Scale(launches=1, placements_per_shape=1, repetitions=2, other_placements=0, fits_small=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A placement of a job in a shape: its step as measured and as predicted."""

    case: BenchCase
    log_s: Estimate
    predicted_s: float

    @property
    def job(self) -> str:
        """Return the job without its shape."""
        return self.case.operation.rpartition("-")[0]

    @property
    def error(self) -> float:
        """Return log(predicted / measured)."""
        return math.log(self.predicted_s) - self.log_s.value


class Bed:
    """A testbed that is up, and campaigns over it in a folder of its own."""

    def __init__(self, folder: Path, hosts_per_minipod: int, seed: int) -> None:
        self.folder = folder / f"hosts-{hosts_per_minipod}"
        self.folder.mkdir()
        self.seed = seed
        shape = LinkShape(rate_bits_per_s=RATE_BITS_PER_S)
        self.fabric = Fabric(
            name=f"prediction-{hosts_per_minipod}-{seed}",
            minipods=2,
            leaves_per_minipod=1,
            hosts_per_leaf=hosts_per_minipod,
            links={LinkClass.HOST: shape, LinkClass.MINIPOD: shape},
        )
        self.cluster = fabric_cluster(self.fabric)
        rates = "".join(f'[links.{kind}]\nrate = "{RATE_BITS_PER_S:.0f}bit"\n' for kind in self.fabric.links)
        text = f'name = "{self.fabric.name}"\nminipods = 2\nhosts_per_leaf = {hosts_per_minipod}\n{rates}'
        (self.folder / "testbed.toml").write_text(text)
        (self.folder / "cluster.toml").write_text(render_cluster(self.cluster))
        self.running = testbed.up(self.fabric, attached=True)

    def campaign(self, name: str, launches: int, tables: str) -> Campaign:
        """Return a campaign of some tables."""
        text = (
            f'name = "{name}"\ncluster = "cluster.toml"\nseed = {self.seed}\nlaunches = {launches}\n'
            f'[launch]\nlauncher = "testbed"\ntestbed = "testbed.toml"\n{tables}'
        )
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return Campaign(path, self.folder / "runs")

    def curves(self, name: str, launches: int, table: str) -> CurvesFile:
        """Return the curves that a campaign measures."""
        campaign = self.campaign(name, launches, f"[collectives]\n{table}warmup = 2\nrepetitions = 4\n")
        campaign.run(lambda _: None)
        info, frame = campaign.store.read(campaign.run_id)
        return curves_document(info, join_curves(frame, fit_curves(frame)))


def fit(bed: Bed, scale: Scale) -> ParametersFile:
    """Measure the micro-patterns and return what is fitted to them."""
    wide = '"alternating"' if bed.fabric.hosts_per_leaf == 2 else '"sorted", "alternating"'
    spans = "[2]" if bed.fabric.hosts_per_leaf == 2 else "[1, 2]"
    flows = (
        'operations = ["send", "all_reduce"]\nsizes = ["64K", "256K", "1M", "4M"]\nnodes_per_group = 2\n'
        'spans = [1, 2]\nconcurrency = ["alone", "all"]\n'
    )
    rings = (
        'operations = ["send_recv", "all_reduce"]\nsizes = ["1M", "4M"]\nnodes_per_group = 4\n'
        f'spans = {spans}\nrank_orders = [{wide}]\nconcurrency = ["alone", "all"]\n'
    )
    curves = [bed.curves("flows", scale.launches, flows), bed.curves("rings", scale.launches, rings)]
    return fit_parameters(curves, bed.cluster, Library.GLOO)


def job_tables(repetitions: int) -> str:
    """Return the jobs in both shapes as campaign tables."""
    return "".join(
        f'[[jobs]]\nname = "{name}-{dp}x{pp}"\ndp = {dp}\npp = {pp}\nmicrobatches = 4\nactivation = "{activation}"\n'
        f'gradient = "{gradient}"\nforward = "6ms"\nbackward = "12ms"\nschedule = "{schedule}"\nwarmup = 1\n'
        f"repetitions = {repetitions}\n"
        for name, (activation, gradient) in JOBS.items()
        for dp, pp, schedule in SHAPES
    )


def placements(cases: Sequence[BenchCase], count: int, seed: int) -> Iterator[BenchCase]:
    """Yield ``count`` cases of each job in its shape, in placements drawn from all that differ by more than names."""
    by_job = {case.operation: case for case in cases}
    ways = [(0, *others) for others in combinations(range(1, 8), 3)]
    for name, case in by_job.items():
        for index, here in enumerate(random.Random(f"{seed}/{name}").sample(ways, count)):
            first, second = iter(range(4)), iter(range(4, 8))
            nodes = tuple(next(first) if cell in here else next(second) for cell in range(8))
            yield replace(case, arm=f"drawn-{index:02d}", groups=(nodes,))


def compare(bed: Bed, name: str, fabric: ParametersFile, count: int, scale: Scale) -> tuple[Compared, ...]:
    """Measure placements that were never measured and return each beside its prediction."""
    campaign = bed.campaign(name, scale.launches, job_tables(scale.repetitions))
    campaign.cases = tuple(placements(campaign.cases, count, bed.seed))
    campaign.run(lambda _: None)
    _, frame = campaign.store.read(campaign.run_id)
    logs = measured_logs(frame)
    return tuple(
        Compared(case=case, log_s=logs[case.operation, case.arm], predicted_s=predicted_s(bed, case, fabric))
        for case in campaign.cases
    )


def predicted_s(bed: Bed, case: BenchCase, fabric: ParametersFile) -> float:
    """Return the step time that a fabric's parameters give a placement."""
    assert case.step is not None
    names = tuple(bed.cluster.nodes[node].name for node in case.groups[0])
    return StepPredictor(case.step, bed.cluster, fabric).step_time_s(seated(case.step, names, 1))


def measured_logs(frame: pd.DataFrame) -> dict[tuple[str, str], Estimate]:
    """Return the log of the step time of each job and arm, with an interval over launches, or repetitions of one."""
    steps = statistics.ok_rows(frame)
    by_launch = statistics.unit_logs(steps, ["operation", "arm"])
    if steps["launch"].nunique() == 1:
        by_launch = steps.assign(log=np.log(steps["time_s"])).set_index(["operation", "arm"])["log"]
    found: dict[tuple[str, str], list[float]] = {}
    for (job, arm, *_), log_s in zip(by_launch.index.tolist(), by_launch.tolist(), strict=True):
        found.setdefault((job, arm), []).append(log_s)
    return {key: statistics.interval(logs) for key, logs in found.items()}


def tau(found: Sequence[Compared]) -> tuple[float | None, int]:
    """Return Kendall's tau over the pairs of a job and shape whose measured intervals are apart, and their number."""
    signs = [
        math.copysign(1, (a.log_s.value - b.log_s.value) * (a.predicted_s - b.predicted_s))
        for a, b in combinations(found, 2)
        if a.case.operation == b.case.operation and _apart(a.log_s, b.log_s)
    ]
    return (mean(signs) if signs else None), len(signs)


def _apart(a: Estimate, b: Estimate) -> bool:
    if a.ci_low is None or a.ci_high is None or b.ci_low is None or b.ci_high is None:
        return False
    return a.ci_high < b.ci_low or b.ci_high < a.ci_low


def errors(found: Sequence[Compared]) -> list[float]:
    """Return the sizes of the errors."""
    return [abs(each.error) for each in found]


def report(found: Sequence[Compared]) -> dict[str, float | int | None]:
    """Print the errors of each job and return the figures over all."""
    table = Table(title=f"{len(found)} placements", title_justify="left")
    for column in ("job", "placements", "median", "p90", "max", "bias", "tau", "pairs"):
        table.add_column(column, justify="left" if column == "job" else "right")
    medians: list[float] = []
    biases: list[float] = []
    taus: list[float] = []
    npairs = 0
    for job in JOBS:
        own = [each for each in found if each.job == job]
        order, pairs = tau(own)
        medians.append(median(errors(own)))
        biases.append(mean(each.error for each in own))
        taus += [] if order is None else [order]
        npairs += pairs
        shares = [medians[-1], float(np.quantile(errors(own), 0.9)), max(errors(own)), biases[-1]]
        text = "" if order is None else f"{order:.3f}"
        table.add_row(job, str(len(own)), *(f"{share:.1%}" for share in shares), text, str(pairs))
    Console(width=120).print(table)
    worst_bias: float = max(biases, key=abs)
    return {
        "placements": len(found),
        "median_error": round(median(errors(found)), 4),
        "worst_job_median": round(max(medians), 4),
        "p90_error": round(float(np.quantile(errors(found), 0.9)), 4),
        "bias": round(worst_bias, 4),
        "kendall_tau_min": round(min(taus), 4) if taus else None,
        "tau_pairs": npairs,
    }


def nodes_by_row(case: BenchCase) -> str:
    """Return the node rank of each cell, row by row."""
    assert case.step is not None
    nodes, pp = case.groups[0], case.step.layout.pp
    return " | ".join(" ".join(map(str, nodes[start : start + pp])) for start in range(0, len(nodes), pp))


def print_placements(found: Sequence[Compared]) -> None:
    """Print each placement as measured and as predicted."""
    table = Table(title="Placements", title_justify="left")
    for column in ("job", "placement", "measured ms", "predicted ms", "error"):
        table.add_column(column, justify="right" if column.endswith(("ms", "error")) else "left")
    for each in sorted(found, key=lambda each: (each.case.operation, each.log_s.value)):
        times_s = (math.exp(each.log_s.value), each.predicted_s)
        cells = [f"{time_s * 1e3:.1f}" for time_s in times_s]
        table.add_row(each.case.operation, nodes_by_row(each.case), *cells, f"{each.error:+.1%}")
    Console(width=120).print(table)


def other_rates(bed: Bed, fabric: ParametersFile, scale: Scale) -> tuple[Compared, ...]:
    """Return placements measured and predicted with slower and with faster uplinks."""
    found: list[Compared] = []
    for rate in OTHER_RATES if scale.other_placements else ():
        bed.running.set_rate(UPLINK, rate)
        factor = rate / RATE_BITS_PER_S
        given = fabric.with_rates({UPLINK: fabric.parameters.rates_bytes_per_s[UPLINK] * factor})
        found += compare(bed, f"uplinks-{rate / 1e6:.0f}", given, scale.other_placements, scale)
    return tuple(found)


def fit_small(folder: Path, seed: int, scale: Scale) -> ParametersFile:
    """Return what is fitted to the micro-patterns of 2 x 2 hosts."""
    small = Bed(folder, 2, seed)
    try:
        return fit(small, scale)
    finally:
        small.running.down()


def main() -> None:
    """Measure, predict, compare, and print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one placement a job and shape, one launch")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if refusal := testbed.refusal():
        raise SystemExit(refusal)
    scale = QUICK if arguments.quick else FULL
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        from_small = fit_small(Path(name), arguments.seed, scale) if scale.fits_small else None
        bed = Bed(Path(name), 4, arguments.seed)
        try:
            fabric = fit(bed, scale)
            found = compare(bed, "steps", fabric, scale.placements_per_shape, scale)
            others = other_rates(bed, fabric, scale)
        finally:
            bed.running.down()
    scaled = [replace(each, predicted_s=predicted_s(bed, each.case, from_small)) for each in found if from_small]
    print_placements(found)
    print(f"fitted: {fabric.parameters}; error of patterns left out {fabric.error:.1%}")
    figures: dict[str, object] = {"benchmark": "prediction", **report(found)}
    figures["scale_error"] = round(median(errors(scaled)), 4) if scaled else None
    figures["other_uplinks_error"] = round(median(errors(others)), 4) if others else None
    figures["wall_s"] = round(time.monotonic() - start_s, 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Whether intervals of alpha hold the truth, and what placing by alpha costs against the fastest placement there is.

Known truth: 1,000 synthetic campaigns. Each draws a fabric (how far uplinks are oversubscribed), a job (volumes,
compute, how much of the transfer of each kind compute hides) and noise. A step takes its compute and, of each kind,
what is not hidden of the bytes on uplinks, counted edge by edge in rings and chains. The campaign measures
4 x 2 nodes over two minipods in both aligned arms and ten misaligned ones, six launches; the noise is that of the
testbed: on the log scale what a launch adds to all (sd 10%), to each arm (sd 2%, Student's t with 3 degrees of
freedom) and to each step (sd 4%, t with 3). In one draw of ten compute hides all DP transfers, in one all PP
transfers, so that true alpha may be at a border.

``coverage`` is the share of intervals that hold true alpha where it is inside (0, 1), ``coverage_boundary`` where it is
0 or 1; flat ones hold everything and are counted apart, too. ``width`` is the median width inside.

Regret: each job is placed on larger grids over two to eight minipods by the lowest alpha a + beta b on the frontier
of all pairs (a, b) that have a placement; its regret is its true step time over that of the fastest placement on the
frontier, minus 1. Alpha is the measured one scaled by volumes and shape; ``regret_vs_half`` is the mean regret over
that of alpha = 0.5, and so for the prior alpha_v and the paper's unscaled alpha. In one table all uplinks share what
crosses; in the other (``busiest_...``) the one that carries most for its rate holds the others up, which spreads do not
count: an alpha without any error still has that regret.

Growth: three jobs whose nodes move the same bytes whatever the grid, measured on 4 x 2 nodes by the step-time predictor
and placed on larger grids; the same regret by the predictor itself. It shows which of scaled, prior and unscaled alpha
places better as jobs grow.
"""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, PP_ALIGNED, Arm, plan_arms
from spanfit.placer.construct import Effort, attempts
from spanfit.placer.model import Grid, Problem, column_spreads, row_spreads
from spanfit.placer.seats import orders
from spanfit.profiler import statistics, verdicts
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile
from spanfit.profiler.predict.step import StepPredictor, seated
from spanfit.results.schema import Estimate
from spanfit.topology.model import Cluster, Node
from spanfit.weights.crossings import removed_crossings
from spanfit.weights.fit import fit_alpha
from spanfit.weights.model import LaunchTimes, RemovedCrossings, Source, WeightEntry
from spanfit.weights.predicted import predict_entry
from spanfit.weights.scaling import (
    Scaling,
    Shape,
    alpha_for,
    fewest_minipods,
    shape_of,
    volume_alpha,
)
from spanfit.weights.shares import share_of
from spanfit.weights.volumes import volumes_of
from spanfit.workload.job import StepJob

Floats = npt.NDArray[np.float64]

ROWS, COLUMNS, LAUNCHES, STEPS = 4, 2, 6, 3
MINIPODS = ((0, 1, 2, 3), (4, 5, 6, 7))
NODES = np.array([len(minipod) for minipod in MINIPODS], dtype=float)
INSTANCES = (
    (8, 4, (16, 16)),
    (8, 4, (12, 12, 16)),
    (12, 4, (14, 16, 18, 20)),
    (16, 4, (18, 18, 18, 18)),
    (12, 8, (24, 24, 24, 24, 24)),
    (6, 12, (20, 20, 20, 20)),
    (24, 8, (40, 40, 40, 40, 40, 40)),
    (32, 4, (20, 20, 20, 20, 20, 20, 20, 20)),
    (48, 8, (70, 70, 80, 80, 90, 90)),
)
"""Rows, columns and free nodes of each minipod of the jobs that are placed."""
NODE_BYTES_PER_S = 400e9 / 8
POLISHING_SEEDS = 4
WAYS = ("scaled", "alpha_v", "paper", "half")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A fabric and a job as they are.

    Attributes
    ----------
    job : StepJob
        On the measured grid.
    uplink_bytes_per_s : float
        For each node of a minipod.
    dp_exposed, pp_exposed : float
        Share of the transfers of each kind that compute does not hide.
    """

    job: StepJob
    uplink_bytes_per_s: float
    dp_exposed: float
    pp_exposed: float

    def step_s(self, grid: Grid, minipod_nodes: Floats, *, is_even: bool = True) -> float:
        """Return the step time of a grid over minipods of so many nodes: compute, and what each kind exposes.

        ``is_even``: all uplinks share what crosses by their rates, as routes over many cores do; else the one that
        carries most for its rate holds the others up.
        """
        rings, chains = loads(grid, len(minipod_nodes))
        if is_even:
            rings, chains, minipod_nodes = (values.sum(keepdims=True) for values in (rings, chains, minipod_nodes))
        capacity = minipod_nodes * self.uplink_bytes_per_s
        nrows = len(grid)
        ring_bytes = 2 * (nrows - 1) / nrows * self.job.gradient_bytes
        chain_bytes = 2 * self.job.nmicrobatches * self.job.activation_bytes
        dp_s = float((rings * ring_bytes / capacity).max())
        pp_s = float((chains * chain_bytes / capacity).max())
        compute_s = self.job.nmicrobatches * (self.job.forward_s + self.job.backward_s)
        return compute_s + self.dp_exposed * dp_s + self.pp_exposed * pp_s


def loads(grid: Grid, nminipods: int) -> tuple[Floats, Floats]:
    """Return the ends of crossing ring edges and chain edges at each minipod; rings run in the order of the rows."""
    cells = np.array(grid)
    ends = []
    for here, there in ((cells, np.roll(cells, -1, axis=0)), (cells[:, :-1], cells[:, 1:])):
        crossing = here != there
        both = np.concatenate([here[crossing], there[crossing]])
        ends.append(np.bincount(both, minlength=nminipods).astype(float))
    return ends[0], ends[1]


def draw(rng: np.random.Generator, index: int, arms: Mapping[str, Grid]) -> Truth:
    """Return a fabric and a job to whose misaligned step crossings add 2% to 30%."""
    gradient, ratio = 2 ** rng.uniform(26, 32), 10 ** rng.uniform(-0.8, 0.8)
    nmicrobatches, hidden = int(rng.integers(4, 17)), rng.uniform()
    job = StepJob(
        name=f"job-{index:04d}",
        dp=ROWS,
        pp=COLUMNS,
        nmicrobatches=nmicrobatches,
        activation_bytes=max(1, round(gradient / ratio / (2 * nmicrobatches))),
        gradient_bytes=round(gradient),
        forward_s=0.0,
        backward_s=0.0,
    )
    truth = Truth(
        job=job,
        uplink_bytes_per_s=NODE_BYTES_PER_S / rng.uniform(1, 8),
        dp_exposed=0.0 if hidden < 0.1 else rng.uniform(0.5, 1),
        pp_exposed=0.0 if hidden > 0.9 else rng.uniform(0.2, 1),
    )
    crossing_s = median(truth.step_s(grid, NODES) for arm, grid in arms.items() if arm.startswith(MISALIGNED))
    share = rng.uniform(0.02, 0.3)
    compute_s = crossing_s * (1 - share) / share / nmicrobatches
    return replace(truth, job=replace(job, forward_s=compute_s / 3, backward_s=compute_s * 2 / 3))


def arm_grid(arm: Arm) -> Grid:
    """Return the minipod of each cell of an arm of the measured grid."""
    pods = [int(node >= len(MINIPODS[0])) for node in arm.node_ranks]
    return tuple(tuple(pods[start : start + COLUMNS]) for start in range(0, len(pods), COLUMNS))


def measured_arms(seed: int) -> dict[str, Grid]:
    """Return the arms that gains look at."""
    arms = plan_arms(ROWS, COLUMNS, MINIPODS, seed)
    return {arm.name: arm_grid(arm) for arm in arms if arm.name != "packed"}


def true_alpha(times_s: Mapping[str, float]) -> float:
    """Return alpha of noiseless times of the arms."""
    base = median(math.log(time_s) for name, time_s in times_s.items() if name.startswith(MISALIGNED))
    gains = (math.exp(base) / times_s[arm] - 1 for arm in (DP_ALIGNED, PP_ALIGNED))
    return share_of(*(gain if gain > 1e-9 else 0.0 for gain in gains))


def heavy(rng: np.random.Generator, sd: float, shape: tuple[int, ...]) -> Floats:
    """Return draws of Student's t with 3 degrees of freedom, scaled to a standard deviation."""
    return np.asarray(rng.standard_t(3, shape) * sd / np.sqrt(3))


def measure(
    rng: np.random.Generator, truth: Truth, times_s: Mapping[str, float], removed: tuple[RemovedCrossings, ...]
) -> WeightEntry:
    """Return what a campaign makes of a job whose arms take so long: six launches, fitted as those of any run."""
    shape = (LAUNCHES, len(times_s), STEPS)
    noise = rng.normal(0, 0.1, (LAUNCHES, 1, 1)) + heavy(rng, 0.02, (*shape[:2], 1)) + heavy(rng, 0.04, shape)
    logs = np.log(list(times_s.values())) + np.median(noise, axis=-1)
    base = np.median(logs[:, [name.startswith(MISALIGNED) for name in times_s]], axis=-1)
    dp, pp = (logs[:, list(times_s).index(arm)] for arm in (DP_ALIGNED, PP_ALIGNED))
    share = fit_alpha(list(zip((base - dp).tolist(), (base - pp).tolist(), strict=True)))
    launches = zip(np.exp(base).tolist(), np.exp(dp).tolist(), np.exp(pp).tolist(), strict=True)
    return WeightEntry(
        job=truth.job.name,
        gpu_model="simulated",
        dp=ROWS,
        pp=COLUMNS,
        alpha=share.estimate,
        beta=statistics.mapped(share.estimate, lambda alpha: 1 - alpha),
        source=Source.MEASURED,
        gain_dp=verdicts.estimate(base - dp),
        gain_pp=verdicts.estimate(base - pp),
        volumes=volumes_of(truth.job, 1),
        times=tuple(
            LaunchTimes(launch=launch, base_s=base_s, dp_aligned_s=dp_s, pp_aligned_s=pp_s)
            for launch, (base_s, dp_s, pp_s) in enumerate(launches)
        ),
        launches=LAUNCHES,
        is_flat=share.is_flat,
        removed=removed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A grid to place, and every pair of spreads that is on its frontier."""

    nrows: int
    ncolumns: int
    free: tuple[int, ...]
    grids: Mapping[tuple[int, int], Grid]

    def chosen(self, alpha: float) -> tuple[int, int]:
        """Return the pair of the lowest alpha a + beta b, ties by a + b."""
        return min(self.grids, key=lambda pair: (round(alpha * pair[0] + (1 - alpha) * pair[1], 9), sum(pair), pair))


def in_ring_order(grid: Grid) -> Grid:
    """Return the grid with its rows and columns in the order in which the placer seats them."""
    rows, columns = orders(grid)
    return tuple(tuple(grid[row][column] for column in columns) for row in rows)


def frontier(nrows: int, ncolumns: int, free: tuple[int, ...]) -> Instance:
    """Return the frontier: each b with the smallest a that has a grid, as far as the placer finds one."""
    problem = Problem(nrows=nrows, ncolumns=ncolumns, free=free, alpha=0.5, beta=0.5)
    grids: dict[tuple[int, int], Grid] = {}
    least = len(free) + 1
    for b in range(1, min(len(free), ncolumns) + 1):
        for a in range(1, least):
            if found := built(problem, a, b):
                grids[a, b], least = in_ring_order(found), a
                break
    return Instance(nrows=nrows, ncolumns=ncolumns, free=free, grids=grids)


def built(problem: Problem, a: int, b: int) -> Grid | None:
    """Return the grid of the lowest mean spreads of some that the placer builds for a pair; None if it builds none."""
    found = [
        grid
        for seed in range(POLISHING_SEEDS)
        for grid in attempts(problem, a, b, effort=Effort.QUICK, seed=seed)
        if grid is not None
    ]
    return min(found, key=lambda grid: sum(column_spreads(grid)) + sum(row_spreads(grid)), default=None)


def alphas_of(entry: WeightEntry, wanted: Shape, free: Sequence[int]) -> dict[str, float]:
    """Return alpha of a shape on minipods of so many free nodes, by each way."""
    minipods = fewest_minipods(free, wanted.dp * wanted.pp)
    return {
        "scaled": alpha_for(entry, wanted, Scaling.VOLUMES, minipods).value,
        "alpha_v": volume_alpha(wanted),
        "paper": alpha_for(entry, wanted, Scaling.PAPER).value,
        "half": 0.5,
    }


def regrets(truth: Truth, entry: WeightEntry, instance: Instance, *, is_even: bool) -> dict[str, float]:
    """Return the regret of each way on an instance."""
    nodes = np.array(instance.free, dtype=float)
    times_s = {pair: truth.step_s(grid, nodes, is_even=is_even) for pair, grid in instance.grids.items()}
    wanted = shape_of(replace(truth.job, dp=instance.nrows, pp=instance.ncolumns), 1)
    best = min(times_s.values())
    return {
        way: times_s[instance.chosen(alpha)] / best - 1
        for way, alpha in alphas_of(entry, wanted, instance.free).items()
    }


def known_truth(seed: int, ncampaigns: int, console: Console) -> dict[str, Any]:
    """Return coverage and regret over synthetic campaigns."""
    rng = np.random.default_rng(seed)
    arms = measured_arms(seed)
    truths = [draw(rng, index, arms) for index in range(ncampaigns)]
    removed = removed_crossings(arms)
    instances = [frontier(*each) for each in INSTANCES]
    entries, true = [], []
    missed: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for truth in truths:
        times_s = {name: truth.step_s(grid, NODES) for name, grid in arms.items()}
        entry, instance = measure(rng, truth, times_s, removed), instances[rng.integers(len(instances))]
        entries.append(entry)
        true.append(true_alpha(times_s))
        for is_even, found in missed.items():
            found.append(regrets(truth, entry, instance, is_even=is_even))
    even, busiest = (regret_figures(missed[is_even], is_even, console) for is_even in (True, False))
    return {**coverage(entries, true, console), **even, **{f"busiest_{key}": value for key, value in busiest.items()}}


def coverage(entries: Sequence[WeightEntry], true: Sequence[float], console: Console) -> dict[str, Any]:
    """Return how often intervals hold true alpha, inside and at the borders, and how wide they are."""
    low, high = (np.array([getattr(entry.alpha, bound) for entry in entries]) for bound in ("ci_low", "ci_high"))
    truth = np.array(true)
    holds = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    is_flat = np.array([entry.is_flat for entry in entries])
    inside = (truth > 0) & (truth < 1)
    table = Table("true alpha", "campaigns", "flat", "coverage", "median width", title="95% intervals of alpha")
    for name, those in (("inside", inside), ("inside, not flat", inside & ~is_flat), ("0 or 1", ~inside)):
        width = float(np.median((high - low)[those]))
        table.add_row(
            name, str(those.sum()), str((those & is_flat).sum()), f"{holds[those].mean():.3f}", f"{width:.3f}"
        )
    console.print(table)
    return {
        "coverage": round(float(holds[inside].mean()), 4),
        "coverage_boundary": round(float(holds[~inside].mean()), 4),
        "width": round(float(np.median((high - low)[inside])), 4),
        "flat": round(float(is_flat.mean()), 4),
    }


def regret_figures(missed: Sequence[Mapping[str, float]], is_even: bool, console: Console) -> dict[str, Any]:
    """Return the regret of scaled alpha and how it compares with the other ways."""
    truth = "uplinks share what crosses" if is_even else "the busiest uplink holds the others up"
    table = Table("alpha", "mean regret", "p95", "largest", title=f"Regret under the true model, {truth}")
    by_way = {way: np.array([found[way] for found in missed]) for way in WAYS}
    for way, values in by_way.items():
        figures = (values.mean(), np.quantile(values, 0.95), values.max())
        table.add_row(way, *(f"{100 * figure:.2f}%" for figure in figures))
    console.print(table)
    mean = float(by_way["scaled"].mean())
    return {
        "regret_p95": round(float(np.quantile(by_way["scaled"], 0.95)), 5),
        "regret_mean": round(mean, 5),
        **{f"regret_vs_{way}": round(mean / float(by_way[way].mean()), 3) for way in WAYS[1:]},
    }


JOBS = {"pp-heavy": (1 << 20, 1 << 20), "balanced": (512 << 10, 4 << 20), "dp-heavy": (128 << 10, 8 << 20)}
"""Bytes of the activations of a microbatch and of the gradients of a node."""
HOST_BYTES_PER_S = 50e6
OVERSUBSCRIPTION = 4


def tree(free: Sequence[int]) -> Cluster:
    """Return a cluster of minipods of so many nodes."""
    nodes = tuple(
        Node(name=f"m{pod}h{host}", fabric=(f"m{pod}", "core")) for pod, size in enumerate(free) for host in range(size)
    )
    return Cluster(name="predicted", tiers=("minipod", "core"), nodes=nodes)


def fabric_of(free: Sequence[int]) -> ParametersFile:
    """Return a fabric whose uplinks carry a quarter of what the nodes of a mean minipod do."""
    uplink = HOST_BYTES_PER_S * float(np.mean(free)) / OVERSUBSCRIPTION
    return ParametersFile(
        schema_version=PARAMETERS_VERSION,
        run_ids=(),
        curves_hashes=(),
        cluster="predicted",
        cluster_hash="",
        library=Library.NCCL,
        parameters=Parameters(rates_bytes_per_s={"host": HOST_BYTES_PER_S, "minipod": uplink}),
        error=0.02,
        residuals=(),
        not_fitted={},
    )


def step_job(name: str, nrows: int, ncolumns: int) -> StepJob:
    """Return a job whose nodes move the same bytes on every grid."""
    activation, gradient = JOBS[name]
    return StepJob(
        name=name,
        dp=nrows,
        pp=ncolumns,
        nmicrobatches=8,
        activation_bytes=activation,
        gradient_bytes=gradient,
        forward_s=0.006,
        backward_s=0.012,
    )


def predicted_s(predictor: StepPredictor, job: StepJob, cluster: Cluster, grid: Grid) -> float:
    """Return the predicted step time of a grid, whose minipods give their nodes in order."""
    givers = [iter(nodes) for nodes in cluster.minipods().values()]
    names = tuple(next(givers[pod]).name for row in grid for pod in row)
    return predictor.step_time_s(seated(job, names, 1))


def characterised(name: str, seed: int) -> WeightEntry:
    """Return the predicted weights of a job on the measured grid."""
    job, cluster = step_job(name, ROWS, COLUMNS), tree([len(pod) for pod in MINIPODS])
    predictor = StepPredictor(job, cluster, fabric_of([len(pod) for pod in MINIPODS]), ngpus_per_node=1)
    step_s, arms = partial(predicted_s, predictor, job, cluster), measured_arms(seed)
    times = {
        arm: Estimate(value=(time_s := step_s(grid)), ci_low=time_s * 0.99, ci_high=time_s * 1.01)
        for arm, grid in arms.items()
    }
    return predict_entry(job, gpu_model="predicted", ngpus_per_node=1, times=times, grids=arms)


def growth(seed: int, ngrids: int, console: Console) -> dict[str, Any]:
    """Return by how much each alpha misses the fastest placement, as the predictor has it, while grids grow."""
    table = Table("grid", "minipods", "job", *WAYS, title="Regret by the predictor as jobs grow (alpha)")
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    entries = {name: characterised(name, seed) for name in JOBS}
    for nrows, ncolumns, free in sorted(INSTANCES, key=lambda each: each[0] * each[1])[:ngrids]:
        instance, cluster = frontier(nrows, ncolumns, free), tree(free)
        for name, entry in entries.items():
            job = step_job(name, nrows, ncolumns)
            predictor = StepPredictor(job, cluster, fabric_of(free), ngpus_per_node=1)
            times_s = {pair: predicted_s(predictor, job, cluster, grid) for pair, grid in instance.grids.items()}
            best, alphas = min(times_s.values()), alphas_of(entry, shape_of(job, 1), free)
            missed = {way: times_s[instance.chosen(alpha)] / best - 1 for way, alpha in alphas.items()}
            for way in WAYS:
                found[way].append(missed[way])
            cells = (f"{100 * missed[way]:.1f}% ({alphas[way]:.2f})" for way in WAYS)
            table.add_row(f"{nrows} x {ncolumns}", str(len(free)), name, *cells)
    console.print(table)
    return {f"growth_{way}": round(float(np.mean(values)), 4) for way, values in found.items()}


def main() -> None:
    """Print the tables, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer campaigns and smaller grids: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    console, started_s = Console(width=120), time.monotonic()
    figures = known_truth(arguments.seed, 150 if arguments.quick else 1000, console)
    figures |= growth(arguments.seed, 3 if arguments.quick else len(INSTANCES), console)
    seconds = round(time.monotonic() - started_s, 1)
    print(json.dumps({"benchmark": "weights", **figures, "seconds": seconds}))


if __name__ == "__main__":
    main()

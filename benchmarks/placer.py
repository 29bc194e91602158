"""Compare the placer with its own bound, with the paper's model, with other schedulers and with their traffic.

Random fragmented clusters of three families: jobs of 12 to 52 nodes, of 1,200 and of 12,500, on minipods whose free
nodes are drawn uniformly, from two sizes or evenly and scaled to slack times the job. Each job is solved at alpha 0.3,
0.5 and 0.7, one thread, one second at most. A case is proven where a bound whose certificate was checked in exact
arithmetic, or the exact model's answer, meets the grid; otherwise its gap is the grid's objective over the bound.
The grid's spreads and capacities are checked again here. Slack of exactly 1 is a family of its own.
Seed 1 was used for tuning; quote others.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from spanfit.placer.baselines import BASELINES, Baseline
from spanfit.placer.choose import GOALS, OF_BYTES, Preference, preferred
from spanfit.placer.highs import solve_here
from spanfit.placer.mip import paper_model
from spanfit.placer.model import EdgeBytes, Grid, PlacementStatus, Problem, check_capacity, objective
from spanfit.placer.paper import GroupUnit, solve_paper
from spanfit.placer.seats import orders
from spanfit.placer.solve import solve
from spanfit.placer.traffic import Traffic, crossings, traffic

ALPHAS = (0.3, 0.5, 0.7)
SLACKS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
KINDS = ("uniform", "bimodal", "equal")
LARGEST_SETTING = Problem(nrows=46, ncolumns=8, free=(93,) * 7 + (92,) * 4, alpha=0.5, beta=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Jobs of about one size."""

    shapes: Sequence[tuple[int, int]]
    minipods: Sequence[int]
    slacks: Sequence[float] = SLACKS
    jobs: int = 40


FAMILIES: Mapping[str, Family] = {
    "n32": Family(
        shapes=((6, 2), (3, 4), (4, 3), (13, 2), (6, 4), (8, 4)), minipods=range(2, 7), slacks=(1.0, *SLACKS), jobs=60
    ),
    "n1200": Family(shapes=((150, 8), (75, 16), (300, 4), (100, 12)), minipods=(5, 10, 20, 40), jobs=64),
    "n1200_full": Family(
        shapes=((150, 8), (75, 16), (300, 4), (100, 12)), minipods=(5, 10, 20, 40), slacks=(1.0,), jobs=32
    ),
    "n12500": Family(shapes=((1250, 10), (625, 20), (768, 16), (3125, 4)), minipods=(64, 128, 256, 400)),
}


def free_nodes(rng: np.random.Generator, kind: str, minipods: int, nodes: int) -> tuple[int, ...]:
    """Return free nodes of each minipod, ``nodes`` in all."""
    if kind == "uniform":
        weights = rng.uniform(0.2, 1.0, minipods)
    elif kind == "bimodal":
        weights = np.where(rng.random(minipods) < 0.5, 1.0, rng.uniform(0.05, 0.5, minipods))
    else:
        weights = np.ones(minipods)
    free = np.floor(weights / weights.sum() * nodes).astype(int)
    np.add.at(free, rng.integers(minipods, size=nodes - int(free.sum())), 1)
    return tuple(int(count) for count in free)


def draw(family: Family, seed: int, jobs: int) -> Iterator[Problem]:
    """Yield the jobs of a family; alpha is for the caller to set."""
    rng = np.random.default_rng(seed)
    for index in range(jobs):
        nrows, ncolumns = family.shapes[index % len(family.shapes)]
        minipods = int(rng.choice(np.array(family.minipods)))
        nodes = round(float(rng.choice(np.array(family.slacks))) * nrows * ncolumns)
        free = free_nodes(rng, str(rng.choice(KINDS)), minipods, nodes)
        yield Problem(nrows=nrows, ncolumns=ncolumns, free=free, alpha=0.5, beta=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One solved job."""

    problem: Problem
    objective: float
    bound: float
    is_proven: bool
    wall_s: float


def measure(problem: Problem, limit_s: float, clock: Callable[[], float]) -> Outcome:
    """Solve a job, and check its grid anew."""
    start = clock()
    solution = solve(problem, time_limit_s=limit_s, seed=0, clock=clock)
    wall_s = clock() - start
    check_capacity(solution.grid, problem)
    assert abs(objective(solution.grid, problem) - solution.objective) < 1e-9
    assert solution.bound <= solution.objective + 1e-9
    return Outcome(
        problem=problem,
        objective=solution.objective,
        bound=solution.bound,
        is_proven=solution.status is PlacementStatus.OPTIMAL,
        wall_s=wall_s,
    )


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the figures of a family."""
    gaps = [each.objective / each.bound for each in outcomes]
    walls_ms = [1e3 * each.wall_s for each in outcomes]
    proven = {
        str(alpha): round(statistics.mean(each.is_proven for each in outcomes if each.problem.alpha == alpha), 3)
        for alpha in ALPHAS
    }
    return {
        "proven": proven,
        "gap_mean": round(statistics.mean(gaps), 4),
        "gap_max": round(max(gaps), 4),
        "median_ms": round(statistics.median(walls_ms), 2),
        "p95_ms": round(float(np.quantile(walls_ms, 0.95)), 1),
        "max_ms": round(max(walls_ms), 1),
        "jobs": len(outcomes),
    }


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.mean(math.log(ratio) for ratio in ratios))


def against_peers(outcomes: Sequence[Outcome], seed: int) -> dict[str, float]:
    """Return how many times worse the best baseline and the paper's model are, on jobs at alpha 0.5."""
    best, simple, paper = [], [], []
    for each in outcomes:
        if each.problem.alpha == 0.5:
            peers = {name: objective(place(each.problem, seed), each.problem) for name, place in BASELINES.items()}
            best.append(min(peers.values()) / each.objective)
            del peers[Baseline.TOPO_AWARE]
            simple.append(min(peers.values()) / each.objective)
            paper.append(solve_paper(each.problem).counted / each.objective)
    return {
        "ratio_gmean": round(geometric_mean(best), 3),
        "ratio_max": round(max(best), 3),
        "ratio_without_bisection_gmean": round(geometric_mean(simple), 3),
        "ratio_without_bisection_max": round(max(simple), 3),
        "vs_paper_gmean": round(geometric_mean(paper), 3),
        "vs_paper_min": round(min(paper), 3),
    }


def paper_ratios() -> dict[str, float]:
    """Return best-fit over the paper's model in its setting ii, 5 minipods, alpha 0.2, for two sets of capacities."""
    found = {}
    for name, free in {"uneven": (88, 88, 88, 87, 87), "even": (88,) * 5}.items():
        problem = Problem(nrows=12, ncolumns=8, free=free, alpha=0.2, beta=0.8)
        answer = solve_paper(problem, unit=GroupUnit.PP)
        peer = BASELINES[Baseline.BEST_FIT](problem, 0)
        found[name] = round(objective(peer, problem) / answer.objective, 3)
    return {"paper_max": found["uneven"], "paper_even": found["even"]}


def speedup(limit_s: float) -> dict[str, float]:
    """Return CPU seconds of Eq. 4-10 on HiGHS and of our solver in setting iii, one after the other in this process."""
    of_rows = LARGEST_SETTING
    model = paper_model(of_rows.nrows, of_rows.ncolumns, of_rows.free, of_rows.alpha, of_rows.beta).mip
    start = time.process_time()
    solve_here(model, time_limit_s=limit_s, seed=0)
    verbatim_s = time.process_time() - start
    solve(LARGEST_SETTING)
    ours = []
    for _ in range(21):
        start = time.process_time()
        solve(LARGEST_SETTING)
        ours.append(time.process_time() - start)
    return {
        "speedup_iii": round(verbatim_s / statistics.median(ours), 1),
        "verbatim_iii_s": round(verbatim_s, 2),
        "ours_iii_s": round(statistics.median(ours), 5),
    }


def placed(problem: Problem, edges: EdgeBytes, limit_s: float) -> Grid:
    """Return the grid that ``place`` takes for a job that tells its bytes."""
    preference = Preference(goals=(*OF_BYTES, *GOALS), edges=edges, tolerance=0.0)
    return preferred(solve(problem, time_limit_s=limit_s).grid, problem, preference, seed=0)


def traffic_of(grid: Grid, problem: Problem, edges: EdgeBytes) -> Traffic:
    """Return the bytes between minipods in a step, the columns in an order in which the rows cross little."""
    _, columns = orders(grid)
    ordered = np.array(grid)[:, list(columns)]
    return traffic(crossings(ordered.tolist(), len(problem.free)), edges)


def traffic_ratios(seed: int, jobs: int, limit_s: float) -> dict[str, float]:
    """Return geometric means of our traffic at the volume-aware weight over that of other placements.

    In total (``traffic``) and over the busiest uplink (``uplink``). The paper's slab at alpha 0.5 and best-fit do not
    know of the weight; beside them the slab that does.
    """
    ratios: dict[str, float] = {}
    for volumes in (1.0, 10.0, 100.0):
        edges = EdgeBytes(ring_bytes=volumes, chain_bytes=1.0)
        found: dict[str, list[float]] = {}
        for job in draw(FAMILIES["n1200"], seed, jobs):
            alpha = job.ncolumns * volumes / (job.ncolumns * volumes + job.nrows)
            problem = replace(job, alpha=alpha, beta=1 - alpha)
            ours = traffic_of(placed(problem, edges, limit_s), problem, edges)
            peers = {
                "slab": solve_paper(job).grid,
                "best_fit": BASELINES[Baseline.BEST_FIT](problem, seed),
                "same_weight_slab": solve_paper(problem).grid,
            }
            for name, grid in peers.items():
                theirs = traffic_of(grid, problem, edges)
                if theirs.total_bytes and ours.total_bytes:
                    found.setdefault(f"traffic_{name}", []).append(ours.total_bytes / theirs.total_bytes)
                    found.setdefault(f"uplink_{name}", []).append(ours.busiest_bytes / theirs.busiest_bytes)
        ratios |= {f"{name}_{volumes:g}": round(geometric_mean(each), 3) for name, each in found.items()}
    worst = max(ratio for name, ratio in ratios.items() if name.startswith(("traffic_slab", "traffic_best_fit")))
    return {"traffic": worst, **ratios}


def show(found: Mapping[str, Mapping[str, object]]) -> None:
    """Print the families as a table."""
    table = Table(title="fast solver", title_justify="left")
    for column in ("family", "proven at alpha 0.3, 0.5, 0.7", "gap mean, max", "median", "95%", "max"):
        table.add_column(column)
    for name, figures in found.items():
        proven = figures["proven"]
        assert isinstance(proven, dict)
        table.add_row(
            name,
            ", ".join(f"{share:.0%}" for share in proven.values()),
            f"{figures['gap_mean']}, {figures['gap_max']}",
            *(f"{figures[key]} ms" for key in ("median_ms", "p95_ms", "max_ms")),
        )
    Console(width=120).print(table)


def main() -> None:
    """Measure, print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few jobs of each family: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=list(FAMILIES), help="this family only")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds for a job")
    parser.add_argument(
        "--cpu", action="store_true", help="count CPU seconds of this process, not a child's, on a busy machine"
    )
    parser.add_argument("--verbose", action="store_true", help="print each job that stays open")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    found, figures = {}, {}
    for name in [arguments.family] if arguments.family else FAMILIES:
        jobs = 8 if arguments.quick else FAMILIES[name].jobs
        outcomes = []
        for job in draw(FAMILIES[name], arguments.seed, jobs):
            for alpha in ALPHAS:
                problem = replace(job, alpha=alpha, beta=1 - alpha)
                outcomes.append(measure(problem, arguments.limit, clock))
                if arguments.verbose and not outcomes[-1].is_proven:
                    print(outcomes[-1])
        found[name] = summary(outcomes)
        if name == "n1200":
            figures = against_peers(outcomes, arguments.seed)
    if not arguments.family:
        figures |= paper_ratios()
        figures |= traffic_ratios(arguments.seed, 4 if arguments.quick else 16, arguments.limit)
        figures |= speedup(10.0 if arguments.quick else 60.0)
    show(found)
    print(json.dumps({"benchmark": "placer", "seed": arguments.seed, **found, **figures}))


if __name__ == "__main__":
    main()

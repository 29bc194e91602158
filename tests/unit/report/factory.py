"""A run with everything in it, and placements built by hand."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from spanfit.placer.model import SCHEMA_VERSION, JobSpec, Placement, PlacementStatus, column_spreads, row_spreads
from spanfit.results.schema import Estimate, Measurement, RunInfo
from spanfit.topology.model import RankMap
from spanfit.weights.model import SCHEMA_VERSION as WEIGHTS_VERSION
from spanfit.weights.model import Source, Volumes, WeightEntry, WeightSet
from spanfit.workload.layout import ParallelLayout
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, framed, measured, step_cases

QUIET = Noise(launch=0.05, unit=0.002, row=0.004)
ARMS = {"dp-aligned": 0.4, "packed": 0.49, "pp-aligned": 0.8, "misaligned-00": 0.45, "misaligned-01": 0.55}


def span_cases(
    times: dict[int, float], operation: str = "all_reduce", rank_order: str = "sorted", concurrency: str = "all"
) -> list[tuple[Measurement, float]]:
    """Return a collective case of each span with its true time [s]; span 1 is always sorted."""
    case = replace(MEASUREMENT, operation=operation, concurrency=concurrency)
    return [
        (replace(case, span=span, rank_order=rank_order if span > 1 else "sorted"), time_s)
        for span, time_s in times.items()
    ]


def rows(*, launches: int = 6, noise: Noise = QUIET, seed: int = 0) -> list[Measurement]:
    """Return rows of a run: all_reduce loses three quarters, send_recv alone loses nothing, a job has five arms."""
    cases = [
        *span_cases({1: 0.02, 2: 0.08}),
        *span_cases({1: 0.02, 2: 0.02}, operation="send_recv", concurrency="alone"),
        *step_cases(ARMS),
    ]
    return measured(np.random.default_rng(seed), cases, launches=launches, repetitions=2, noise=noise)


@cache
def frame() -> pd.DataFrame:
    return framed(rows())


def estimate(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value=value, ci_low=value - half, ci_high=value + half)


def entry(**changes: object) -> WeightEntry:
    base = WeightEntry(
        job="balanced",
        gpu_model="emulated",
        dp=2,
        pp=2,
        alpha=estimate(0.7),
        beta=estimate(0.3),
        gain_dp=estimate(0.14),
        gain_pp=estimate(0.06),
        is_flat=False,
        is_provisional=False,
        base_arms=("misaligned-00", "misaligned-01"),
        compute="wait",
        launches=6,
        source=Source.MEASURED,
        volumes=Volumes(dp_bytes=2e6, pp_bytes=1e6, r1=0.67, r2=2.0),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def weight_set(*entries: WeightEntry, info: RunInfo = RUN) -> WeightSet:
    return WeightSet(
        schema_version=WEIGHTS_VERSION,
        run_ids=(info.run_id,),
        cluster=info.cluster,
        created_at="2026-01-02T04:00:00+00:00",
        spanfit_version="0.1.0",
        entries=entries or (entry(),),
    )


def placed(grid: list[list[str]], **changes: object) -> Placement:
    """Return the placement whose cells sit in these minipods, node n<row>-<column> in each."""
    layout = ParallelLayout(dp=len(grid), pp=len(grid[0]))
    cells = layout.node_cells(1)
    names = sorted({name for row in grid for name in row})
    numbers = [[names.index(name) for name in row] for row in grid]
    dp, pp = column_spreads(numbers), row_spreads(numbers)
    base = Placement(
        schema_version=SCHEMA_VERSION,
        job=JobSpec(name="big", layout=layout, ngpus_per_node=1),
        cluster="demo",
        rank_map=RankMap(node_names=tuple(f"n{row}-{column}" for row, column in cells), ngpus_per_node=1),
        cells=cells,
        minipods=tuple(grid[row][column] for row, column in cells),
        dp_spreads=dp,
        pp_spreads=pp,
        objective=0.3 * max(dp) + 0.7 * max(pp),
        bound=0.3 * max(dp) + 0.7 * max(pp),
        status=PlacementStatus.OPTIMAL,
        certificate="no pair of spreads lies lower",
        solver="HiGHS",
        solve_s=0.01,
        best_fit_objective=2.7,
        best_fit_dp_spread=3,
        best_fit_pp_spread=2,
        alpha=0.3,
        beta=0.7,
        weights_hash="",
    )
    return replace(base, **changes)  # type: ignore[arg-type]

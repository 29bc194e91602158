"""Measurements with a known truth: lognormal noise on each row, and effects of the launch and of each unit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from spanfit.results.schema import SCHEMA_VERSION, Measurement, RunInfo, Status

RUN_ID = "20260102-demo"

MEASUREMENT = Measurement(
    run_id=RUN_ID,
    launch=0,
    comm_id="launch0",
    position=0,
    case_id="case",
    kind="collective",
    operation="all_reduce",
    size_bytes=1 << 20,
    dtype="float32",
    redop="sum",
    in_place=False,
    tier="minipod",
    nranks=4,
    nnodes=4,
    span=1,
    rank_order="sorted",
    concurrency="all",
    draw=0,
    arm="",
    compute="",
    rail=-1,
    group=0,
    nodes="0,1,2,3",
    repetition=0,
    time_s=1.0,
    time_min_s=0.9,
    time_resolution_s=0.0,
    slowest_rank=0,
    fastest_rank=1,
    status=Status.OK,
    reason="",
)

RUN = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id=RUN_ID,
    campaign="demo",
    cluster="demo",
    cluster_hash="0123456789abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    ended_at="2026-01-02T03:14:05+00:00",
    engine="spanfit",
    backend="gloo",
    transport="testbed demo (network namespaces)",
    node_names=("n0", "n1", "n2", "n3"),
    minipods=("m0", "m0", "m1", "m1"),
    tiers=("leaf", "minipod", "core"),
    switches={"leaf": ("l0", "l0", "l1", "l1"), "minipod": ("m0", "m0", "m1", "m1"), "core": ("c", "c", "c", "c")},
    ngpus_per_node=1,
    gpu_model="emulated",
    launches=6,
    truth={"host": 400e6, "uplink": 400e6},
    environment={"OMP_NUM_THREADS": "1"},
    versions={"python": "3.11", "torch": "2.6"},
    git_commit="abc",
    spec={
        "jobs": [
            {
                "name": "balanced",
                "dp": 2,
                "pp": 2,
                "nmicrobatches": 4,
                "activation_bytes": 524288,
                "gradient_bytes": 4194304,
                "forward_s": 0.006,
                "backward_s": 0.012,
                "schedule": "gpipe",
                "compute": "wait",
            }
        ]
    },
    origin={},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations on the log scale: of a launch (shared by its cases), of a unit, of a row."""

    launch: float = 0.1
    unit: float = 0.02
    row: float = 0.05


def measured(
    rng: np.random.Generator,
    truths: Iterable[tuple[Measurement, float]],
    *,
    launches: int = 6,
    repetitions: int = 3,
    noise: Noise | None = None,
) -> list[Measurement]:
    """Return rows of every case (a Measurement to copy, and its true median time) in every launch."""
    noise = noise or Noise()
    truths = list(truths)
    rows = []
    for launch in range(launches):
        launch_effect = rng.normal(0, noise.launch)
        for position, (case, time_s) in enumerate(truths):
            unit_effect = rng.normal(0, noise.unit)
            for repetition in range(repetitions):
                effect = launch_effect + unit_effect + rng.normal(0, noise.row)
                rows.append(
                    replace(
                        case,
                        launch=launch,
                        comm_id=f"launch{launch}",
                        position=position,
                        case_id=f"case{position}",
                        repetition=repetition,
                        time_s=time_s * float(np.exp(effect)),
                    )
                )
    return rows


def failed(row: Measurement, reason: str = "rank 3 died") -> Measurement:
    """Return the row as it is when its case failed."""
    nan = float("nan")
    return replace(
        row, time_s=nan, time_min_s=nan, slowest_rank=-1, fastest_rank=-1, status=Status.FAILED, reason=reason
    )


def framed(rows: Sequence[Measurement]) -> pd.DataFrame:
    return pd.DataFrame([asdict(row) for row in rows])


def step_cases(times: Mapping[str, float], job: str = "balanced") -> list[tuple[Measurement, float]]:
    """Return a step case of each arm with its true time."""
    step = replace(MEASUREMENT, kind="step", operation=job, compute="wait", span=2, rank_order="job")
    return [(replace(step, arm=arm), time_s) for arm, time_s in times.items()]

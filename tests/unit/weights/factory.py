"""Weights to write, read, check and export."""

from dataclasses import replace

from spanfit.results.schema import Estimate
from spanfit.weights.model import (
    SCHEMA_VERSION,
    FabricKind,
    LaunchTimes,
    Source,
    TierRate,
    Volumes,
    WeightEntry,
    WeightSet,
)

ENTRY = WeightEntry(
    job="balanced",
    gpu_model="NVIDIA H100 80GB HBM3",
    dp=4,
    pp=2,
    alpha=Estimate(value=0.186, ci_low=0.162, ci_high=0.21),
    beta=Estimate(value=0.814, ci_low=0.79, ci_high=0.838),
    source=Source.MEASURED,
    gain_dp=Estimate(value=0.079, ci_low=None, ci_high=None),
    gain_pp=Estimate(value=0.346, ci_low=0.328, ci_high=0.364),
    volumes=Volumes(dp_bytes=4194304.0, pp_bytes=4194304.0, r1=0.5, r2=1.0),
    base_time_s=Estimate(value=0.5, ci_low=0.49, ci_high=0.51),
    times=(LaunchTimes(launch=0, base_s=0.5, dp_aligned_s=0.463, pp_aligned_s=0.371),),
    base_arms=("misaligned-00", "misaligned-01"),
    compute="wait",
    launches=6,
)
FABRIC = FabricKind(
    gpu_model="NVIDIA H100 80GB HBM3",
    backend="nccl",
    library="nccl 2.21.5",
    transport="network",
    nic="mlx5",
    nrails=8,
    tier_rates=(
        TierRate(
            operation="all_reduce",
            dtype="float32",
            redop="sum",
            tier="minipod",
            span=1,
            nranks=4,
            nnodes=4,
            size_bytes=1 << 20,
            concurrency="all",
            busbw_bytes_per_s=Estimate(value=3.6e11, ci_low=3.5e11, ci_high=3.7e11),
            launch_times_s=(4.4e-6, 4.3e-6, 4.5e-6),
        ),
    ),
)
WEIGHTS = WeightSet(
    schema_version=SCHEMA_VERSION,
    entries=(ENTRY,),
    run_ids=("20260102-demo",),
    cluster="demo",
    fabric=FABRIC,
    created_at="2026-01-03T00:00:00+00:00",
    valid_until="2026-04-03T00:00:00+00:00",
    spanfit_version="0.1.0",
)
BY_HAND = WeightSet(
    schema_version=SCHEMA_VERSION,
    entries=(
        replace(
            ENTRY,
            source=Source.HAND,
            gain_dp=None,
            gain_pp=None,
            volumes=None,
            base_time_s=None,
            times=(),
            launches=0,
        ),
    ),
)

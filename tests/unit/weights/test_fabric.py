from dataclasses import replace

import numpy as np
import pytest

from spanfit.results.schema import Estimate, Measurement, RunInfo
from spanfit.weights.fabric import fabric_of, other_kind
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, framed, measured
from tests.unit.weights.factory import FABRIC

REAL = replace(RUN, truth={}, backend="nccl", gpu_model="NVIDIA H100 80GB HBM3", versions={"nccl": "2.21.5"})


def rows() -> list[Measurement]:
    """Return a sweep over two sizes and spans, alone and all at once, with other orders and rails beside it."""
    sweep = [
        (replace(MEASUREMENT, span=span, size_bytes=size, concurrency=concurrency), span * size * 1e-9)
        for span in (1, 2)
        for size in (1 << 20, 1 << 22)
        for concurrency in ("alone", "all")
    ]
    others = [
        replace(MEASUREMENT, size_bytes=1 << 24, **change) for change in ({"rail": 0}, {"rank_order": "alternating"})
    ]
    quiet = Noise(launch=0.01, unit=0.001, row=0.001)
    return [
        *measured(np.random.default_rng(1), [*sweep, *((case, 1.0) for case in others)], noise=quiet),
        failed(replace(MEASUREMENT, operation="all_gather")),
        *measured(np.random.default_rng(2), [(replace(MEASUREMENT, operation="barrier", size_bytes=4), 1.0)]),
    ]


def test_rates_are_those_of_the_largest_size_all_at_once() -> None:
    rates = fabric_of(RUN, framed(rows())).tier_rates
    assert [(rate.operation, rate.span, rate.size_bytes, rate.concurrency) for rate in rates] == [
        ("all_reduce", 1, 1 << 22, "all"),
        ("all_reduce", 2, 1 << 22, "all"),
    ]
    for rate in rates:
        assert len(rate.launch_times_s) == 6
        # 4 ranks: busbw = 1.5 x size / time.
        assert rate.busbw_bytes_per_s.value == pytest.approx(1.5e9 / rate.span, rel=0.03)


def test_a_run_without_collectives_has_no_rates() -> None:
    assert fabric_of(RUN, framed([replace(MEASUREMENT, kind="step")])).tier_rates == ()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (RUN, ("emulated", "gloo", "gloo of torch 2.6", "emulated", "", 0)),
        (
            replace(RUN, truth={"host/a.0": 1e8, "host/a.1": 1e8, "host/b": 1e8, "minipod/m": 1e8}),
            (..., ..., ..., ..., "", 2),
        ),
        (REAL, ("NVIDIA H100 80GB HBM3", "nccl", "nccl 2.21.5", "network", "", 0)),
        (replace(REAL, environment={"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}), (..., ..., ..., "network", "mlx5", 2)),
        (replace(REAL, environment={"NCCL_IB_DISABLE": "1"}), (..., ..., ..., "network (Socket)", "", 0)),
        (replace(REAL, environment={"NCCL_NET": "ofi"}), (..., ..., ..., "network (ofi)", "", 0)),
        (replace(REAL, backend="mpi", versions={"mpi": "Open MPI 5.0"}), (..., "mpi", "mpi Open MPI 5.0", ..., "", 0)),
        (replace(REAL, versions={}, gpu_model="not printed"), ("", "nccl", "nccl", "network", "", 0)),
    ],
)
def test_the_kind_of_fabric_is_told_without_names_of_places(info: RunInfo, expected: tuple[object, ...]) -> None:
    kind = fabric_of(info, framed([MEASUREMENT]))
    found = (kind.gpu_model, kind.backend, kind.library, kind.transport, kind.nic, kind.nrails)
    assert [a for a, b in zip(found, expected, strict=True) if b is not ...] == [b for b in expected if b is not ...]


def test_kinds_differ_in_what_both_tell() -> None:
    assert other_kind(FABRIC, FABRIC) == ()
    silent = replace(FABRIC, gpu_model="", nic="", nrails=0, tier_rates=(), library="nccl 2.27.3")
    assert other_kind(FABRIC, silent) == other_kind(silent, FABRIC) == ()
    other = replace(FABRIC, gpu_model="H800", backend="rccl", transport="network (Socket)", nic="bnxt_re", nrails=4)
    assert [each.what for each in other_kind(FABRIC, other)] == [
        *("GPU model", "backend", "transport", "network adapters", "adapters of a node")
    ]


@pytest.mark.parametrize(
    ("factor", "width", "is_other"),
    [
        (0.85, 0.01, False),
        (1.15, 0.01, False),
        (0.7, 0.01, True),
        (1.4, 0.01, True),
        (0.7, 0.4, False),
        (1.4, 0, False),
    ],
)
def test_rates_whose_intervals_are_a_fifth_apart_are_of_another_kind(
    factor: float, width: float, is_other: bool
) -> None:
    (rate,) = FABRIC.tier_rates
    value = factor * rate.busbw_bytes_per_s.value
    bounds = ((1 - width) * value, (1 + width) * value) if width else (None, None)
    other = replace(
        FABRIC,
        tier_rates=(replace(rate, busbw_bytes_per_s=Estimate(value=value, ci_low=bounds[0], ci_high=bounds[1])),),
    )
    assert [each.what for each in other_kind(FABRIC, other)] == ["all_reduce 1 MiB over 1 minipod"] * is_other


def test_equal_runs_with_much_noise_are_of_one_kind() -> None:
    loud = Noise(launch=0.3, unit=0.0, row=0.02)
    cases = [(replace(MEASUREMENT, span=span), 0.01) for span in (1, 2)]
    kinds = [fabric_of(RUN, framed(measured(np.random.default_rng(seed), cases, noise=loud))) for seed in range(20)]
    pairs = list(zip(kinds[::2], kinds[1::2], strict=True))
    means = [[rate.busbw_bytes_per_s.value for rate in kind.tier_rates] for kind in kinds]
    assert np.ptp(np.array(means)[:, 0]) > 0.2 * np.mean(means)
    assert sum(bool(other_kind(a, b)) for a, b in pairs) <= 1

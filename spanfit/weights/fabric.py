"""The kind of fabric that a run was measured on, and what two kinds differ in."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from spanfit import collectives, units
from spanfit.bench.case import ALL_GPUS, CaseKind, Concurrency, RankOrder
from spanfit.collectives import Collective
from spanfit.profiler import statistics
from spanfit.profiler.cases import CaseKey, CaseTimes, case_times
from spanfit.profiler.fingerprint import Contrast
from spanfit.results.schema import Estimate, RunInfo
from spanfit.weights.model import FabricKind, TierRate
from spanfit.weights.stale import same_gpu

OTHER_RATE = 0.2
"""Rates whose intervals are this far apart, as a share, are of another kind; link rates of kinds differ by factors."""

EMULATED = "emulated"
NOT_PRINTED = "not printed"
"""The GPU model of an imported run whose logs and cluster tell none."""

_LIBRARIES = {"nccl": ("nccl", "NCCL"), "rccl": ("rccl", "NCCL"), "mpi": ("mpi",), "gloo": ("torch",)}
"""Under which names a run tells the version of what moved the bytes of each backend."""


def fabric_of(info: RunInfo, frame: pd.DataFrame) -> FabricKind:
    """Return the kind of fabric of a run, with what its collectives reached at each span.

    Parameters
    ----------
    info : RunInfo
    frame : pandas.DataFrame
        The run's measurements, as ``Store.read`` returns them.
    """
    adapters = [name for name in info.environment.get("NCCL_IB_HCA", "").lstrip("=^").split(",") if name]
    return FabricKind(
        gpu_model="" if info.gpu_model == NOT_PRINTED else info.gpu_model,
        backend=info.backend,
        library=_library(info.backend, info.versions),
        transport=_transport(info),
        nic=", ".join(dict.fromkeys(re.sub(r"[_:]?\d+(:\d+)?$", "", name) for name in adapters)),
        nrails=_emulated_rails(info.truth) if info.truth else len(adapters),
        tier_rates=tuple(_tier_rates(case_times(frame[frame["kind"] == CaseKind.COLLECTIVE]))),
    )


def _library(backend: str, versions: Mapping[str, str]) -> str:
    name = next((name for name in _LIBRARIES.get(backend, ()) if name in versions), None)
    if name is None:
        return backend
    return f"{backend} of torch {versions[name]}" if name == "torch" else f"{backend} {versions[name]}"


def _transport(info: RunInfo) -> str:
    """Return what the traffic went over, without the names of places."""
    if info.truth:
        return EMULATED
    plugin = "Socket" if info.environment.get("NCCL_IB_DISABLE") == "1" else info.environment.get("NCCL_NET", "")
    return f"network ({plugin})" if plugin else "network"


def _emulated_rails(truth: Mapping[str, float]) -> int:
    """Return the links of a host of a testbed, which are named ``host/HOST`` or ``host/HOST.RAIL``."""
    hosts = [name.partition("/")[2].partition(".")[0] for name in truth if name.startswith("host/")]
    return max(map(hosts.count, hosts), default=0)


def _tier_rates(cases: Mapping[CaseKey, CaseTimes]) -> Iterator[TierRate]:
    """Yield the rate of each collective at each span, of the largest size, all groups at once where that was run."""
    found: dict[tuple[str, str, int], CaseKey] = {}
    for case, times in cases.items():
        is_plain = case.rail == ALL_GPUS and case.rank_order == RankOrder.SORTED and not case.in_place
        if times.launches and is_plain and case.operation != Collective.BARRIER:
            place = case.operation, case.tier, case.span
            found[place] = max(found.get(place, case), case, key=_preference)
    for case in found.values():
        yield TierRate(
            operation=case.operation,
            dtype=case.dtype,
            redop=case.redop,
            tier=case.tier,
            span=case.span,
            nranks=case.nranks,
            nnodes=case.nnodes,
            size_bytes=case.size_bytes,
            concurrency=case.concurrency,
            busbw_bytes_per_s=_busbw(case, cases[case]),
            launch_times_s=tuple(np.exp(cases[case].launch_means()).tolist()),
        )


def _preference(case: CaseKey) -> tuple[bool, int, int]:
    return case.concurrency == Concurrency.ALL, case.size_bytes, case.nranks


def _busbw(case: CaseKey, times: CaseTimes) -> Estimate:
    log_time = statistics.unit_interval(times.unit_logs, times.launches)
    operation, nranks, size_bytes = Collective(case.operation), case.nranks, case.size_bytes
    return statistics.mapped(log_time, lambda log: collectives.busbw(operation, nranks, size_bytes, math.exp(log)))


def rate_case(rate: TierRate) -> CaseKey:
    """Return the case that a rate was measured in."""
    return CaseKey(
        kind=CaseKind.COLLECTIVE,
        operation=rate.operation,
        arm="",
        compute="",
        dtype=rate.dtype,
        redop=rate.redop,
        in_place=False,
        nranks=rate.nranks,
        nnodes=rate.nnodes,
        tier=rate.tier,
        span=rate.span,
        rank_order=RankOrder.SORTED,
        concurrency=rate.concurrency,
        rail=ALL_GPUS,
        size_bytes=rate.size_bytes,
    )


def other_kind(a: FabricKind, b: FabricKind) -> tuple[Contrast, ...]:
    """Return what makes two kinds of fabric others; what one of them does not tell makes no difference."""
    facts = [
        ("backend", a.backend, b.backend),
        ("transport", a.transport, b.transport),
        ("network adapters", a.nic, b.nic),
        ("adapters of a node", str(a.nrails or ""), str(b.nrails or "")),
    ]
    found = [Contrast(what=what, a=x, b=y) for what, x, y in facts if x and y and x != y]
    if not same_gpu(a.gpu_model, b.gpu_model):
        found.insert(0, Contrast(what="GPU model", a=a.gpu_model, b=b.gpu_model))
    return (*found, *_other_rates(a.tier_rates, b.tier_rates))


def _other_rates(a: Iterable[TierRate], b: Iterable[TierRate]) -> Iterator[Contrast]:
    of_b = {rate_case(rate): rate for rate in b}
    for rate in a:
        other = of_b.get(rate_case(rate))
        if other is None:
            continue
        x, y = rate.busbw_bytes_per_s, other.busbw_bytes_per_s
        if _is_above(x, y) or _is_above(y, x):
            what = f"{rate.operation} {units.format_size(rate.size_bytes)} over {rate.span} {rate.tier}"
            yield Contrast(what=what, a=units.format_bandwidth(x.value), b=units.format_bandwidth(y.value))


def _is_above(one: Estimate, other: Estimate) -> bool:
    """Return whether a rate is told to be that of a faster kind; rates without an interval tell nothing."""
    if one.ci_low is None or other.ci_high is None:
        return False
    return one.ci_low > (1 + OTHER_RATE) * other.ci_high

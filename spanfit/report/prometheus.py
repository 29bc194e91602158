"""A run as metrics for Prometheus, in the text format that node_exporter's textfile collector reads."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from spanfit import collectives
from spanfit.bench.case import CaseKind
from spanfit.collectives import Collective
from spanfit.profiler import statistics
from spanfit.profiler.cases import CaseKey, CaseTimes
from spanfit.results.schema import Estimate, RunInfo

Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    name: str
    help: str
    samples: Samples


def render_prometheus(info: RunInfo, cases: Mapping[CaseKey, CaseTimes]) -> str:
    """Return a run's metrics: for each case its time and busbw with their 95% intervals, and what failed.

    Parameters
    ----------
    info : RunInfo
    cases : mapping of CaseKey to CaseTimes
        What ``case_times`` returns of the run.

    Notes
    -----
    Every series names its campaign and cluster and not its run, so that the next run of a campaign goes on with the
    series of the last; ``spanfit_run_info`` says which run it was. All metrics are gauges.
    """
    named = {"campaign": info.campaign, "cluster": info.cluster}
    labelled = [({**named, **_labels(key)}, key, case) for key, case in cases.items()]
    times = [(labels, time_s) for labels, _, case in labelled if (time_s := case.time_s())]
    rates = [(labels, rate) for labels, key, case in labelled if (rate := _busbw(key, case.time_s()))]
    ended: Samples = [(named, info.period[1].timestamp())] if info.period else []
    metrics = [
        _Metric(name="spanfit_run_info", help="What was true of the run, always 1.", samples=[(_about(info), 1.0)]),
        _Metric(name="spanfit_run_end_timestamp_seconds", help="When the run ended.", samples=ended),
        *_metrics("spanfit_time", "seconds", "Time of an operation on its slowest rank", times),
        *_metrics("spanfit_busbw", "bytes_per_second", "Bus bandwidth with the factors of nccl-tests", rates),
        _Metric(
            name="spanfit_launches",
            help="Launches that hold a time of the case; an interval from fewer than 6 is provisional.",
            samples=[(labels, case.nlaunches) for labels, _, case in labelled],
        ),
        _Metric(
            name="spanfit_failed_rows",
            help="Rows of the case that hold no time.",
            samples=[(labels, case.nfailed) for labels, _, case in labelled],
        ),
    ]
    return "".join(_rendered(metric) for metric in metrics if metric.samples)


def _metrics(stem: str, unit: str, what: str, found: Iterable[tuple[Labels, Estimate]]) -> list[_Metric]:
    """Return the metrics of an estimate and of its bounds; one unit of replication has no bounds."""
    found = list(found)
    lower = [(labels, estimate.ci_low) for labels, estimate in found if estimate.ci_low is not None]
    upper = [(labels, estimate.ci_high) for labels, estimate in found if estimate.ci_high is not None]
    return [
        _Metric(name=f"{stem}_{unit}", help=f"{what}.", samples=[(labels, e.value) for labels, e in found]),
        _Metric(name=f"{stem}_lower_{unit}", help=f"{what}: lower end of the 95% interval.", samples=lower),
        _Metric(name=f"{stem}_upper_{unit}", help=f"{what}: upper end of the 95% interval.", samples=upper),
    ]


def _labels(key: CaseKey) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in asdict(key).items()}


def _about(info: RunInfo) -> dict[str, str]:
    return {
        "campaign": info.campaign,
        "cluster": info.cluster,
        "run_id": info.run_id,
        "engine": info.engine or "unknown",
        "backend": info.backend,
        "transport": info.transport,
        "gpu_model": info.gpu_model,
        "version": info.versions.get("spanfit", ""),
        "git_commit": info.git_commit,
    }


def _busbw(key: CaseKey, time_s: Estimate | None) -> Estimate | None:
    """Return the bus bandwidth [bytes/s], None of what moves nothing and of what is no collective by itself."""
    is_collective = key.kind in (CaseKind.COLLECTIVE, CaseKind.PAIRS) and key.operation in list(Collective)
    if time_s is None or not is_collective:
        return None
    collective = Collective(key.operation)
    if math.isnan(collectives.busbw_factor(collective, key.nranks)):
        return None
    return statistics.mapped(time_s, lambda value: collectives.busbw(collective, key.nranks, key.size_bytes, value))


def _rendered(metric: _Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
    lines += [f"{metric.name}{{{_joined(labels)}}} {value!r}" for labels, value in metric.samples]
    return "\n".join(lines) + "\n"


def _joined(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

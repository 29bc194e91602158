"""``spanfit profile``: turn measurements into curves and gains."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.results import run_argument, store_option
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.profiler.curves import SpanCurvePoint
    from spanfit.profiler.gains import JobGains
    from spanfit.results.schema import RunInfo

CURVES_VERSION = 1
GAINS_VERSION = 1


@click.group(epilog="Example: spanfit profile curves latest --store runs")
def profile() -> None:
    """Turn measurements into curves and gains."""


@profile.command("curves", epilog="Example: spanfit profile curves latest --store runs")
@run_argument
@store_option
@json_option
def curves(run: str, store: Path, as_json: bool) -> None:
    """Show time and bandwidth of every collective by size and span, and the loss against span 1."""
    from spanfit.errors import FitError
    from spanfit.profiler.curves import fit_curves
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    points = fit_curves(frame)
    if not points:
        raise FitError(
            f"run {info.run_id}: found no collectives, expected at least one; add collectives to the campaign"
        )
    if as_json:
        print_json(
            {
                "schema_version": CURVES_VERSION,
                "run_id": info.run_id,
                "transport": info.transport,
                "points": [asdict(point) for point in points],
            }
        )
        return
    talk(_preface(info))
    for title, group in groupby(points, key=_curve_title):
        columns = (">size", ">span", "order", "time", "busbw", "against span 1", ">units", ">failed rows")
        print_table(title, columns, [_curve_row(point) for point in group])


def _preface(info: RunInfo) -> str:
    return (
        f"run {info.run_id} over {info.transport}: 95% intervals over launches, * marks provisional ones (under 6); "
        "verdicts are corrected over all comparisons of the run (Holm)"
    )


def _curve_title(point: SpanCurvePoint) -> str:
    groups = "one group at a time" if point.concurrency == "alone" else f"groups at once: {point.concurrency}"
    return f"{point.operation} ({point.dtype}), {point.nranks} ranks on {point.nnodes} nodes, {groups}"


def _curve_row(point: SpanCurvePoint) -> tuple[str, ...]:
    time, rate = "every row failed", ""
    if point.time_s and point.busbw_bytes_per_s:
        time = format_estimate(point.time_s, units.format_time)
        rate = format_estimate(point.busbw_bytes_per_s, units.format_bandwidth)
    nothing = "is the reference" if point.span == 1 and point.rank_order == "sorted" else "no launch holds both"
    return (
        units.format_size(point.size_bytes),
        str(point.span),
        point.rank_order,
        time,
        rate,
        point.loss.sentence if point.loss else nothing,
        _marked(point.nunits, point.is_provisional),
        str(point.nfailed),
    )


def _marked(nunits: int, is_provisional: bool) -> str:
    return f"{nunits}*" if is_provisional else str(nunits)


@profile.command("gains", epilog="Example: spanfit profile gains latest --store runs")
@run_argument
@store_option
@json_option
def gains(run: str, store: Path, as_json: bool) -> None:
    """Show what each aligned placement of a job gains over the misaligned ones."""
    from spanfit.errors import FitError
    from spanfit.profiler.gains import fit_gains
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    jobs = fit_gains(frame)
    if not jobs:
        raise FitError(f"run {info.run_id}: found no training steps, expected some; add jobs to the campaign")
    if as_json:
        print_json(
            {
                "schema_version": GAINS_VERSION,
                "run_id": info.run_id,
                "transport": info.transport,
                "jobs": [asdict(job) for job in jobs],
            }
        )
        return
    talk(_preface(info))
    for job in jobs:
        print_table(_gains_title(job), ("arm", "step", "gain", "verdict", ">launches"), _gain_rows(job))


def _gains_title(job: JobGains) -> str:
    base = format_estimate(job.base_time_s, units.format_time)
    title = f"{job.job} (compute: {job.compute}): gains over {len(job.base_arms)} misaligned arms, {base} a step"
    if job.misaligned_ratio:
        ratio = format_estimate(job.misaligned_ratio, lambda value: f"{value:.3g}")
        title += f"; the slowest of them takes {ratio} times the fastest"
    if job.left_out_launches:
        title += f"; left out, as they lack a misaligned arm: launches {', '.join(map(str, job.left_out_launches))}"
    return title + (f"; {job.nfailed} failed rows" if job.nfailed else "")


def _gain_rows(job: JobGains) -> list[tuple[str, ...]]:
    return [
        (
            gain.arm,
            format_estimate(gain.time_s, units.format_time),
            format_estimate(gain.gain, units.format_percent),
            gain.sentence,
            _marked(gain.nunits, gain.is_provisional),
        )
        for gain in job.gains
    ]

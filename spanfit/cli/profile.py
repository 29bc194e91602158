"""``spanfit profile``: turn measurements into curves, gains and the rates of links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.bench.case import ALL_GPUS, on_rail
from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.predict import predict
from spanfit.cli.sweeps import scaling, sensitivity
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.profiler.curves import SpanCurvePoint
    from spanfit.profiler.curves_file import Curve
    from spanfit.profiler.gains import ArmPair, JobGains
    from spanfit.profiler.pair_scan import ClassRate, LinkRate, TierRate
    from spanfit.results.schema import Estimate, RunInfo

CURVES_VERSION = 1
GAINS_VERSION = 1
PAIRS_VERSION = 1

_TIER_COLUMNS = ("pairs under one", "pairs at once", "rate", "spread", ">pairs", ">partners", "standard error")
DIAGNOSIS_VERSION = 1


@click.group(epilog="Example: spanfit profile curves latest --store runs")
def profile() -> None:
    """Turn measurements into curves, gains and the rates of links."""


@profile.command("curves", epilog="Example: spanfit profile curves latest --store runs -o curves.json")
@run_argument
@store_option
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the curves and their fits to this file.")
@json_option
def curves(run: str, store: Path, out: Path | None, as_json: bool) -> None:
    """Show time and bandwidth of every collective by size and span, the losses, and where bandwidth saturates."""
    from spanfit import files
    from spanfit.errors import FitError
    from spanfit.profiler.curves import curves_document, fit_curves, join_curves
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    points = fit_curves(frame)
    if not points:
        raise FitError(
            f"run {info.run_id}: found no collectives, expected at least one; add collectives to the campaign"
        )
    joined = join_curves(frame, points)
    if out is not None:
        files.write_json(out, curves_document(info, joined))
        talk(f"wrote {out}")
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
    _print_interference(points)
    _print_fits(joined)


def _preface(info: RunInfo) -> str:
    return (
        f"run {info.run_id} over {info.transport}: 95% intervals over launches, * marks provisional ones (under 6); "
        "verdicts are corrected over all comparisons of the run (Holm)"
    )


def _curve_title(point: SpanCurvePoint) -> str:
    groups = "one group at a time" if point.concurrency == "alone" else f"groups at once: {point.concurrency}"
    ranks = f"{point.nranks} ranks on {point.nnodes} nodes{on_rail(point.rail)}"
    return f"{point.operation} ({point.dtype}), {ranks}, {groups}"


def _curve_row(point: SpanCurvePoint) -> tuple[str, ...]:
    time, rate = "every row failed", ""
    if point.time_s:
        time = format_estimate(point.time_s, units.format_time)
    if point.busbw_bytes_per_s:
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


def _print_interference(points: Iterable[SpanCurvePoint]) -> None:
    columns = ("operation", ">size", ">span", "order", "groups at once", "the same groups against alone")
    if rows := [_interference_row(point) for point in points if point.interference]:
        print_table("Interference: what groups lose by those that run beside them", columns, rows)


def _print_fits(curves: Iterable[Curve]) -> None:
    columns = ("operation", "groups", ">span", "order", "latency", "lasting busbw", "knee", ">units")
    if rows := [_fit_row(curve) for curve in curves if curve.fit]:
        print_table("Fits: time = alpha + beta size", columns, rows)


def _interference_row(point: SpanCurvePoint) -> tuple[str, ...]:
    return (
        point.operation,
        units.format_size(point.size_bytes),
        f"{point.span} {point.tier}{on_rail(point.rail)}",
        point.rank_order,
        point.concurrency,
        point.interference.sentence if point.interference else "",
    )


def _fit_row(curve: Curve) -> tuple[str, ...]:
    fit = curve.fit
    assert fit is not None
    rate = fit.busbw_bytes_per_s
    return (
        curve.operation,
        f"{curve.nranks} ranks{on_rail(curve.rail)}, {curve.concurrency}",
        f"{curve.span} {curve.tier}",
        curve.rank_order,
        format_estimate(fit.segments[0].alpha_s, units.format_time),
        format_estimate(rate, units.format_bandwidth) if rate else "cannot tell",
        fit.sentence,
        _marked(fit.nunits, fit.is_provisional),
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
    from spanfit.profiler.gains import fit_gains, lacking_base, seconds_per_launch
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    jobs = fit_gains(frame, seconds_per_launch(info))
    for fault in lacking_base(frame):
        talk(fault)
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
        columns = ("arm", "step", "communication", "gain", "verdict", ">launches")
        print_table(_gains_title(job), columns, _gain_rows(job))
        if job.pairs:
            title = f"{job.job}: arms that should take the same time"
            print_table(title, ("arm", "against", "gain", "verdict", ">launches"), map(_pair_row, job.pairs))


def _gains_title(job: JobGains) -> str:
    base = format_estimate(job.base_time_s, units.format_time)
    title = f"{job.job} (compute: {job.compute}): gains over {len(job.base_arms)} misaligned arms, {base} a step"
    if job.base_communication:
        title += f", {format_estimate(job.base_communication, units.format_percent)} of it communication"
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
            format_estimate(gain.communication, units.format_percent) if gain.communication else "",
            format_estimate(gain.gain, units.format_percent),
            gain.sentence,
            _marked(gain.nunits, gain.is_provisional),
        )
        for gain in job.gains
    ]


def _pair_row(pair: ArmPair) -> tuple[str, ...]:
    what = "the same placement" if pair.is_same else "moved inside minipods"
    return (
        pair.arm,
        f"{pair.other}, {what}",
        format_estimate(pair.gain, units.format_percent),
        pair.sentence,
        _marked(pair.nunits, pair.is_provisional),
    )


@profile.command("diagnose", epilog="Example: spanfit profile diagnose latest --store runs")
@run_argument
@store_option
@json_option
def diagnose(run: str, store: Path, as_json: bool) -> None:
    """Say which host, link, switch or group is slow, dead or stuck, and what cannot be told; exit code 1 if any is."""
    from spanfit.errors import ExitCode
    from spanfit.profiler.diagnose import diagnose as find
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    found = find(frame, info)
    if as_json:
        print_json({"schema_version": DIAGNOSIS_VERSION, "run_id": info.run_id, **asdict(found)})
    else:
        for sentence in found.sentences():
            click.echo(sentence)
    if found.findings:
        click.get_current_context().exit(ExitCode.FINDING)


@profile.command("pairs", epilog="Example: spanfit profile pairs latest --store runs")
@run_argument
@store_option
@json_option
def pairs(run: str, store: Path, as_json: bool) -> None:
    """Show what every host's link and every uplink can carry, slow ones first, from a scan over pairs."""
    from spanfit.errors import FitError
    from spanfit.profiler.pairs import fit_pairs
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    scans = fit_pairs(frame, info)
    if not scans:
        raise FitError(f"run {info.run_id}: found no pairs, expected some; add a [pairs] table to the campaign")
    if as_json:
        print_json(
            {
                "schema_version": PAIRS_VERSION,
                "run_id": info.run_id,
                "transport": info.transport,
                "scans": [asdict(scan) for scan in scans],
            }
        )
        return
    talk(_preface(info))
    if any(scan.rail == ALL_GPUS for scan in scans):
        talk("a host counts as one link, whatever NICs it has; pairs.rails = true measures each rail by itself")
    for scan in scans:
        title = f"{scan.operation} ({scan.dtype}) of {units.format_size(scan.size_bytes)}{on_rail(scan.rail)}"
        columns = ("link", "carries in one direction", "verdict", ">units")
        nunits = _marked(scan.nunits, scan.is_provisional)
        print_table(f"{title}: links, slow ones first", columns, [(*_link_row(link), nunits) for link in scan.links])
        print_table("Classes of links", ("class", "mean", "spread", ">links", ">bounds"), map(_class_row, scan.classes))
        print_table("Pairs by tier", _TIER_COLUMNS, map(_tier_row, scan.tiers))


def _link_row(link: LinkRate) -> tuple[str, ...]:
    rate = link.rate_bytes_per_s
    plain = units.format_bandwidth(rate.value) if rate.ci_low is None and link.is_bound else _bandwidth(rate)
    text = f"at least {plain}" if link.is_bound else plain
    return link.place, text, link.sentence


def _class_row(kind: ClassRate) -> tuple[str, ...]:
    rate = _bandwidth(kind.rate_bytes_per_s) if kind.rate_bytes_per_s else "cannot tell"
    return kind.link_class, rate, units.format_percent(kind.spread), str(kind.nlinks), str(kind.nbounds)


def _tier_row(tier: TierRate) -> tuple[str, ...]:
    return (
        tier.tier or "no switch",
        tier.concurrency,
        _bandwidth(tier.rate_bytes_per_s),
        units.format_percent(tier.spread),
        str(tier.npairs),
        f"{tier.npartners:.3g}",
        units.format_percent(tier.standard_error),
    )


def _bandwidth(estimate: Estimate) -> str:
    return format_estimate(estimate, units.format_bandwidth)


for command in (predict, scaling, sensitivity):
    profile.add_command(command)

"""``spanfit profile scaling`` and ``sensitivity``: what changes with the ranks of a job, or with one other thing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.profiler.scaling import ScalePoint, ScalingCurve
    from spanfit.profiler.sensitivity import ArmSensitivity, Sensitivity
    from spanfit.profiler.sweep import SweptJob

SCALING_VERSION = 1
SENSITIVITY_VERSION = 2

_PREFACE = "95% intervals over launches, * marks provisional ones (under 6)"
_runs = click.argument("runs", nargs=-1, metavar="[RUN]...")


def _read_jobs(runs: tuple[str, ...], store: Path) -> tuple[SweptJob, ...]:
    """Return the jobs of the runs named, each run once; of the latest where none is named."""
    from spanfit.profiler.sweep import swept_jobs
    from spanfit.results.store import Store

    reader = Store(store)
    run_ids = dict.fromkeys(reader.resolve(run) for run in runs or ("latest",))
    return swept_jobs([reader.read(run_id) for run_id in run_ids])


def _chosen(jobs: tuple[SweptJob, ...], names: tuple[str, ...]) -> tuple[SweptJob, ...]:
    """Return the jobs of some names, all where none is named; ConfigError for a name that no job has."""
    from spanfit.errors import ConfigError

    known = sorted({job.steps.job for job in jobs})
    if strangers := sorted(set(names) - set(known)):
        raise ConfigError(f"--job: found {', '.join(strangers)}, expected one of {', '.join(known)}")
    return tuple(job for job in jobs if not names or job.steps.job in names)


@click.command("scaling", epilog="Example: spanfit profile scaling latest --store runs")
@_runs
@store_option
@json_option
def scaling(runs: tuple[str, ...], store: Path, as_json: bool) -> None:
    """Show how throughput for each rank holds up as a job gets more replicas, and where the knee is.

    Jobs of one run or of several RUNs (the latest unless said) that are alike in all but dp and the batch form a curve.
    """
    from spanfit.profiler.scaling import fit_scaling

    jobs = _read_jobs(runs, store)
    curves = fit_scaling(jobs)
    if as_json:
        print_json(
            {
                "schema_version": SCALING_VERSION,
                "run_ids": list(dict.fromkeys(job.run_id for job in jobs)),
                "curves": [asdict(curve) for curve in curves],
            }
        )
        return
    talk(f"{_PREFACE}; efficiency is the throughput for each rank over that of the fewest ranks")
    for curve in curves:
        columns = ("job", ">ranks", "step", "a second and rank", "efficiency", ">launches")
        print_table(_scaling_title(curve), columns, map(_scale_row, curve.points))


def _scaling_title(curve: ScalingCurve) -> str:
    return f"{curve.arm} (compute: {curve.compute}): {curve.sentence}"


def _scale_row(point: ScalePoint) -> tuple[str, ...]:
    return (
        f"{point.job}, {point.run_id}",
        str(point.nranks),
        format_estimate(point.time_s, units.format_time),
        format_estimate(point.throughput_per_rank_per_s, "{:.3g}".format),
        format_estimate(point.efficiency, units.format_percent) if point.efficiency else "",
        f"{point.nunits}*" if point.is_provisional else str(point.nunits),
    )


@click.command("sensitivity", epilog="Example: spanfit profile sensitivity before after --store runs -o uplink.svg")
@_runs
@store_option
@click.option("--job", "names", multiple=True, metavar="NAME", help="Only jobs of this name; may be given again.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Draw the gains to this SVG file.")
@json_option
def sensitivity(runs: tuple[str, ...], store: Path, names: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Show how the gain of each arm moves along the one thing in which jobs or runs differ.

    It is found among all settings of the jobs of one run or of several RUNs (the latest unless said): volumes, layers,
    degrees, minipods, rates of an emulated fabric, noise beside a step, limits of CTAs, settings of the communication
    library.
    """
    from spanfit.errors import ConfigError
    from spanfit.profiler.sensitivity import fit_sensitivity

    if out is not None and out.suffix != ".svg":
        raise ConfigError(f"--out: found {out}, expected a name that ends with .svg")
    jobs = _chosen(_read_jobs(runs, store), names)
    found = fit_sensitivity(jobs)
    if out is not None:
        _draw(found, out)
    if as_json:
        run_ids = list(dict.fromkeys(job.run_id for job in jobs))
        print_json({"schema_version": SENSITIVITY_VERSION, "run_ids": run_ids, **asdict(found)})
        return
    talk(f"{_PREFACE}; slopes are corrected over all arms (Holm)")
    print_table(f"Gains along {found.thing}", ("arm", found.thing, "job", "gain", ">launches"), _gain_rows(found))
    columns = ("arm", "how throughput over the base moves", ">furthest off the line")
    print_table(f"Slopes along {found.thing}", columns, map(_slope_row, found.arms))


def _draw(found: Sensitivity, out: Path) -> None:
    from spanfit import files
    from spanfit.report.sweep_figure import sensitivity_figure

    files.write_text(out, sensitivity_figure(found))
    talk(f"wrote {out}")


def _gain_rows(found: Sensitivity) -> list[tuple[str, ...]]:
    from spanfit.profiler.sensitivity import format_setting

    return [
        (
            arm.arm,
            format_setting(found.thing, point.value),
            f"{point.job}, {point.run_id}",
            format_estimate(point.gain, units.format_percent),
            f"{point.nunits}*" if arm.is_provisional else str(point.nunits),
        )
        for arm in found.arms
        for point in arm.points
    ]


def _slope_row(arm: ArmSensitivity) -> tuple[str, ...]:
    return arm.arm, arm.sentence, "" if arm.misfit is None else units.format_percent(arm.misfit)

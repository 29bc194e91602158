"""``spanfit weights kinds``: weights of any number of group kinds or tiers, by a regression over placements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.weights.spreads import KindWeight

KINDS_VERSION = 1


@click.command("kinds", epilog="Example: spanfit weights kinds latest --job moe --kind dp --kind pp --kind ep")
@run_argument
@store_option
@click.option("--job", "job_name", required=True, metavar="NAME", help="The job whose steps to look at.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    required=True,
    metavar="KIND",
    help="dp, pp, ep, cp or tp; dp@leaf counts leaves instead of minipods. Given once for each kind.",
)
@json_option
def kinds(run: str, store: Path, job_name: str, kinds: tuple[str, ...], as_json: bool) -> None:
    """Regress a job's log step time on the spreads of its groups over all placements of a run."""
    from spanfit.profiler.steps import step_times
    from spanfit.results.store import Store
    from spanfit.weights.fit import run_jobs
    from spanfit.weights.spreads import check_kinds, fit_kinds, placed_steps

    info, frame = Store(store).read(Store(store).resolve(run))
    check_kinds(info, kinds)
    jobs = run_jobs(info)
    placed = {
        steps.compute: placed_steps(steps, info, jobs[job_name, steps.compute], kinds)
        for steps in step_times(frame)
        if steps.job == job_name and (job_name, steps.compute) in jobs
    }
    for arm in sorted({arm for steps in placed.values() for arm in steps.left_out}):
        talk(f"left out {arm}: half of the launches or more lack it")
    found = {compute: fit_kinds(steps) for compute, steps in placed.items()}
    if not found:
        from spanfit.errors import FitError

        names = ", ".join(sorted({name for name, _ in jobs})) or "none"
        raise FitError(f"run {info.run_id}: job {job_name}: found steps of {names}; name one of these")
    if as_json:
        fits = {compute: asdict(fitted) for compute, fitted in found.items()}
        print_json({"schema_version": KINDS_VERSION, "run_id": info.run_id, "job": job_name, "fits": fits})
        return
    columns = ("kind", "weight", "one more switch adds", "")
    for compute, fitted in found.items():
        print_table(f"{job_name}, compute {compute}, run {info.run_id}", columns, [_row(each) for each in fitted.kinds])
        click.echo(
            f"spreads leave {units.format_percent(fitted.residual_sd)} of a step unexplained (sd over placements)"
        )


def _row(each: KindWeight) -> tuple[str, ...]:
    return (
        each.kind,
        format_estimate(each.weight, lambda share: f"{share:.3f}"),
        format_estimate(each.per_minipod, units.format_percent),
        "flat: nothing here can be told to cost anything" if each.is_flat else "",
    )

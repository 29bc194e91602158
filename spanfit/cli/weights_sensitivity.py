"""``spanfit weights sensitivity``: over which range of alpha the placement of a job stays the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import load_cluster
from spanfit.cli.options import cluster_option, entry_option, scaling_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import Estimate
from spanfit.weights.model import format_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanfit.placer.model import JobSpec
    from spanfit.topology.model import Cluster
    from spanfit.weights.sensitivity import AlphaRange, Spreads

SENSITIVITY_VERSION = 1


@click.command(
    "sensitivity", epilog="Example: spanfit weights sensitivity job.toml --cluster cluster.toml --weights weights.json"
)
@click.argument("job_file", metavar="JOB.toml", type=click.Path(path_type=Path))
@cluster_option
@click.option("--weights", type=click.Path(path_type=Path), help="Mark alpha and its interval from this weights.json.")
@entry_option
@click.option("--alpha", type=click.FloatRange(0, 1), help="Mark this alpha.")
@scaling_option
@click.option("--accept-stale", is_flag=True, help="Mark alpha of stale weights, and record why they were stale.")
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds for each placement; a few are made.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The same seed gives the same placements, unless time ends a search.",
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="Draw the ranges.")
@json_option
def sensitivity(
    job_file: Path,
    cluster: Path,
    weights: Path | None,
    entry: str | None,
    alpha: float | None,
    scaling: str,
    accept_stale: bool,
    time_limit: float,
    seed: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Say over which ranges of alpha which spreads are best for a job on the free nodes of a cluster."""
    if weights is not None and alpha is not None:
        raise click.UsageError("give one of --weights FILE and --alpha SHARE")
    if entry is not None and weights is None:
        raise click.UsageError("--entry chooses from --weights FILE")
    from spanfit import files
    from spanfit.placer.jobfile import read_job
    from spanfit.weights.sensitivity import alpha_ranges

    job = read_job(job_file)
    found = load_cluster(cluster)
    marked = None if alpha is None else Estimate(value=alpha, ci_low=None, ci_high=None)
    accepted: tuple[str, ...] = ()
    if weights is not None:
        marked, accepted = _marked(job_file, job, found, weights, entry, scaling, accept_stale=accept_stale)
    ranges = alpha_ranges(_solver(job, found, time_limit, seed))
    if figure is not None:
        from spanfit.report.weights_map import alpha_figure

        files.write_text(figure, alpha_figure(ranges, marked, job.name))
        talk(f"wrote {figure}")
    if as_json:
        print_json(
            {
                "schema_version": SENSITIVITY_VERSION,
                "job": job.name,
                "alpha": asdict(marked) if marked else None,
                "accepted_stale": accepted,
                "ranges": [asdict(each) for each in ranges],
            }
        )
        return
    print_table(
        f"Best spreads of {job.name} by alpha",
        (">from alpha", ">to", ">DP spread", ">PP spread", ""),
        [_row(each, marked) for each in ranges],
    )
    if marked is not None:
        click.echo(_verdict(ranges, marked))


def _marked(
    job_file: Path,
    job: JobSpec,
    cluster: Cluster,
    path: Path,
    entry: str | None,
    scaling: str,
    *,
    accept_stale: bool,
) -> tuple[Estimate, tuple[str, ...]]:
    """Return alpha as ``spanfit place`` takes it, with its interval, and why its weights were stale."""
    from spanfit.cli.weighing import chosen_entry, scaling_target
    from spanfit.placer.rules import NO_RULES
    from spanfit.weights.io import read_weights
    from spanfit.weights.scaling import Scaling, alpha_for

    chosen, accepted = chosen_entry(path, read_weights(path), entry, job, cluster, NO_RULES, accept_stale=accept_stale)
    target = scaling_target(scaling, job_file, chosen, job, cluster, NO_RULES)
    if target is None:
        return chosen.alpha, accepted
    shape, minipods = target
    return alpha_for(chosen, shape, Scaling.VOLUMES, minipods), accepted


def _solver(job: JobSpec, cluster: Cluster, time_limit_s: float, seed: int) -> Callable[[float], Spreads]:
    """Return what places a job at an alpha."""
    from spanfit.placer.model import PlacementStatus
    from spanfit.placer.place import place
    from spanfit.weights.sensitivity import Spreads

    def spreads(alpha: float) -> Spreads:
        found = place(job, cluster, alpha=alpha, beta=1 - alpha, time_limit_s=time_limit_s, seed=seed)
        is_proven = found.status is PlacementStatus.OPTIMAL
        return Spreads(dp=max(found.dp_spreads), pp=max(found.pp_spreads), is_proven=is_proven)

    return spreads


def _row(each: AlphaRange, marked: Estimate | None) -> tuple[str, ...]:
    remarks = [] if each.is_proven else ["not proven: a better placement may take part of it"]
    if marked is not None and each.low <= marked.value <= each.high:
        remarks.append("alpha is here")
    return f"{each.low:.4g}", f"{each.high:.4g}", str(each.dp), str(each.pp), "; ".join(remarks)


def _verdict(ranges: tuple[AlphaRange, ...], marked: Estimate) -> str:
    from spanfit.weights.sensitivity import holding, is_decided

    piece = holding(ranges, marked.value)
    where = f"alpha = {format_weight(marked)}: the placement stays the same from {piece.low:.4g} to {piece.high:.4g}"
    if marked.ci_low is None:
        return where
    if is_decided(ranges, marked):
        return f"{where}, which holds the whole interval: measuring alpha better would not change it"
    return f"{where}, which does not hold the whole interval: measuring alpha better may change it"

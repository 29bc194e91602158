"""``spanfit weights predict`` and ``compare``: weights from the step-time predictor, and where two sources disagree."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.predict.parameters import ParametersFile
    from spanfit.results.schema import Estimate
    from spanfit.weights.comparing import Comparison, Difference
    from spanfit.weights.crossings import Grid
    from spanfit.weights.model import WeightEntry
    from spanfit.workload.job import Job

COMPARISON_VERSION = 1


@click.command(
    "predict", epilog="Example: spanfit weights predict campaign.toml --fabric fabric.json -o predicted.json"
)
@click.argument("campaign_file", metavar="CAMPAIGN.toml", type=click.Path(path_type=Path))
@click.option(
    "--fabric",
    "fabric_file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The fabric that spanfit profile predict -o fitted to micro-patterns.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="Write here."
)
@click.option("--draws", type=click.IntRange(1), default=9, show_default=True, help="Draws of unfair shares an arm.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seeds the draws.")
@json_option
def predict(campaign_file: Path, fabric_file: Path, output: Path, draws: int, seed: int, as_json: bool) -> None:
    """Predict the arms of a campaign's jobs, none of which is run, and write the weights that follow."""
    from datetime import UTC, datetime

    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.predict.parameters import read_parameters
    from spanfit.weights.io import sealed, write_weights
    from spanfit.weights.predicted import predicted_set

    campaign, fabric = Campaign(campaign_file, Path("runs")), read_parameters(fabric_file)
    entries = tuple(_entries(campaign, fabric, draws, seed))
    found = predicted_set(entries, fabric, created_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_weights(output, found)
    talk(f"{output}: predicted weights of {', '.join(entry.job for entry in entries)}")
    if as_json:
        print_json(sealed(found))
        return
    columns = ("job", ">DP x PP", "alpha (DP)", "DP-aligned gain", "PP-aligned gain", "base")
    print_table(f"Weights predicted from {', '.join(fabric.run_ids)}", columns, [_row(entry) for entry in entries])


def _entries(campaign: Campaign, fabric: ParametersFile, draws: int, seed: int) -> list[WeightEntry]:
    from spanfit.errors import ConfigError
    from spanfit.profiler.predict.arms import predict_arms
    from spanfit.weights.predicted import predict_entry

    per_node = campaign.file.launch.ranks_per_node
    times: dict[Job, dict[str, Estimate]] = {}
    grids: dict[Job, dict[str, Grid]] = {}
    predicted = predict_arms(
        campaign.cases,
        campaign.node_names,
        campaign.cluster,
        fabric,
        ngpus_per_node=per_node,
        ndraws=draws,
        seed=seed,
    )
    for each in predicted:
        times.setdefault(each.job, {})[each.arm] = each.prediction.time_s
        grids.setdefault(each.job, {})[each.arm] = _grid(campaign, each.job, each.nodes)
    both_kinds = {job: arms for job, arms in times.items() if 1 not in (job.layout.dp, job.layout.pp)}
    if not both_kinds:
        raise ConfigError(
            f"campaign {campaign.file.name}: found no job with both DP and PP groups, expected at least one"
        )
    for job in times.keys() - both_kinds.keys():
        talk(f"left out {job.name}: it has groups of one kind only, between which there is nothing to weigh")
    model = _gpu_model(campaign)
    return [
        predict_entry(job, gpu_model=model, ngpus_per_node=per_node, times=arms, grids=grids[job])
        for job, arms in both_kinds.items()
    ]


def _grid(campaign: Campaign, job: Job, names: Sequence[str]) -> Grid:
    """Return the minipod of each cell of a job's grid, of which ``names`` holds the nodes, row by row."""
    from spanfit.workload.job import node_grid

    _, ncolumns = node_grid(job, campaign.file.launch.ranks_per_node)
    minipods = [campaign.cluster.minipod(node) for node in campaign.cluster.select(names)]
    return [minipods[start : start + ncolumns] for start in range(0, len(minipods), ncolumns)]


def _gpu_model(campaign: Campaign) -> str:
    models = {node.gpu_model for node in campaign.cluster.select(campaign.node_names) if node.gpu_model}
    return ", ".join(sorted(models))


def _row(entry: WeightEntry) -> tuple[str, ...]:
    return (
        entry.job,
        f"{entry.dp} x {entry.pp}",
        format_estimate(entry.alpha, _share),
        _maybe(entry.gain_dp, "gain_dp"),
        _maybe(entry.gain_pp, "gain_pp"),
        format_estimate(entry.base_time_s, units.format_time) if entry.base_time_s else "",
    )


@click.command("compare", epilog="Example: spanfit weights compare measured.json predicted.json")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def compare(context: click.Context, a: Path, b: Path, as_json: bool) -> None:
    """Say where the weights of A and B disagree beyond their intervals; exit code 1 if they do anywhere."""
    from spanfit.errors import ExitCode
    from spanfit.weights.comparing import compare as compare_sets
    from spanfit.weights.io import read_weights

    found = compare_sets(read_weights(a), read_weights(b))
    if as_json:
        print_json({"schema_version": COMPARISON_VERSION, "a": str(a), "b": str(b), **asdict(found)})
    else:
        _print_comparison(found)
    if found.apart:
        context.exit(ExitCode.FINDING)


def _print_comparison(found: Comparison) -> None:
    columns = ("job", "GPU", ">DP x PP", "what", "A", "B", "")
    print_table("A against B, 95% intervals", columns, [_difference_row(each) for each in found.differences])
    for name, labels in (("A", found.only_a), ("B", found.only_b)):
        for label in labels:
            talk(f"only {name} has {label}")
    click.echo(f"{len(found.apart)} of {len(found.differences)} disagree beyond their intervals")


def _difference_row(each: Difference) -> tuple[str, ...]:
    a, b = (_maybe(value, each.quantity) for value in (each.a, each.b))
    grid = f"{each.dp} x {each.pp}"
    verdict = "disagree" if each.is_apart else "agree"
    return each.job, each.gpu_model, grid, each.quantity, f"{a} {each.source_a}", f"{b} {each.source_b}", verdict


def _maybe(value: Estimate | None, quantity: str) -> str:
    if value is None:
        return ""
    form = _share if quantity == "alpha" else units.format_percent
    return format_estimate(value, form) if value.ci_low is not None else form(value.value)


def _share(value: float) -> str:
    return f"{value:.3f}"

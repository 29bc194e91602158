"""``spanfit profile predict``: what a step would take in each placement, from micro-patterns and without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.predict.parameters import ParametersFile
    from spanfit.profiler.predict.step import StepPrediction
    from spanfit.topology.model import RankMap
    from spanfit.workload.job import Job
    from spanfit.workload.program import Program

PREDICTIONS_VERSION = 1

_COLUMNS = ("job", "arm", "step", ">communication", "busiest uplink", ">carries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPrediction:
    """What a step of a job will take in an arm."""

    job: str
    arm: str
    nodes: tuple[str, ...]
    prediction: StepPrediction


@click.command(
    "predict",
    epilog="Example: spanfit profile predict campaign.toml --curves flows.json --curves rings.json -o fabric.json",
)
@click.argument("campaign_file", metavar="CAMPAIGN.toml", type=click.Path(path_type=Path))
@click.option(
    "--curves",
    "curves_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Curves of micro-patterns to fit the fabric to, as profile curves -o wrote them; may be given again.",
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the fitted fabric to this file."
)
@click.option(
    "--fabric",
    "fabric_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A fabric that -o wrote, not fitted again.",
)
@click.option(
    "--draws", type=click.IntRange(1), default=9, show_default=True, help="Draws of unfair shares a placement."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seeds the draws.")
@json_option
def predict(
    campaign_file: Path,
    curves_files: tuple[Path, ...],
    out: Path | None,
    fabric_file: Path | None,
    draws: int,
    seed: int,
    as_json: bool,
) -> None:
    """Predict the step time of each arm of a campaign's jobs from micro-patterns, never from steps."""
    from spanfit.errors import ConfigError
    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.predict.parameters import read_parameters, write_parameters

    if bool(curves_files) == bool(fabric_file):
        found = "both" if fabric_file else "neither"
        raise ConfigError(
            f"--curves, --fabric: found {found}, expected one of them; curves come from profile curves -o"
        )
    campaign = Campaign(campaign_file, Path("runs"))
    if not any(case.step for case in campaign.cases):
        raise ConfigError(f"{campaign_file}: jobs: found none, expected at least one; add a [[jobs]] table")
    fabric = read_parameters(fabric_file) if fabric_file else _fitted(campaign, curves_files)
    if out is not None:
        write_parameters(out, fabric)
        talk(f"wrote {out}")
    talk(_preface(fabric))
    arms = tuple(_predicted(campaign, fabric, draws, seed))
    if as_json:
        print_json(
            {
                "schema_version": PREDICTIONS_VERSION,
                "run_ids": fabric.run_ids,
                "error": fabric.error,
                "arms": [asdict(arm) for arm in arms],
            }
        )
        return
    print_table("Predicted steps", _COLUMNS, [_row(arm) for arm in arms])


def _fitted(campaign: Campaign, curves_files: tuple[Path, ...]) -> ParametersFile:
    from spanfit.profiler.curves_file import read_curves
    from spanfit.profiler.predict.collectives import Library
    from spanfit.profiler.predict.fit import fit_parameters

    library = Library.NCCL if campaign.file.backend == "nccl" else Library.GLOO
    return fit_parameters([read_curves(path) for path in curves_files], campaign.cluster, library)


def _preface(fabric: ParametersFile) -> str:
    parameters = fabric.parameters
    rates = ", ".join(
        f"{kind} {units.format_bandwidth(rate)}" for kind, rate in sorted(parameters.rates_bytes_per_s.items())
    )
    return (
        f"fitted to {len(fabric.residuals)} micro-patterns of {', '.join(fabric.run_ids)} with {fabric.library}: links "
        f"carry {rates}; 95% intervals hold the error of patterns left out, ± {units.format_percent(2 * fabric.error)}"
    )


def _predicted(campaign: Campaign, fabric: ParametersFile, draws: int, seed: int) -> Iterator[ArmPrediction]:
    from spanfit.profiler.predict.step import predict_step

    per_node = campaign.file.launch.ranks_per_node
    programs: dict[Job, tuple[Program, ...]] = {}
    for case in campaign.cases:
        if case.step is None:
            continue
        names = tuple(campaign.node_names[node] for node in case.groups[0])
        if case.step not in programs:
            programs[case.step] = _planned(case.step, per_node)
        rank_map = _placed(case.step, names, per_node)
        found = predict_step(programs[case.step], campaign.cluster, rank_map, fabric, ndraws=draws, seed=seed)
        yield ArmPrediction(job=case.operation, arm=case.arm, nodes=names, prediction=found)


def _planned(job: Job, per_node: int) -> tuple[Program, ...]:
    """Return the programs of all ranks of the nodes that a job uses."""
    from spanfit.profiler.predict.step import side_by_side
    from spanfit.workload.job import StepJob
    from spanfit.workload.strategies import plan_job

    programs = tuple(plan_job(job, rank) for rank in range(job.layout.nranks))
    return side_by_side(programs, per_node) if isinstance(job, StepJob) else programs


def _placed(job: Job, names: tuple[str, ...], per_node: int) -> RankMap:
    """Return where a job's ranks run; ``names`` holds the node of each cell, row by row."""
    from spanfit.topology.model import RankMap
    from spanfit.workload.job import StepJob

    if isinstance(job, StepJob):
        return RankMap(node_names=names, ngpus_per_node=per_node)
    _, ncolumns = job.layout.grid(per_node)
    cells = job.layout.node_cells(per_node)
    in_rank_order = tuple(names[row * ncolumns + column] for row, column in cells)
    return RankMap(node_names=in_rank_order, ngpus_per_node=per_node)


def _row(arm: ArmPrediction) -> tuple[str, ...]:
    found = arm.prediction
    return (
        arm.job,
        arm.arm,
        format_estimate(found.time_s, units.format_time),
        units.format_percent(found.communication_share),
        found.busiest_uplink or "none",
        units.format_size(round(found.busiest_uplink_bytes)),
    )

"""``spanfit weights match``: alpha of a new job from jobs that were characterised."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.options import scaling_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.weights.model import format_weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanfit.weights.matching import Known, LeaveOneOut, Match
    from spanfit.weights.model import WeightEntry

MATCH_VERSION = 1


@click.command("match", epilog="Example: spanfit weights match job.toml --known weights/ --figure match.svg")
@click.argument("job_file", metavar="JOB.toml", type=click.Path(path_type=Path))
@click.option(
    "--known",
    "known_paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A weights.json, or a folder of them; may be given again.",
)
@click.option("--gpu-model", metavar="NAME", help="The model of the job's GPUs, unless the job file says it.")
@click.option(
    "--method",
    type=click.Choice(["paper", "logs", "regression"]),
    default="logs",
    show_default=True,
    help="Nearest by r1 and r2 as printed, nearest by their scaled logs, or a regression over all.",
)
@scaling_option
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(["measured", "predicted", "hand"]),
    default=("measured",),
    show_default=True,
    help="Which entries count, by where they come from; may be given again.",
)
@click.option("--accept-stale", is_flag=True, help="Use weights that have expired, and record it.")
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="Draw the match.")
@json_option
def match(
    job_file: Path,
    known_paths: tuple[Path, ...],
    gpu_model: str | None,
    method: str,
    scaling: str,
    sources: tuple[str, ...],
    accept_stale: bool,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Say what alpha of a job (a job file with a [step]) is by the most similar jobs that were characterised."""
    from spanfit import files
    from spanfit.bench.job_file import JobFile, read_training_job
    from spanfit.errors import ConfigError
    from spanfit.weights.cheapest import cheapest_campaign
    from spanfit.weights.matching import Method, known_to
    from spanfit.weights.regression import find, leave_one_out
    from spanfit.weights.scaling import Scaling, shape_of, volume_alpha
    from spanfit.weights.volumes import volumes_of

    job, keys = read_training_job(job_file), files.read_toml(job_file, JobFile)
    model = gpu_model or keys.gpu_model
    if model is None:
        raise ConfigError(f"{job_file}: gpu_model: missing; weights hold for one GPU model, so say it, or --gpu-model")
    try:
        shape = shape_of(job, keys.ngpus_per_node)
        volumes = volumes_of(job, keys.ngpus_per_node)
    except ValueError as error:
        raise ConfigError(f"{job_file}: {error}") from None
    entries, accepted = _entries(known_paths, accept_stale)
    counting = _that_count(entries, model, sources)
    known = known_to(shape, counting, Scaling(scaling))
    found = find(known, volumes.r1, volumes.r2, Method(method))
    errors = leave_one_out(counting, Scaling(scaling))
    prior = volume_alpha(shape)
    campaign = cheapest_campaign(job.name, shape, job.nmicrobatches, keys.ngpus_per_node) if found.is_far else None
    if figure is not None:
        from spanfit.report.weights_map import ratio_map

        files.write_text(figure, ratio_map(known, found, job.name, volumes.r1, volumes.r2))
        talk(f"wrote {figure}")
    if as_json:
        print_json(
            {
                "schema_version": MATCH_VERSION,
                "job": job.name,
                "gpu_model": model,
                "dp": shape.dp,
                "pp": shape.pp,
                "r1": volumes.r1,
                "r2": volumes.r2,
                "scaling": scaling,
                "sources": sources,
                "accepted_stale": accepted,
                "alpha_v": prior,
                "match": asdict(found),
                "campaign": campaign,
                "leave_one_out": [asdict(each) for each in errors],
            }
        )
        return
    _print(job.name, known, found, errors, (volumes.r1, volumes.r2))
    click.echo(_verdict(job.name, found, prior, campaign))


def _that_count(entries: Sequence[WeightEntry], gpu_model: str, names: Sequence[str]) -> tuple[WeightEntry, ...]:
    """Return the entries that count for a GPU model, and say why the others do not."""
    from spanfit.weights.matching import that_count, why_not
    from spanfit.weights.model import Source

    sources = tuple(map(Source, names))
    for entry in entries:
        if reason := why_not(entry, gpu_model, sources):
            talk(f"left out {entry.job}: {reason}")
    return that_count(entries, gpu_model, sources)


def _entries(paths: Sequence[Path], accept_stale: bool) -> tuple[tuple[WeightEntry, ...], list[str]]:
    """Return the entries of all files, in order, and why some were stale; ConfigError where a folder holds none."""
    from datetime import UTC, datetime

    from spanfit.errors import ConfigError
    from spanfit.weights.io import read_weights
    from spanfit.weights.stale import accept, reasons

    found: list[WeightEntry] = []
    accepted: list[str] = []
    for path in paths:
        files_of = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files_of:
            raise ConfigError(f"{path}: found no .json file, expected weights that spanfit weights fit wrote")
        for file in files_of:
            weights = read_weights(file)
            stale = accept(str(file), reasons(weights, now=datetime.now(UTC)), accept_stale=accept_stale)
            accepted += [f"{file}: {reason}" for reason in stale]
            found.extend(weights.entries)
    for reason in accepted:
        talk(f"warning: {reason}")
    return tuple(found), accepted


def _print(
    job: str, known: Sequence[Known], found: Match, errors: Sequence[LeaveOneOut], ratios: tuple[float, float]
) -> None:
    rows: list[tuple[str, ...]] = [
        (
            each.job,
            each.source,
            f"{each.r1:.3g}",
            f"{each.r2:.3g}",
            format_weight(each.alpha),
            "nearest" if each is found.nearest else "",
        )
        for each in known
    ]
    rows.append(
        (job, "", *(f"{ratio:.3g}" for ratio in ratios), format_weight(found.alpha) if found.alpha else "not told", "")
    )
    columns = ("job", "source", ">r1", ">r2", "alpha (DP)", "")
    print_table("Characterised jobs, and alpha that each gives this one", columns, rows)
    if errors:
        methods = ("method", ">entries", ">far from the others", ">mean error of alpha", ">worst")
        print_table("Each entry told by other jobs (leave one out)", methods, [_error_row(each) for each in errors])


def _error_row(each: LeaveOneOut) -> tuple[str, ...]:
    errors = (each.mean_error, each.worst_error)
    texts = ("none" if error is None else f"{error:.3f}" for error in errors)
    return each.method, str(each.nentries), str(each.nfar), *texts


def _verdict(job: str, found: Match, prior: float, campaign: str | None) -> str:
    if found.alpha is None:
        return (
            f"{job} is far from everything known: r1 or r2 of the closest entry is {found.factor:.1f} times off. "
            f"Volumes alone give alpha_v = {prior:.3f}. The cheapest campaign that would tell: {campaign}"
        )
    alpha = format_weight(found.alpha)
    return f"alpha of {job} is {alpha} by {found.method} ({found.nearest.job}); volumes alone give {prior:.3f}"

"""``spanfit profile predict``: what a step would take in each placement, from micro-patterns and without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.bench.variants import parse_variant
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.predict.arms import ArmPrediction
    from spanfit.profiler.predict.collectives import Library
    from spanfit.profiler.predict.parameters import ParametersFile

PREDICTIONS_VERSION = 1

_LIBRARIES = {"gloo": "gloo", "nccl": "NCCL's rings", "nccl-tree": "NCCL's trees"}
_COLUMNS = ("job", "arm", "step", ">communication", "busiest uplink", ">carries")


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
    "--nccl-algorithm",
    type=click.Choice(["ring", "tree"]),
    help="How NCCL's all_reduce goes, since its own choice is not known here: over its rings (unless the fabric "
    "says otherwise) or its trees.",
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
    nccl_algorithm: str | None,
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
    if variants := sorted({case.operation for case in campaign.cases if not parse_variant(case.operation).is_plain}):
        talk(f"not predicted, but measured: {', '.join(variants)}")
    if not any(case.step for case in campaign.cases):
        raise ConfigError(f"{campaign_file}: jobs: found none, expected at least one; add a [[jobs]] table")
    if fabric_file:
        fabric = _by_algorithm(read_parameters(fabric_file), nccl_algorithm)
    else:
        fabric = _fitted(campaign, curves_files, nccl_algorithm)
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
                "library": fabric.library,
                "not_fitted": fabric.not_fitted,
                "arms": [{**asdict(arm), "job": arm.job.name} for arm in arms],
            }
        )
        return
    print_table("Predicted steps", _COLUMNS, [_row(arm) for arm in arms])


def _fitted(campaign: Campaign, curves_files: tuple[Path, ...], algorithm: str | None) -> ParametersFile:
    from spanfit.profiler.curves_file import read_curves
    from spanfit.profiler.predict.collectives import Library
    from spanfit.profiler.predict.fit import fit_parameters

    library = Library.NCCL if campaign.file.backend == "nccl" else Library.GLOO
    library = _library(library, algorithm, f"backend {campaign.file.backend}")
    return fit_parameters([read_curves(path) for path in curves_files], campaign.cluster, library)


def _by_algorithm(fabric: ParametersFile, algorithm: str | None) -> ParametersFile:
    return replace(fabric, library=_library(fabric.library, algorithm, f"a fabric of {fabric.library}"))


def _library(library: Library, algorithm: str | None, found: str) -> Library:
    """Return NCCL with the algorithm that was asked for, or what there is; ConfigError where that is not NCCL."""
    from spanfit.errors import ConfigError
    from spanfit.profiler.predict.collectives import Library

    if algorithm is None:
        return library
    if library is Library.GLOO:
        raise ConfigError(f"--nccl-algorithm: found {algorithm} with {found}, expected NCCL; leave the option out")
    return Library.NCCL_TREE if algorithm == "tree" else Library.NCCL


def _preface(fabric: ParametersFile) -> str:
    from spanfit.profiler.predict.parameters import RATE

    parameters, library = fabric.parameters, _LIBRARIES[fabric.library]
    rates = ", ".join(
        f"{kind} {units.format_bandwidth(rate)}{' (not fitted)' * (f'{RATE}{kind}' in fabric.not_fitted)}"
        for kind, rate in sorted(parameters.rates_bytes_per_s.items())
    )
    lines = [
        f"fitted to {len(fabric.residuals)} micro-patterns of {', '.join(fabric.run_ids)} with {library}: links carry "
        f"{rates}; 95% intervals hold the error of patterns left out, ± {units.format_percent(2 * fabric.error)}"
    ]
    if fabric.not_fitted:
        guesses = (f"{name} = {parameters.value(name):.3g} ({source})" for name, source in fabric.not_fitted.items())
        lines.append(f"not fitted, and in no error above: {'; '.join(guesses)}")
    return "\n".join(lines)


def _predicted(campaign: Campaign, fabric: ParametersFile, draws: int, seed: int) -> Iterator[ArmPrediction]:
    from spanfit.profiler.predict.arms import predict_arms

    per_node = campaign.file.launch.ranks_per_node
    return predict_arms(
        campaign.cases,
        campaign.node_names,
        campaign.cluster,
        fabric,
        ngpus_per_node=per_node,
        ndraws=draws,
        seed=seed,
    )


def _row(arm: ArmPrediction) -> tuple[str, ...]:
    found = arm.prediction
    return (
        arm.job.name,
        arm.arm,
        format_estimate(found.time_s, units.format_time),
        units.format_percent(found.communication_share),
        found.busiest_uplink or "none",
        units.format_size(round(found.busiest_uplink_bytes)),
    )

"""``spanfit weights check``: whether weights still hold, and what to measure again if not."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import load_cluster
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, print_table, talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanfit.weights.check import Finding
    from spanfit.weights.model import WeightSet

CHECK_VERSION = 1


@click.command(epilog="Example: spanfit weights check weights.json --against latest --campaign again.toml")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--against", required=True, metavar="RUN|CLUSTER", help="A run of the store, or a cluster's file.")
@store_option
@click.option(
    "--campaign",
    "campaign_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the campaign of the cases to measure again here, beside the campaign that the weights come from.",
)
@json_option
@click.pass_context
def check(
    context: click.Context, file: Path, against: str, store: Path, campaign_file: Path | None, as_json: bool
) -> None:
    """Say whether fabric, library or measurements have drifted from what weights rest on; exit code 1 if any has."""
    from spanfit.errors import ExitCode, SpanfitError
    from spanfit.weights.check import State
    from spanfit.weights.io import read_weights

    weights = read_weights(file)
    findings = _findings(weights, against, store)
    if as_json:
        document = {"schema_version": CHECK_VERSION, "weights": str(file), "against": against}
        print_json(document | {"findings": [asdict(finding) for finding in findings]})
    else:
        rows = [(each.aspect, each.subject, each.state, each.sentence) for each in findings]
        print_table(f"{file} against {against}", ("what", "of", "", "found"), rows)
    has_drifted = any(finding.state is State.DRIFTED for finding in findings)
    if campaign_file is not None:
        try:
            _write_campaign(weights, findings, store, campaign_file)
        except SpanfitError as error:
            if not has_drifted:
                raise
            # The finding decides the exit code, not the campaign.
            talk(f"error: {campaign_file}: not written: {error}")
    if has_drifted:
        context.exit(ExitCode.FINDING)


def _findings(weights: WeightSet, against: str, store: Path) -> tuple[Finding, ...]:
    from spanfit.errors import ConfigError
    from spanfit.results.store import Store
    from spanfit.weights.check import check_against_nodes, check_against_run

    now = datetime.now(UTC)
    if Path(against).is_file():
        models = {node.gpu_model for node in load_cluster(Path(against)).nodes if node.gpu_model}
        return check_against_nodes(weights, models, now=now)
    info, frame = Store(store).read(Store(store).resolve(against))
    if info.run_id in weights.run_ids:
        raise ConfigError(
            f"--against: found run {info.run_id}, which the weights come from, expected a later one; "
            "see: spanfit results list"
        )
    return check_against_run(weights, info, frame, now=now)


def _write_campaign(weights: WeightSet, findings: Sequence[Finding], store: Path, campaign_file: Path) -> None:
    """Write what to measure again, and the models that it names, if anything is not known to hold."""
    from spanfit import files
    from spanfit.errors import StoreError
    from spanfit.results.store import Store
    from spanfit.weights.again import campaign_again, render_campaign, render_models
    from spanfit.weights.check import to_measure_again
    from spanfit.weights.fit import run_jobs

    wanted = to_measure_again(weights, findings)
    if not wanted.jobs and not wanted.operations:
        talk(f"{campaign_file}: not written, since {_why_no_campaign(findings)}")
        return
    runs = Store(store)
    stored = {info.run_id for info in runs.runs()}
    origin = next((run for run in weights.run_ids if run in stored), None)
    if origin is None:
        raise StoreError(
            f"{store}: found none of the runs that the weights come from ({', '.join(weights.run_ids) or 'no name'}), "
            "expected one, whose campaign says how to measure; name the store that holds it with --store"
        )
    info, frame = runs.read(origin)
    jobs = [job for key, job in run_jobs(info).items() if key in wanted.jobs]
    models_file = f"{campaign_file.stem}.models.toml"
    again = campaign_again(
        info, jobs, wanted.operations, repetitions=int(frame["repetition"].max()) + 1, models_file=models_file
    )
    files.write_text(campaign_file, render_campaign(again))
    if again.models:
        files.write_text(campaign_file.with_name(models_file), render_models(again.models))
    names = [*(job.name for job in jobs), *sorted(wanted.operations)]
    talk(f"{campaign_file}: measures again {', '.join(names)}; its paths are those of the campaign that it comes from")


def _why_no_campaign(findings: Sequence[Finding]) -> str:
    from spanfit.weights.check import State

    if drifted := dict.fromkeys(each.subject for each in findings if each.state is State.DRIFTED):
        return f"{', '.join(drifted)} drifted, but the weights hold no measurement to repeat"
    if untold := dict.fromkeys(each.subject for each in findings if each.state is not State.HOLDS):
        return f"nothing is known to have drifted; it cannot be told of {', '.join(untold)}"
    return "nothing has drifted and all was measured"

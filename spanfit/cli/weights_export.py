"""``spanfit weights export``: weights in the form that another program takes."""

from datetime import UTC, datetime
from pathlib import Path

import click

from spanfit.cli.output import talk


@click.command(epilog="Example: spanfit weights export weights.json --to configmap --name spanfit-weights")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["yaml", "configmap", "csv"]), required=True, help="The form.")
@click.option("--name", metavar="NAME", help="Name of the ConfigMap.")
@click.option("--namespace", metavar="NAME", help="Namespace of the ConfigMap, unless kubectl says it.")
@click.option("--accept-stale", is_flag=True, help="Export weights that have expired, and record it in what is made.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here, not on stdout."
)
def export(
    file: Path, form: str, name: str | None, namespace: str | None, accept_stale: bool, output: Path | None
) -> None:
    """Print the weights of a file as YAML, as a Kubernetes ConfigMap or as CSV."""
    if (form == "configmap") != (name is not None):
        raise click.UsageError("--name NAME belongs to --to configmap, which needs it")
    if namespace is not None and form != "configmap":
        raise click.UsageError("--namespace NAME belongs to --to configmap")
    from dataclasses import replace

    from spanfit import files
    from spanfit.weights import export as forms
    from spanfit.weights.io import read_weights, sealed
    from spanfit.weights.stale import accept, reasons

    weights = read_weights(file)
    accepted = accept(str(file), reasons(weights, now=datetime.now(UTC)), accept_stale=accept_stale)
    if accepted:
        weights = sealed(replace(weights, accepted_stale=(*weights.accepted_stale, *accepted)))
    if name is not None:
        text = forms.render_configmap(weights, name=name, namespace=namespace)
    else:
        text = forms.render_yaml(weights) if form == "yaml" else forms.render_csv(weights)
    if output is None:
        click.echo(text, nl=False)
    else:
        files.write_text(output, text)
        talk(f"{output}: {len(weights.entries)} entries of {file} as {form}")

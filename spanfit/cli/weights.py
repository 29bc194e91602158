"""``spanfit weights``: fit, show, check, export and carry over affinity weights."""

from datetime import UTC, datetime
from pathlib import Path

import click

from spanfit import units
from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.weights_check import check
from spanfit.cli.weights_export import export
from spanfit.cli.weights_kinds import kinds
from spanfit.cli.weights_match import match
from spanfit.cli.weights_sensitivity import sensitivity
from spanfit.cli.weights_sources import compare, predict
from spanfit.results.schema import Estimate, format_estimate
from spanfit.weights.model import WeightEntry, WeightSet, format_weight, remarks
from spanfit.weights.stale import VALID_DAYS


@click.group(epilog="Example: spanfit weights fit latest -o weights.json")
def weights() -> None:
    """Fit, show, check, export and carry over affinity weights."""


for command in (check, compare, export, kinds, match, predict, sensitivity):
    weights.add_command(command)


@weights.command("fit", epilog="Example: spanfit weights fit latest --store runs -o weights.json")
@run_argument
@store_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="Write here."
)
@click.option(
    "--valid-days",
    type=click.IntRange(1, 36500),
    default=VALID_DAYS,
    show_default=True,
    help="For how long the weights hold, from the end of the run on.",
)
def fit(run: str, store: Path, output: Path, valid_days: int) -> None:
    """Fit alpha and beta of every job of a run and write them to a file."""
    from spanfit.results.store import Store
    from spanfit.weights.fit import fit_weights
    from spanfit.weights.io import write_weights
    from spanfit.weights.stale import reasons

    now = datetime.now(UTC)
    info, frame = Store(store).read(Store(store).resolve(run))
    created_at = now.isoformat(timespec="seconds")
    fitted = fit_weights(info, frame, created_at=created_at, valid_days=valid_days)
    write_weights(output, fitted)
    talk(f"{output}: weights of {', '.join(entry.job for entry in fitted.entries)} from run {info.run_id}")
    for reason in reasons(fitted, now=now):
        talk(f"warning: {reason}")
    _print(fitted)


@weights.command("show", epilog="Example: spanfit weights show weights.json")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """Show the weights of a file, what they come from and what limits them."""
    from spanfit.weights.io import read_weights
    from spanfit.weights.stale import reasons

    found = read_weights(file)
    for reason in reasons(found, now=datetime.now(UTC)):
        talk(f"stale: {reason}")
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: WeightSet) -> None:
    columns = (
        *("job", "GPU", ">DP x PP", "alpha (DP)", "beta (PP)", "DP-aligned gain", "PP-aligned gain"),
        *(">V_DP / V_PP", ">launches", ">base arms"),
    )
    print_table(_title(found), columns, [_row(entry) for entry in found.entries])
    if found.fabric is not None:
        fabric = found.fabric
        adapters = f"{fabric.nrails or 'unknown'} x {fabric.nic or 'unknown'}"
        facts = ", ".join(filter(None, (fabric.gpu_model, fabric.library, fabric.transport)))
        click.echo(f"for {facts}, adapters of a node: {adapters}")
    for entry in found.entries:
        for remark in remarks(entry):
            talk(f"{entry.job}: {remark}")
    for reason in found.accepted_stale:
        talk(f"made from stale weights: {reason}")


def _title(found: WeightSet) -> str:
    origin = f"Weights of {found.cluster or 'any cluster'}, from {', '.join(found.run_ids) or 'no run'}"
    return f"{origin}; {f'valid until {found.valid_until}' if found.valid_until else 'valid without end'}"


def _row(entry: WeightEntry) -> tuple[str, ...]:
    return (
        entry.job,
        entry.gpu_model or "unknown",
        f"{entry.dp} x {entry.pp}",
        format_weight(entry.alpha),
        format_weight(entry.beta),
        _gain(entry.gain_dp),
        _gain(entry.gain_pp),
        f"{entry.volumes.r2:.3g}" if entry.volumes else "",
        f"{entry.launches}*" if entry.is_provisional else str(entry.launches),
        str(len(entry.base_arms)),
    )


def _gain(gain: Estimate | None) -> str:
    return format_estimate(gain, units.format_percent) if gain else ""

"""``spanfit weights``: fit and show affinity weights."""

from datetime import UTC, datetime
from pathlib import Path

import click

from spanfit import units
from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.results.schema import format_estimate
from spanfit.weights.model import WeightEntry, WeightSet, remarks


@click.group(epilog="Example: spanfit weights fit latest -o weights.json")
def weights() -> None:
    """Fit and show affinity weights."""


@weights.command("fit", epilog="Example: spanfit weights fit latest --store runs -o weights.json")
@run_argument
@store_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="Write here."
)
def fit(run: str, store: Path, output: Path) -> None:
    """Fit alpha and beta of every job of a run and write them to a file."""
    from spanfit.results.store import Store
    from spanfit.weights.fit import fit_weights
    from spanfit.weights.io import write_weights

    info, frame = Store(store).read(Store(store).resolve(run))
    fitted = fit_weights(info, frame, created_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_weights(output, fitted)
    talk(f"{output}: weights of {', '.join(entry.job for entry in fitted.entries)} from run {info.run_id}")
    _print(fitted)


@weights.command("show", epilog="Example: spanfit weights show weights.json")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """Show the weights of a file, what they come from and what limits them."""
    from spanfit.weights.io import read_weights

    found = read_weights(file)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: WeightSet) -> None:
    title = f"Weights of {found.cluster} over {found.transport}, from {', '.join(found.run_ids)}, {found.created_at}"
    columns = (
        *("job", "GPU", ">DP x PP", "alpha (DP)", "beta (PP)", "DP-aligned gain", "PP-aligned gain"),
        *(">V_DP / V_PP", ">launches", ">base arms"),
    )
    print_table(title, columns, [_row(entry) for entry in found.entries])
    for entry in found.entries:
        for remark in remarks(entry):
            talk(f"{entry.job}: {remark}")


def _row(entry: WeightEntry) -> tuple[str, ...]:
    return (
        entry.job,
        entry.gpu_model,
        f"{entry.dp} x {entry.pp}",
        format_estimate(entry.alpha, lambda share: f"{share:.3f}"),
        format_estimate(entry.beta, lambda share: f"{share:.3f}"),
        format_estimate(entry.gain_dp, units.format_percent),
        format_estimate(entry.gain_pp, units.format_percent),
        f"{entry.dp_to_pp_volume:.3g}",
        f"{entry.launches}*" if entry.is_provisional else str(entry.launches),
        str(len(entry.base_arms)),
    )

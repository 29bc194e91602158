"""``spanfit demo``: the whole path, command by command, as a person would type it."""

import shlex
from pathlib import Path

import click

from spanfit.cli.output import talk

RECORDED_LABEL = "recorded campaign"


@click.command(epilog="Example: spanfit demo --out out/demo")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/demo"), show_default=True, help="Folder to fill."
)
@click.option("--recorded", is_flag=True, help="Analyse the campaign that comes with spanfit; measure nothing.")
def demo(out: Path, recorded: bool) -> None:
    """Run the whole path on an emulated cluster: measure, fit, place, report.

    Each step is a command of its own, printed before it runs. Where this machine refuses network namespaces, a
    campaign that was recorded on such a testbed is analysed instead, and everything says so.
    """
    from spanfit.launch import testbed

    copy_inputs(out)
    if not recorded and (refusal := testbed.refusal()):
        talk(f"{refusal}\nno testbed here, so nothing is measured: the demo goes on with a {RECORDED_LABEL}")
        recorded = True
    store, weights, placement = out / "runs", out / "weights.json", out / "placement.json"
    page = out / "report.html"
    step("topology", "show", out / "cluster.toml")
    if recorded:
        copy_recorded(store)
    else:
        step("campaign", "run", out / "campaign.toml", "--store", store)
    step("profile", "curves", "--store", store)
    step("profile", "gains", "--store", store)
    # What is recorded stays what it is, however old.
    ever = ("--valid-days", "36500") if recorded else ()
    step("weights", "fit", "--store", store, "-o", weights, *ever)
    step("topology", "show", out / "fragmented.toml")
    place = (
        "place",
        out / "job.toml",
        "--cluster",
        out / "fragmented.toml",
        "--weights",
        weights,
        "--entry",
        "pp-heavy",
    )
    step(*place, "-o", placement)
    shown = ("--weights", weights, "--placement", placement, "--cluster", out / "fragmented.toml")
    step("report", "--store", store, *shown, *(["--label", RECORDED_LABEL] if recorded else []), "-o", page)
    talk(f"\nopen {page} in a browser; weights are in {weights}, the placement in {placement}")


def step(*arguments: str | Path) -> None:
    """Print a spanfit command and run it."""
    from spanfit.cli.main import spanfit

    argv = [str(argument) for argument in arguments]
    talk(f"\n$ spanfit {shlex.join(argv)}")
    spanfit.main(argv, standalone_mode=False)


def copy_inputs(out: Path) -> None:
    """Put the demo's input files where a person can read and change them, and keep those that are there."""
    from importlib.resources import files as resources

    out.mkdir(parents=True, exist_ok=True)
    for file in resources("spanfit.cli").joinpath("demo_data").iterdir():
        target = out / file.name
        if file.name.endswith(".toml") and not target.exists():
            target.write_bytes(file.read_bytes())


def copy_recorded(store: Path) -> None:
    """Put the recorded run into a store, unless it is there."""
    from importlib.resources import files as resources

    store.mkdir(parents=True, exist_ok=True)
    for file in resources("spanfit.cli").joinpath("demo_data").iterdir():
        if file.name.endswith(".parquet"):
            (store / file.name).write_bytes(file.read_bytes())
            talk(f"copied the {RECORDED_LABEL} {file.name.removesuffix('.parquet')} to {store}")

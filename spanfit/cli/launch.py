"""``spanfit launch``: the launch file of a placement that was written before."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.launch.formats import LaunchFormat

if TYPE_CHECKING:
    from spanfit.placer.model import Placement

FORMATS = tuple(map(str, LaunchFormat))
_HELP = f"""Print what starts the ranks of PLACEMENT, a placement.json, in its order.

FORMAT is one of {", ".join(FORMATS)}; docs/launching.md says what each is.
"""


@click.command(help=_HELP, epilog="Example: spanfit launch slurm placement.json --profile site.toml")
@click.argument("launch_format", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("placement", type=click.Path(path_type=Path))
@click.option("--profile", type=click.Path(path_type=Path), help="What the site needs around the job, as TOML.")
def launch(launch_format: str, placement: Path, profile: Path | None) -> None:
    """Print the launch file of a placement."""
    from spanfit import files
    from spanfit.placer.model import SCHEMA_VERSION, Placement

    click.echo(launch_text(files.read_json(placement, Placement, SCHEMA_VERSION), launch_format, profile), nl=False)


def launch_text(placement: "Placement", launch_format: str, profile: Path | None) -> str:
    """Return a launch file of a placement, with what the profile of a site adds."""
    from spanfit.launch.profile import read_profile
    from spanfit.placer.emit import emit

    return emit(placement, LaunchFormat(launch_format), read_profile(profile) if profile else None)

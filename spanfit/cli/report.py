"""``spanfit report``: one self-contained HTML page of a run."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import load_cluster
from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import talk

if TYPE_CHECKING:
    from spanfit.placer.model import Placement


@click.command(epilog="Example: spanfit report latest --weights weights.json --placement placement.json -o report.html")
@run_argument
@store_option
@click.option("--weights", type=click.Path(path_type=Path), metavar="FILE", help="Show the weights of a weights.json.")
@click.option("--placement", type=click.Path(path_type=Path), metavar="FILE", help="Show a placement.json.")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster the placement was made for, to show what was free.",
)
@click.option("--label", default="", help="What to call the run, such as 'recorded campaign'.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="Write the page here.",
)
def report(
    run: str,
    store: Path,
    weights: Path | None,
    placement: Path | None,
    cluster: Path | None,
    label: str,
    output: Path,
) -> None:
    """Write one self-contained HTML page of a run: findings, figures, tables, provenance."""
    if cluster and not placement:
        raise click.UsageError("--cluster belongs to --placement FILE")
    from spanfit import files
    from spanfit.placer.model import SCHEMA_VERSION, Placement
    from spanfit.report.html import render_page
    from spanfit.results.store import Store
    from spanfit.weights.io import read_weights

    info, frame = Store(store).read(Store(store).resolve(run))
    placed = files.read_json(placement, Placement, SCHEMA_VERSION) if placement else None
    page = render_page(
        info,
        frame,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        weights=read_weights(weights) if weights else None,
        placement=placed,
        free=_free(placed, cluster) if placed and cluster else None,
        label=label,
    )
    files.write_text(output, page)
    talk(f"{output}: report of run {info.run_id}, {len(page.encode()) / 1024:.0f} KiB; open it in a browser")


def _free(placed: "Placement", path: Path) -> dict[str, int]:
    """Return the nodes of each minipod that were free for a placed job; ConfigError where the cluster is another."""
    from spanfit.errors import ConfigError
    from spanfit.placer.constraints import free_nodes
    from spanfit.placer.verify import verify

    cluster = load_cluster(path)
    try:
        verify(placed, cluster)
    except ValueError as error:
        raise ConfigError(
            f"{path}: the placement does not hold on this cluster: {error}; place the job again"
        ) from None
    labels = cluster.switch_labels("minipod")
    members = cluster.minipods(free_nodes(placed.job, cluster, placed.rules))
    return {labels[switch]: len(nodes) for switch, nodes in members.items()}

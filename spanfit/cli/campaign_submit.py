"""``spanfit campaign submit``: a campaign as a job of Slurm that waits for its nodes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import tell_findings
from spanfit.cli.options import store_option
from spanfit.cli.output import talk

if TYPE_CHECKING:
    from spanfit.profiler.campaign import Campaign

_POLL_S = 5.0


@click.command(epilog="Example: spanfit campaign submit campaign.toml --time-limit 2h --send --follow")
@click.argument("campaign_file", metavar="CAMPAIGN.toml", type=click.Path(path_type=Path))
@store_option
@click.option("--time-limit", help="Of the job, such as 2h; the partition's own unless given.")
@click.option("--option", "options", multiple=True, help="One more option of sbatch, such as --partition=batch.")
@click.option("--send", "is_sent", is_flag=True, help="Send the job; without it the script is only printed.")
@click.option("--follow", "is_followed", is_flag=True, help="Wait for the job's end; Ctrl-C leaves the job alone.")
def submit(
    campaign_file: Path,
    store: Path,
    time_limit: str | None,
    options: tuple[str, ...],
    is_sent: bool,
    is_followed: bool,
) -> None:
    """Print the sbatch script that runs a campaign once its nodes are free; with --send, send it.

    The same command again says how the job is; once the job is gone it sends what is missing of the campaign.
    """
    from spanfit.launch.submit import find_queued, send
    from spanfit.profiler.campaign import Campaign

    planned = Campaign(campaign_file, store)
    tell_findings(planned.findings)
    if planned.is_finished:
        talk(f"run {planned.run_id} is finished already; measure it anew with spanfit campaign run --again")
        return
    name, script = _job(planned, time_limit, options)
    job = find_queued(name) if is_sent or is_followed else None
    if job is not None:
        talk(job.words())
    elif is_sent:
        planned.folder.mkdir(parents=True, exist_ok=True)
        talk(f"sent job {send(script)}: it runs {planned.run_id} once its {len(planned.node_names)} nodes are free")
    else:
        click.echo(script, nl=False)
    if is_followed:
        _follow(planned, name)


def _job(planned: "Campaign", time_limit: str | None, options: tuple[str, ...]) -> tuple[str, str]:
    """Return the name and the script of the job that runs a campaign."""
    from spanfit import units
    from spanfit.bench.campaign_file import Launcher
    from spanfit.errors import ConfigError
    from spanfit.launch.batch import BatchRequest, render_batch

    launcher = planned.file.launch.launcher
    if launcher is not Launcher.SRUN:
        raise ConfigError(
            f'{planned.path}: launch.launcher: found "{launcher}", expected "srun": ranks of a Slurm job are its steps'
        )
    store = str(planned.folder.parent.absolute())
    try:
        request = BatchRequest(
            name=f"spanfit-{planned.run_id}",
            node_names=planned.node_names,
            command=(
                sys.executable,
                "-m",
                "spanfit",
                "campaign",
                "run",
                str(planned.path.absolute()),
                "--store",
                store,
            ),
            folder=str(planned.folder.absolute()),
            time_limit_s=units.parse_time(time_limit) if time_limit else None,
            options=options,
        )
        return request.name, render_batch(request)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _follow(planned: "Campaign", name: str) -> None:
    """Say each change of a job until it has ended; LaunchError where it left the campaign unfinished."""
    from spanfit.errors import LaunchError
    from spanfit.launch.submit import find_queued

    said = ""
    while job := find_queued(name):
        if job.words() != said:
            said = job.words()
            talk(said)
        time.sleep(_POLL_S)
    if not planned.is_finished:
        raise LaunchError(
            f"the job ended before run {planned.run_id} was finished; what it printed is in {planned.folder}; "
            "run the same command to send the rest"
        )
    talk(f"run {planned.run_id} is finished")

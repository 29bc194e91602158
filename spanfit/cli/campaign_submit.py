"""``spanfit campaign submit``: a campaign as a job that waits for its nodes."""

import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import tell_findings
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, talk

if TYPE_CHECKING:
    from spanfit.launch.profile import LaunchProfile
    from spanfit.launch.queued import QueuedJob
    from spanfit.launch.submit import Sender
    from spanfit.profiler.campaign import Campaign

_POLL_S = 5.0
_NAME_END = 48
"""The last letters of a run's id that a job of Kubernetes carries: the id's hash is at its end."""


@click.command(epilog="Example: spanfit campaign submit campaign.toml --time-limit 2h --send --follow")
@click.argument("campaign_file", metavar="CAMPAIGN.toml", type=click.Path(path_type=Path))
@store_option
@click.option(
    "--to",
    "system",
    type=click.Choice(["slurm", "kubernetes"]),
    default="slurm",
    show_default=True,
    help="What starts the job: sbatch, or kubectl.",
)
@click.option("--time-limit", help="Of the job, such as 2h; the system's own unless given.")
@click.option("--profile", type=click.Path(path_type=Path), help="What the site needs around the job, as TOML.")
@click.option("--send", "is_sent", is_flag=True, help="Send the job; without it, it is only printed.")
@click.option("--follow", "is_followed", is_flag=True, help="Wait for the job's end; Ctrl-C leaves the job alone.")
@json_option
def submit(
    campaign_file: Path,
    store: Path,
    system: str,
    time_limit: str | None,
    profile: Path | None,
    is_sent: bool,
    is_followed: bool,
    as_json: bool,
) -> None:
    """Print the job that runs a campaign once its nodes are free; with --send, send it.

    The same command again says how the job is; once the job is gone it sends what is missing of the campaign.
    """
    from spanfit.launch.profile import LaunchProfile, read_profile
    from spanfit.profiler.campaign import Campaign

    planned = Campaign(campaign_file, store)
    tell_findings(planned.findings)
    job, text = None, ""
    if planned.is_finished:
        talk(f"run {planned.run_id} is finished already; measure it anew with spanfit campaign run --again")
    else:
        sender, text = _job(planned, system, time_limit, read_profile(profile) if profile else LaunchProfile())
        job = sender.find() if is_sent or is_followed else None
        if job is not None:
            talk(job.words())
        elif is_sent:
            job = _send(planned, sender, text)
        elif not as_json:
            click.echo(text, nl=False)
        if is_followed:
            _follow(planned, sender)
    if as_json:
        found = None if job is None else asdict(job)
        print_json({"run_id": planned.run_id, "is_finished": planned.is_finished, "job": found, "text": text})


def _send(planned: "Campaign", sender: "Sender", text: str) -> "QueuedJob":
    """Send the job of a campaign."""
    from spanfit.launch.queued import QueuedJob

    planned.folder.mkdir(parents=True, exist_ok=True)
    job = QueuedJob(job_id=sender.send(text), state="sent")
    talk(f"sent job {job.job_id}: it runs {planned.run_id} once its {len(planned.node_names)} nodes are free")
    return job


def _job(planned: "Campaign", system: str, time_limit: str | None, site: "LaunchProfile") -> tuple["Sender", str]:
    """Return the way to send the job that runs a campaign, and its text."""
    from spanfit import units
    from spanfit.errors import ConfigError
    from spanfit.launch.render.campaign import CampaignJob, render_campaign_pods, render_campaign_slurm
    from spanfit.launch.submit import KubernetesSender, SlurmSender

    is_slurm = system == "slurm"
    _check_launcher(planned, is_slurm)
    # Pods have a Python of their own.
    program = (sys.executable, "-m", "spanfit") if is_slurm else ("spanfit",)
    store = str(planned.folder.parent.absolute())
    name = f"spanfit-{planned.run_id}"
    try:
        job = CampaignJob(
            name=name if is_slurm else re.sub("[^a-z0-9]", "-", name.lower())[-_NAME_END:].strip("-"),
            node_names=planned.node_names,
            ranks_per_node=planned.file.launch.ranks_per_node,
            command=(*program, "campaign", "run", str(planned.path.absolute()), "--store", store),
            folder=str(planned.folder.absolute()),
            time_limit_s=units.parse_duration(time_limit) if time_limit else None,
        )
        if is_slurm:
            return SlurmSender(job.name), render_campaign_slurm(job, site)
        return KubernetesSender(job.name, site.kubernetes.namespace), render_campaign_pods(job, site)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _check_launcher(planned: "Campaign", is_slurm: bool) -> None:
    """Refuse a campaign whose ranks are not started as the system can: steps of a job of Slurm, by ssh between pods."""
    from spanfit.bench.campaign_file import Launcher
    from spanfit.errors import ConfigError

    found, expected = planned.file.launch.launcher, Launcher.SRUN if is_slurm else Launcher.SSH
    if found is not expected:
        raise ConfigError(f'{planned.path}: launch.launcher: found "{found}", expected "{expected}" for such a job')


def _follow(planned: "Campaign", sender: "Sender") -> None:
    """Say each change of a job until it has ended; LaunchError where it left the campaign unfinished."""
    from spanfit.errors import LaunchError

    said = ""
    while job := sender.find():
        if job.words() != said:
            said = job.words()
            talk(said)
        time.sleep(_POLL_S)
    if not planned.is_finished:
        raise LaunchError(
            f"the job ended before run {planned.run_id} was finished; what Slurm's jobs print is in {planned.folder}, "
            "and kubectl logs tells a pod's; run the same command to send the rest"
        )
    talk(f"run {planned.run_id} is finished")

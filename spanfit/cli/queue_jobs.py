"""``spanfit queue submit|announce|arrived|finished|cancel``: jobs come and go."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import json_option, talk
from spanfit.cli.queue_options import (
    check_known,
    duration,
    job_argument,
    moment,
    open_queue,
    print_step,
    state_option,
)

if TYPE_CHECKING:
    from spanfit.placer.model import JobSpec
    from spanfit.queue.model.events import Event
    from spanfit.queue.model.jobs import Forecast, QueueJob

_JOB_ID = re.compile(r"(?=[0-9._-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,60}")


def _you() -> str:
    from spanfit.topology.probe_slurm import user_name

    return user_name()


def _job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a job."""
    options = (
        click.argument("name", required=False),
        click.option(
            "--job", "job_file", type=click.Path(path_type=Path), metavar="FILE", help="A job file: its grid."
        ),
        click.option("--nodes", "nnodes", type=click.IntRange(1), metavar="N", help="Nodes, where there is no --job."),
        click.option("--weights", type=click.Path(path_type=Path), metavar="FILE", help="Alpha of --job from weights."),
        click.option("--entry", help="Entry of the weights to use, by its job's name."),
        click.option("--accept-stale", is_flag=True, help="Use stale weights, and say why they are stale."),
        click.option("--alpha", type=click.FloatRange(0, 1), help="Weight of DP groups of --job by hand."),
        click.option("--gpu-model", help="Only nodes of this model."),
        click.option(
            "--runtime", metavar="TIME", callback=duration, help="How long it is expected to run, such as 2h."
        ),
        click.option(
            "--runtime-upper", metavar="TIME", callback=duration, help="What it rarely exceeds (the rules' quantile)."
        ),
        click.option("--time-limit", metavar="TIME", callback=duration, help="What it never exceeds."),
        click.option(
            "--model", type=click.Path(path_type=Path), metavar="FILE", help="Forecast by this trained model."
        ),
        click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first."),
        click.option("--preemptable", "is_preemptable", is_flag=True, help="May be stopped and queued again."),
        click.option("--owner", default=_you, show_default="you", help="Whose job it is."),
        click.option("--department", default="", help="Of its owner, as the model knows it."),
        click.option("--gpus", "ngpus", type=click.IntRange(0), help="All its GPUs, as the model knows it."),
        state_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(epilog="Example: spanfit queue submit train-7 --nodes 16 --runtime 2h --time-limit 4h")
@_job_options
def submit(**options: Any) -> None:
    """Queue a job, and say what was decided about it.

    NAME may be left out where the --job file has one.
    """
    _enter(options, None)


@click.command(epilog="Example: spanfit queue announce llm-1 --job job.toml --alpha 0.3 --at 22:00 --runtime 6d")
@_job_options
@click.option(
    "--at",
    "expected_start_s",
    metavar="MOMENT",
    callback=moment,
    required=True,
    help="When it arrives: 22:00, now+4h, ISO 8601.",
)
def announce(expected_start_s: float, **options: Any) -> None:
    """Announce a job that arrives later.

    Nodes are reserved for it; until then, others use them if they end in time.
    """
    _enter(options, expected_start_s)


def _enter(options: dict[str, Any], expected_start_s: float | None) -> None:
    """Put a job into the queue."""
    from spanfit.errors import ConfigError, ExitCode
    from spanfit.queue.model.events import DecisionKind, Submitted

    now_s = time.time()
    job = _described(options, now_s, expected_start_s)
    with open_queue(options["path"]) as store:
        state = store.state()
        if job.job_id in state.waiting or job.job_id in state.running:
            raise ConfigError(
                f"{options['path']}: job {job.job_id} is in the queue already; give this one another name"
            )
        forecast = _forecast(job, options, store.rules().quantile)
        step = store.step(Submitted(at_s=now_s, job=job, forecast=forecast))
    print_step(step, options["path"], options["as_json"])
    if any(decision.kind is DecisionKind.REFUSE for decision in step.decisions):
        click.get_current_context().exit(ExitCode.INFEASIBLE)


def _described(options: dict[str, Any], now_s: float, expected_start_s: float | None) -> "QueueJob":
    """Return the job that options describe; UsageError where they do not."""
    from spanfit.queue.model.jobs import QueueJob

    if (options["nnodes"] is None) == (options["job_file"] is None):
        raise click.UsageError("give one of --nodes N and --job FILE")
    if options["job_file"] is None and (options["weights"] or options["entry"] or options["alpha"] is not None):
        raise click.UsageError("--weights, --entry and --alpha place the grid of --job FILE")
    fields = _from_options(options) if options["job_file"] is None else _from_file(options)
    return QueueJob(
        job_id=_checked_name(options["name"] or fields["name"], options["owner"]),
        submitted_s=now_s,
        expected_start_s=expected_start_s,
        priority=options["priority"],
        is_preemptable=options["is_preemptable"],
        time_limit_s=options["time_limit"],
        owner=options["owner"],
        department=options["department"],
        **{key: value for key, value in fields.items() if key != "name"},
    )


def _checked_name(name: str | None, owner: str) -> str:
    """Return the name of a job; a number would be taken for a job of Slurm's."""
    if name is None:
        raise click.UsageError("give the job a NAME")
    if not _JOB_ID.fullmatch(name):
        raise click.UsageError(
            f"NAME: found {name!r}, expected letters, digits, '.', '_' and '-', a letter among them, 61 at most"
        )
    if not _USER.fullmatch(owner):
        raise click.UsageError(f"--owner: found {owner!r}, expected the name of a user")
    return name


def _from_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return what options alone say of a job without a file."""
    return {
        "name": None,
        "nnodes": options["nnodes"],
        "gpu_model": options["gpu_model"],
        "ngpus": options["ngpus"] or 0,
    }


def _from_file(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a job file, and the weights for it, say of a job."""
    from spanfit.placer.jobfile import read_job

    spec = read_job(options["job_file"])
    nrows, ncolumns = spec.layout.grid(spec.ngpus_per_node)
    alpha = 0.5 if options["alpha"] is None else options["alpha"]
    if options["weights"] is not None:
        if options["alpha"] is not None:
            raise click.UsageError("give one of --weights FILE and --alpha SHARE")
        alpha = _alpha(spec, options)
    ngpus = nrows * ncolumns * spec.ngpus_per_node
    return {
        "name": spec.name,
        "nnodes": nrows * ncolumns,
        "nrows": nrows,
        "ncolumns": ncolumns,
        "alpha": alpha,
        "gpu_model": options["gpu_model"] or spec.gpu_model,
        "ngpus": ngpus if options["ngpus"] is None else options["ngpus"],
    }


def _alpha(spec: "JobSpec", options: dict[str, Any]) -> float:
    """Return alpha of a job by weights that hold, or whose staleness is accepted, and say what limits them."""
    from datetime import UTC, datetime

    from spanfit.placer.place import choose_weights
    from spanfit.weights.io import read_weights
    from spanfit.weights.model import remarks
    from spanfit.weights.stale import accept, reasons

    weights = read_weights(options["weights"])
    entry = choose_weights(weights, spec, options["entry"])
    models = [model for model in (options["gpu_model"] or spec.gpu_model,) if model]
    stale = reasons(weights, now=datetime.now(UTC), gpu_models=models, entry=entry)
    accepted = accept(str(options["weights"]), stale, accept_stale=options["accept_stale"])
    grid = spec.layout.grid(spec.ngpus_per_node)
    shape = (
        []
        if (entry.dp, entry.pp) == grid
        else [f"measured on {entry.dp} x {entry.pp} nodes, not {grid[0]} x {grid[1]}"]
    )
    for remark in (*accepted, *remarks(entry), *shape):
        talk(f"warning: weights of {entry.job}: {remark}")
    return entry.alpha.value


def _forecast(job: "QueueJob", options: dict[str, Any], quantile: float) -> "Forecast":
    """Return how long a job is predicted to run: as said, by a model, or at most its time limit."""
    from spanfit.errors import ConfigError
    from spanfit.queue.model.jobs import Forecast

    mean_s, upper_s, limit_s = options["runtime"], options["runtime_upper"], options["time_limit"]
    if options["model"] is not None:
        if mean_s is not None:
            raise click.UsageError("give one of --runtime and --model")
        from spanfit.queue.jct.model import read_model

        return read_model(options["model"]).forecast([job], quantile)[0]
    if mean_s is None and limit_s is None:
        raise click.UsageError("give --runtime, --model or --time-limit: a queue that plans must know how long")
    mean_s = limit_s if mean_s is None else mean_s
    upper_s = (mean_s if limit_s is None else limit_s) if upper_s is None else upper_s
    if not 0 < mean_s <= upper_s or upper_s > (limit_s or upper_s):
        raise ConfigError(
            f"job {job.job_id}: found runtime {mean_s:g} s, upper {upper_s:g} s, time limit {limit_s or 'none'}; "
            "expected above zero, and none above the next"
        )
    return Forecast(mean_s=mean_s, upper_s=upper_s)


@click.command(epilog="Example: spanfit queue arrived llm-1")
@job_argument
@state_option
@json_option
def arrived(job_id: str, path: Path, as_json: bool) -> None:
    """Tell that an announced job is there and wants its nodes.

    It may be early or late. With Slurm, tick sees it by itself.
    """
    from spanfit.queue.model.events import Arrived

    _tell(path, job_id, Arrived(at_s=time.time(), job_id=job_id), as_json)


@click.command(epilog="Example: spanfit queue finished train-7")
@job_argument
@state_option
@json_option
def finished(job_id: str, path: Path, as_json: bool) -> None:
    """Tell that a running job has ended.

    With Slurm, tick sees it by itself.
    """
    from spanfit.queue.model.events import Finished

    _tell(path, job_id, Finished(at_s=time.time(), job_id=job_id), as_json)


@click.command(epilog="Example: spanfit queue cancel train-7")
@job_argument
@state_option
@json_option
def cancel(job_id: str, path: Path, as_json: bool) -> None:
    """Withdraw a job that waits, is announced or runs."""
    from spanfit.queue.model.events import Cancelled

    _tell(path, job_id, Cancelled(at_s=time.time(), job_id=job_id), as_json)


def _tell(path: Path, job_id: str, event: "Event", as_json: bool) -> None:
    with open_queue(path) as store:
        check_known(store.state(), job_id, path)
        step = store.step(event)
    print_step(step, path, as_json)

"""``spanfit jct``: train a predictor of runtimes on a trace of jobs, score it out of time, ask it for forecasts."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.queue_options import duration, moment
from spanfit.results.schema import format_estimate

if TYPE_CHECKING:
    from spanfit.queue.jct.compare import Comparison
    from spanfit.queue.jct.metrics import Score
    from spanfit.queue.traces.reading import Trace

kind_option = click.option(
    "--kind",
    type=click.Choice(["sacct", "philly", "acme"]),
    default="sacct",
    show_default=True,
    help="Layout of the trace: sacct --parsable2, Philly's cluster_job_log, or a job table of Acme or Helios.",
)
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all draws.")
draws_option = click.option(
    "--draws",
    type=click.IntRange(3, 1000),
    default=12,
    show_default=True,
    help="Parameters tried by random search; as many for each predictor.",
)
output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="Write here."
)
trace_argument = click.argument("trace", type=click.Path(path_type=Path, dir_okay=False))


@click.group(epilog="Example: spanfit jct trace -o synthetic.txt")
def jct() -> None:
    """Predict how long jobs run, from how jobs like them ran before."""


@jct.command("train", epilog="Example: spanfit jct train synthetic.txt -o model.npz")
@trace_argument
@kind_option
@output_option
@click.option(
    "--withhold",
    type=click.Choice(["name", "partition", "user", "department"]),
    multiple=True,
    help="Do not look at this of a job; for the queue, whose jobs have neither: --withhold name --withhold partition.",
)
@draws_option
@seed_option
def train(trace: Path, kind: str, output: Path, withhold: tuple[str, ...], draws: int, seed: int) -> None:
    """Train a predictor on a trace of ended jobs and write it to a file without pickles.

    The trees are fitted to what ended first, the upper quantile is calibrated on what ended after. Jobs that users,
    preemption or failing nodes ended are left out.
    """
    from spanfit.queue.jct.model import write_model
    from spanfit.queue.jct.train import train as trained

    model = trained(_read(trace, kind), ndraws=draws, seed=seed, withhold=withhold)
    write_model(output, model)
    info = model.info
    talk(
        f"{output}: {info.njobs} jobs taught, {info.ncalibration} later ones calibrate, {info.nleft_out} left out "
        f"(cut short by users, preemption or failing nodes); mean fitted to {info.target.value}"
    )


@jct.command("recalibrate", epilog="Example: spanfit jct recalibrate model.npz synthetic.txt -o model.npz")
@click.argument("model", type=click.Path(path_type=Path, dir_okay=False))
@trace_argument
@kind_option
@output_option
def recalibrate(model: Path, trace: Path, kind: str, output: Path) -> None:
    """Give a predictor the past and the calibration of a newer trace; its trees stay.

    It takes seconds, so that it may run every hour; train anew every few weeks. The trace begins as far back as
    forecasts shall remember.
    """
    from spanfit.queue.jct.model import read_model, write_model

    known = read_model(model).recalibrated(_read(trace, kind).jobs)
    write_model(output, known)
    talk(f"{output}: upper quantile calibrated on the {known.info.ncalibration} jobs that ended last")


@jct.command("score", epilog="Example: spanfit jct score synthetic.txt --draws 3 --test-share 0.3")
@trace_argument
@kind_option
@click.option(
    "--test-share",
    type=click.FloatRange(0.01, 0.9),
    default=0.1,
    show_default=True,
    help="Share of the jobs, the last ones, that is forecast.",
)
@click.option(
    "--quantile",
    type=click.FloatRange(0.01, 0.99),
    default=0.9,
    show_default=True,
    help="Of the upper bound that is calibrated.",
)
@draws_option
@seed_option
@json_option
def score(trace: Path, kind: str, test_share: float, quantile: float, draws: int, seed: int, as_json: bool) -> None:
    """Score gradient boosting against a neural net on the last jobs of a trace, split by time."""
    import time

    from spanfit.queue.jct.compare import compare

    found = compare(
        _read(trace, kind),
        ndraws=draws,
        seed=seed,
        clock=time.perf_counter,
        test_share=test_share,
        quantile=quantile,
    )
    if as_json:
        print_json(found)
    else:
        print_comparison(found)


def print_comparison(found: "Comparison") -> None:
    """Print how predictors did on one trace."""
    columns = ("predictor", ">RMSE [10 min]", ">MAE [10 min]", ">deviance", ">within upper", ">upper / true", "target")
    title = (
        f"{found.origin}: {found.ntest} jobs forecast from {found.ntrain} that had ended; upper quantile "
        f"{units.format_percent(found.quantile)}; {found.nleft_out} left out"
    )
    print_table(title, (*columns, ">fitted in"), [_row(item) for item in found.scores])
    click.echo(f"RMSE of gradient boosting over that of the net: {format_estimate(found.rmse_ratio, '{:.3g}'.format)}")


def _row(item: "Score") -> tuple[str, ...]:
    return (
        item.name,
        format_estimate(item.rmse_bins, "{:.3g}".format),
        f"{item.mae_bins:.3g}",
        f"{item.deviance:.3g}",
        format_estimate(item.coverage, units.format_percent),
        f"{item.upper_over_runtime:.3g}",
        item.target,
        units.format_time(item.wall_s) if item.wall_s else "",
    )


@jct.command("predict", epilog="Example: spanfit jct predict model.npz --user synthetic-user-0001 --gpus 8")
@click.argument("model", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes of the job.")
@click.option("--gpus", type=click.IntRange(min=0), default=0, show_default=True, help="GPUs on all its nodes.")
@click.option("--cpus", type=click.IntRange(min=0), default=0, help="CPUs on all its nodes.  [default: not known]")
@click.option("--drives", type=click.IntRange(min=0), default=0, show_default=True, help="Drives that it mounts.")
@click.option("--user", default="", help="Its owner.")
@click.option("--department", default="", help="The owner's department, account or virtual cluster.")
@click.option("--partition", default="", help="Its partition.")
@click.option("--name", default="", help="Its name.")
@click.option("--time-limit", metavar="TIME", callback=duration, help="The longest it may run, such as 12h.")
@click.option(
    "--at", metavar="TIME", default="now", show_default=True, callback=moment, help="When it is submitted, as 22:00."
)
@click.option(
    "--quantile", type=click.FloatRange(0.01, 0.99), default=0.9, show_default=True, help="Of the upper bound."
)
@json_option
def predict(
    model: Path,
    nodes: int,
    gpus: int,
    cpus: int,
    drives: int,
    user: str,
    department: str,
    partition: str,
    name: str,
    time_limit: float | None,
    at: float,
    quantile: float,
    as_json: bool,
) -> None:
    """Forecast the runtime of a job: its mean, and a bound that a share of such jobs stays within."""
    from spanfit.queue.jct.features import Request, keys
    from spanfit.queue.jct.model import read_model

    request = Request(
        submit_s=at,
        nnodes=nodes,
        ngpus=gpus,
        ncpus=cpus,
        ndrives=drives,
        time_limit_s=time_limit,
        user=user,
        department=department,
        partition=partition,
        name=name,
    )
    known = read_model(model)
    (forecast,) = known.forecast_requests([request], quantile)
    if user and not any(key in known.history for key in keys(request)[:3]):
        talk(f"no run of {user} is known: the forecast follows from what the job asks for and from its department")
    if as_json:
        print_json(forecast)
        return
    share = units.format_percent(quantile)
    mean, upper = units.format_time(forecast.mean_s), units.format_time(forecast.upper_s)
    click.echo(f"mean {mean}; at least {share} of such jobs end within {upper}")


@jct.command("trace", epilog="Example: spanfit jct trace --shape llm --jobs 2000 --days 14 -o synthetic.txt")
@click.option(
    "--shape",
    type=click.Choice(["shared", "llm"]),
    default="shared",
    show_default=True,
    help="shared: many users and small jobs, as Philly; llm: short evaluations and few large jobs, as Acme.",
)
@click.option("--jobs", type=click.IntRange(1, 10_000_000), default=10_000, show_default=True, help="So many jobs.")
@click.option("--days", type=click.FloatRange(0.1, 3650), default=60.0, show_default=True, help="Over so many days.")
@seed_option
@output_option
def trace(shape: str, jobs: int, days: float, seed: int, output: Path) -> None:
    """Write a synthetic trace, in the layout of sacct, with the shape of published ones.

    Users, departments and names begin with "synthetic". What it gives is no result about a real cluster.
    """
    from spanfit import files
    from spanfit.queue.traces.sacct import render_sacct
    from spanfit.queue.traces.synthetic import SyntheticShape, synthetic_trace

    made = synthetic_trace(SyntheticShape(shape), njobs=jobs, days=days, seed=seed)
    files.write_text(output, render_sacct(made.jobs))
    talk(f"{output}: {len(made.jobs)} jobs; {made.remarks[0]}")


def _read(path: Path, kind: str) -> "Trace":
    """Return a trace and say what was left out of it."""
    from spanfit import files
    from spanfit.queue.traces.kinds import PARSERS

    found = PARSERS[kind](files.read_text(path), str(path))
    talk(f"{path}: {len(found.jobs)} jobs ran and ended")
    for item in found.dropped:
        talk(f"{path}: left out {item.count}: {item.reason}")
    for remark in found.remarks:
        talk(f"{path}: {remark}")
    return found

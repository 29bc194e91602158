"""``spanfit queue advise``: whether to start a job now over several minipods or to wait for a better placement."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit import units
from spanfit.cli.clusters import load_cluster
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.queue_options import check_known, duration, open_queue, state_option

if TYPE_CHECKING:
    from spanfit.placer.model import JobSpec
    from spanfit.queue.advise.costs import Costs
    from spanfit.queue.advise.options import Advice, Option
    from spanfit.queue.model.jobs import Forecast, QueueJob
    from spanfit.queue.model.nodes import Ground
    from spanfit.queue.model.state import QueueState
    from spanfit.results.schema import Estimate
    from spanfit.weights.model import WeightEntry

ADVICE_VERSION = 1

_COLUMNS = ("option", ">minipods", ">DP spread", ">PP spread", "wait", "step", "ends in", "saves", ">ends first")


@click.command(epilog="Example: spanfit queue advise --job job.toml --runtime 10h --weights weights.json")
@click.argument("name", metavar="[JOB]", required=False)
@click.option(
    "--job", "job_file", type=click.Path(path_type=Path), metavar="FILE", help="A job that is not queued yet."
)
@click.option("--runtime", callback=duration, help="How long --job runs in the tightest placement, such as 10h.")
@click.option("--runtime-upper", callback=duration, help="What it rarely exceeds (the rules' quantile).")
@click.option(
    "--weights", type=click.Path(path_type=Path), metavar="FILE", help="What spreads cost, by measured gains."
)
@click.option("--entry", help="Entry of the weights to use, by its job's name.")
@click.option(
    "--fabric", type=click.Path(path_type=Path), metavar="FILE", help="What --job's placements cost, predicted."
)
@click.option("--cluster", type=click.Path(path_type=Path), metavar="FILE", help="The cluster, for --fabric.")
@click.option("--draws", type=click.IntRange(10), default=200, show_default=True, help="Of what is not known.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seeds the draws.")
@state_option
@json_option
def advise(name: str | None, path: Path, as_json: bool, **options: Any) -> None:
    """Compare starting a job as soon as it can with waiting until a better placement is free.

    JOB waits in the queue; --job describes one that is still to be submitted. Nodes that come free are counted on to
    be held for the job; those reserved for others are not.
    """
    from dataclasses import asdict, replace

    from spanfit.queue.advise.options import advise as advise_on
    from spanfit.queue.policy.choosing import choose

    _check(name, options)
    with open_queue(path) as store:
        state, rules = store.state(), store.rules()
    state = replace(state, now_s=max(state.now_s, time.time()))
    spec = _spec(options["job_file"])
    entry = _entry(options, spec, state, name, path)
    job, forecast = _wanted(name, path, state, options, spec, entry)
    advice = advise_on(
        job,
        forecast,
        state,
        _costs(options, spec, entry, job, state.ground),
        choose,
        quantile=rules.quantile,
        ndraws=options["draws"],
        seed=options["seed"],
    )
    if as_json:
        print_json({"schema_version": ADVICE_VERSION, **asdict(advice)})
        return
    _print(advice)


def _check(name: str | None, options: dict[str, Any]) -> None:
    """Refuse options that do not say one job and one way to weigh its placements."""
    if (name is None) == (options["job_file"] is None):
        raise click.UsageError("give one of JOB, which waits in the queue, and --job FILE")
    if (options["weights"] is None) == (options["fabric"] is None):
        raise click.UsageError("give one of --weights FILE and --fabric FILE, which say what spreads cost")
    if (options["job_file"] is None) != (options["runtime"] is None):
        raise click.UsageError("--runtime says how long --job runs: give both or neither")
    if options["runtime_upper"] is not None and (options["runtime"] or 0) > options["runtime_upper"]:
        raise click.UsageError("--runtime-upper: found less than --runtime, or no --runtime; expected at least as much")
    if options["fabric"] is not None and (options["job_file"] is None or options["cluster"] is None):
        raise click.UsageError("--fabric predicts the steps of --job FILE on --cluster FILE; give both")
    if options["entry"] is not None and options["weights"] is None:
        raise click.UsageError("--entry chooses from --weights FILE")


def _spec(path: Path | None) -> JobSpec | None:
    from spanfit.placer.jobfile import read_job

    return None if path is None else read_job(path)


def _entry(
    options: dict[str, Any], spec: JobSpec | None, state: QueueState, name: str | None, path: Path
) -> WeightEntry | None:
    """Return the entry of the weights that was asked for, and tell what limits it; None with --fabric."""
    from datetime import UTC, datetime

    from spanfit.placer.place import choose_weights
    from spanfit.weights.io import read_weights
    from spanfit.weights.model import remarks
    from spanfit.weights.stale import reasons

    if options["weights"] is None:
        return None
    weights = read_weights(options["weights"])
    wanted = spec or _as_spec(_queued(name, path, state)[0])
    entry = choose_weights(weights, wanted, options["entry"])
    models = [model for model in {*state.ground.gpu_models} if model]
    stale = (f"stale: {reason}" for reason in reasons(weights, now=datetime.now(UTC), gpu_models=models, entry=entry))
    for remark in (*stale, *remarks(entry)):
        talk(f"warning: weights of {entry.job}: {remark}")
    return entry


def _as_spec(job: QueueJob) -> JobSpec:
    from spanfit.placer.model import JobSpec
    from spanfit.workload.layout import ParallelLayout

    layout = ParallelLayout(dp=job.nrows or job.nnodes, pp=job.ncolumns or 1)
    return JobSpec(name=job.job_id, layout=layout, ngpus_per_node=1, gpu_model=job.gpu_model)


def _queued(name: str | None, path: Path, state: QueueState) -> tuple[QueueJob, Forecast]:
    """Return a waiting job and its forecast; ConfigError where it is none."""
    from spanfit.errors import ConfigError

    assert name is not None
    check_known(state, name, path)
    if name not in state.waiting:
        raise ConfigError(f"{path}: job {name!r} runs already; advice is for jobs that wait, or for --job FILE")
    return state.waiting[name].job, state.waiting[name].forecast


def _wanted(
    name: str | None,
    path: Path,
    state: QueueState,
    options: dict[str, Any],
    spec: JobSpec | None,
    entry: WeightEntry | None,
) -> tuple[QueueJob, Forecast]:
    from spanfit.queue.model.jobs import Forecast, QueueJob

    if spec is None:
        return _queued(name, path, state)
    nrows, ncolumns = spec.layout.grid(spec.ngpus_per_node)
    job = QueueJob(
        job_id=spec.name,
        nnodes=nrows * ncolumns,
        submitted_s=state.now_s,
        nrows=nrows,
        ncolumns=ncolumns,
        alpha=0.5 if entry is None else entry.alpha.value,
        gpu_model=spec.gpu_model,
    )
    upper_s = options["runtime"] if options["runtime_upper"] is None else options["runtime_upper"]
    return job, Forecast(mean_s=options["runtime"], upper_s=upper_s)


def _costs(
    options: dict[str, Any], spec: JobSpec | None, entry: WeightEntry | None, job: QueueJob, ground: Ground
) -> Costs:
    from spanfit.queue.advise.costs import costs_by_weights

    if entry is not None:
        costs = costs_by_weights(entry, job, ground.minipods, ndraws=options["draws"], seed=options["seed"])
        if (entry.dp, entry.pp) != (job.nrows, job.ncolumns):
            talk(
                f"warning: weights of {entry.job} were measured on a grid of {entry.dp} x {entry.pp} nodes and job "
                f"{job.job_id} has {job.nrows} x {job.ncolumns}; gains belong to a shape"
            )
        return costs
    assert spec is not None
    return _predicted(options, spec, job, ground)


def _predicted(options: dict[str, Any], spec: JobSpec, job: QueueJob, ground: Ground) -> Costs:
    """Return costs by the step-time predictor; nodes sit on the job's ranks as its own order has them."""
    from spanfit.bench.job_file import read_training_job
    from spanfit.profiler.predict.parameters import read_parameters
    from spanfit.profiler.predict.step import StepPredictor
    from spanfit.queue.advise.costs import PredictedCosts
    from spanfit.queue.policy.choosing import choose
    from spanfit.topology.model import RankMap

    fabric = read_parameters(options["fabric"])
    predictor = StepPredictor(
        read_training_job(options["job_file"]),
        load_cluster(options["cluster"]),
        fabric.fair(),
        ngpus_per_node=spec.ngpus_per_node,
    )
    nrows = job.nrows or job.nnodes
    places = [column * nrows + row for row, column in spec.layout.node_cells(spec.ngpus_per_node)]

    def step_time_s(order: tuple[int, ...]) -> float:
        names = tuple(ground.names[order[place]] for place in places)
        return predictor.step_time_s(RankMap(node_names=names, ngpus_per_node=spec.ngpus_per_node))

    tightest = choose(job, ground, ground.everything)
    return PredictedCosts(
        step_time_s=step_time_s,
        tightest_s=step_time_s(tightest) if tightest else 1.0,
        error=fabric.error,
        ndraws=options["draws"],
        seed=options["seed"],
    )


def _print(advice: Advice) -> None:
    rows = [_row(index, option) for index, option in enumerate(advice.options)]
    print_table(f"Job {advice.job_id}: means, and what holds 95% of {advice.ndraws} draws", _COLUMNS, rows)
    for remark in advice.remarks:
        talk(f"remark: {remark}")
    click.echo(_verdict(advice))


def _row(index: int, option: Option) -> tuple[str, ...]:
    return (
        _label(index),
        str(option.minipods),
        str(option.dp_spread or "-"),
        str(option.pp_spread or "-"),
        _time(option.wait_s),
        f"{option.step.value:.3f} [{option.step.ci_low:.3f}, {option.step.ci_high:.3f}]",
        _time(option.finish_s),
        _time(option.saves_s) if option.saves_s else "-",
        f"{option.wins:.0%}",
    )


def _label(index: int) -> str:
    return "as soon as it can" if index == 0 else f"wait, {index}"


def _time(estimate: Estimate) -> str:
    low, high = (_duration(bound) for bound in (estimate.ci_low, estimate.ci_high))
    return _duration(estimate.value) if low == high else f"{_duration(estimate.value)} [{low}, {high}]"


def _duration(time_s: float | None) -> str:
    """Return a time as people read it; a negative one with its sign."""
    assert time_s is not None
    if abs(time_s) < 0.5:
        return "0 s"
    return f"−{units.format_time(-time_s)}" if time_s < 0 else units.format_time(round(time_s))


def _pays_surely(advice: Advice) -> bool:
    """Return whether every wait that is told ends sooner than the soonest start, each in 97.5% of draws."""
    saved = [option.saves_s for option in advice.options if option.saves_s]
    return all(each.ci_low is not None and each.ci_low > 0 for each in saved)


def _verdict(advice: Advice) -> str:
    """Return the advice in one sentence."""
    if len(advice.options) == 1:
        return "start as soon as it can: no better placement is expected to come free"
    if advice.best is None:
        likely = max(range(len(advice.options)), key=lambda index: advice.options[index].wins)
        wins = advice.options[likely].wins
        doubt = "wait, but it is open until when" if _pays_surely(advice) else "cannot tell"
        return f"{doubt}: none ends first in enough draws; {_label(likely)!r} does most often, in {wins:.0%}"
    best = advice.options[advice.best]
    if best.saves_s is None:
        return "start as soon as it can: waiting saves less than it takes"
    return (
        f"wait about {_duration(best.wait_s.value)} for {best.minipods} minipod{'s' * (best.minipods != 1)}: the job "
        f"ends {_time(best.saves_s)} sooner"
    )

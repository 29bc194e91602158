"""``spanfit place``: a job on the free nodes of a cluster, and a placement whose nodes have failed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from spanfit.cli.launch import FORMATS, launch_text
from spanfit.cli.options import entry_option, scaling_option
from spanfit.cli.output import json_option, print_json, talk
from spanfit.cli.place_check import check_placement
from spanfit.cli.place_drawing import show, show_repair, show_uses
from spanfit.cli.place_live import tell_start
from spanfit.cli.place_rules import HOSTLIST, hosts, rule_options, rules_of
from spanfit.cli.place_source import Source, read_source, source_options

if TYPE_CHECKING:
    from spanfit.placer.choose import StepTime
    from spanfit.placer.model import JobSpec, Placement
    from spanfit.placer.rules import Rules
    from spanfit.topology.model import Cluster

_CHECK_TAKES = ["checked", "cluster", "live", "partition", "tolerate", "as_json"]
_REPAIR_TAKES = [
    "cluster",
    "live",
    "partition",
    "tolerate",
    "repair",
    "failed",
    "max_moves",
    "time_limit",
    "seed",
    "output",
    "launch_format",
    "profile",
    "as_json",
]


@click.command(epilog="Example: spanfit place job.toml --cluster cluster.toml --weights weights.json -o placement.json")
@click.argument("job", required=False, type=click.Path(path_type=Path))
@source_options
@click.option("--weights", type=click.Path(path_type=Path), help="Take alpha and beta from this weights.json.")
@click.option("--alpha", type=click.FloatRange(0, 1), help="Weight of DP groups by hand; beta is what is left.")
@entry_option
@scaling_option
@click.option("--accept-stale", is_flag=True, help="Use stale weights; the placement records why they were stale.")
@click.option(
    "--ep-weight",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Weight of EP groups; alpha, beta share the rest.",
)
@click.option(
    "--objective",
    "reading",
    type=click.Choice(["counted", "literal"]),
    default="counted",
    show_default=True,
    help="literal: a group in one minipod counts 0, as the paper prints its D.",
)
@rule_options
@click.option(
    "--goal",
    "goals",
    multiple=True,
    type=click.Choice(["traffic", "uplink", "mean-spread", "minipods", "room"]),
    help="What chooses among equals, in the order given; all that the job has unless any is given.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Share by which an objective may be above the lowest and count as equal, such as 0.1.",
)
@click.option(
    "--fabric", type=click.Path(path_type=Path), help="Choose among equals by the step predicted on this fabric.json."
)
@click.option(
    "--solver",
    type=click.Choice(["fast", "exact", "paper"]),
    default="fast",
    show_default=True,
    help="fast refutes and constructs, exact solves an integer program, paper places whole groups only.",
)
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="Seconds.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The same seed gives the same placement, unless time ends a search.",
)
@click.option("--repair", type=click.Path(path_type=Path), help="Mend this placement.json instead of placing a JOB.")
@click.option(
    "--failed", multiple=True, metavar=HOSTLIST, help="Nodes of --repair that have failed; may be given again."
)
@click.option("--max-moves", type=click.IntRange(1), help="The most node ranks that --repair may move.")
@click.option(
    "--explain", "is_explained", is_flag=True, help="Also say which minipods limit, and what one more node buys."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the placement as JSON.")
@click.option(
    "--emit",
    "launch_format",
    metavar="FORMAT",
    type=click.Choice(FORMATS),
    help=f"Print a launch file on stdout, the drawing on stderr: {', '.join(FORMATS)}.",
)
@click.option("--profile", type=click.Path(path_type=Path), help="What the site needs around --emit's job, as TOML.")
@json_option
def place(job: Path | None, repair: Path | None, as_json: bool, launch_format: str | None, **options: Any) -> None:
    """Place JOB (a TOML job file) on the free nodes of a cluster, and say how good the placement is.

    With --repair and --failed, mend a placement instead: the same spreads with the fewest moved nodes. With --live, the
    free nodes of the running cluster count; nothing is changed unless --apply is given.
    """
    if options["checked"] is not None:
        _check_only_source(click.get_current_context())
        check_placement(options["checked"], options, as_json=as_json)
    if as_json and launch_format:
        raise click.UsageError("--json and --emit both print on stdout; give one, and -o FILE for the placement")
    if options["profile"] and not launch_format:
        raise click.UsageError("--profile belongs to --emit FORMAT")
    if (job is None) == (repair is None):
        raise click.UsageError("give one of JOB and --repair PLACEMENT")
    if options["is_explained"] and (as_json or launch_format):
        raise click.UsageError("--explain prints tables; give it without --json and --emit")
    if repair is not None:
        _check_repair(click.get_current_context())
        _mend(repair, as_json, launch_format, options)
    elif job is not None:
        _place(job, as_json, launch_format, options)


def _place(path: Path, as_json: bool, launch_format: str | None, options: dict[str, Any]) -> None:
    from spanfit.placer.choose import Goal
    from spanfit.placer.jobfile import read_job
    from spanfit.placer.model import Reading
    from spanfit.placer.place import place as place_job
    from spanfit.placer.solve import Solver

    _check_weights(options)
    job = read_job(path)
    source = read_source(options, job.name)
    cluster = source.cluster
    rules = rules_of(job, options)
    alpha, weights_hash, accepted = _alpha(path, job, cluster, rules, options)
    left = 1 - options["ep_weight"]
    placement = place_job(
        job,
        cluster,
        alpha=alpha * left,
        beta=(1 - alpha) * left,
        ep_weight=options["ep_weight"],
        reading=Reading(options["reading"]),
        rules=rules,
        goals=tuple(map(Goal, options["goals"])) or None,
        tolerance=options["tolerance"],
        step_time_s=_step_time(path, job, cluster, options["fabric"]) if options["fabric"] else None,
        weights_hash=weights_hash,
        accepted_stale=accepted,
        solver=Solver(options["solver"]),
        time_limit_s=options["time_limit"],
        seed=options["seed"],
    )
    _tell(placement, source, as_json, launch_format, options)


def _tell(
    placement: "Placement", source: Source, as_json: bool, launch_format: str | None, options: dict[str, Any]
) -> None:
    from spanfit.placer.explain import explain

    text = _written(placement, options, launch_format)
    if as_json:
        print_json(placement)
    else:
        show(placement, on_stderr=text is not None)
    if options["is_explained"]:
        show_uses(placement, explain(placement, source.cluster, time_limit_s=options["time_limit"]))
    if text is not None:
        click.echo(text, nl=False)
    tell_start(placement, source, options, on_stderr=as_json or text is not None)


def _mend(path: Path, as_json: bool, launch_format: str | None, options: dict[str, Any]) -> None:
    from spanfit import files
    from spanfit.placer.model import SCHEMA_VERSION, Placement
    from spanfit.placer.repair import repair

    placed = files.read_json(path, Placement, SCHEMA_VERSION)
    found = repair(
        placed,
        read_source(options, placed.job.name).cluster,
        hosts("--failed", options["failed"]),
        max_moves=options["max_moves"],
        time_limit_s=options["time_limit"],
        seed=options["seed"],
    )
    text = _written(found.placement, options, launch_format)
    if as_json:
        print_json(found)
    else:
        show(found.placement, on_stderr=text is not None)
        show_repair(found, on_stderr=text is not None)
    if text is not None:
        click.echo(text, nl=False)


def _written(placement: "Placement", options: dict[str, Any], launch_format: str | None) -> str | None:
    """Write the placement where it was asked for, and return the text of the launch file that was asked for."""
    from spanfit import files

    text = launch_text(placement, launch_format, options["profile"]) if launch_format else None
    if output := options["output"]:
        files.write_json(output, placement)
        talk(f"{output}: placement of job {placement.job.name} on {len(placement.cells)} nodes")
    return text


def _check_repair(context: click.Context) -> None:
    """Refuse options that a repair would leave aside."""
    if not context.params["failed"]:
        raise click.UsageError("--repair needs --failed HOSTLIST, the nodes that have failed")
    if others := _given_but(context, _REPAIR_TAKES):
        raise click.UsageError(
            f"--repair keeps the weights and rules of its placement and reserves nothing; leave {', '.join(others)} out"
        )


def _check_only_source(context: click.Context) -> None:
    """Refuse options that a check would leave aside."""
    if others := _given_but(context, _CHECK_TAKES):
        raise click.UsageError(f"--check places nothing; leave {', '.join(others)} out")


def _given_but(context: click.Context, taken: Sequence[str]) -> list[str]:
    """Return the options given on the command line that are none of those taken."""
    names = {
        parameter.name: parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
        for parameter in context.command.params
        if parameter.name
    }
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return [names[name] for name in given if name not in taken]


def _check_weights(options: dict[str, Any]) -> None:
    if (options["weights"] is None) == (options["alpha"] is None):
        raise click.UsageError("give one of --weights FILE and --alpha SHARE")
    if options["entry"] is not None and options["weights"] is None:
        raise click.UsageError("--entry chooses from --weights FILE")
    if options["failed"] or options["max_moves"]:
        raise click.UsageError("--failed and --max-moves belong to --repair PLACEMENT")


def _alpha(
    path: Path, job: "JobSpec", cluster: "Cluster", rules: "Rules", options: dict[str, Any]
) -> tuple[float, str, tuple[str, ...]]:
    """Return alpha, the hash of the weights and why they were stale, and say what limits them."""
    if options["weights"] is None:
        return options["alpha"], "", ()
    from spanfit.cli.weighing import chosen_entry, scaling_target
    from spanfit.weights.io import content_hash, read_weights
    from spanfit.weights.scaling import Scaling, scaled_alpha

    weights = read_weights(options["weights"])
    chosen, accepted = chosen_entry(
        options["weights"], weights, options["entry"], job, cluster, rules, accept_stale=options["accept_stale"]
    )
    alpha, grid = chosen.alpha.value, job.layout.grid(job.ngpus_per_node)
    if target := scaling_target(options["scaling"], path, chosen, job, cluster, rules):
        shape, minipods = target
        alpha = scaled_alpha(chosen, shape, Scaling.VOLUMES, minipods)
        talk(f"alpha of {chosen.job} is {chosen.alpha.value:.4g}; scaled to job {job.name} by volumes {alpha:.4g}")
    elif (chosen.dp, chosen.pp) != grid:
        talk(
            f"warning: weights of {chosen.job} were measured on a grid of {chosen.dp} x {chosen.pp} nodes and job "
            f"{job.name} has {grid[0]} x {grid[1]}; alpha belongs to a shape; a [step] table of the job and volumes of "
            "the entry would scale it"
        )
    return alpha, content_hash(weights), accepted


def _step_time(path: Path, job: "JobSpec", cluster: "Cluster", fabric: Path) -> "StepTime":
    from spanfit.bench.job_file import read_training_job
    from spanfit.profiler.predict.parameters import read_parameters
    from spanfit.profiler.predict.step import StepPredictor

    fair = read_parameters(fabric).fair()
    return StepPredictor(read_training_job(path), cluster, fair, ngpus_per_node=job.ngpus_per_node).step_time_s

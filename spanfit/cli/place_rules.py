"""What a placement of ``spanfit place`` must respect: the options, and the rules that they make."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from spanfit.placer.model import JobSpec
    from spanfit.placer.rules import Rules

HOSTLIST = "HOSTLIST"
"""What help calls names such as ``n[1-3]``."""


def rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a placement must respect."""
    options = (
        click.option("--exclude", multiple=True, metavar=HOSTLIST, help="Nodes that are not used; may be given again."),
        click.option("--pin", multiple=True, metavar=HOSTLIST, help="Nodes that must be used; may be given again."),
        click.option(
            "--spares", type=click.IntRange(0), default=0, help="Free nodes to keep in each minipod that is used."
        ),
        click.option("--use-reserved", is_flag=True, help="Nodes in state reserved are free: they are this job's."),
        click.option("--within", metavar="TIER", help="The job stays under one switch of this tier, such as core."),
        click.option(
            "--ep-within", metavar="DOMAIN", help="No EP group leaves its domain: accelerator, or a tier up to minipod."
        ),
        click.option(
            "--one-model", type=click.Choice(["job", "dp", "pp"]), help="The job, or each group, is on one GPU model."
        ),
        click.option(
            "--stage-model",
            multiple=True,
            metavar="STAGES=MODEL",
            help="GPU model of stages, such as 0-3=H100; may be given again, for all stages.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def rules_of(job: "JobSpec", options: dict[str, Any]) -> "Rules":
    """Return the rules that the options say; ConfigError where they contradict each other or the job."""
    from spanfit.errors import ConfigError
    from spanfit.placer.rules import OneModel, Rules

    try:
        return Rules(
            excluded=hosts("--exclude", options["exclude"]),
            pinned=hosts("--pin", options["pin"]),
            spares=options["spares"],
            use_reserved=options["use_reserved"],
            within=options["within"],
            ep_within=options["ep_within"],
            one_model=OneModel(options["one_model"]) if options["one_model"] else None,
            stage_models=tuple(_stage_models(job.layout.pp, options["stage_model"])),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def hosts(option: str, hostlists: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that an option was given, each once; ConfigError where they are no hostlist."""
    from spanfit.errors import ConfigError
    from spanfit.topology.hostlist import expand_hostlist

    try:
        return tuple(dict.fromkeys(name for text in hostlists for name in expand_hostlist(text)))
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def _stage_models(nstages: int, texts: tuple[str, ...]) -> Iterator[str]:
    """Yield the model of each stage; ValueError where a text is wrong or a stage has none or two."""
    from spanfit.topology.hostlist import expand_hostlist

    models: dict[str, str] = {}
    for text in texts:
        stages, is_given, model = text.partition("=")
        if not (stages and is_given and model):
            raise ValueError(f"--stage-model: found {text!r}, expected STAGES=MODEL, such as 0-3=H100")
        for stage in expand_hostlist(f"[{stages}]"):
            if models.setdefault(stage, model) != model:
                raise ValueError(f"--stage-model: found {models[stage]} and {model} for stage {stage}, expected one")
    expected = [str(stage) for stage in range(nstages)] if texts else []
    if sorted(models) != sorted(expected):
        raise ValueError(f"--stage-model: found stages {', '.join(models)}, expected 0 to {nstages - 1}, each once")
    return (models[stage] for stage in expected)

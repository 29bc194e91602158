"""What the commands of the queue share: its file, the present, times as people type them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import print_json, talk
from spanfit.queue.when import LONGEST_S, format_moment, parse_moment
from spanfit.units import parse_duration

if TYPE_CHECKING:
    from spanfit.queue.model.state import QueueState
    from spanfit.queue.state.store import QueueStore, Step

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

state_option: Decorator = click.option(
    "--state",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SPANFIT_QUEUE",
    show_envvar=True,
    default=Path("spanfit-queue.sqlite"),
    show_default=True,
    metavar="FILE",
    help="The queue's file, on a local disk.",
)
job_argument: Decorator = click.argument("job_id", metavar="JOB")


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a duration that was typed; the callback of an option."""
    if value is None:
        return None
    try:
        duration_s = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not 0 < duration_s <= LONGEST_S:
        raise click.BadParameter(f"found {value!r}, expected more than nothing and at most ten years")
    return duration_s


def moment(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return the Unix time of a moment that was typed, in this machine's zone; the callback of an option."""
    now_s = time.time()
    try:
        moment_s = parse_moment(value, now_s)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if abs(moment_s - now_s) > LONGEST_S:
        raise click.BadParameter(f"found {value!r}, expected a moment within ten years")
    return moment_s


def open_queue(path: Path) -> "QueueStore":
    """Return the queue of a file with the decision function; StoreError where there is none."""
    from spanfit.queue.policy.choosing import choose
    from spanfit.queue.policy.decide import decide
    from spanfit.queue.state.store import QueueStore

    return QueueStore(path, decide, choose)


def tell_clock(step: "Step") -> None:
    """Say that the clock has jumped back, where a step is the first that saw it."""
    if step.clock_back_s is not None:
        queue_time = format_moment(step.event.at_s)
        talk(
            f"warning: this machine's clock is {step.clock_back_s:.0f} s behind the queue, whose time stands at "
            f"{queue_time} until the clock has passed it: jobs start and end, but nothing becomes due; set the clock "
            "right or, if it was ahead before and that is long, make a new queue"
        )


def check_known(state: "QueueState", job_id: str, path: Path) -> None:
    """Raise ConfigError where a queue has no such job."""
    from spanfit.errors import ConfigError

    if job_id not in state.waiting and job_id not in state.running:
        raise ConfigError(f"{path}: job {job_id!r} neither waits nor runs; see: spanfit queue list --state {path}")


def print_step(step: "Step", path: Path, as_json: bool) -> None:
    """Print what followed from something that a person told, and say what is still to be done about it."""
    tell_clock(step)
    if as_json:
        print_json(decision_rows(step))
        return
    print_decisions(step)
    if not step.decisions:
        talk("kept; nothing else was decided")
    if step.tasks:
        talk(f"{len(step.tasks)} to be told or done; next: spanfit queue tick --state {path}")


def print_decisions(step: "Step", say: Callable[[str], None] = click.echo) -> None:
    """Say what a step decided, one decision a line."""
    from spanfit.topology.reading import folded

    ground = step.after.ground
    for decision in step.decisions:
        where = f" on {folded(ground.names[node] for node in sorted(decision.order))}" if decision.order else ""
        until = f" (until {format_moment(decision.until_s)})" if decision.until_s is not None else ""
        say(f"{decision.kind} {decision.job_id}{where}: {decision.reason}{until}")


def decision_rows(step: "Step") -> list[dict[str, Any]]:
    """Return what a step decided as plain data for programs, nodes by name."""
    names = step.after.ground.names
    return [
        {
            "kind": decision.kind,
            "job_id": decision.job_id,
            "at_s": decision.at_s,
            "until_s": decision.until_s,
            "reason": decision.reason,
            "nodes": [names[node] for node in decision.order],
        }
        for decision in step.decisions
    ]

"""``spanfit queue tick``: look at the world, decide, and do or tell what is to be done."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import json_option, print_json, talk
from spanfit.cli.queue_options import decision_rows, duration, open_queue, print_decisions, state_option, tell_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spanfit.queue.acting.deeds import Actuator, Deed
    from spanfit.queue.acting.seen import Seen
    from spanfit.queue.model.jobs import Forecast, QueueJob
    from spanfit.queue.state.store import QueueStore, Step


@click.command(epilog="Example: spanfit queue tick --dry-run")
@click.option("--dry-run", is_flag=True, help="Show what would be decided and run; keep and do nothing.")
@click.option(
    "--slurm", "is_slurm", is_flag=True, help="See in Slurm first which nodes are up and what runs and waits."
)
@click.option(
    "--actuator",
    type=click.Choice(["print", "slurm", "simulate"]),
    default="print",
    show_default=True,
    help="print tells the exact commands, slurm runs those that you may run and tells the rest, simulate does nothing.",
)
@click.option("--model", type=click.Path(path_type=Path), metavar="FILE", help="Forecast Slurm's jobs by this model.")
@click.option("--again", is_flag=True, help="Tell once more what was told before and is still to be done.")
@click.option("--every", metavar="TIME", callback=duration, help="Go on, a tick each such time, until interrupted.")
@state_option
@json_option
def tick(path: Path, every: float | None, **options: Any) -> None:
    """Decide what is due, and do or tell it.

    What a person is to run is a script on stdout. With --slurm, jobs of Slurm whose comment begins with spanfit are the
    queue's: sbatch --hold --comment=spanfit.
    """
    from spanfit.errors import ExitCode, SpanfitError

    if every is not None and (options["dry_run"] or options["as_json"]):
        raise click.UsageError("--every goes on for ever; give it without --dry-run and --json")
    while True:
        try:
            failed = _tick(path, **options)
        except SpanfitError as error:
            if every is None:
                raise
            talk(f"spanfit: {error}")
            failed = False
        if every is None:
            break
        time.sleep(every)
    if failed:
        click.get_current_context().exit(ExitCode.LAUNCH_FAILED)


def _tick(path: Path, *, is_slurm: bool, again: bool, as_json: bool, **options: Any) -> bool:
    """Run one tick, print what was decided and done, and return whether something failed."""
    from spanfit.queue.acting.deeds import act
    from spanfit.queue.acting.tick import difference_of, foresee, note

    actuator, is_dry = options["actuator"], options["dry_run"]
    with open_queue(path) as store, nullcontext() if is_dry else store.acting():
        seen = _look() if is_slurm or actuator == "slurm" else None
        predict = _predictor(options["model"], store.rules().quantile) if options["model"] else None
        difference = difference_of(store, seen, time.time(), predict)
        deeds: Iterable[Deed]
        if is_dry:
            steps, deeds = foresee(store, difference, _printing(store, again=again), with_told=again)
        else:
            steps = note(store, difference)
            does = _actuator(store, actuator, seen, again=again)
            deeds = act(store, does, with_told=again or actuator == "slurm")
        if as_json:
            return _print_json(steps, deeds, difference.remarks, again=again)
        for remark in difference.remarks:
            talk(f"warning: {remark}")
        for step in steps:
            tell_clock(step)
            print_decisions(step, talk)
        return _print_deeds(deeds, again=again)


def _look() -> "Seen":
    from spanfit.queue.acting.slurm_programs import look

    return look(time.time())


def _predictor(path: Path, quantile: float) -> "Callable[[QueueJob], Forecast]":
    from spanfit.queue.jct.model import read_model

    model = read_model(path)
    return lambda job: model.forecast([job], quantile)[0]


def _actuator(store: "QueueStore", name: str, seen: "Seen | None", *, again: bool) -> "Actuator":
    from spanfit.queue.acting.simulate_actuator import Simulate

    if name == "simulate":
        return Simulate()
    if name == "print" or seen is None:
        return _printing(store, again=again)
    from spanfit.queue.acting.slurm_actuator import Slurm
    from spanfit.queue.acting.slurm_commands import Site
    from spanfit.queue.acting.slurm_programs import is_operator
    from spanfit.topology.probe_slurm import run_slurm, user_name

    user = user_name()
    site = Site(ground=store.ground, user=user)
    return Slurm(site, seen, store.links, may_operate=is_operator(user), tell=run_slurm)


def _printing(store: "QueueStore", *, again: bool) -> "Actuator":
    """Return the actuator that tells; a reservation that it tells again is made anew."""
    from spanfit.queue.acting.print_actuator import Printing
    from spanfit.queue.acting.slurm_commands import Site
    from spanfit.queue.state.tasks import TaskKind
    from spanfit.topology.probe_slurm import user_name

    reserved = store.reserved()
    if again:
        entries = store.open_tasks(with_told=True)
        reserved -= {entry.task.job_id for entry in entries if entry.task.kind is TaskKind.RESERVE}
    site = Site(ground=store.ground, user=user_name())
    return Printing(site, store.links, reserved)


def _print_json(steps: "Iterable[Step]", deeds: "Iterable[Deed]", remarks: "Iterable[str]", *, again: bool) -> bool:
    """Print decisions, deeds and remarks for programs; return whether a deed failed."""
    for step in steps:
        tell_clock(step)
    done = list(deeds)
    rows = [
        {"kind": each.task.kind, "job_id": each.task.job_id, "outcome": each.outcome, "text": each.text}
        for each in done
        if each.is_news or again
    ]
    decisions = [row for step in steps for row in decision_rows(step)]
    print_json({"decisions": decisions, "deeds": rows, "remarks": list(remarks)})
    return any(each.outcome == "failed" for each in done)


def _print_deeds(deeds: "Iterable[Deed]", *, again: bool) -> bool:
    """Print each deed as soon as it is done: on stdout what a person is to run; return whether one failed."""
    has_failed = False
    for deed in deeds:
        has_failed |= deed.outcome == "failed"
        if not deed.is_news and not again:
            continue
        if deed.outcome == "told":
            click.echo(deed.text)
        elif words := _WORDS.get(deed.outcome):
            talk(f"{words}: {deed.task.kind} {deed.task.job_id}: {deed.text}")
    return has_failed


_WORDS = {"done": "done", "failed": "failed, will be tried again", "pending": "not yet"}

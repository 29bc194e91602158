"""The decision of the queue: a pure function from a state and what happened to the next state and what is to be done.

It asks no clock, draws nothing at random and reads no file: the same events give the same decisions, live and in a
replay.
"""

from dataclasses import replace
from functools import singledispatch

from spanfit.queue.model.events import (
    Arrived,
    Cancelled,
    Decision,
    Event,
    Finished,
    NodesDown,
    NodesUp,
    Submitted,
    Ticked,
)
from spanfit.queue.model.jobs import Chooser, Waiting
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.admission import Zone
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.explain import explain_fresh
from spanfit.queue.policy.occupancy import suitable
from spanfit.queue.policy.passes import RESERVING, changes_nothing, guards, look, try_job, zones_of
from spanfit.queue.policy.quiet import is_quiet, quiet_until_s
from spanfit.queue.policy.reserve import attend
from spanfit.queue.policy.words import nodes_in_words


def decide(
    state: QueueState, event: Event, rules: QueueRules, choose: Chooser
) -> tuple[QueueState, tuple[Decision, ...]]:
    """Return the state after an event, what was decided already done in it, and the decisions in their order.

    Events that say nothing new, such as the end of a job that does not run, change nothing but the time.
    """
    now_s = max(state.now_s, event.at_s)
    if isinstance(event, Ticked) and is_quiet(state, now_s, rules):
        return replace(state, now_s=now_s), ()
    desk = Desk(state, now_s, rules, choose)
    _apply(event, desk)
    if desk.announced and rules.policy in RESERVING:
        attend(desk)
    zones = _look(event, desk)
    explain_fresh(desk, zones)
    is_guarded = guards(desk)
    return desk.result(quiet_until_s(desk, is_guarded=is_guarded), is_guarded=is_guarded)


def _look(event: Event, desk: Desk) -> list[Zone]:
    """Look at the whole queue, or only at a new job where nothing else can have become possible.

    The paper's loop sleeps between two intervals: it looks at a new job at once, at those it delayed when time goes on.
    """
    is_paper = desk.rules.policy is PolicyName.PAPER
    if isinstance(event, Submitted):
        each = desk.waiting.get(event.job.job_id)
        if each is None or not each.is_here:
            if is_paper or (desk.is_quiet and not desk.was_guarded):
                return zones_of(desk)
        elif desk.is_quiet and each.job.nnodes > desk.free.bit_count() and changes_nothing(desk, each):
            return zones_of(desk)
        elif is_paper or (desk.is_quiet and not desk.was_guarded and _is_looked_at(desk)):
            zones = zones_of(desk)
            try_job(desk, each, zones)
            return zones
    if is_paper and not isinstance(event, Ticked):
        return zones_of(desk)
    return look(desk)


def _is_looked_at(desk: Desk) -> bool:
    """Return whether a new job is among those that are looked at, and changes nothing for others where it waits."""
    return len(desk.queue) <= desk.rules.depth and not guards(desk)


@singledispatch
def _apply(event: Event, desk: Desk) -> None:
    """Take note of what happened; time alone changes nothing here."""


@_apply.register
def _(event: Submitted, desk: Desk) -> None:
    job = event.job
    if job.job_id in desk.waiting or job.job_id in desk.running:
        return
    most = suitable(job, desk.ground).bit_count()
    if not 1 <= job.nnodes <= most:
        model = f" of {job.gpu_model}" if job.gpu_model else ""
        desk.refuse(job, f"asks for {nodes_in_words(job.nnodes)}{model}; expected between 1 and {most}")
        return
    desk.enter(Waiting(job=job, forecast=event.forecast, since_s=desk.now_s, is_here=not job.is_announced))


@_apply.register
def _(event: Arrived, desk: Desk) -> None:
    each = desk.waiting.get(event.job_id)
    if each is not None and not each.is_here:
        desk.arrive(event.job_id)


@_apply.register
def _(event: Cancelled, desk: Desk) -> None:
    if event.job_id in desk.running:
        desk.end(event.job_id)
    elif event.job_id in desk.waiting:
        if event.job_id in desk.reservations:
            desk.release(event.job_id, "its job was cancelled")
        desk.leave(event.job_id)


@_apply.register
def _(event: Finished, desk: Desk) -> None:
    if event.job_id in desk.running:
        desk.end(event.job_id)


@_apply.register
def _(event: NodesDown, desk: Desk) -> None:
    desk.up &= ~event.nodes
    desk.doubt()
    for job_id, run in list(desk.running.items()):
        if lost := run.nodes & event.nodes:
            desk.stop(job_id, f"{', '.join(desk.ground.members(lost)[:3])} left service")


@_apply.register
def _(event: NodesUp, desk: Desk) -> None:
    desk.up |= event.nodes & desk.ground.everything

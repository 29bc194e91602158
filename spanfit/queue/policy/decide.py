"""The decision of the queue: a pure function from a state and what happened to the next state and what is to be done.

It asks no clock, draws nothing at random and reads no file: the same events give the same decisions, live and in a
replay.
"""

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
from spanfit.queue.policy.passes import RESERVING, look, try_job, zones_of
from spanfit.queue.policy.prospects import occupants
from spanfit.queue.policy.reserve import attend
from spanfit.queue.policy.words import nodes_in_words


def decide(
    state: QueueState, event: Event, rules: QueueRules, choose: Chooser
) -> tuple[QueueState, tuple[Decision, ...]]:
    """Return the state after an event, what was decided already done in it, and the decisions in their order.

    Events that say nothing new, such as the end of a job that does not run, change nothing but the time.
    """
    desk = Desk(state, event.at_s, rules, choose)
    _apply(event, desk)
    if desk.announced and rules.policy in RESERVING:
        attend(desk)
    zones = _look(event, desk)
    explain_fresh(desk, zones)
    return desk.result()


def _look(event: Event, desk: Desk) -> list[Zone]:
    """Look at the whole queue.

    The paper's loop sleeps between two intervals: it looks at a new job at once, at those it delayed when time goes on.
    """
    if desk.rules.policy is not PolicyName.PAPER or isinstance(event, Ticked):
        return look(desk)
    zones = zones_of(desk)
    if isinstance(event, Submitted):
        each = desk.waiting.get(event.job.job_id)
        if each is not None and each.is_here:
            try_job(desk, each, zones)
    return zones


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
    for run in occupants(desk, event.nodes):
        lost = desk.ground.members(run.nodes & event.nodes)
        desk.stop(run.job.job_id, f"{', '.join(lost[:3])} left service")


@_apply.register
def _(event: NodesUp, desk: Desk) -> None:
    desk.up |= event.nodes & desk.ground.everything

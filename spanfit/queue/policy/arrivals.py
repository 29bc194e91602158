"""The start of an announced job that is there: on its reserved nodes, or on others where those cannot be had.

Before its reservation begins it starts only if nothing has to be stopped for it. From then on it starts on its own
nodes if all jobs on them may be stopped, else on others. Preemptable jobs may be stopped, but not for one that is
preemptable itself. A job that outran its forecast may be stopped under the rule ``preempt``; under ``move`` the
announced job takes other nodes; under ``wait`` it takes others only where its own are out of service. A job within its
forecast is never stopped.
"""

from spanfit.queue.model.jobs import Forecast, QueueJob, Reservation, Running
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.rules import Overrun
from spanfit.queue.policy.desk import Desk, node_set
from spanfit.queue.policy.occupancy import counted_s
from spanfit.queue.policy.prospects import may_stop, occupants, prospect, usable, with_victims
from spanfit.queue.policy.words import clock, nodes_in_words

_Found = tuple[tuple[int, ...], str]
_NOTHING: _Found = (), ""


def try_start(desk: Desk, job_id: str) -> bool:
    """Start an announced job that is there, if it can have its nodes now; return whether it runs."""
    each = desk.waiting[job_id]
    job, held = each.job, desk.reservations.get(job_id)
    nodes = usable(desk, job, desk.now_s, desk.now_s + counted_s(job, each.forecast, desk.rules))
    if held is None or desk.now_s >= held.start_s:
        order, reason = _due(desk, job, held, nodes)
    else:
        order, reason = _early(desk, job, held, nodes)
    if not order:
        return False
    for run in occupants(desk, node_set(order)):
        _stop(desk, run, job_id)
    desk.start(job_id, order, reason)
    return True


def _early(desk: Desk, job: QueueJob, held: Reservation, nodes: NodeSet) -> _Found:
    """Return nodes that are all free: the reserved ones, else others."""
    free = nodes & ~desk.taken
    when = f"before its reservation at {clock(held.start_s)}"
    if not held.nodes & ~free:
        return held.order, f"its {nodes_in_words(job.nnodes)} are free {when}"
    if free.bit_count() < job.nnodes:
        return _NOTHING
    return desk.choose(job, desk.ground, free), f"needs {nodes_in_words(job.nnodes)}: {free.bit_count()} free {when}"


def _due(desk: Desk, job: QueueJob, held: Reservation | None, nodes: NodeSet) -> _Found:
    """Return nodes that are free or may be made so: the reserved ones where that is enough, else others."""
    if held is not None and not held.nodes & ~nodes:
        if all(may_stop(desk, job, run) for run in occupants(desk, held.nodes)):
            return held.order, f"its reservation of {nodes_in_words(job.nnodes)} began at {clock(held.start_s)}"
        if desk.rules.overrun is Overrun.WAIT:
            return _NOTHING
    offer = prospect(desk, job, nodes, desk.now_s)
    allowed = with_victims(job.nnodes, offer, nodes)
    if allowed.bit_count() < job.nnodes:
        return _NOTHING
    reason = f"needs {nodes_in_words(job.nnodes)}: {offer.ready.bit_count()} free"
    if stopped := (allowed & ~offer.ready).bit_count():
        reason = f"{reason}, {stopped} of jobs that may be stopped"
    if held is not None:
        missing = (held.nodes & ~offer.ready).bit_count()
        reason = f"{nodes_in_words(missing)} of its reservation cannot be had now; {reason}"
    return desk.choose(job, desk.ground, allowed), reason


def _stop(desk: Desk, run: Running, job_id: str) -> None:
    """Stop a job for an announced one."""
    if run.job.is_preemptable:
        desk.stop(run.job.job_id, f"it is preemptable and {job_id} starts on its nodes")
        return
    ran_s = desk.now_s - run.started_s
    predicted_s = counted_s(run.job, run.forecast, desk.rules)
    desk.stop(
        run.job.job_id,
        f"it ran for {ran_s / 60:.0f} minutes, longer than the {predicted_s / 60:.0f} predicted, and {job_id} starts "
        "on its nodes",
        _lengthened(run, ran_s),
    )


def _lengthened(run: Running, ran_s: float) -> Forecast:
    """Return the forecast of a job that outran its own: at least what it ran, at worst as long again."""
    return Forecast(mean_s=max(run.forecast.mean_s, ran_s), upper_s=max(run.forecast.upper_s, 2 * ran_s))

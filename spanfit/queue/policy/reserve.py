"""Announced jobs: their nodes are held from the announcement on, checked while they wait, and given up when they fail.

Nodes are chosen over the occupancy that is predicted for the job's arrival: first those that are free or predicted to
be free by then, then those of preemptable jobs, as few as suffice, then those that are expected soonest.
"""

import math
from dataclasses import replace

from spanfit.queue.model.jobs import QueueJob, Reservation, Waiting
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.rules import Overrun, PolicyName
from spanfit.queue.policy.arrivals import try_start
from spanfit.queue.policy.desk import Desk, node_set
from spanfit.queue.policy.occupancy import counted_s, expected_end_s, suitable
from spanfit.queue.policy.prospects import may_stop, occupants, prospect, usable, windows, with_late, with_victims
from spanfit.queue.policy.slots import Timeline, overlapping
from spanfit.queue.policy.words import clock, nodes_in_words


def attend(desk: Desk) -> None:
    """Give up reservations whose jobs do not come, start jobs that are there, mend reservations, make new ones."""
    ids = sorted(desk.announced, key=lambda job_id: _order(desk.waiting[job_id].job))
    for job_id in ids:
        _release_if_late(desk, job_id)
    for job_id in ids:
        if desk.waiting[job_id].is_here and not try_start(desk, job_id):
            _postpone(desk, job_id)
    if desk.rules.policy is PolicyName.SPANFIT:
        for job_id in ids:
            if job_id in desk.reservations:
                _mend(desk, job_id)
    for job_id in ids:
        if job_id in desk.waiting and job_id not in desk.reservations and _is_time(desk, desk.waiting[job_id]):
            _reserve(desk, job_id)


def _order(job: QueueJob) -> tuple[bool, float, float, str]:
    """Return what orders announced jobs: those that stop others first, so that none starts only to be stopped."""
    return job.is_preemptable, -job.priority, _expected_s(job), job.job_id


def _expected_s(job: QueueJob) -> float:
    assert job.expected_start_s is not None
    return job.expected_start_s


def _is_overdue(desk: Desk, each: Waiting) -> bool:
    """Return whether an announced job has not come for so long that nothing is held for it."""
    if each.is_here or desk.rules.policy is not PolicyName.SPANFIT:
        return False
    return desk.now_s >= overdue_s(desk, each)


def overdue_s(desk: Desk, each: Waiting) -> float:
    """Return when nothing is held any more for an announced job: too late, or its window is over, Unix time [s]."""
    held = desk.reservations.get(each.job.job_id)
    start_s = _expected_s(each.job) if held is None else held.start_s
    return start_s + min(desk.rules.max_late_s, counted_s(each.job, each.forecast, desk.rules))


def _is_time(desk: Desk, each: Waiting) -> bool:
    """Return whether nodes are to be chosen for an announced job."""
    is_near = desk.now_s >= _expected_s(each.job) - desk.rules.reserve_ahead_s
    return each.is_here or (is_near and not _is_overdue(desk, each))


def _release_if_late(desk: Desk, job_id: str) -> None:
    each = desk.waiting[job_id]
    if job_id in desk.reservations and _is_overdue(desk, each):
        late_s = desk.now_s - _expected_s(each.job)
        desk.release(
            job_id,
            f"it was expected at {clock(_expected_s(each.job))} and is {late_s / 60:.0f} minutes late; nodes are "
            "chosen anew when it comes",
        )


def _postpone(desk: Desk, job_id: str) -> None:
    """Move the reservation of a job that is there, and due, to the earliest time at which it can have nodes.

    Where nobody can tell that time, it keeps its nodes from now on, or others of which fewer are missing.
    """
    held, each = desk.reservations.get(job_id), desk.waiting[job_id]
    if held is None or held.start_s > desk.now_s:
        return
    later = _later(desk, held)
    if later is None and _had_better_stay(desk, each, held):
        return
    found = later or plan(desk, each)
    if found is None:
        desk.release(job_id, _too_few(desk, each.job))
    else:
        desk.reserve(found, f"its nodes could not be had at {clock(held.start_s)}: {in_words(desk, found)}")


def _later(desk: Desk, held: Reservation) -> Reservation | None:
    """Return a reservation of the same nodes for when they are expected, where the rules let a job wait for them."""
    ends = [expected_end_s(run, desk.now_s, desk.rules) for run in occupants(desk, held.nodes)]
    if desk.rules.overrun is not Overrun.WAIT or held.nodes & ~desk.up or not ends or max(ends) == math.inf:
        return None
    start_s = max(ends)
    end_s = start_s + held.end_s - held.start_s
    is_taken = held.nodes & overlapping(windows(desk, held.job_id), start_s, end_s)
    return None if is_taken else replace(held, start_s=start_s, end_s=end_s)


def _had_better_stay(desk: Desk, each: Waiting, held: Reservation) -> bool:
    """Return whether no time can be told at which enough nodes will be free, and none lacks fewer than those held."""
    if _soonest_s(desk, each) < math.inf or _usable(desk, each, desk.now_s).bit_count() < each.job.nnodes:
        return False
    return _fewest_missing(desk, each, desk.now_s) >= shortfall(desk, held)


def _reserve(desk: Desk, job_id: str) -> None:
    """Reserve nodes where there are enough, else tell what is missing, once."""
    each = desk.waiting[job_id]
    found = plan(desk, each)
    if found is not None:
        desk.reserve(found, in_words(desk, found))
    elif not each.reason:
        desk.wait(job_id, _too_few(desk, each.job))


def _too_few(desk: Desk, job: QueueJob) -> str:
    nodes = desk.up & suitable(job, desk.ground)
    return (
        f"needs {nodes_in_words(job.nnodes)}: {nodes.bit_count()} that suit it are in service, and reservations of "
        "others hold some of them"
    )


def plan(desk: Desk, each: Waiting) -> Reservation | None:
    """Return a reservation for an announced job, or None where there will not be enough nodes.

    For a job that is still to come it starts at its expected arrival, or when reservations of others leave enough
    nodes. For one that is there it starts as soon as enough nodes are expected to be free, or now where nobody can
    tell that.
    """
    job = each.job
    if each.is_here:
        soonest_s = _soonest_s(desk, each)
        times = [soonest_s if soonest_s < math.inf else desk.now_s]
    else:
        start_s = max(desk.now_s, _expected_s(job))
        others = windows(desk, job.job_id)
        times = sorted({start_s, *(window.end_s for window in others if start_s < window.end_s < math.inf)})
    for at_s in times:
        end_s = at_s + counted_s(job, each.forecast, desk.rules)
        order = _nodes_at(desk, each, at_s)
        if order:
            return Reservation(job_id=job.job_id, nodes=node_set(order), order=order, start_s=at_s, end_s=end_s)
    return None


def _soonest_s(desk: Desk, each: Waiting) -> float:
    """Return when enough nodes are expected to be free, those of jobs that may be stopped being so already."""
    ends = [
        (end_s, desk.running[job_id].nodes)
        for end_s, job_id in desk.ends
        if not may_stop(desk, each.job, desk.running[job_id])
    ]
    kept = 0
    for _, nodes in ends:
        kept |= nodes
    timeline = Timeline(desk.now_s, desk.up & ~kept, ends, windows(desk, each.job.job_id))
    lasts_s = counted_s(each.job, each.forecast, desk.rules)
    return timeline.earliest(each.job.nnodes, lasts_s, desk.up & suitable(each.job, desk.ground))[0]


def _usable(desk: Desk, each: Waiting, at_s: float) -> NodeSet:
    return usable(desk, each.job, at_s, at_s + counted_s(each.job, each.forecast, desk.rules))


def _nodes_at(desk: Desk, each: Waiting, at_s: float) -> tuple[int, ...]:
    job, nodes = each.job, _usable(desk, each, at_s)
    if nodes.bit_count() < job.nnodes:
        return ()
    offer = prospect(desk, job, nodes, at_s)
    allowed = with_late(job.nnodes, with_victims(job.nnodes, offer, nodes), offer)
    return desk.choose(job, desk.ground, allowed)


def shortfall(desk: Desk, held: Reservation) -> int:
    """Return how many nodes of a reservation are out of service, or held beyond its start by a job that may stay."""
    offer = prospect(desk, desk.waiting[held.job_id].job, held.nodes & desk.up, max(held.start_s, desk.now_s))
    late = sum(nodes.bit_count() for _, nodes in offer.late)
    return (held.nodes & ~desk.up).bit_count() + late


def _mend(desk: Desk, job_id: str) -> None:
    """Choose a reservation's nodes anew where some will be missing and others will not."""
    held = desk.reservations[job_id]
    missing = shortfall(desk, held)
    if not missing:
        return
    each = desk.waiting[job_id]
    at_s = max(held.start_s, desk.now_s)
    if _fewest_missing(desk, each, at_s) < missing:
        found = plan(desk, each)
        if found is not None and found.start_s <= at_s and shortfall(desk, found) < missing:
            desk.reserve(
                found, f"{nodes_in_words(missing)} of its reservation would be missing: {in_words(desk, found)}"
            )


def _fewest_missing(desk: Desk, each: Waiting, at_s: float) -> int:
    """Return how many nodes any reservation for a job would lack at a time, at least."""
    job, nodes = each.job, _usable(desk, each, at_s)
    return job.nnodes - with_victims(job.nnodes, prospect(desk, job, nodes, at_s), nodes).bit_count()


def in_words(desk: Desk, found: Reservation) -> str:
    """Return what a reservation holds, in numbers."""
    free = found.nodes & desk.free
    offer = prospect(desk, desk.waiting[found.job_id].job, found.nodes & desk.up, found.start_s)
    late = sum(nodes.bit_count() for _, nodes in offer.late)
    parts = [f"{free.bit_count()} free now"]
    if then := (offer.ready & ~free).bit_count():
        parts.append(f"{then} predicted free by then")
    if victims := sum((run.nodes & found.nodes).bit_count() for run in offer.victims):
        parts.append(f"{victims} of jobs that may be stopped")
    if late:
        parts.append(f"{late} predicted free only at {clock(max(end_s for end_s, _ in offer.late))}")
    return f"holds {nodes_in_words(len(found.order))} from {clock(found.start_s)} on: {', '.join(parts)}"

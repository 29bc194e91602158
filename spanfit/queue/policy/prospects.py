"""Which nodes an announced job could have at a time: free by then, to be had by stopping jobs, or held longer."""

from dataclasses import dataclass

from spanfit.queue.model.jobs import QueueJob, Running
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.rules import Overrun
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.occupancy import has_outrun, suitable
from spanfit.queue.policy.slots import Window, overlapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Nodes that a job may use at a time, by what has to happen first.

    Attributes
    ----------
    ready : int
        Free, or predicted to be free by then; a NodeSet.
    victims : tuple of Running
        Jobs that may be stopped for it, preemptable ones first.
    late : tuple of (float, NodeSet)
        Nodes held longer by jobs that may not be stopped, with when they are expected, soonest first.
    """

    ready: NodeSet
    victims: tuple[Running, ...]
    late: tuple[tuple[float, NodeSet], ...]


def usable(desk: Desk, job: QueueJob, start_s: float, end_s: float) -> NodeSet:
    """Return the nodes in service that suit a job and that no other reservation holds at the same time."""
    return desk.up & suitable(job, desk.ground) & ~overlapping(windows(desk, job.job_id), start_s, end_s)


def windows(desk: Desk, but: str = "") -> list[Window]:
    """Return the windows of all reservations, of those of others where a job is named."""
    return [
        Window(nodes=each.nodes, start_s=each.start_s, end_s=each.end_s)
        for each in desk.reservations.values()
        if each.job_id != but
    ]


def prospect(desk: Desk, job: QueueJob, nodes: NodeSet, at_s: float) -> Prospect:
    """Return what a set of nodes offers a job at a time, as far as running jobs end as expected."""
    preemptable: list[Running] = []
    outrun: list[Running] = []
    ready, late = nodes & ~desk.taken, []
    for end_s, job_id in desk.ends:
        run = desk.running[job_id]
        held = run.nodes & nodes
        if not held:
            continue
        if end_s <= at_s:
            ready |= held
        elif may_stop(desk, job, run):
            (preemptable if run.job.is_preemptable else outrun).append(run)
        else:
            late.append((end_s, held))
    return Prospect(ready=ready, victims=(*preemptable, *outrun), late=tuple(late))


def may_stop(desk: Desk, job: QueueJob, run: Running) -> bool:
    """Return whether a running job may be stopped for an announced one.

    It is preemptable, or has outrun its forecast where the rules say so. An announced job that is preemptable itself
    stops nobody.
    """
    if job.is_preemptable:
        return False
    if run.job.is_preemptable:
        return True
    return desk.rules.overrun is Overrun.PREEMPT and has_outrun(run, desk.now_s, desk.rules)


def with_victims(nnodes: int, offer: Prospect, nodes: NodeSet) -> NodeSet:
    """Return the ready nodes and, while they are too few, those of jobs to stop, so that few nodes are lost.

    The job with the fewest nodes that gives enough is stopped, else the one that gives most, and so on; of equal ones
    that of the lowest priority, then the one that started last.
    """
    found, left = offer.ready, list(offer.victims)
    while left and found.bit_count() < nnodes:
        missing = nnodes - found.bit_count()
        best = min(left, key=lambda run: _loss(run, (run.nodes & nodes).bit_count(), missing))
        left.remove(best)
        found |= best.nodes & nodes
    return found


def _loss(run: Running, gives: int, missing: int) -> tuple[object, ...]:
    enough = gives >= missing
    return (
        not run.job.is_preemptable,
        not enough,
        run.nodes.bit_count() if enough else -gives,
        run.job.priority,
        -run.started_s,
        run.job.job_id,
    )


def with_late(nnodes: int, found: NodeSet, offer: Prospect) -> NodeSet:
    """Return some nodes and, while they are too few, those that are expected soonest."""
    for _, held in offer.late:
        if found.bit_count() >= nnodes:
            break
        found |= held
    return found


def occupants(desk: Desk, nodes: NodeSet) -> list[Running]:
    """Return the running jobs that sit on any of some nodes, in the order of their ids."""
    if not nodes & desk.taken:
        return []
    return sorted((run for run in desk.running.values() if run.nodes & nodes), key=lambda run: run.job.job_id)

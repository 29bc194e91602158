"""Which nodes are in service for the queue, as Slurm has them; pure."""

from collections.abc import Collection, Iterable, Mapping

from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.slurm_commands import reservation_name
from spanfit.queue.model.nodes import Ground, NodeSet
from spanfit.queue.model.state import QueueState
from spanfit.topology.model import NodeState
from spanfit.topology.reading import NodeFacts

_OUR_WORDS = frozenset({"IDLE", "RESERVED", "RESV"})
"""State words of a node that is idle in a reservation of ours."""

_TIDYING = frozenset({"COMPLETING", "COMP"})


def in_service(seen: Seen, state: QueueState, found: Mapping[str, SeenJob], left: Collection[str]) -> NodeSet:
    """Return the nodes that the queue may count on.

    Those that are free, or about to be; those under its running jobs; and those that wait for a job of the queue to
    start, unless they are out of order, or another job or reservation has taken them.
    """
    ground = state.ground
    ours, closed = _reserved(seen, state)
    running = [job for job in seen.jobs if not job.is_pending and not job.is_ending]
    busy = {name for job in running for name in job.nodes}
    free = {name for name, facts in seen.nodes.items() if _is_free(facts, name in ours, name in busy)}
    broken = {name for name, facts in seen.nodes.items() if facts.state in (NodeState.DOWN, NodeState.DRAINED)}
    kept = {
        job.slurm_id
        for job_id, job in found.items()
        if job_id not in left and (job_id in state.waiting or job_id in state.running)
    }
    taken = {name for job in running if job.slurm_id not in kept for name in job.nodes}
    hosting = expecting = 0
    for job_id, run in state.running.items():
        if job_id in found and not found[job_id].is_pending and job_id not in left:
            hosting |= run.nodes
        elif job_id not in left:
            expecting |= run.nodes
    there = seen.nodes.keys() - broken - taken - closed
    return _node_set(ground, free) | hosting | expecting & _node_set(ground, there)


def _reserved(seen: Seen, state: QueueState) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes that Slurm reserves now for jobs of the queue, and those that it reserves for others."""
    names = set(map(reservation_name, (*state.waiting, *state.running)))
    active = [held for held in seen.reservations.values() if held.is_active is not False and not held.is_over]
    ours = frozenset(node for held in active if held.name in names for node in held.nodes)
    return ours, frozenset(node for held in active if held.name not in names for node in held.nodes)


def _is_free(facts: NodeFacts, is_ours: bool, is_busy: bool) -> bool:
    """Return whether a node is idle, reserved for the queue, or only tidied up after a job that has ended."""
    if facts.state is NodeState.RESERVED:
        return is_ours and _OUR_WORDS.issuperset(facts.words)
    is_tidied = facts.state is NodeState.ALLOCATED and not is_busy and not _TIDYING.isdisjoint(facts.words)
    return facts.state is NodeState.IDLE or is_tidied


def _node_set(ground: Ground, names: Iterable[str]) -> NodeSet:
    return ground.node_set(name for name in names if name in ground.index)

"""What must be true of every state, whatever was decided: checked before a state is kept, and by tests."""

from collections.abc import Iterator
from itertools import combinations

from spanfit.queue.model.jobs import Reservation
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.state import QueueState


def faults(state: QueueState) -> tuple[str, ...]:
    """Return what is wrong with a state, in words; nothing where it is sound.

    A node runs one job at most, and none while it is out of service; a job is in one place only; a job has the nodes
    of its order and as many as it asked for; reservations that overlap in time share no node.
    """
    return (*_doubled(state), *_running_faults(state), *_reservation_faults(state))


def _doubled(state: QueueState) -> Iterator[str]:
    for job_id in state.waiting.keys() & state.running.keys():
        yield f"job {job_id} both waits and runs"
    taken: NodeSet = 0
    for job_id, run in state.running.items():
        if both := taken & run.nodes:
            yield f"job {job_id} runs on nodes of another job: {_names(state, both)}"
        taken |= run.nodes


def _running_faults(state: QueueState) -> Iterator[str]:
    for job_id, run in state.running.items():
        if run.nodes & ~state.up:
            yield f"job {job_id} runs on nodes that are out of service: {_names(state, run.nodes & ~state.up)}"
        if not _agree(run.order, run.nodes) or len(run.order) != run.job.nnodes:
            yield f"job {job_id} asked for {run.job.nnodes} nodes and has {len(run.order)}: {_names(state, run.nodes)}"


def _reservation_faults(state: QueueState) -> Iterator[str]:
    for job_id, held in state.reservations.items():
        if not _agree(held.order, held.nodes):
            yield f"the reservation of {job_id} has an order of other nodes than its own: {_names(state, held.nodes)}"
    for one, other in combinations(state.reservations.values(), 2):
        if one.nodes & other.nodes and _overlap(one, other):
            shared = _names(state, one.nodes & other.nodes)
            yield f"the reservations of {one.job_id} and {other.job_id} overlap in time and share {shared}"


def _overlap(one: Reservation, other: Reservation) -> bool:
    return one.start_s < other.end_s and other.start_s < one.end_s


def _agree(order: tuple[int, ...], nodes: NodeSet) -> bool:
    found = 0
    for node in order:
        found |= 1 << node
    return found == nodes and len(order) == nodes.bit_count()


def _names(state: QueueState, nodes: NodeSet) -> str:
    return ", ".join(state.ground.members(nodes)[:8])

"""Nodes that are held: by the job's own reservation, which does not speak against them, or by one that lies ahead."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spanfit.topology.readers.slurm_states import node_state
from spanfit.topology.reading import NodeFacts, Reading, Reservation

_RESERVED = "RESERVED"


def taint_key(job_name: str) -> str:
    """Return the key of the taint that keeps Kubernetes nodes for a job."""
    return f"spanfit/{job_name}"


def release(readings: Sequence[Reading], name: str, user: str) -> tuple[Reading, ...]:
    """Return what sources say without a reservation of a name that a user may use: its nodes are the job's own.

    Whatever else is said of its nodes stays: one that is drained, or that another reservation holds too, is not free.
    """
    own = [one for reading in readings for one in reading.reservations if _is_own(one, name, user)]
    nodes = {node for one in own if one.is_active is not False for node in one.nodes}
    return tuple(
        replace(
            reading,
            nodes=tuple(_released(node) if node.name in nodes else node for node in reading.nodes),
            reservations=tuple(one for one in reading.reservations if not _is_own(one, name, user)),
        )
        for reading in readings
    )


def _is_own(one: Reservation, name: str, user: str) -> bool:
    # Where only accounts are listed the name has to do.
    return one.name == name and (user in one.users or not one.users)


def _released(node: NodeFacts) -> NodeFacts:
    words = tuple(word for word in node.words if word != _RESERVED)
    return node if words == node.words else replace(node, words=words, state=node_state(words))


def hold_until(readings: Iterable[Reading], until_s: float) -> tuple[Reading, ...]:
    """Return what sources say where reservations that begin before a time [seconds since 1970] hold their nodes now."""
    return tuple(
        replace(reading, reservations=tuple(_held(one, until_s) for one in reading.reservations))
        for reading in readings
    )


def _held(one: Reservation, until_s: float) -> Reservation:
    is_ahead = one.is_active is False and not one.is_over and (one.start_s is None or one.start_s < until_s)
    return replace(one, is_active=True) if is_ahead else one


def why_held(one: Reservation) -> str:
    """Return who holds nodes and for how long, as a person reads it."""
    whom = f" of {', '.join(one.users)}" if one.users else ""
    length = f" ({one.duration})" if one.duration else ""
    flags = f", {', '.join(one.flags)}" if one.flags else ""
    return f"reservation {one.name}{whom} from {one.start} to {one.end or 'no end'}{length}{flags}"

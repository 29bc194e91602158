"""Making a reservation of Slurm's for placed nodes: edge, runs scontrol, which here changes the cluster."""

import shlex

from spanfit.errors import LaunchError
from spanfit.launch.render.slurm import SlurmReservation, reservation_argv
from spanfit.topology.probe_slurm import run_slurm
from spanfit.topology.readers.slurm_reservations import parse_show_reservation
from spanfit.topology.reading import folded


def make_reservation(reservation: SlurmReservation, now_s: float) -> None:
    """Make a reservation, and make sure that it holds exactly its nodes.

    Raises
    ------
    LaunchError
        If Slurm refuses, or holds other nodes than asked for; the text says how to undo it.
    TimedOutError
        If Slurm does not answer in time.
    """
    argv = reservation_argv(reservation)
    if _held(reservation.name, now_s):
        raise LaunchError(
            f"a reservation {reservation.name} is there already; end it with {undo(reservation.name)}, and place the "
            "job again"
        )
    answer = run_slurm(argv)
    if answer.code:
        raise LaunchError(f"{shlex.join(argv)}: {answer.complaint}; {_next_step(answer.complaint)}")
    held = _held(reservation.name, now_s)
    if held != set(reservation.node_names):
        raise LaunchError(
            f"reservation {reservation.name} holds {folded(sorted(held)) or 'no node'}, expected "
            f"{folded(sorted(reservation.node_names))}; undo it with {undo(reservation.name)} and place the job again"
        )


def _held(name: str, now_s: float) -> set[str]:
    """Return the nodes that a reservation holds, none where there is none of that name."""
    answer = run_slurm(("scontrol", "show", "reservation", name, "--oneliner"))
    found = parse_show_reservation(answer.out, "scontrol show reservation", now_s).reservations
    return {node for one in found for node in one.nodes}


def undo(name: str) -> str:
    """Return the command that ends a reservation."""
    return shlex.join(["scontrol", "delete", f"ReservationName={name}"])


def _next_step(complaint: str) -> str:
    said = complaint.lower()
    if "overlap" in said or "busy" in said:
        return "nodes were taken since they were read: place the job again"
    if "permission" in said or "denied" in said:
        return "only Slurm's operators may reserve: send the command to one of them"
    return "correct what it says and place the job again"

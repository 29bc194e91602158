"""Slurm asked and told on behalf of the queue: edge, through the probe that runs its commands."""

import secrets

from spanfit.errors import LaunchError
from spanfit.queue.acting.seen import Seen, parse_squeue, squeue_argv
from spanfit.topology.probe_slurm import Answer, read_slurm, run_slurm

_CONFIG = ("scontrol", "show", "config")
_LEVEL = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=AdminLevel")
_OPERATORS = ("Operator", "Administrator")


def look(now_s: float) -> Seen:
    """Return what Slurm says of jobs, nodes and reservations; LaunchError where it does not answer.

    Jobs are asked for before nodes: a job that ends in between is then still there, and its nodes are not taken for
    those of somebody else.
    """
    token = secrets.token_hex(16)
    jobs, remarks = parse_squeue(_answered(run_slurm(squeue_argv(token))).out, token)
    readings = read_slurm(now_s)
    return Seen(
        nodes={facts.name: facts for reading in readings for facts in reading.nodes if facts.state is not None},
        jobs=jobs,
        reservations={held.name: held for reading in readings for held in reading.reservations},
        remarks=remarks,
    )


def _answered(answer: Answer) -> Answer:
    if answer.code:
        raise LaunchError(
            f"{answer.argv[0]}: {answer.complaint}; check with scontrol ping that Slurm's controller is up"
        )
    return answer


def is_operator(user: str) -> bool:
    """Return whether a user may run what takes an operator: root, Slurm's own user, or one whom accounting names so."""
    if user in ("root", slurm_user(_answered(run_slurm(_CONFIG)).out)):
        return True
    try:
        answer = run_slurm((*_LEVEL, f"user={user}"))
    except LaunchError:
        return False  # without accounting there are no operators
    return not answer.code and answer.out.strip() in _OPERATORS


def slurm_user(config: str) -> str:
    """Return Slurm's own user from ``scontrol show config``.

    >>> slurm_user("SlurmUser               = slurm(64030)")
    'slurm'
    """
    for line in config.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "SlurmUser":
            return value.strip().partition("(")[0]
    return ""

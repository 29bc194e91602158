"""``spanfit place --live``: what starting a placement on its running cluster takes, and keeping its nodes for it."""

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import talk
from spanfit.cli.place_check import faults_of
from spanfit.cli.place_source import Source, explained, read_source, reasons, source_argv

if TYPE_CHECKING:
    from spanfit.launch.render.slurm import SlurmReservation
    from spanfit.placer.model import JobSpec, Placement
    from spanfit.placer.rules import Rules

_TAINT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MAX_GROUPS = 20
"""Groups of nodes that are not free which are told one by one; the rest are counted."""


def tell_start(placement: "Placement", source: Source, options: dict[str, Any], *, on_stderr: bool) -> None:
    """Say what starting a placement on its running cluster takes, and reserve its nodes where that is asked."""
    if not source.readings:
        return
    lines = [f"Read from {options['live']}:", *(f"  {reading.origin}" for reading in source.readings)]
    lines += [*_not_free(placement.job, source, placement.rules)]
    lines += [*_holding(placement, options)]
    click.echo("\n".join(["", *lines]), err=on_stderr)
    if options["is_applied"]:
        _reserve(placement, options)


def _not_free(job: "JobSpec", source: Source, rules: "Rules") -> Iterator[str]:
    """Yield which nodes a job may not take, and why, those of one reason in a line."""
    from spanfit.placer.constraints import refusal
    from spanfit.topology.reading import folded

    why = reasons(source.readings)
    groups: dict[str, list[str]] = {}
    for node in source.cluster.nodes:
        if refused := refusal(node, job, rules):
            groups.setdefault(explained(refused, node, why), []).append(node.name)
    nodes = len(source.cluster.nodes)
    count = sum(map(len, groups.values()))
    yield f"{nodes - count} of {nodes} nodes are free for the job{'; not free:' if groups else ''}"
    for reason, names in list(groups.items())[:_MAX_GROUPS]:
        yield f"  {folded(names)}: {reason}"
    if len(groups) > _MAX_GROUPS:
        more = list(groups.values())[_MAX_GROUPS:]
        yield f"  {sum(map(len, more))} more nodes for {len(more)} reasons"


def _holding(placement: "Placement", options: dict[str, Any]) -> Iterator[str]:
    from spanfit.launch.render.slurm import reservation_argv

    names = placement.rank_map.node_names
    changed = "" if options["is_applied"] else "; nothing was changed, and nothing keeps them free meanwhile"
    yield f"The job would run on {len(names)} nodes{changed}"
    if options["reserve"] is not None and options["live"] == "slurm":
        yield "Running now:" if options["is_applied"] else "To keep them (Slurm's operators may):"
        yield f"  {shlex.join(reservation_argv(_reservation(placement, options)))}"
    elif options["reserve"] is not None:
        yield "To keep other pods away (needs the right to patch nodes; the job's pods must tolerate it):"
        yield from (f"  {line}" for line in _taint_commands(placement))
    if options["live"] == "slurm":
        held = ["sbatch"]
        held += [f"--partition={options['partition']}"] if options["partition"] else []
        held += [f"--reservation={placement.job.name}"] if options["reserve"] is not None else []
        yield f"To start it: {shlex.join(held)} FILE, with FILE from --emit slurm, which keeps this order of ranks"
    else:
        yield "To start it: kubectl create -f FILE, with FILE from --emit jobset, indexed-job or pytorchjob"
    check = shlex.join(["spanfit", "place", "--check", str(options["output"] or "PLACEMENT"), *source_argv(options)])
    yield f"Before it starts: {check}{'' if options['output'] else ', with PLACEMENT from -o'}"


def _reservation(placement: "Placement", options: dict[str, Any]) -> "SlurmReservation":
    from spanfit.errors import ConfigError
    from spanfit.launch.render.slurm import SlurmReservation
    from spanfit.topology.probe_slurm import user_name

    try:
        return SlurmReservation(
            name=placement.job.name,
            node_names=placement.rank_map.node_names,
            users=(options["reserve_for"] or user_name(),),
            duration_s=None if options["reserve"] == float("inf") else options["reserve"],
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _taint_commands(placement: "Placement") -> Iterator[str]:
    """Yield the command that keeps other pods off placed nodes, the one that ends it, and what pods need."""
    from spanfit.errors import ConfigError
    from spanfit.topology.holding import taint_key

    key = taint_key(placement.job.name)
    if not _TAINT_NAME.fullmatch(placement.job.name):
        raise ConfigError(
            f"job {placement.job.name!r}: a taint cannot carry its name; expected up to 63 letters, digits, dashes, "
            "underscores and dots, a letter or digit at both ends"
        )
    nodes = placement.rank_map.node_names
    yield shlex.join(["kubectl", "taint", "nodes", *nodes, f"{key}=reserved:NoSchedule"])
    yield f"undo: {shlex.join(['kubectl', 'taint', 'nodes', *nodes, f'{key}:NoSchedule-'])}"
    yield f'in the profile of its pods: [kubernetes] tolerations = ["{key}"]'


def _reserve(placement: "Placement", options: dict[str, Any]) -> None:
    """Make the reservation, and look once more whether its nodes can run the job."""
    import time

    from spanfit.errors import ExitCode
    from spanfit.launch.reserve import make_reservation, undo
    from spanfit.topology.reading import shown

    make_reservation(_reservation(placement, options), time.time())
    talk(f"reservation {placement.job.name} made; end it with {undo(placement.job.name)}")
    faults = [*faults_of(placement, read_source(options, placement.job.name), frozenset())]
    for one in faults:
        talk(f"{shown(one['node'])}, node rank {one['node_rank']}, cannot run the job: {shown(one['fault'])}")
    if faults:
        talk(f"end the reservation with {undo(placement.job.name)}, and run the same command again")
        click.get_current_context().exit(ExitCode.FINDING)

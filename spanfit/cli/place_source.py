"""Where ``spanfit place`` reads its free nodes: a cluster file, a running cluster, or both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from spanfit import units
from spanfit.cli.clusters import load_cluster, tell_findings
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.reading import Reading

_SHORTEST_S = 60.0
"""Slurm counts reservations in minutes."""
_OUT_OF_USE = (NodeState.DRAINED, NodeState.DOWN)


def _duration_s(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a duration such as 90m, 12h or 2d; infinity for ``unlimited``."""
    if value is None or value == "unlimited":
        return None if value is None else float("inf")
    try:
        duration_s = units.parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or unlimited") from None
    if duration_s < _SHORTEST_S:
        raise click.BadParameter(f"found {value!r}, expected a minute or more, such as 90m, or unlimited")
    return duration_s


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where free nodes are read, and what happens on a running cluster."""
    options = (
        click.option(
            "--cluster",
            type=click.Path(path_type=Path),
            help="A cluster's TOML file, or what Slurm or another source prints; beside --live its switches count.",
        ),
        click.option(
            "--live",
            type=click.Choice(["slurm", "kubernetes"]),
            help="Read the free nodes of the running cluster, and say what would happen; changes nothing.",
        ),
        click.option("--partition", metavar="NAME", help="Of --live slurm, nodes of this partition only."),
        click.option(
            "--tolerate",
            multiple=True,
            metavar="KEY",
            help="Of --live kubernetes, nodes with this taint too: the pods tolerate it; may be given again.",
        ),
        click.option(
            "--reserve",
            callback=_duration_s,
            metavar="DURATION",
            help="Print how to keep the nodes for 90m, 12h, 2d or unlimited; those reserved in that time are left out.",
        ),
        click.option("--reserve-for", metavar="USER", help="Who may use the reservation; you, unless given."),
        click.option("--apply", "is_applied", is_flag=True, help="Run what --reserve prints; changes the cluster."),
        click.option(
            "--check",
            "checked",
            type=click.Path(path_type=Path),
            metavar="PLACEMENT",
            help="Place nothing: say which nodes of a placement.json are not free now; ends with 1 if any is not.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _check_source(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other."""
    if options["cluster"] is None and options["live"] is None:
        raise click.UsageError("give --cluster FILE, or --live slurm or --live kubernetes")
    _check_cluster_is_a_file(options["cluster"])
    if options["reserve"] is not None and options["live"] is None:
        raise click.UsageError("--reserve keeps nodes of a running cluster; give --live")
    if options["reserve"] is None and (options["is_applied"] or options["reserve_for"]):
        raise click.UsageError("--apply and --reserve-for belong to --reserve DURATION")
    if options["partition"] and options["live"] != "slurm":
        raise click.UsageError("--partition is one of Slurm's; give --live slurm")
    if options["tolerate"] and options["live"] != "kubernetes":
        raise click.UsageError("--tolerate is about taints; give --live kubernetes")
    if options["live"] and options["use_reserved"]:
        raise click.UsageError(
            "--use-reserved would take nodes that are reserved for anybody; with --live those of a reservation of the "
            "job's name count as free, and --tolerate KEY adds nodes with a taint"
        )
    if options["live"] == "kubernetes" and options["reserve"] is not None:
        _check_taint(options)


def _check_cluster_is_a_file(cluster: Path | None) -> None:
    """Refuse the running cluster under its name as a source, which would not know the job's own reservation."""
    from spanfit.topology.probe import live_source

    if cluster and (source := live_source(str(cluster))):
        raise click.UsageError(f"--cluster takes a file; give --live {source} to place on the running cluster")


def _check_taint(options: dict[str, Any]) -> None:
    if options["reserve"] != float("inf") or options["reserve_for"]:
        raise click.UsageError(
            "Kubernetes has no reservation with an owner and an end, only taints, which stay until they are removed: "
            "give --reserve unlimited without --reserve-for"
        )
    if options["is_applied"]:
        raise click.UsageError(
            "--apply makes reservations of Slurm's only: a taint has no end and no owner, so that one which is "
            "forgotten would idle the nodes; run the printed command yourself"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A cluster, and what it was read from while it ran; no readings where it was not."""

    cluster: Cluster
    readings: tuple[Reading, ...] = ()


def read_source(options: dict[str, Any], own: str) -> Source:
    """Return the cluster that --cluster and --live name, and tell what is odd about it.

    Nodes that are kept for the job ``own`` count as free.
    """
    _check_source(options)
    if options["live"] is None:
        return Source(cluster=load_cluster(options["cluster"]))
    import time

    from spanfit.cli.clusters import read_all
    from spanfit.topology.merge import merge
    from spanfit.topology.probe import LiveSource, read_live

    now_s = time.time()
    until_s = None if options["reserve"] is None else now_s + options["reserve"]
    files = read_all([options["cluster"]]) if options["cluster"] else ()
    readings = read_live(LiveSource(options["live"]), now_s, own=own, until_s=until_s, tolerated=options["tolerate"])
    merged = merge([*files, *readings], options["live"])
    tell_findings(merged.findings)
    cluster = merged.cluster
    if options["partition"]:
        cluster = _only(cluster, readings, options["partition"])
    return Source(cluster=cluster, readings=readings)


def _only(cluster: Cluster, readings: Sequence[Reading], partition: str) -> Cluster:
    """Return a cluster without the nodes that are in no partition of a name; ConfigError where none is in it."""
    from dataclasses import replace

    from spanfit.errors import ConfigError
    from spanfit.topology.reading import shown

    partitions: dict[str, set[str]] = {}
    for reading in readings:
        for node in reading.nodes:
            partitions.setdefault(node.name, set()).update(node.partitions)
    nodes = tuple(node for node in cluster.nodes if partition in partitions.get(node.name, ()))
    if not nodes:
        known = shown(", ".join(sorted(set().union(*partitions.values())))) or "none"
        raise ConfigError(f"--partition: found {partition}, in which no node is; expected one of: {known}")
    return replace(cluster, nodes=nodes)


def source_argv(options: dict[str, Any]) -> list[str]:
    """Return the options by which a later command reads the same nodes."""
    named = {"--cluster": options["cluster"], "--live": options["live"], "--partition": options["partition"]}
    pairs = [*named.items(), *(("--tolerate", key) for key in options["tolerate"])]
    return [word for option, value in pairs if value for word in (option, str(value))]


def explained(refused: str, node: Node, why: Mapping[str, str]) -> str:
    """Return why a job may not take a node, with what is said of its state where that is why."""
    is_told = refused == node.state.value and node.state is not NodeState.ALLOCATED and node.name in why
    return f"{refused}: {why[node.name]}" if is_told else refused


def reasons(readings: Sequence[Reading]) -> dict[str, str]:
    """Return why each drained, down or reserved node takes no job, as people or reservations say."""
    from spanfit.topology.holding import why_held
    from spanfit.topology.reading import shown

    why: dict[str, str] = {}
    for reading in readings:
        for one in reading.reservations:
            if one.is_active is not False:
                why |= dict.fromkeys(one.nodes, shown(why_held(one)))
    for reading in readings:
        told = {node.name: node.reason for node in reading.nodes if node.reason and node.state in _OUT_OF_USE}
        why |= {name: shown(reason) for name, reason in told.items()}
    return why

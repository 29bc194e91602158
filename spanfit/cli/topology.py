"""``spanfit topology``: a cluster's tree of switches, drawn and checked."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import console, json_option, print_json, talk
from spanfit.errors import ExitCode
from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.model import Cluster, Node, NodeState

if TYPE_CHECKING:
    from rich.tree import Tree

MAX_SIBLINGS = 16
"""Switches drawn under one switch; the rest share one line."""

cluster_argument = click.argument("cluster", type=click.Path(path_type=Path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    name: str
    tier: str
    nodes: tuple[Node, ...]
    switches: tuple["_Switch", ...]


@click.group()
def topology() -> None:
    """Show and check a cluster's tree of switches."""


@topology.command(epilog="Example: spanfit topology show cluster.toml")
@cluster_argument
@json_option
def show(cluster: Path, as_json: bool) -> None:
    """Draw the switches of CLUSTER (a TOML cluster file or a Slurm topology.conf) and the states of its nodes."""
    from spanfit.topology.readers.cluster_file import read_cluster_with_warnings

    found, warnings = read_cluster_with_warnings(cluster)
    for warning in warnings:
        talk(f"warning: {warning}")
    if as_json:
        print_json(_plain(found))
    else:
        console().print(_draw(found))


@topology.command(epilog="Example: spanfit topology check topology.conf")
@cluster_argument
@json_option
@click.pass_context
def check(context: click.Context, cluster: Path, as_json: bool) -> None:
    """Say what is odd in CLUSTER; ends with 0 if nothing is, 1 if something is, 2 if it cannot be read."""
    from spanfit.topology.readers.cluster_file import read_cluster_with_warnings

    found, warnings = read_cluster_with_warnings(cluster)
    if as_json:
        print_json({"cluster": found.name, "nnodes": len(found.nodes), "tiers": found.tiers, "findings": warnings})
    else:
        for line in warnings or (f"{found.name}: {_counts(found.nodes)}; nothing odd found",):
            click.echo(line)
    context.exit(ExitCode.FINDING if warnings else ExitCode.GOOD)


def _tree(nodes: Iterable[Node], tiers: tuple[str, ...]) -> tuple[_Switch, ...]:
    """Return the switches of the last of the tiers, each with those of the tier below it."""
    if not tiers:
        return ()
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.fabric[len(tiers) - 1], []).append(node)
    return tuple(
        _Switch(name=name, tier=tiers[-1], nodes=tuple(below), switches=_tree(below, tiers[:-1]))
        for name, below in members.items()
    )


def _states(nodes: Iterable[Node]) -> dict[str, int]:
    counted = Counter(node.state for node in nodes)
    return {state.value: counted[state] for state in NodeState if counted[state]}


def _counts(nodes: tuple[Node, ...]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in _states(nodes).items())
    return f"{_number(len(nodes), 'node')}: {states}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _hardware(nodes: tuple[Node, ...]) -> str:
    kinds = Counter((node.ngpus, node.gpu_model) for node in nodes)
    parts = [
        f"{_number(count, 'node')} with {ngpus} x {model or 'GPU'}"
        for (ngpus, model), count in kinds.items()
        if ngpus is not None
    ]
    return "; ".join(parts)


def _draw(cluster: Cluster) -> "Tree":
    from rich.markup import escape
    from rich.tree import Tree

    lines = [f"[bold]{escape(cluster.name)}[/bold]  {_counts(cluster.nodes)}"]
    if hardware := _hardware(cluster.nodes):
        lines.append(escape(hardware))
    root = Tree("\n".join(lines))
    _grow(root, _tree(cluster.nodes, cluster.tiers))
    return root


def _grow(branch: "Tree", switches: tuple[_Switch, ...]) -> None:
    from rich.markup import escape

    shown = switches if len(switches) <= MAX_SIBLINGS else switches[: MAX_SIBLINGS - 1]
    for switch in shown:
        text = f"{switch.tier} [bold]{escape(switch.name)}[/bold]  {_counts(switch.nodes)}"
        if not switch.switches:
            text += f"  [dim]{escape(fold_hostlist(node.name for node in switch.nodes))}[/dim]"
        _grow(branch.add(text), switch.switches)
    rest = switches[len(shown) :]
    if rest:
        nodes = tuple(node for switch in rest for node in switch.nodes)
        names = f"{rest[0].name} ... {rest[-1].name}"
        branch.add(escape(f"{len(rest)} more: {rest[0].tier} {names}  {_counts(nodes)}"))


def _plain(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "tiers": cluster.tiers,
        "nnodes": len(cluster.nodes),
        "states": _states(cluster.nodes),
        "switches": [_plain_switch(switch) for switch in _tree(cluster.nodes, cluster.tiers)],
    }


def _plain_switch(switch: _Switch) -> dict[str, Any]:
    return {
        "name": switch.name,
        "tier": switch.tier,
        "nnodes": len(switch.nodes),
        "states": _states(switch.nodes),
        "nodes": fold_hostlist(node.name for node in switch.nodes),
        "switches": [_plain_switch(below) for below in switch.switches],
    }

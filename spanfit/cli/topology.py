"""``spanfit topology``: clusters read from many sources, merged, compared, drawn and checked."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.clusters import finding_lines, load_cluster, merge_sources, read_all, source_name, tell_findings
from spanfit.cli.output import console, json_option, print_json, print_table
from spanfit.errors import ExitCode
from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.reading import Finding, Reading, folded, shown

if TYPE_CHECKING:
    from rich.tree import Tree

    from spanfit.topology.compare import Difference

MAX_SIBLINGS = 16
"""Switches drawn under one switch; the rest share one line."""

_path = click.Path(path_type=Path)
cluster_argument = click.argument("cluster", type=_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    name: str
    tier: str
    nodes: tuple[Node, ...]
    switches: tuple["_Switch", ...]


@click.group()
def topology() -> None:
    """Read, merge, compare, show and check clusters and their trees of switches.

    CLUSTER and SOURCE are TOML cluster files or what Slurm, kubectl, topograph, AWS, ibnetdiscover, iblinkinfo, UFM or
    lldpctl write; which one it is, the content tells. slurm:live and kubernetes:live read the running cluster.
    """


@topology.command("import", epilog="Example: spanfit topology import topology.conf nodes.json --out cluster.toml")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=_path)
@click.option("--out", type=_path, help="Write the cluster file there instead of to stdout.")
@click.option("--name", help="Call the cluster so; otherwise it is called after the first source.")
@click.option(
    "--topology", "chosen", metavar="NAME", help="Read this one of several topologies of Slurm's, not the default."
)
@json_option
def import_(sources: tuple[Path, ...], out: Path | None, name: str | None, chosen: str | None, as_json: bool) -> None:
    """Write one TOML cluster file from all SOURCEs: the fabric of one, GPUs and states of others.

    Places come from the first source that gives any, GPUs from the first that tells them; of states the most severe
    counts. Nodes without a place are left out. Whatever is odd or contradicts is told on stderr.
    """
    from spanfit import files
    from spanfit.topology.merge import merge
    from spanfit.topology.readers.cluster_toml import render_cluster

    readings = read_all(sources, chosen)
    merged = merge(readings, source_name(sources[0]))
    cluster = merged.cluster if name is None else replace(merged.cluster, name=name)
    if out is not None:
        files.write_text(out, render_cluster(cluster))
    if as_json:
        findings = [_plain_finding(finding) for finding in merged.findings]
        read = [_plain_reading(reading) for reading in readings]
        print_json({"cluster": _plain(cluster), "findings": findings, "sources": read})
        return
    tell_findings(merged.findings)
    if out is None:
        click.echo(render_cluster(cluster), nl=False)
    else:
        columns = ("source", "format", ">nodes", ">placed", ">with state")
        click.echo(f"{out}: {_counts(cluster.nodes)}")
        print_table("", columns, map(_reading_row, readings))


@topology.command(epilog="Example: spanfit topology diff cluster.toml topology.conf")
@click.argument("before", type=_path)
@click.argument("after", type=_path)
@json_option
@click.pass_context
def diff(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Say how AFTER differs from BEFORE in what both tell; ends with 0 if it does not, 1 if it does."""
    from spanfit.topology.compare import compare
    from spanfit.topology.merge import merge

    sides = [read_all([path]) for path in (before, after)]
    with_states = all(any(node.state for one in side for node in one.nodes) for side in sides)
    one, two = (merge(side, source_name(path)).cluster for side, path in zip(sides, (before, after), strict=True))
    found = compare(one, two, with_states=with_states)
    if as_json:
        print_json(found)
    elif found.is_empty:
        click.echo("no difference")
    else:
        print_table("", ("what", "nodes", "before", "after"), _difference_rows(found))
        if any(change.key == "switches" for change in found.changes):
            same = "the groups are the same: only names or levels of switches differ"
            regrouped = f"{_number(len(found.regrouped), 'node')} regrouped: {folded(found.regrouped)}"
            click.echo(regrouped if found.regrouped else same)
    context.exit(ExitCode.GOOD if found.is_empty else ExitCode.FINDING)


@topology.command(epilog="Example: spanfit topology show cluster.toml")
@cluster_argument
@json_option
def show(cluster: Path, as_json: bool) -> None:
    """Draw the switches of CLUSTER and the states of its nodes."""
    found = load_cluster(cluster)
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
    merged = merge_sources([cluster])
    found, findings = merged.cluster, merged.findings
    if as_json:
        odd = [_plain_finding(finding) for finding in findings]
        print_json({"cluster": found.name, "nnodes": len(found.nodes), "tiers": found.tiers, "findings": odd})
    else:
        for line in finding_lines(findings) or (f"{found.name}: {_counts(found.nodes)}; nothing odd found",):
            click.echo(line)
    context.exit(ExitCode.FINDING if findings else ExitCode.GOOD)


@topology.command(epilog="Example: spanfit topology rails topo.xml")
@click.argument("source", type=_path)
@json_option
def rails(source: Path, as_json: bool) -> None:
    """Show which NIC is closest to which GPU, from NCCL's topology XML or the output of nvidia-smi topo -m."""
    import time

    from spanfit.errors import ConfigError
    from spanfit.topology.readers.sources import read_sources

    host = read_sources([source], time.time())[0].host
    if host is None:
        raise ConfigError(f"{source}: says nothing of the inside of a host; expected NCCL's XML or nvidia-smi topo -m")
    if as_json:
        print_json(host)
        return
    numa = {gpu: node for node, gpus in host.numa for gpu in gpus}
    links = "all" if host.is_nvlink_full else "some" if host.has_nvlink else "no"
    rows = [(gpu, numa.get(gpu, ""), shown(", ".join(nics))) for gpu, nics in host.closest_nics]
    counts = f"{_number(len(host.gpus), 'GPU')}, {_number(len(host.nics), 'NIC port')}"
    click.echo(f"{counts}; {links} pairs of GPUs are joined by NVLink")
    print_table("", ("GPU", "NUMA", "closest NICs"), rows)


def _difference_rows(found: "Difference") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("added", folded(found.added), "", "")] if found.added else []
    rows += [("removed", folded(found.removed), "", "")] if found.removed else []
    rows += [(one.key, folded(one.names), shown(one.before), shown(one.after)) for one in found.changes]
    return rows


def _plain_finding(finding: Finding) -> dict[str, str]:
    return {"code": finding.code, "subject": finding.subject, "text": finding.text}


def _plain_reading(reading: Reading) -> dict[str, Any]:
    return {
        "origin": reading.origin,
        "kind": reading.kind,
        "scheme": reading.scheme,
        "nnodes": len(reading.nodes),
        "nplaced": sum(node.fabric is not None for node in reading.nodes),
        "nstates": sum(node.state is not None for node in reading.nodes),
        "reservations": [one.name for one in reading.reservations],
        "topologies": reading.topologies,
    }


def _reading_row(reading: Reading) -> tuple[str, ...]:
    plain = _plain_reading(reading)
    kind = f"{reading.kind} ({reading.scheme})" if reading.scheme else reading.kind
    counts = (str(plain[key]) for key in ("nnodes", "nplaced", "nstates"))
    return (shown(reading.origin), shown(kind), *counts)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


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
    from rich.tree import Tree

    lines = [f"[bold]{_escape(shown(cluster.name))}[/bold]  {_counts(cluster.nodes)}"]
    if hardware := _hardware(cluster.nodes):
        lines.append(_escape(shown(hardware)))
    root = Tree("\n".join(lines))
    _grow(root, _tree(cluster.nodes, cluster.tiers))
    return root


def _grow(branch: "Tree", switches: tuple[_Switch, ...]) -> None:
    drawn = switches if len(switches) <= MAX_SIBLINGS else switches[: MAX_SIBLINGS - 1]
    for switch in drawn:
        text = f"{switch.tier} [bold]{_escape(shown(switch.name))}[/bold]  {_counts(switch.nodes)}"
        if not switch.switches:
            text += f"  [dim]{_escape(fold_hostlist(node.name for node in switch.nodes))}[/dim]"
        _grow(branch.add(text), switch.switches)
    rest = switches[len(drawn) :]
    if rest:
        nodes = tuple(node for switch in rest for node in switch.nodes)
        names = f"{shown(rest[0].name)} ... {shown(rest[-1].name)}"
        branch.add(_escape(f"{len(rest)} more: {rest[0].tier} {names}  {_counts(nodes)}"))


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

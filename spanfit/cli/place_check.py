"""``spanfit place --check``: whether the nodes of a placement can still run its job."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import print_json, print_table, talk
from spanfit.cli.place_source import Source, explained, read_source, reasons, source_argv

if TYPE_CHECKING:
    from spanfit.placer.model import Placement


def check_placement(path: Path, options: dict[str, Any], *, as_json: bool) -> None:
    """Say which nodes of a placement cannot run its job now; ends with 1 if any cannot."""
    from spanfit import files
    from spanfit.errors import ExitCode
    from spanfit.placer.model import SCHEMA_VERSION, Placement

    placement = files.read_json(path, Placement, SCHEMA_VERSION)
    held = _allocation(os.environ) if options["live"] == "slurm" else frozenset()
    faults = [*faults_of(placement, read_source(options, placement.job.name), held)]
    if as_json:
        print_json({"job": placement.job.name, "nnodes": len(placement.rank_map.node_names), "findings": faults})
    elif faults:
        _show_faults(faults)
        talk(f"mend it with {_mending(path, faults, options)}")
    else:
        click.echo(f"{path}: all {len(placement.rank_map.node_names)} nodes of job {placement.job.name} are free")
    click.get_current_context().exit(ExitCode.FINDING if faults else ExitCode.GOOD)


def faults_of(placement: "Placement", source: Source, held: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a placement that are gone, not free, or under another minipod than when it was placed."""
    from spanfit.placer.constraints import refusal

    by_name = {node.name: node for node in source.cluster.nodes}
    labels = source.cluster.switch_labels("minipod")
    why = reasons(source.readings)
    for node_rank, name in enumerate(placement.rank_map.node_names):
        node = by_name.get(name)
        if node is None:
            fault = "not in the cluster"
        elif refused := refusal(node, placement.job, placement.rules, held):
            fault = explained(refused, node, why)
        elif (minipod := labels[source.cluster.minipod(node)]) != placement.minipods[node_rank]:
            fault = f"under {minipod}, was under {placement.minipods[node_rank]}"
        else:
            continue
        yield {"node": name, "node_rank": node_rank, "fault": fault}


def _allocation(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the nodes of the Slurm job that this runs in, which holds them itself."""
    from spanfit.errors import ConfigError
    from spanfit.topology.hostlist import expand_hostlist

    try:
        return frozenset(expand_hostlist(environment.get("SLURM_JOB_NODELIST", "")))
    except ValueError as error:
        raise ConfigError(f"SLURM_JOB_NODELIST: {error}") from None


def _show_faults(faults: Sequence[dict[str, Any]]) -> None:
    from spanfit.topology.reading import shown

    rows = [(shown(one["node"]), str(one["node_rank"]), shown(one["fault"])) for one in faults]
    print_table("", ("node", ">node rank", "why it cannot run the job"), rows)


def _mending(path: Path, faults: Sequence[dict[str, Any]], options: dict[str, Any]) -> str:
    """Return the command that mends a placement."""
    from spanfit.topology.hostlist import fold_hostlist, is_plain_name

    failed = fold_hostlist(one["node"] for one in faults if is_plain_name(one["node"]))
    argv = ["spanfit", "place", "--repair", str(path), "--failed", failed]
    return shlex.join([*argv, *source_argv(options)])

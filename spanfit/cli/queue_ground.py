"""``spanfit queue init|rules|down|up|check``: the queue itself, its nodes and its rules."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.clusters import load_cluster
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.queue_options import open_queue, print_step, state_option

if TYPE_CHECKING:
    from spanfit.queue.model.nodes import NodeSet
    from spanfit.queue.model.rules import QueueRules
    from spanfit.queue.state.store import QueueStore


@click.command(epilog="Example: spanfit queue init cluster.toml --rules rules.toml")
@click.argument("cluster", type=click.Path(path_type=Path))
@click.option(
    "--rules", "rules_file", type=click.Path(path_type=Path), metavar="FILE", help="The queue's rules (TOML)."
)
@state_option
def init(cluster: Path, rules_file: Path | None, path: Path) -> None:
    """Make a queue for the nodes of CLUSTER.

    CLUSTER is a cluster's TOML file, or what Slurm or another source prints, or slurm:live.
    """
    from spanfit.queue.grounds import ground_of, out_of_service
    from spanfit.queue.model.rules import QueueRules
    from spanfit.queue.model.state import QueueState
    from spanfit.queue.policy.choosing import choose
    from spanfit.queue.policy.decide import decide
    from spanfit.queue.rules_file import read_rules
    from spanfit.queue.state.store import QueueStore

    rules = read_rules(rules_file) if rules_file else QueueRules()
    found = load_cluster(cluster)
    ground, out = ground_of(found), out_of_service(found)
    opening = QueueState(ground=ground, now_s=time.time(), up=ground.everything & ~out)
    QueueStore.create(path, opening, rules, decide, choose).close()
    talk(
        f"{path}: a queue of {len(ground.names)} nodes in {len(ground.labels)} minipods, {out.bit_count()} of them out "
        f"of service, policy {rules.policy}; next: spanfit queue submit JOB --nodes N --runtime 2h"
    )


@click.command(epilog="Example: spanfit queue rules rules.toml")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@state_option
@json_option
def rules(file: Path | None, path: Path, as_json: bool) -> None:
    """Show the rules of the queue, or set those of FILE."""
    from spanfit.queue.rules_file import read_rules

    new = read_rules(file) if file else None
    with open_queue(path) as store:
        if new is not None:
            store.set_rules(new)
            talk(f"{path}: the rules of {file} hold from now on")
        _print_rules(store.rules(), as_json)


def _print_rules(found: "QueueRules", as_json: bool) -> None:
    from dataclasses import asdict

    from spanfit.units import format_time

    values = asdict(found)
    if as_json:
        print_json(values)
        return
    rows = [
        (name.removesuffix("_s"), format_time(value) if name.endswith("_s") else str(value))
        for name, value in values.items()
    ]
    print_table("Rules", ("rule", "value"), rows)


@click.command(epilog="Example: spanfit queue down 'node[01-03]'")
@click.argument("hostlist")
@state_option
@json_option
def down(hostlist: str, path: Path, as_json: bool) -> None:
    """Take nodes out of service.

    Jobs on them wait again, and reservations move to other nodes. With Slurm, tick sees it by itself.
    """
    from spanfit.queue.model.events import NodesDown

    with open_queue(path) as store:
        step = store.step(NodesDown(at_s=time.time(), nodes=_nodes(store, hostlist)))
    print_step(step, path, as_json)


@click.command(epilog="Example: spanfit queue up 'node[01-03]'")
@click.argument("hostlist")
@state_option
@json_option
def up(hostlist: str, path: Path, as_json: bool) -> None:
    """Put nodes back into service.

    With Slurm, tick sees it by itself.
    """
    from spanfit.queue.model.events import NodesUp

    with open_queue(path) as store:
        step = store.step(NodesUp(at_s=time.time(), nodes=_nodes(store, hostlist)))
    print_step(step, path, as_json)


def _nodes(store: "QueueStore", hostlist: str) -> "NodeSet":
    from spanfit.errors import ConfigError
    from spanfit.topology.hostlist import expand_hostlist
    from spanfit.topology.reading import folded

    try:
        names = expand_hostlist(hostlist)
    except ValueError as error:
        raise ConfigError(f"HOSTLIST: {error}") from error
    if unknown := [name for name in names if name not in store.ground.index]:
        raise ConfigError(
            f"HOSTLIST: found {folded(unknown)}, expected nodes of {store.path}: {folded(store.ground.names)}"
        )
    return store.ground.node_set(names)


@click.command(epilog="Example: spanfit queue check")
@state_option
@json_option
@click.pass_context
def check(context: click.Context, path: Path, as_json: bool) -> None:
    """Check the queue's file for faults.

    No node may be booked twice, and the journal must lead to the state; exit code 1 if either fails.
    """
    from spanfit.errors import ExitCode
    from spanfit.queue.policy.choosing import choose
    from spanfit.queue.policy.decide import decide
    from spanfit.queue.state.invariants import faults
    from spanfit.queue.state.replay import differences

    with open_queue(path) as store:
        kept, records = store.state(), store.records()
        found = [*faults(kept), *differences(store.opening(), records, kept, decide, choose)]
    if as_json:
        print_json({"events": len(records), "faults": found})
    else:
        for line in found:
            click.echo(line)
        talk(f"{path}: {len(records)} events played again, {len(found)} faults")
    if found:
        context.exit(ExitCode.FINDING)

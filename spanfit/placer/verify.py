"""Whether a placement is what it says on a cluster: everything is found again from the cluster's own nodes."""

from collections.abc import Collection, Iterator

from spanfit.placer.constraints import ep_nodes, free_nodes
from spanfit.placer.model import Placement, PlacementStatus
from spanfit.placer.rules import ACCELERATOR, OneModel
from spanfit.topology.model import Cluster, Node, SwitchPath

_SAME = 1e-9


def verify(placement: Placement, cluster: Cluster, held: Collection[str] = ()) -> None:
    """Raise ValueError, naming every broken invariant, unless a placement is what it says on a cluster.

    Spreads, objective and rules are looked at again from the cluster's own minipods of the named nodes. Nodes that
    the job holds already count as free for it.
    """
    faults = [*_node_faults(placement, cluster, held)]
    faults = faults or [*_value_faults(placement, cluster), *_rule_faults(placement, cluster, held)]
    if faults:
        raise ValueError("\n".join(faults))


def _node_faults(placement: Placement, cluster: Cluster, held: Collection[str]) -> Iterator[str]:
    names, job = placement.rank_map.node_names, placement.job
    allowed = {node.name for node in free_nodes(job, cluster, placement.rules, held)}
    if len(set(names)) < len(names):
        yield "a node has two node ranks"
    if strangers := [name for name in names if name not in allowed]:
        yield f"nodes {', '.join(strangers)} are not free for job {job.name} in cluster {cluster.name}"
    if placement.cells != job.layout.node_cells(job.ngpus_per_node):
        yield "cells are not those of the job's layout"
    if len(names) != len(placement.cells) or placement.rank_map.ngpus_per_node != job.ngpus_per_node:
        yield f"the rank map has {placement.rank_map.nranks} ranks; expected {job.layout.nranks}"


def _value_faults(placement: Placement, cluster: Cluster) -> Iterator[str]:
    nodes = cluster.select(placement.rank_map.node_names)
    label_of = cluster.switch_labels("minipod")
    found = [label_of[cluster.minipod(node)] for node in nodes]
    columns: dict[int, set[str]] = {}
    rows: dict[int, set[str]] = {}
    groups: dict[tuple[int, int], set[str]] = {}
    size = ep_nodes(placement.job) if placement.ep_spreads else 1
    for (row, column), minipod in zip(placement.cells, found, strict=True):
        rows.setdefault(row, set()).add(minipod)
        columns.setdefault(column, set()).add(minipod)
        groups.setdefault((column, row // size), set()).add(minipod)
    dp_spreads = tuple(len(columns[column]) for column in sorted(columns))
    pp_spreads = tuple(len(rows[row]) for row in sorted(rows))
    ep = tuple(len(groups[group]) for group in sorted(groups)) if placement.ep_spreads else ()
    count = placement.reading.of
    value = placement.alpha * count(max(dp_spreads)) + placement.beta * count(max(pp_spreads))
    value += placement.ep_weight * count(max(ep, default=1))
    if tuple(found) != placement.minipods:
        yield "minipods are not those of the nodes"
    if (dp_spreads, pp_spreads, ep) != (placement.dp_spreads, placement.pp_spreads, placement.ep_spreads):
        yield f"spreads are {dp_spreads} (DP), {pp_spreads} (PP) and {ep} (EP); the placement says otherwise"
    if abs(value - placement.objective) > _SAME:
        yield f"objective is {value}; the placement says {placement.objective}"
    if placement.bound > placement.objective + _SAME:
        yield f"bound {placement.bound} is above the objective {placement.objective}"
    is_met = placement.objective - placement.bound <= _SAME
    if is_met != (placement.status is PlacementStatus.OPTIMAL):
        yield f"status is {placement.status}, bound {placement.bound}, objective {placement.objective}"


def _rule_faults(placement: Placement, cluster: Cluster, held: Collection[str]) -> Iterator[str]:
    rules, names = placement.rules, placement.rank_map.node_names
    nodes = dict(zip(placement.cells, cluster.select(names), strict=True))
    if lost := sorted(set(rules.pinned) - set(names)):
        yield f"pinned nodes {', '.join(lost)} are not used"
    if rules.within and len({cluster.switch(node, rules.within) for node in nodes.values()}) > 1:
        yield f"nodes are under several switches of tier {rules.within}"
    if rules.ep_within and (torn := [*_torn(placement, cluster, nodes)]):
        yield f"EP groups {', '.join(map(str, torn))} leave their {rules.ep_within}"
    yield from _model_faults(placement, nodes)
    yield from _spare_faults(placement, cluster, nodes.values(), held)


def _spare_faults(
    placement: Placement, cluster: Cluster, used: Collection[Node], held: Collection[str]
) -> Iterator[str]:
    rules, names = placement.rules, set(placement.rank_map.node_names)
    tier = rules.ep_within if ep_nodes(placement.job) > 1 and rules.ep_within else "minipod"

    def key(node: Node) -> tuple[str | SwitchPath, str | None]:
        return _home(cluster, node, tier), node.gpu_model if rules.binds_models else None

    left = {key(node): 0 for node in used if rules.spares}
    for node in free_nodes(placement.job, cluster, rules, held):
        if node.name not in names and key(node) in left:
            left[key(node)] += 1
    for (home, model), count in left.items():
        if count < rules.spares:
            where = f"{tier} {home if isinstance(home, str) else home[0]}"
            yield f"{where} keeps {count} spares{f' of {model}' if model else ''}; expected {rules.spares}"


def _home(cluster: Cluster, node: Node, tier: str) -> str | SwitchPath:
    """Return the accelerator domain of a node, or its switch of a tier."""
    return (node.accelerator_domain or node.name) if tier == ACCELERATOR else cluster.switch(node, tier)


def _torn(placement: Placement, cluster: Cluster, nodes: dict[tuple[int, int], Node]) -> Iterator[tuple[int, int]]:
    """Yield the (column, number) of EP groups that leave their domain."""
    size, tier = ep_nodes(placement.job), placement.rules.ep_within or ACCELERATOR
    domains: dict[tuple[int, int], set[str | SwitchPath]] = {}
    for (row, column), node in nodes.items():
        domains.setdefault((column, row // size), set()).add(_home(cluster, node, tier))
    return (group for group, found in sorted(domains.items()) if len(found) > 1)


def _model_faults(placement: Placement, nodes: dict[tuple[int, int], Node]) -> Iterator[str]:
    rules = placement.rules
    for (_, column), node in nodes.items():
        if rules.stage_models and node.gpu_model != rules.stage_models[column]:
            yield f"node {node.name} of stage {column} is {node.gpu_model}; expected {rules.stage_models[column]}"
    if rules.one_model:
        for what, models in _models_of_groups(rules.one_model, nodes).items():
            if len(models) > 1:
                yield f"{what} mixes {', '.join(sorted(map(str, models)))}"


def _models_of_groups(rule: OneModel, nodes: dict[tuple[int, int], Node]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for (row, column), node in nodes.items():
        names = {OneModel.JOB: "the job", OneModel.DP: f"DP group {column}", OneModel.PP: f"PP group {row}"}
        found.setdefault(names[rule], set()).add(node.gpu_model)
    return found

"""Which nodes a job may take under its rules, and, where they are too few, by how much and what would help."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from spanfit.errors import ConfigError
from spanfit.placer.model import JobSpec
from spanfit.placer.rules import ACCELERATOR, NO_RULES, Rules
from spanfit.topology.model import Cluster, Node, NodeState


def free_nodes(job: JobSpec, cluster: Cluster, rules: Rules = NO_RULES, held: Collection[str] = ()) -> tuple[Node, ...]:
    """Return the nodes that a job may take.

    They are idle (or reserved, where the rules allow it, or allocated and held by the job itself), not excluded, with
    enough GPUs and of the job's GPU model as far as is known.
    """
    own = frozenset(held)
    return tuple(node for node in cluster.nodes if refusal(node, job, rules, own) is None)


def refusal(node: Node, job: JobSpec, rules: Rules, held: frozenset[str] = frozenset()) -> str | None:
    """Return why a job may not take a node, in a word or two, or None where it may."""
    if node.name in rules.excluded:
        return "excluded"
    if node.ngpus is not None and node.ngpus < job.ngpus_per_node:
        return f"under {job.ngpus_per_node} GPUs"
    if job.gpu_model is not None and node.gpu_model != job.gpu_model:
        return f"{node.gpu_model or 'of unknown model'}, not {job.gpu_model}"
    if rules.one_model and "+" in (node.gpu_model or ""):
        return f"of several models ({node.gpu_model})"
    if rules.stage_models and node.gpu_model not in rules.stage_models:
        return f"{node.gpu_model or 'of unknown model'}, not {' or '.join(sorted(set(rules.stage_models)))}"
    is_held = node.name in held and node.state in (NodeState.ALLOCATED, NodeState.RESERVED)
    is_reserved_for_us = node.state is NodeState.RESERVED and rules.use_reserved
    return None if node.state is NodeState.IDLE or is_held or is_reserved_for_us else node.state.value


def ep_nodes(job: JobSpec) -> int:
    """Return the nodes of an EP group, neighbours in a column; ConfigError where groups do not fill whole nodes."""
    per_node = job.ngpus_per_node // (job.layout.tp * job.layout.cp)
    if job.layout.ep <= per_node and per_node % job.layout.ep == 0:
        return 1
    if job.layout.ep % per_node:
        raise ConfigError(
            f"job {job.name}: ep is {job.layout.ep} with {per_node} replicas on a node; expected a multiple of "
            f"{per_node} or a divisor, so that an EP group fills whole nodes"
        )
    return job.layout.ep // per_node


def check_rules(job: JobSpec, cluster: Cluster, rules: Rules) -> None:
    """Raise ConfigError, naming everything at once, where rules name what the job or the cluster does not have."""
    if faults := [*_node_faults(job, cluster, rules), *_domain_faults(job, cluster, rules)]:
        raise ConfigError("\n".join(f"job {job.name}: {fault}" for fault in faults))


def _node_faults(job: JobSpec, cluster: Cluster, rules: Rules) -> Iterator[str]:
    by_name = {node.name: node for node in cluster.nodes}
    for what, names in (("excluded", rules.excluded), ("pinned", rules.pinned)):
        if strangers := [name for name in names if name not in by_name]:
            yield f"{what}: found {', '.join(strangers)}; expected nodes of cluster {cluster.name}"
    pins = ((name, refusal(by_name[name], job, rules)) for name in rules.pinned if name in by_name)
    if refused := [f"{name} ({why})" for name, why in pins if why]:
        yield f"pinned: found {', '.join(refused)}; expected nodes that the job may take"
    nrows, ncolumns = job.layout.grid(job.ngpus_per_node)
    if len(rules.pinned) > nrows * ncolumns:
        yield f"pinned: found {len(rules.pinned)} nodes; expected at most the {nrows * ncolumns} of the job"


def _domain_faults(job: JobSpec, cluster: Cluster, rules: Rules) -> Iterator[str]:
    if rules.within is not None and rules.within not in cluster.tiers:
        yield f"within: found {rules.within}; expected a tier of {cluster.name}: {', '.join(cluster.tiers)}"
    domains = (ACCELERATOR, *cluster.tiers[: cluster.tiers.index("minipod") + 1])
    if rules.ep_within is not None and rules.ep_within not in domains:
        yield f"ep_within: found {rules.ep_within}; expected one of {', '.join(domains)}"
    nstages = job.layout.pp
    if rules.stage_models and len(rules.stage_models) != nstages:
        yield f"stage_models: found {len(rules.stage_models)} models; expected {nstages}, one for each stage"
    if job.gpu_model and rules.binds_models:
        yield f"gpu_model: found {job.gpu_model} beside a rule on models; leave one of them out"


def shortage(job: JobSpec, cluster: Cluster, rules: Rules, *, needs: str, found: str, missing: int, unit: int) -> str:
    """Return why a job cannot be placed, in numbers, and the nearest changes that would help.

    Parameters
    ----------
    needs, found : str
        What the job needs and what there is, such as "96 nodes of 8 GPUs" and "88 free".
    missing, unit : int
        Units that are missing, and the nodes of one, which must share a domain.
    """
    reasons = Counter(why for node in cluster.nodes if (why := refusal(node, job, rules)))
    refused = "; ".join(f"{count} {why}" for why, count in sorted(reasons.items(), key=lambda each: -each[1]))
    others = f" (of {len(cluster.nodes)} nodes {refused})" if refused else ""
    changes = "; or ".join(_changes(job, rules, reasons, missing, unit))
    return f"job {job.name} needs {needs}; cluster {cluster.name} has {found}{others}; nearest change: {changes}"


def _changes(job: JobSpec, rules: Rules, reasons: Counter[str], missing: int, unit: int) -> Iterator[str]:
    nodes = missing * unit
    verb = "free" if nodes <= sum(reasons[state.value] for state in NodeState) else "add"
    yield f"{verb} {nodes} more" if unit == 1 else f"make room for {missing} more whole groups of {unit} nodes"
    if nodes <= reasons[NodeState.RESERVED.value]:
        yield f"use {nodes} of the {reasons[NodeState.RESERVED.value]} reserved nodes"
    if nodes <= reasons["excluded"]:
        yield f"exclude {nodes} fewer"
    if rules.spares:
        yield f"keep fewer than {rules.spares} spares in a minipod"
    nrows, ncolumns = job.layout.grid(job.ngpus_per_node)
    smaller = (nrows - -(-nodes // ncolumns)) * (job.layout.dp // nrows)
    if smaller > 0 and smaller % job.layout.ep == 0 and not (rules.within or rules.binds_models):
        yield f"dp = {smaller}"


def by_minipod(cluster: Cluster, nodes: Iterable[Node], limit: int = 12) -> str:
    """Return how many nodes each minipod has, the most first, as text; beyond a limit the rest are summed up."""
    label_of = cluster.switch_labels("minipod")
    counts = Counter(label_of[cluster.minipod(node)] for node in nodes).most_common()
    shown = [f"{label} {count}" for label, count in counts[:limit]]
    if len(counts) > limit:
        shown.append(f"{len(counts) - limit} more minipods {sum(count for _, count in counts[limit:])}")
    return ", ".join(shown)

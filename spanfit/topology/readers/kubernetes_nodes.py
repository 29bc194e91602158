"""Kubernetes nodes, ``kubectl get nodes -o json`` or ``-o yaml``: places by labels, GPUs, states."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from spanfit.topology.model import NodeState
from spanfit.topology.readers.documents import Place, is_true
from spanfit.topology.readers.kubernetes_labels import (
    HOSTNAME,
    SCHEMES,
    Labels,
    Scheme,
    accelerator_domain,
    choose_scheme,
    gpu_model,
)
from spanfit.topology.reading import (
    PLACEHOLDERS,
    Finding,
    NodeFacts,
    Reading,
    depth_findings,
    folded,
    gpu_count_findings,
    parent_findings,
    shown,
    unplaced_finding,
)

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
_MIG_PREFIX = "nvidia.com/mig-"
_BLOCKING = ("NoSchedule", "NoExecute")
_TOLD_TAINTS = tuple(f"node.kubernetes.io/{word}" for word in ("unschedulable", "not-ready", "unreachable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    name: str
    labels: Labels
    allocatable: Mapping[str, object] | None
    is_ready: bool
    ready_reason: str
    is_cordoned: bool
    taints: tuple[str, ...]


def parse_nodes(
    nodes: Sequence[Place], origin: str, levels: Sequence[Place] = (), pods: Sequence[Place] = ()
) -> Reading:
    """Return what Node objects say.

    Parameters
    ----------
    nodes : sequence of Place
        Node objects.
    origin : str
        What messages call the source.
    levels : sequence of Place
        Topology objects (Kueue or KAI), whose label keys then say where nodes are; else the known schemes are tried.
    pods : sequence of Place
        Pods that run; a node whose GPUs any of them asks for is allocated.

    Raises
    ------
    ConfigError
        Says which object has another shape.
    """
    read = [_node(item) for item in nodes]
    labels = [node.labels for node in read]
    scheme = _topology_scheme(levels[0]) if levels else choose_scheme(labels)
    present = {key for one in labels for key in one}
    keys = scheme.keys(present) if scheme else ()
    busy = {pod.get("spec").get("nodeName").text() for pod in pods if _runs_gpus(pod)}
    facts = tuple(_facts(node, _path(node.labels, keys), node.name in busy) for node in read)
    findings = (
        *_level_findings(levels),
        *_label_findings(read, facts, keys, scheme),
        *_stale_findings(read, facts, scheme, present),
        *_state_findings(read, facts),
        *parent_findings(facts),
        *depth_findings(facts),
        *gpu_count_findings(facts),
        *_gpu_findings(read, facts),
    )
    return Reading(
        origin=origin, kind="k8s-nodes", nodes=facts, findings=findings, scheme=scheme.name if scheme else ""
    )


def _node(item: Place) -> _Node:
    metadata, spec, status = item.get("metadata"), item.get("spec"), item.get("status")
    labels = metadata.get("labels").table()
    ready = (
        [one for one in status.get("conditions").items() if one.get("type").value == "Ready"] if status.value else []
    )
    return _Node(
        name=metadata.get("name").name(),
        labels={key: value for key, value in labels.items() if isinstance(value, str)},
        allocatable=status.get("allocatable").table() if status.value else None,
        is_ready=not status.value or any(is_true(one.get("status").value) for one in ready),
        ready_reason=ready[0].get("reason").text() if ready else "",
        is_cordoned=bool(spec.value) and is_true(spec.get("unschedulable").value),
        taints=tuple(_taints(spec)) if spec.value else (),
    )


def _taints(spec: Place) -> Iterator[str]:
    """Yield the keys of taints that keep jobs away, but for those of GPUs and what the node's state tells anyway."""
    for taint in spec.get("taints").items():
        key = taint.get("key").text()
        if taint.get("effect").value in _BLOCKING and key not in (*_GPUS, *_TOLD_TAINTS):
            yield key


def _topology_scheme(topology: Place) -> Scheme:
    name = topology.get("metadata").get("name").name()
    top_first = [level.get("nodeLabel").name() for level in topology.get("spec").get("levels").items()]
    return Scheme(name=f"Topology {name}", listed=tuple(key for key in reversed(top_first) if key != HOSTNAME))


def _runs_gpus(pod: Place) -> bool:
    spec, phase = pod.get("spec"), pod.get("status").get("phase").value if pod.get("status").value else None
    if phase in ("Succeeded", "Failed") or not spec.get("nodeName").value:
        return False
    for container in spec.get("containers").items():
        resources = container.get("resources")
        wanted = resources.get("requests").table() | resources.get("limits").table() if resources.value else {}
        if any(_count(wanted.get(key)) for key in wanted if key in _GPUS or key.startswith(_MIG_PREFIX)):
            return True
    return False


def _path(labels: Labels, keys: Sequence[str]) -> tuple[str, ...] | None:
    """Return the switches of a node; None where the leaf, or one below a known one, is missing or a placeholder."""
    values = [labels.get(key) for key in keys]
    while values and values[-1] is None:
        values.pop()
    path = tuple(value for value in values if value and value not in PLACEHOLDERS)
    return path if path and len(path) == len(values) else None


def _facts(node: _Node, path: tuple[str, ...] | None, is_busy: bool) -> NodeFacts:
    words = ["Ready" if node.is_ready else "NotReady"]
    words += ["SchedulingDisabled"] if node.is_cordoned else []
    words += [f"tainted by {key}" for key in node.taints]
    return NodeFacts(
        name=node.name,
        fabric=path,
        gpus=None if node.allocatable is None else _gpus(node),
        accelerator_domain=accelerator_domain(node.labels),
        state=_state(node, is_busy),
        words=tuple(words),
        reason="" if node.is_ready else node.ready_reason,
    )


def _state(node: _Node, is_busy: bool) -> NodeState | None:
    """Return the state; None where the object has no status and nothing speaks against the node."""
    if not node.is_ready:
        return NodeState.DOWN
    if node.is_cordoned:
        return NodeState.DRAINED
    if node.taints:
        return NodeState.RESERVED
    if is_busy:
        return NodeState.ALLOCATED
    return None if node.allocatable is None else NodeState.IDLE


def _gpus(node: _Node) -> tuple[tuple[str, int], ...]:
    model = gpu_model(node.labels)
    count = sum(_count((node.allocatable or {}).get(key)) for key in _GPUS)
    return ((model, count),) if count and "-MIG-" not in model else ()


def _count(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def _is_sliced(node: _Node) -> bool:
    slices = (_count(value) for key, value in (node.allocatable or {}).items() if key.startswith(_MIG_PREFIX))
    return any(slices) or "-MIG-" in gpu_model(node.labels)


def _level_findings(levels: Sequence[Place]) -> Iterator[Finding]:
    if len(levels) > 1:
        names = [level.get("metadata").get("name").name() for level in levels]
        text = f"found Topologies {shown(', '.join(names))}: {shown(names[0])} counts; give one only to choose another"
        yield Finding(code="several-topologies", subject=str(len(names)), text=text)


def _label_findings(
    read: Sequence[_Node], facts: Sequence[NodeFacts], keys: Sequence[str], scheme: Scheme | None
) -> Iterator[Finding]:
    lacked = f"carries no label of {scheme.name}, which counts" if scheme else "carries no label that says where it is"
    holders: dict[str, list[str]] = {}
    for node, fact in zip(read, facts, strict=True):
        values = [node.labels[key] for key in keys if key in node.labels]
        placeholders = PLACEHOLDERS.intersection(values)
        if fact.fabric is not None:
            continue
        if not values:
            yield unplaced_finding(node.name, lacked)
        elif placeholders:
            holders.setdefault(min(placeholders), []).append(node.name)
        else:
            text = f"{shown(node.name)} lacks a label below another, or its value; it is left out of the tree"
            yield Finding(code="empty-label", subject=node.name, text=text)
    for value, names in holders.items():
        text = f"labels of {folded(names)} hold the placeholder {value}; these nodes are left out of the tree"
        yield Finding(code="placeholder-label", subject=value, text=text)


def _stale_findings(
    read: Sequence[_Node], facts: Sequence[NodeFacts], scheme: Scheme | None, present: Set[str]
) -> Iterator[Finding]:
    """Yield labels of other generations of topograph's that contradict those that count."""
    if scheme is None or not scheme.is_topograph:
        return
    others = [other.keys(present) for other in SCHEMES if other.is_topograph and other is not scheme]
    mine = scheme.keys(present)
    for node, fact in zip(read, facts, strict=True):
        told = {key: tier for keys in others for tier, key in enumerate(keys) if key in node.labels and key not in mine}
        for key, tier in told.items():
            if fact.fabric and tier < len(fact.fabric) and node.labels[key] != fact.fabric[tier]:
                counted = f"{scheme.name} says {shown(fact.fabric[tier])}"
                text = f"{shown(node.name)}: label {key} says {shown(node.labels[key])}; {counted}, which counts"
                yield Finding(code="stale-label", subject=f"{node.name}:{key}", text=text)


def _state_findings(read: Sequence[_Node], facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    for node, fact in zip(read, facts, strict=True):
        if not node.is_ready:
            text = (
                f"{shown(node.name)} is not ready ({shown(node.ready_reason or 'no condition Ready')}): taken as down"
            )
            yield Finding(code="node-not-ready", subject=node.name, text=text)
        if node.is_cordoned:
            text = f"{shown(node.name)} is cordoned: taken as drained"
            yield Finding(code="node-cordoned", subject=node.name, text=text)
        if node.taints and fact.fabric:
            text = f"{shown(node.name)} is tainted by {shown(', '.join(node.taints))}: taken as reserved"
            yield Finding(code="node-tainted", subject=node.name, text=text)


def _gpu_findings(read: Sequence[_Node], facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    some_have = any(fact.ngpus for fact in facts)
    for node, fact in zip(read, facts, strict=True):
        if _is_sliced(node):
            text = f"{shown(node.name)} offers slices of GPUs (MIG); only its {fact.ngpus} whole GPUs count"
            yield Finding(code="mig-sliced", subject=node.name, text=text)
        elif some_have and fact.fabric and fact.ngpus == 0:
            text = f"{shown(node.name)} is in the tree but offers no GPU"
            yield Finding(code="no-gpu", subject=node.name, text=text)

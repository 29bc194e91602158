"""Nodes, the switches above them, and the order in which ranks sit on nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

SwitchPath = tuple[str, ...]
"""Names from a switch up to the top: a switch's identity, so two fabrics may both have a ``leaf1``."""

TIER_NAMES = {
    1: ("minipod",),
    2: ("minipod", "core"),
    3: ("leaf", "minipod", "core"),
    4: ("leaf", "minipod", "core", "zone"),
}
"""What the tiers of a tree are called, closest first, by its depth, where its source does not say."""


class NodeState(StrEnum):
    """What a node may be used for now; only an idle node takes a new job."""

    IDLE = "idle"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host.

    Attributes
    ----------
    name : str
    fabric : tuple of str
        Switch names from the closest (leaf) to the top (core).
    ngpus : int or None
        GPUs in the host; None where the source does not say.
    gpu_model : str or None
    accelerator_domain : str or None
        The NVLink domain that reaches beyond the host, if any.
    state : NodeState
    """

    name: str
    fabric: tuple[str, ...]
    ngpus: int | None = None
    gpu_model: str | None = None
    accelerator_domain: str | None = None
    state: NodeState = NodeState.IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes under a tree of switches.

    Attributes
    ----------
    name : str
    tiers : tuple of str
        Names of the tiers, closest first; one of them is ``minipod``, the tier whose switches groups span.
    nodes : tuple of Node
        In the order of the source, which is the scheduler's order.

    Raises
    ------
    ValueError
        If a node appears twice, its fabric has another depth than ``tiers``, or no tier is named minipod.
    """

    name: str
    tiers: tuple[str, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Check what every reader must guarantee."""
        faults = []
        if self.tiers.count("minipod") != 1:
            faults.append(f"tiers are {', '.join(self.tiers)}; expected exactly one named minipod")
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                faults.append(f"node {node.name} appears twice; expected each node once")
            seen.add(node.name)
            if len(node.fabric) != len(self.tiers):
                found, expected = len(node.fabric), f"{len(self.tiers)} ({', '.join(self.tiers)})"
                faults.append(f"node {node.name} has {found} switches above it; expected {expected}")
        if faults:
            raise ValueError("\n".join(faults))

    def switch(self, node: Node, tier: str) -> SwitchPath:
        """Return the path of the switch above a node at a tier."""
        return node.fabric[self.tiers.index(tier) :]

    def minipod(self, node: Node) -> SwitchPath:
        """Return the path of a node's minipod."""
        return self.switch(node, "minipod")

    def minipods(self, nodes: Iterable[Node] | None = None) -> dict[SwitchPath, tuple[Node, ...]]:
        """Return the nodes (all, unless some are given) by minipod, both in the order of first appearance."""
        members: dict[SwitchPath, list[Node]] = {}
        for node in self.nodes if nodes is None else nodes:
            members.setdefault(self.minipod(node), []).append(node)
        return {path: tuple(found) for path, found in members.items()}

    def switch_labels(self, tier: str) -> dict[SwitchPath, str]:
        """Return what people call each switch of a tier: its name, or its whole path where two share a name."""
        paths = list(dict.fromkeys(self.switch(node, tier) for node in self.nodes))
        names = [path[0] for path in paths]
        return {path: path[0] if names.count(path[0]) == 1 else path_label(path) for path in paths}

    def switch_names(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return for each tier what people call the switch above each named node."""
        nodes = self.select(names)
        labels = {tier: self.switch_labels(tier) for tier in self.tiers}
        return {tier: tuple(found[self.switch(node, tier)] for node in nodes) for tier, found in labels.items()}

    def select(self, names: Sequence[str]) -> tuple[Node, ...]:
        """Return the named nodes in the order of the names; ValueError names those that are missing."""
        by_name = {node.name: node for node in self.nodes}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise ValueError(f"no such node in cluster {self.name}: {', '.join(missing)}")
        return tuple(by_name[name] for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMap:
    """Where ranks run: rank ``i * ngpus_per_node + local_rank`` sits on ``node_names[i]``."""

    node_names: tuple[str, ...]
    ngpus_per_node: int

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self.node_names) * self.ngpus_per_node


def tier_names(depth: int) -> tuple[str, ...]:
    """Return the names of the tiers of a tree of a depth >= 1; past the fourth they are ``tier5``, ``tier6``, ..."""
    if depth in TIER_NAMES:
        return TIER_NAMES[depth]
    return TIER_NAMES[4] + tuple(f"tier{number}" for number in range(5, depth + 1))


def path_label(path: SwitchPath) -> str:
    """Return a switch path as people read it, top first."""
    return "/".join(reversed(path))

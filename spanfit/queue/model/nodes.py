"""The nodes that the queue hands out, and sets of them. Standard library.

Sets of nodes are whole numbers: bit i stands for node i of the ground. They are immutable, small, and counted by
``int.bit_count``, which is what lets one decision function serve a live queue and a replay of 100,000 jobs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

NodeSet = int
"""Bit i is set where node i of the ground belongs to the set."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The nodes that the queue may hand out; what never changes while it runs.

    Attributes
    ----------
    names : tuple of str
        In the order of the cluster; node i is ``names[i]``.
    minipods : tuple of int
        Index of the minipod of each node.
    labels : tuple of str
        What people call each minipod.
    gpu_models : tuple of str or None
        Of each node; empty where no node has one.
    """

    names: tuple[str, ...]
    minipods: tuple[int, ...]
    labels: tuple[str, ...]
    gpu_models: tuple[str | None, ...] = ()

    @cached_property
    def masks(self) -> tuple[NodeSet, ...]:
        """The nodes of each minipod."""
        masks = [0] * len(self.labels)
        for node, minipod in enumerate(self.minipods):
            masks[minipod] |= 1 << node
        return tuple(masks)

    @cached_property
    def everything(self) -> NodeSet:
        """All nodes."""
        return (1 << len(self.names)) - 1

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Index of each name."""
        return {name: node for node, name in enumerate(self.names)}

    @cached_property
    def models(self) -> Mapping[str, NodeSet]:
        """The nodes of each GPU model."""
        models: dict[str, NodeSet] = {}
        for node, model in enumerate(self.gpu_models):
            if model is not None:
                models[model] = models.get(model, 0) | 1 << node
        return models

    def of_model(self, gpu_model: str) -> NodeSet:
        """Return the nodes of a GPU model."""
        return self.models.get(gpu_model, 0)

    def members(self, nodes: NodeSet) -> tuple[str, ...]:
        """Return the names of a set's nodes, in the order of the ground."""
        return tuple(self.names[node] for node in indices(nodes))

    def node_set(self, names: Iterable[str]) -> NodeSet:
        """Return the set of the named nodes; KeyError where one is none of the ground's."""
        nodes = 0
        for name in names:
            nodes |= 1 << self.index[name]
        return nodes


def indices(nodes: NodeSet) -> tuple[int, ...]:
    """Return the indices of a set's nodes, smallest first.

    >>> indices(0b1101)
    (0, 2, 3)
    """
    bits = bin(nodes)[:1:-1]
    found, place = [], bits.find("1")
    while place >= 0:
        found.append(place)
        place = bits.find("1", place + 1)
    return tuple(found)

"""Which nodes form a group: drawn so that it spans exactly k switches of a tier, and ordered as asked."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from spanfit.bench.case import RankOrder
from spanfit.topology.model import SwitchPath

Domain = tuple[int, ...]
"""Node ranks under one switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTree:
    """The switches above the nodes of a world.

    Attributes
    ----------
    tiers : tuple of str
        Names of the tiers, closest first.
    fabric : tuple of SwitchPath
        Of each node rank, the path of its switches, closest first.
    """

    tiers: tuple[str, ...]
    fabric: tuple[SwitchPath, ...]

    def domains(self, tier: str) -> tuple[Domain, ...]:
        """Return the node ranks under each switch of a tier, in the order of first appearance."""
        return tuple(domain for siblings in self.siblings(tier) for domain in siblings)

    def siblings(self, tier: str) -> tuple[tuple[Domain, ...], ...]:
        """Return the domains of a tier by the switch above them, so that groups of siblings cross that tier alone.

        Raises
        ------
        ValueError
            If the tree has no such tier.
        """
        if tier not in self.tiers:
            raise ValueError(f"no tier {tier!r}; expected one of {', '.join(self.tiers)}")
        level = self.tiers.index(tier)
        found: dict[SwitchPath, dict[SwitchPath, list[int]]] = {}
        for node_rank, path in enumerate(self.fabric):
            found.setdefault(path[level + 1 :], {}).setdefault(path[level:], []).append(node_rank)
        return tuple(tuple(tuple(nodes) for nodes in under.values()) for under in found.values())


def draw_groups(
    siblings: Sequence[Sequence[Sequence[int]]], nodes_per_group: int, span: int, rng: random.Random
) -> tuple[tuple[int, ...], ...]:
    """Return disjoint groups, each of ``nodes_per_group`` nodes over exactly ``span`` domains, such as minipods.

    The domains of a group are siblings, under one switch of the tier above. Its nodes are balanced within one over
    them, and sorted by domain. Each group takes from the domains with the most free nodes, until these cannot give
    another.

    Raises
    ------
    ValueError
        If not even one group fits.
    """
    if nodes_per_group < span:
        raise ValueError(
            f"collectives: groups of {nodes_per_group} nodes cannot span {span} domains; "
            f"expected nodes_per_group of at least {span}"
        )
    groups = [group for domains in siblings for group in _draw(domains, nodes_per_group, span, rng)]
    if not groups:
        sizes = ", ".join(str(len(nodes)) for domains in siblings for nodes in domains)
        raise ValueError(
            f"collectives: no group of {nodes_per_group} nodes over {span} domains fits domains of {sizes} nodes; "
            "lower nodes_per_group or spans"
        )
    return tuple(groups)


def _draw(
    domains: Sequence[Sequence[int]], nodes_per_group: int, span: int, rng: random.Random
) -> Iterator[tuple[int, ...]]:
    left = [rng.sample(list(nodes), len(nodes)) for nodes in domains]
    quotas = [nodes_per_group // span + (index < nodes_per_group % span) for index in range(span)]
    while True:
        fullest = sorted(range(len(left)), key=lambda index: -len(left[index]))[:span]
        takes = list(zip(fullest, quotas, strict=False))
        if len(fullest) < span or any(len(left[index]) < quota for index, quota in takes):
            return
        taken = {index: sorted(left[index].pop() for _ in range(quota)) for index, quota in takes}
        yield tuple(chain.from_iterable(taken[index] for index in sorted(taken)))


def order_ranks(group: Sequence[int], domains: Sequence[Sequence[int]], rank_order: RankOrder) -> tuple[int, ...]:
    """Return a group domain by domain (sorted), or changing domain at every hop (alternating)."""
    if rank_order is not RankOrder.ALTERNATING:
        return tuple(group)
    members = [[node for node in group if node in nodes] for nodes in domains]
    # Domains with a node more come first, so that only the hop from the last rank to the first may stay in one.
    dealt = zip_longest(*sorted((nodes for nodes in members if nodes), key=len, reverse=True))
    return tuple(node for round_of_nodes in dealt for node in round_of_nodes if node is not None)


def choose_minipods(minipods: Sequence[Sequence[int]], ncells: int) -> tuple[tuple[int, ...], ...]:
    """Return ``ncells`` nodes shared evenly by the fewest minipods, at least two, that can give them.

    Raises
    ------
    ValueError
        If no number of minipods can share them evenly.
    """
    by_size = sorted(range(len(minipods)), key=lambda index: -len(minipods[index]))
    for count in range(2, len(minipods) + 1):
        share, rest = divmod(ncells, count)
        if not rest and all(len(minipods[index]) >= share for index in by_size[:count]):
            return tuple(tuple(minipods[index][:share]) for index in sorted(by_size[:count]))
    sizes = ", ".join(str(len(nodes)) for nodes in minipods)
    raise ValueError(f"{ncells} nodes cannot be shared evenly by two or more minipods of {sizes} nodes")

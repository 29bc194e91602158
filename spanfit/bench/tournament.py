"""Which pairs of nodes are measured at the same time: every pair in a tournament, or a sample of each tier; pure.

A round is a set of disjoint pairs. Up to 64 nodes all pairs meet, by the circle method; beyond that every node meets
``sample`` partners of each tier that it has any in: under its leaf, under its minipod but another leaf, and so on.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import ALL_GPUS, BenchCase, CaseKind, Concurrency, RankOrder
from spanfit.bench.groups import Domain, NodeTree
from spanfit.collectives import Collective, real_size_bytes

MAX_FULL_NODES = 64
"""With more nodes than this pairs are sampled unless the campaign says otherwise."""
DEFAULT_SAMPLE = 16

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRound:
    """Disjoint pairs of node ranks that can be measured at once.

    Attributes
    ----------
    tier : str
        The closest tier that has one switch above both nodes of a pair; "" where the tiers of a round are mixed, as in
        a whole tournament, and where no switch is above both.
    pairs : tuple of Pair
    """

    tier: str
    pairs: tuple[Pair, ...]


def tournament(nodes: Sequence[int]) -> tuple[tuple[Pair, ...], ...]:
    """Return rounds of disjoint pairs in which every two nodes meet once.

    Notes
    -----
    The circle method: one node stays, the others turn around it. n - 1 rounds of n / 2 pairs for an even number of
    nodes; n rounds for an odd one, in each of which one node rests.

    Examples
    --------
    >>> tournament([0, 1, 2, 3])
    (((0, 3), (1, 2)), ((0, 2), (3, 1)), ((0, 1), (2, 3)))
    """
    circle: list[int | None] = [*nodes, None] if len(nodes) % 2 else list(nodes)
    rounds = []
    for _ in range(len(circle) - 1):
        opposite = zip(circle[: len(circle) // 2], reversed(circle), strict=False)
        rounds.append(tuple((a, b) for a, b in opposite if a is not None and b is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(rounds)


def plan_rounds(tree: NodeTree, sample: int | None, seed: int) -> tuple[PairRound, ...]:
    """Return the rounds of a scan.

    Parameters
    ----------
    tree : NodeTree
    sample : int or None
        Partners that each node meets in each tier; None: all nodes up to 64 nodes, else 16 a tier.
    seed : int
    """
    if sample is None and len(tree.fabric) <= MAX_FULL_NODES:
        return tuple(PairRound(tier="", pairs=pairs) for pairs in tournament(range(len(tree.fabric))) if pairs)
    rng = random.Random(f"{seed}/pairs")
    return tuple(_sampled(tree, sample or DEFAULT_SAMPLE, rng))


def _sampled(tree: NodeTree, sample: int, rng: random.Random) -> Iterator[PairRound]:
    lower: tuple[Domain, ...] = tuple((node,) for node in range(len(tree.fabric)))
    for tier in (*tree.tiers, ""):
        upper = tree.domains(tier) if tier else (tuple(range(len(tree.fabric))),)
        families = [family for family in _families(lower, upper) if len(family) > 1]
        yield from (PairRound(tier=tier, pairs=pairs) for pairs in _matchings(families, sample, rng) if pairs)
        lower = upper


def _families(lower: Sequence[Domain], upper: Sequence[Domain]) -> list[list[Domain]]:
    """Return the lower domains under each of the upper ones."""
    above = {node: index for index, domain in enumerate(upper) for node in domain}
    families: list[list[Domain]] = [[] for _ in upper]
    for domain in lower:
        families[above[domain[0]]].append(domain)
    return families


def _matchings(families: Sequence[Sequence[Domain]], sample: int, rng: random.Random) -> Iterator[tuple[Pair, ...]]:
    """Yield rounds of pairs whose nodes lie in different domains of one family; where few nodes are, all pairs."""
    by_family = [list(_family_rounds(family, sample, rng)) for family in families]
    for number in range(max(map(len, by_family), default=0)):
        yield tuple(chain.from_iterable(rounds[number] for rounds in by_family if number < len(rounds)))


def _family_rounds(family: Sequence[Domain], sample: int, rng: random.Random) -> Iterator[tuple[Pair, ...]]:
    if all(len(domain) == 1 for domain in family):
        nodes = [domain[0] for domain in family]
        rounds = tournament(rng.sample(nodes, len(nodes)))
        yield from rng.sample(rounds, min(sample, len(rounds)))
        return
    for _ in range(sample):
        yield tuple(_matched(family, rng))


def _matched(family: Sequence[Domain], rng: random.Random) -> Iterator[Pair]:
    """Yield disjoint pairs across the domains: in a row sorted by domain, the largest first, each with its opposite.

    If no domain holds more than half of the nodes, no two opposites share one; else the largest keeps nodes over.
    """
    largest_first = sorted(rng.sample(family, len(family)), key=len, reverse=True)
    row = [(index, node) for index, each in enumerate(largest_first) for node in rng.sample(each, len(each))]
    half = len(row) // 2
    for (domain, node), (other, partner) in zip(row[:half], row[len(row) - half :], strict=True):
        if domain != other:
            yield node, partner


def standard_error(spread: float, npartners: float) -> float:
    """Return the standard error of a node's mean over partners drawn at random, for a spread between partners.

    Parameters
    ----------
    spread : float
        Standard deviation of a node's rates over its partners in a tier, in any unit; the result has the same.
    npartners : float

    Examples
    --------
    >>> standard_error(0.08, 16)
    0.02
    """
    return spread / math.sqrt(npartners)


def plan_pairs(campaign: CampaignFile, tree: NodeTree) -> Iterator[BenchCase]:
    """Yield the cases of a campaign's ``[pairs]`` table: a case is a round, or one pair where it runs alone.

    One-way operations are planned in both directions, in cases of their own, so that a pair never shares a connection
    with itself. So is each rail, where each is measured by itself.

    Raises
    ------
    ValueError
        If a size leaves nothing to send, or there are fewer than two nodes.
    """
    scan = campaign.pairs
    if scan is None:
        return
    itemsize = scan.dtype.itemsize
    per_node = campaign.launch.ranks_per_node
    nranks, rails = (2, range(per_node)) if scan.rails else (2 * per_node, (ALL_GPUS,))
    sizes = [real_size_bytes(scan.operation, nranks, size, itemsize) for size in scan.sizes]
    if not all(sizes):
        raise ValueError(f"pairs.sizes: found {min(scan.sizes)} B, expected at least one element of {scan.dtype}")
    rounds = plan_rounds(tree, scan.sample, campaign.seed)
    if not rounds:
        raise ValueError("pairs: found fewer than two nodes, expected at least two")
    for draw, chosen in enumerate(rounds):
        tier = chosen.tier or tree.tiers[-1]
        for pairs in _directions(chosen.pairs, scan.operation):
            for (groups, concurrency), size_bytes, rail in product(_together(pairs, scan.concurrency), sizes, rails):
                yield BenchCase(
                    kind=CaseKind.PAIRS,
                    operation=scan.operation,
                    size_bytes=size_bytes,
                    dtype=scan.dtype,
                    redop="sum",
                    in_place=False,
                    groups=groups,
                    tier=tier,
                    span=1,
                    rank_order=RankOrder.SORTED,
                    concurrency=concurrency,
                    draw=draw,
                    arm="",
                    warmup=scan.warmup,
                    repetitions=scan.repetitions,
                    rail=rail,
                )


def _directions(pairs: tuple[Pair, ...], operation: Collective) -> tuple[tuple[Pair, ...], ...]:
    is_one_way = operation is Collective.SEND
    return (pairs, tuple((b, a) for a, b in pairs)) if is_one_way else (pairs,)


def _together(
    pairs: tuple[Pair, ...], concurrency: Sequence[Concurrency]
) -> Iterator[tuple[tuple[Pair, ...], Concurrency]]:
    if Concurrency.ALL in concurrency:
        yield pairs, Concurrency.ALL
    if Concurrency.ALONE in concurrency:
        yield from (((pair,), Concurrency.ALONE) for pair in pairs)

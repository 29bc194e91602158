"""Jobs that would share the fabric with the one that is measured: drawn by mix, placement class and utilisation; pure.

Sizes are those of published job mixes, classes say how near a job's nodes are to one another. Tiers are the cluster's
own: the closest one is that of leaves, and minipods are those of the tier of that name.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle

from spanfit import files
from spanfit.bench.groups import NodeTree
from spanfit.topology.model import SwitchPath
from spanfit.workload.job import StepJob

LEAST_NODES = 2
"""A job of one node sends nothing."""

_RATIO = 0.5
_EXPONENT = 1.2
_SHARES = (0.75, 0.20, 0.05)


class Mix(StrEnum):
    """How large the jobs beside each other are."""

    EQUAL = "equal"
    GEOMETRIC = "geometric"
    TIERS = "tiers"
    POWER_LAW = "power-law"
    STOCHASTIC_TIERS = "stochastic-tiers"


class PlacementClass(StrEnum):
    """How near the nodes of a job are: under one leaf, under one minipod's leaves, or in several minipods.

    With ``-by-2`` and ``-by-4`` each leaf that a job uses gives it as many nodes.
    """

    LEAF = "leaf"
    MINIPOD = "minipod"
    MINIPOD_BY_2 = "minipod-by-2"
    MINIPOD_BY_4 = "minipod-by-4"
    CORE = "core"
    CORE_BY_2 = "core-by-2"
    CORE_BY_4 = "core-by-4"

    @property
    def scope(self) -> "PlacementClass":
        """The class without the number of nodes of a leaf."""
        return PlacementClass(self.partition("-")[0])

    @property
    def per_leaf(self) -> int | None:
        """Nodes that each leaf gives, None where that is left open."""
        return int(self[-1]) if "-by-" in self else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseTable:
    """A ``[[noise]]`` table: jobs beside which the steps of a campaign are timed too.

    ``nodes`` are the sizes of a job: one for the mix ``equal``; small, medium and large for the two of tiers; the
    largest for the others. ``utilisation`` is the share of the nodes left over that they use at most. Each job is a
    step of the volumes given; where ``pipelines`` is true and its nodes are even it has two stages, which send each
    other ``activation``.
    """

    __pydantic_config__ = files.CONFIG

    name: files.Name
    mix: Mix
    nodes: tuple[files.Count, ...]
    placement: tuple[PlacementClass, ...]
    utilisation: float
    microbatches: files.Count = 1
    activation: files.SizeBytes = 0
    gradient: files.SizeBytes = 1 << 20
    forward: files.Seconds = 0.0
    backward: files.Seconds = 0.0
    pipelines: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that the mix cannot use."""
        wanted = {Mix.TIERS: 3, Mix.STOCHASTIC_TIERS: 3}.get(self.mix, 1)
        faults = []
        if len(self.nodes) != wanted or list(self.nodes) != sorted(self.nodes):
            faults.append(f"nodes: found {list(self.nodes)}, expected {wanted} for mix {self.mix!s}, smallest first")
        if too_small := [size for size in self.nodes if size < LEAST_NODES]:
            faults.append(f"nodes: found {too_small}, expected at least {LEAST_NODES}: one node sends nothing")
        if not 0 < self.utilisation <= 1:
            faults.append(f"utilisation: found {self.utilisation}, expected more than 0 and at most 1")
        if not self.placement:
            faults.append(f"placement: found none, expected at least one of {', '.join(PlacementClass)}")
        if faults := [*faults, *self._volume_faults()]:
            raise ValueError("\n".join(faults))

    def _volume_faults(self) -> Iterator[str]:
        if not self.gradient:
            yield "gradient: found 0, expected bytes: a job of odd nodes, or without pipelines, sends nothing else"
        if self.activation and not self.pipelines:
            yield f"activation: found {self.activation}, which only stages send; leave it out or set pipelines = true"
        if self.pipelines and not self.activation:
            yield "activation: missing; pipelines = true needs the bytes that stages send each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseJob:
    """A job beside the one that is measured.

    Attributes
    ----------
    placement : PlacementClass
        The class that it was drawn for.
    node_ranks : tuple of int
        The node of each cell of its grid, row by row.
    """

    placement: PlacementClass
    node_ranks: tuple[int, ...]
    step: StepJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What was drawn.

    Attributes
    ----------
    jobs : tuple of NoiseJob
    unplaced : tuple of (int, PlacementClass)
        Sizes for which the nodes left over had no place of the class.
    """

    jobs: tuple[NoiseJob, ...]
    unplaced: tuple[tuple[int, PlacementClass], ...]


def draw_noise(table: NoiseTable, tree: NodeTree, used: Sequence[int], seed: int) -> Noise:
    """Return the jobs that a table puts on the nodes that are not used; the same for the same seed.

    Classes are taken in turn, so that any number of jobs is balanced over them. Tables of the mix ``equal`` that are
    alike but for their utilisation or volumes begin with the same jobs on the same nodes; sizes that other mixes draw
    depend on how many nodes there are.

    Parameters
    ----------
    used : sequence of int
        Node ranks of the jobs that are measured.
    """
    rng = random.Random(f"{seed}/noise")
    free = [node for node in range(len(tree.fabric)) if node not in set(used)]
    room = int(table.utilisation * len(free) + 1e-9)
    jobs: list[NoiseJob] = []
    unplaced = []
    for size, placement in zip(_sizes(table, room, rng), cycle(table.placement), strict=False):
        nodes = place(size, placement, tree, free, rng)
        if nodes is None:
            unplaced.append((size, placement))
            continue
        free = [node for node in free if node not in nodes]
        step = _step(table, f"{table.name}-{len(jobs):02d}", size)
        jobs.append(NoiseJob(placement=placement, node_ranks=nodes, step=step))
    return Noise(jobs=tuple(jobs), unplaced=tuple(unplaced))


def _step(table: NoiseTable, name: str, size: int) -> StepJob:
    pp = 2 if table.pipelines and size % 2 == 0 else 1
    return StepJob(
        name=name,
        dp=size // pp,
        pp=pp,
        nmicrobatches=table.microbatches,
        activation_bytes=table.activation,
        gradient_bytes=table.gradient,
        forward_s=table.forward,
        backward_s=table.backward,
    )


def _sizes(table: NoiseTable, room: int, rng: random.Random) -> Iterator[int]:
    """Yield sizes of the mix that fit the nodes left of ``room``, until none can."""
    smallest = table.nodes[0] if table.mix in (Mix.EQUAL, Mix.TIERS, Mix.STOCHASTIC_TIERS) else LEAST_NODES
    sizes = _endless(table, rng)
    while smallest <= room:
        size = next(sizes)
        if size <= room:
            room -= size
            yield size


def _endless(table: NoiseTable, rng: random.Random) -> Iterator[int]:
    largest = table.nodes[-1]
    match table.mix:
        case Mix.EQUAL:
            yield from cycle(table.nodes)
        case Mix.TIERS:
            yield from cycle(reversed(table.nodes))
        case Mix.STOCHASTIC_TIERS:
            while True:
                yield rng.choices(table.nodes, _SHARES)[0]
        case Mix.POWER_LAW:
            sizes = range(LEAST_NODES, largest + 1)
            weights = [size**-_EXPONENT for size in sizes]
            while True:
                yield rng.choices(sizes, weights)[0]
        case Mix.GEOMETRIC:
            size = largest
            while True:
                yield size
                size = max(LEAST_NODES, int(size * _RATIO))


def place(
    size: int, placement: PlacementClass, tree: NodeTree, free: Sequence[int], rng: random.Random
) -> tuple[int, ...] | None:
    """Return nodes of a placement class for a job, sorted; None where the free ones have no such place.

    A job of the minipod class uses several leaves, and one of the core class several minipods.
    """
    minipods = [_fullest_first(leaves) for leaves in _by_minipod(tree, free)]
    rng.shuffle(minipods)
    match placement.scope:
        case PlacementClass.LEAF:
            tries = [leaf[:size] for minipod in minipods for leaf in minipod if len(leaf) >= size]
        case PlacementClass.MINIPOD:
            tries = [_deal(size, placement.per_leaf, minipod) for minipod in minipods]
        case _:
            fitting = [[leaf for leaf in minipod if len(leaf) >= (placement.per_leaf or 1)] for minipod in minipods]
            used = [minipod for minipod in fitting if minipod]
            tries = [_deal(size, placement.per_leaf, _in_turn(used))] if len(used) > 1 else []
    found = next(filter(None, tries), None)
    return tuple(sorted(found)) if found else None


def _by_minipod(tree: NodeTree, free: Sequence[int]) -> list[list[list[int]]]:
    """Return the free nodes of each leaf of each minipod that has any."""
    level = tree.tiers.index("minipod")
    found: dict[SwitchPath, dict[SwitchPath, list[int]]] = {}
    for node in free:
        path = tree.fabric[node]
        found.setdefault(path[level:], {}).setdefault(path, []).append(node)
    return [list(leaves.values()) for leaves in found.values()]


def _fullest_first(leaves: Sequence[list[int]]) -> list[list[int]]:
    return sorted(leaves, key=len, reverse=True)


def _in_turn(minipods: Sequence[Sequence[list[int]]]) -> list[list[int]]:
    """Return the leaves of all minipods in turn, so that the first two are of different ones."""
    rounds = range(max(map(len, minipods)))
    return [minipod[index] for index in rounds for minipod in minipods if index < len(minipod)]


def _deal(size: int, per_leaf: int | None, leaves: Sequence[list[int]]) -> list[int]:
    """Return nodes of at least two leaves, ``per_leaf`` of each where that is said, else one of each in turn.

    Nothing where the leaves do not have so many.
    """
    if per_leaf is not None:
        leaves = [leaf[:per_leaf] for leaf in leaves if len(leaf) >= per_leaf][: size // per_leaf]
    dealt = [leaf[index] for index in range(size) for leaf in leaves if index < len(leaf)][:size]
    return dealt if len(dealt) == size and len(leaves) > 1 else []

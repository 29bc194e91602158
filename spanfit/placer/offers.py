"""The ways in which rules let a job be placed: each is one or more blocks of the grid with the nodes of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spanfit.placer.rules import ACCELERATOR, OneModel, Rules
from spanfit.topology.model import Cluster, Node, SwitchPath

_MOST_SHARES = 12
"""Shares of the groups between GPU models that are tried; the bound covers the others."""

Unit = tuple[Node, ...]
"""Nodes of neighbouring cells of a column that share a domain; one node where no rule binds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of the grid of units and the nodes that it may take.

    Attributes
    ----------
    rows, columns : tuple of int
        Where its rows and columns are in the whole grid of units.
    units : tuple of tuple of Unit
        What each minipod of the job can give, in the order of giving; units with pinned nodes come first.
    free : tuple of int
        The units that each minipod may give, its spares kept.
    pins : tuple of int
        The units of each minipod that hold pinned nodes, so must be taken.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    units: tuple[tuple[Unit, ...], ...]
    free: tuple[int, ...]
    pins: tuple[int, ...]

    @property
    def size(self) -> int:
        """Units that it needs."""
        return len(self.rows) * len(self.columns)

    @property
    def missing(self) -> int:
        """Units that are missing, 0 where there are enough."""
        return max(0, self.size - sum(self.free))

    @property
    def left_out(self) -> int:
        """Units with pinned nodes that it cannot take: above the room of their minipod, or above its own size."""
        taken = sum(map(min, self.pins, self.free))
        return sum(self.pins) - min(taken, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A way to place a job.

    Attributes
    ----------
    label : str
        What sets it apart from the other ways, "" for the only one.
    blocks : tuple of Block
        They fill the grid of units.
    pool : Block
        The whole grid on all nodes that any way of its zone may take, with no regard to their models.
    are_columns_fixed : bool
        Whether each column is a stage that must stay where it is.
    strays : int
        Pinned nodes that are in no unit of it.
    """

    label: str
    blocks: tuple[Block, ...]
    pool: Block
    are_columns_fixed: bool = False
    strays: int = 0

    @property
    def missing(self) -> int:
        """Units that are missing over all blocks."""
        return sum(block.missing for block in self.blocks)

    @property
    def left_out(self) -> int:
        """Pinned nodes, or units of them, that it cannot take."""
        return self.strays + sum(block.left_out for block in self.blocks)

    @property
    def is_possible(self) -> bool:
        """Whether it has room for the job and every pinned node."""
        return not self.missing and not self.left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """The ways to place a job on the nodes of a zone, and whether these are all that there are."""

    offers: tuple[Offer, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the ways of a job have in common.

    Attributes
    ----------
    cluster : Cluster
    rules : Rules
    nrows, ncolumns : int
        Of the grid of units.
    unit : int
        Nodes of a unit.
    minipods : tuple of SwitchPath
        Those of all nodes of the cluster, in its order; grids hold their indices.
    """

    cluster: Cluster
    rules: Rules
    nrows: int
    ncolumns: int
    unit: int
    minipods: tuple[SwitchPath, ...]

    def zones(self, nodes: Sequence[Node]) -> tuple[Zone, ...]:
        """Return every way to place the job on some nodes, whether it has room or not, by zone."""
        members: dict[str, list[Node]] = {} if self.rules.within else {"": list(nodes)}
        if self.rules.within:
            label_of = self.cluster.switch_labels(self.rules.within)
            for node in nodes:
                members.setdefault(label_of[self.cluster.switch(node, self.rules.within)], []).append(node)
        return tuple(self._zone(label, found) for label, found in members.items())

    def pooled(self, nodes: Sequence[Node]) -> Block:
        """Return the whole grid on some nodes, with no regard to their models."""
        return self._block(range(self.nrows), range(self.ncolumns), nodes)

    def _zone(self, label: str, nodes: Sequence[Node]) -> Zone:
        rule, stages, pool = self.rules.one_model, self.rules.stage_models, self.pooled(nodes)
        models: dict[str, list[Node]] = {}
        for node in nodes:
            models.setdefault(node.gpu_model or "", []).append(node)
        if stages:
            names = sorted(set(stages))
            places = [[column for column, model in enumerate(stages) if model == name] for name in names]
            rows = range(self.nrows)
            blocks = tuple(
                self._block(rows, *each) for each in zip(places, (models.get(n, ()) for n in names), strict=True)
            )
            offer = self._offer(label, blocks, pool, are_columns_fixed=True)
            return Zone(offers=(offer,), is_complete=True)
        if rule is None:
            return Zone(offers=(self._offer(label, (pool,), pool),), is_complete=True)
        if rule is OneModel.JOB:
            offers = (
                self._offer(_joined(label, name or "model unknown"), (block,), block)
                for name, block in ((name, self.pooled(members)) for name, members in models.items())
            )
            return Zone(offers=tuple(offers), is_complete=True)
        return self._shares(label, pool, models, is_by_column=rule is OneModel.DP)

    def _shares(self, zone: str, pool: Block, models: dict[str, list[Node]], *, is_by_column: bool) -> Zone:
        lines, across = (self.ncolumns, self.nrows) if is_by_column else (self.nrows, self.ncolumns)
        nodes_of = [sum(self.pooled(members).free) for members in models.values()]
        room = [nodes // across for nodes in nodes_of]
        offers = []
        for share in [*shares(lines, room)] or _too_short(lines, across, nodes_of):
            blocks, start = [], 0
            for count, members in zip(share, models.values(), strict=True):
                taken, whole = range(start, start + count), range(across)
                if count:
                    blocks.append(self._block(*((whole, taken) if is_by_column else (taken, whole)), members))
                start += count
            named = zip(share, models, strict=True)
            words = ", ".join(f"{count} on {name or 'model unknown'}" for count, name in named if count)
            offers.append(self._offer(_joined(zone, words), tuple(blocks), pool))
        return Zone(offers=tuple(offers), is_complete=len(models) <= 2 and lines < _MOST_SHARES)

    def _offer(self, label: str, blocks: tuple[Block, ...], pool: Block, *, are_columns_fixed: bool = False) -> Offer:
        pinned = set(self.rules.pinned)
        for block in blocks if pinned else ():
            pinned -= {node.name for units in block.units for unit in units for node in unit}
        return Offer(label=label, blocks=blocks, pool=pool, are_columns_fixed=are_columns_fixed, strays=len(pinned))

    def _block(self, rows: Sequence[int], columns: Sequence[int], nodes: Sequence[Node]) -> Block:
        members = self.cluster.minipods(nodes)
        units = tuple(tuple(self._units(members.get(path, ()))) for path in self.minipods)
        kept = self.rules.spares if self.unit == 1 else 0
        rooms = (max(0, len(members.get(path, ())) - kept) for path in self.minipods)
        return Block(
            rows=tuple(rows),
            columns=tuple(columns),
            units=units,
            free=tuple(min(len(found), room) for found, room in zip(units, rooms, strict=True)),
            pins=tuple(sum(map(self._is_pinned, found)) if self.rules.pinned else 0 for found in units),
        )

    def _units(self, nodes: Sequence[Node]) -> list[Unit]:
        """Return the units of a minipod's nodes, those with pinned nodes first, else domain by domain."""
        domains: dict[object, list[Node]] = {}
        for node in nodes:
            domains.setdefault(self._domain(node), []).append(node)
        units: list[Unit] = []
        for found in domains.values():
            if self.rules.pinned:
                found.sort(key=lambda node: node.name not in self.rules.pinned)
            kept = self.rules.spares if self.unit > 1 else 0
            whole = max(0, len(found) - kept) // self.unit * self.unit
            units += (tuple(found[start : start + self.unit]) for start in range(0, whole, self.unit))
        return sorted(units, key=lambda unit: not self._is_pinned(unit)) if self.rules.pinned else units

    def _is_pinned(self, unit: Unit) -> bool:
        return any(node.name in self.rules.pinned for node in unit)

    def home(self, node: Node) -> object:
        """Return where a spare can replace a node: in its minipod, or in the domain that its EP group may not leave.

        Where rules bind GPU models, only a spare of its own model can.
        """
        place = self.cluster.minipod(node) if self.unit == 1 else self._domain(node)
        return (place, node.gpu_model) if self.rules.binds_models else place

    def _domain(self, node: Node) -> object:
        if self.rules.ep_within == ACCELERATOR and self.unit > 1:
            return node.accelerator_domain or node.name
        tier = self.rules.ep_within if self.unit > 1 else None
        return self.cluster.switch(node, tier) if tier else node.fabric


def _joined(*words: str) -> str:
    return ", ".join(word for word in words if word)


def _too_short(lines: int, across: int, nodes_of: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the share that lacks fewest nodes where there is room for none: the rest goes to whom it nearly fits."""
    room = [nodes // across for nodes in nodes_of]
    if room:
        room[max(range(len(room)), key=lambda model: nodes_of[model] % across)] += lines - sum(room)
        yield tuple(room)


def shares(lines: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield ways to share lines out to models that have room for so many each: the extremes and some between.

    Examples
    --------
    >>> list(shares(3, [2, 9]))
    [(0, 3), (1, 2), (2, 1)]
    """
    if len(room) <= 1:
        if room and lines <= room[0]:
            yield (lines,)
        return
    low, high = max(0, lines - sum(room[1:])), min(lines, room[0])
    steps = min(high - low, max(1, round(_MOST_SHARES ** (1 / (len(room) - 1))) - 1))
    for count in dict.fromkeys(low + (high - low) * step // max(1, steps) for step in range(steps + 1)):
        if low <= count <= high:
            for rest in shares(lines - count, room[1:]):
                yield (count, *rest)

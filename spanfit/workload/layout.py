"""How a job's ranks form communication groups, and the grid of nodes that follows (the paper's Eq. 1)."""

from dataclasses import dataclass
from itertools import product

MEGATRON = "tp-cp-ep-dp-pp"
MEGATRON_PP_FIRST = "tp-cp-ep-pp-dp"
_AXES = ("tp", "cp", "ep", "dp", "pp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """Parallel degrees of a job and the order in which they number the ranks.

    Attributes
    ----------
    dp, pp, tp, cp, ep : int
        Degrees; ep splits dp (experts live on dp ranks), so it does not multiply the number of ranks.
    order : str
        Axes from the fastest to the slowest, Megatron's ``tp-cp-ep-dp-pp`` unless said.
    """

    dp: int
    pp: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    order: str = MEGATRON

    def __post_init__(self) -> None:
        """Refuse degrees and orders that describe no layout."""
        for axis in _AXES:
            if getattr(self, axis) < 1:
                raise ValueError(f"{axis} is {getattr(self, axis)}; expected at least 1")
        if sorted(self.order.split("-")) != sorted(_AXES):
            raise ValueError(f"order is {self.order!r}; expected each of tp, cp, ep, dp, pp once, joined by '-'")
        if self.dp % self.ep:
            raise ValueError(f"ep is {self.ep}; expected a divisor of dp = {self.dp}")

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.dp * self.pp * self.tp * self.cp

    def rank(self, *, dp: int, pp: int, tp: int = 0, cp: int = 0) -> int:
        """Return the global rank of a coordinate."""
        coordinate = {"dp": dp, "pp": pp, "tp": tp, "cp": cp}
        rank, stride = 0, 1
        for axis in self.order.split("-"):
            if axis != "ep":
                rank += coordinate[axis] * stride
                stride *= getattr(self, axis)
        return rank

    def coordinate(self, rank: int) -> dict[str, int]:
        """Return the index of a global rank along ``dp``, ``pp``, ``tp`` and ``cp``."""
        found = {}
        for axis in self.order.split("-"):
            if axis != "ep":
                rank, found[axis] = divmod(rank, getattr(self, axis))
        return found

    def group_of(self, kind: str, rank: int) -> tuple[int, ...]:
        """Return the group of a kind that a rank belongs to; ``groups`` names the kinds."""
        return self._group(kind, self.coordinate(rank))

    def groups(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the groups of ranks of a kind, each in the order of its axis.

        Parameters
        ----------
        kind : str
            ``dp``, ``pp``, ``tp`` or ``cp``; ``ep``, neighbours along dp that share the experts out; ``dp-cp``, the
            ranks that hold the same weights; ``edp``, those that hold the same experts.
        """
        starts = (
            dict(zip(("pp", "dp", "cp", "tp"), indices, strict=True))
            for indices in product(range(self.pp), range(self.dp), range(self.cp), range(self.tp))
        )
        return tuple(
            self._group(kind, start)
            for start in starts
            if all(start[axis] == members[0] for axis, members in self._members(kind, start).items())
        )

    def _group(self, kind: str, coordinate: dict[str, int]) -> tuple[int, ...]:
        members = self._members(kind, coordinate)
        return tuple(
            sorted(
                self.rank(**coordinate | dict(zip(members, indices, strict=True)))
                for indices in product(*members.values())
            )
        )

    def _members(self, kind: str, coordinate: dict[str, int]) -> dict[str, range]:
        """Return the indices that a group takes along each axis in which its ranks differ."""
        if kind == "ep":
            first = coordinate["dp"] // self.ep * self.ep
            return {"dp": range(first, first + self.ep)}
        if kind == "edp":
            return {"dp": range(coordinate["dp"] % self.ep, self.dp, self.ep), "cp": range(self.cp)}
        return {axis: range(getattr(self, axis)) for axis in kind.split("-")}

    def grid(self, ngpus_per_node: int) -> tuple[int, int]:
        """Return the rows (PP groups) and columns (DP groups) of nodes of the communication matrix.

        Notes
        -----
        Eq. 1 of arXiv 2509.15940: rows = DP / (ngpus / TP), columns = PP; CP counts with TP, which stay in a node.

        Raises
        ------
        ValueError
            If TP x CP does not fill nodes evenly, or DP does not.
        """
        inner = self.tp * self.cp
        if ngpus_per_node % inner:
            raise ValueError(f"tp x cp is {inner}; expected a divisor of the {ngpus_per_node} GPUs of a node")
        replicas_per_node = ngpus_per_node // inner
        if self.dp % replicas_per_node:
            raise ValueError(
                f"dp is {self.dp}; expected a multiple of {replicas_per_node}, "
                f"the replicas that share a node of {ngpus_per_node} GPUs"
            )
        return self.dp // replicas_per_node, self.pp

    def node_cells(self, ngpus_per_node: int) -> tuple[tuple[int, int], ...]:
        """Return the (row, column) of the grid that each node rank holds, in node-rank order.

        Raises
        ------
        ValueError
            If the order lets ranks of two stages, or of rows far apart, share a node.
        """
        rows, columns = self.grid(ngpus_per_node)
        per_node = self.dp // rows
        if self._nodes_hold_neighbours(per_node):
            firsts = (self.coordinate(node_rank * ngpus_per_node) for node_rank in range(rows * columns))
            return tuple((first["dp"] // per_node, first["pp"]) for first in firsts)
        cells: dict[int, tuple[int, int]] = {}
        for dp, pp, cp, tp in product(range(self.dp), range(self.pp), range(self.cp), range(self.tp)):
            node_rank = self.rank(dp=dp, pp=pp, cp=cp, tp=tp) // ngpus_per_node
            cell = (dp // per_node, pp)
            if cells.setdefault(node_rank, cell) != cell:
                raise ValueError(
                    f"order {self.order!r} puts cells {cells[node_rank]} and {cell} on one node; "
                    f"expected tp and cp (and dp, where they do not fill a node) to be the fastest axes"
                )
        return tuple(cells[node_rank] for node_rank in range(rows * columns))

    def _nodes_hold_neighbours(self, replicas_per_node: int) -> bool:
        """Return whether tp and cp are the fastest axes, and dp is next where replicas share a node."""
        axes = [axis for axis in self.order.split("-") if axis != "ep" and getattr(self, axis) > 1]
        inner = {axis for axis in ("tp", "cp") if getattr(self, axis) > 1}
        fastest = axes[: len(inner)]
        return set(fastest) == inner and (replicas_per_node == 1 or axes[len(inner)] == "dp")

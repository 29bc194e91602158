"""Slurm's topology/block: blocks of nodes in a row, and what of consecutive blocks is taken as one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.readers.slurm_records import Fault, refuse
from spanfit.topology.reading import Finding, NodeFacts

_DEFAULT_LEVELS = 5  # Slurm joins up to 2**4 blocks where no sizes are given


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block with its nodes, and where in its file it stands."""

    name: str
    order: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks in their order, which is adjacency, and the sizes that may be asked for, in nodes."""

    blocks: tuple[Block, ...]
    sizes: tuple[int, ...]

    def aggregates(self) -> dict[int, tuple[tuple[Block, ...], ...]]:
        """Return for each size above the base the rows of blocks that form it; sizes beyond all blocks form none."""
        rows = {}
        for size in self.sizes[1:]:
            width = size // self.sizes[0]
            if width <= len(self.blocks):
                starts = range(0, len(self.blocks), width)
                rows[size] = tuple(self.blocks[start : start + width] for start in starts)
        return rows


def make_blocks(
    blocks: Sequence[Block], sizes: Sequence[int], faults: Sequence[Fault], origin: str, place: str
) -> Blocks:
    """Return blocks, their sizes those of Slurm where none are given: the first block's times 1, 2, 4, 8, 16.

    ConfigError lists every mistake: those given, a block defined twice, sizes that are no power of 2 of the first.
    """
    found = list(faults)
    first: dict[str, Block] = {}
    for block in blocks:
        if first.setdefault(block.name, block) is not block:
            where = place.format(first[block.name].order)
            found.append((block.order, f"block {block.name} is already defined in {where}; expected it once"))
    if not found and not any(block.nodes for block in blocks):
        found.append((1, "empty-topology: found no nodes; expected lines such as BlockName=b1 Nodes=node[0-17]"))
    listed = sorted(set(sizes))
    smallest = max(1, min(listed, default=1))
    wrong = [size for size in listed if size < 1 or size % smallest or (size // smallest).bit_count() != 1]
    if wrong:
        text = f"BlockSizes: found {', '.join(map(str, wrong))}; expected the smallest size times powers of 2"
        found.append((blocks[-1].order if blocks else 1, text))
    refuse(found, origin, place)
    base = next(len(block.nodes) for block in blocks if block.nodes)
    default = [base << level for level in range(_DEFAULT_LEVELS) if 1 << level <= len(blocks)]
    return Blocks(blocks=tuple(blocks), sizes=tuple(listed or default))


def block_facts(blocks: Blocks) -> tuple[tuple[NodeFacts, ...], tuple[Finding, ...]]:
    """Return the nodes below their block and the rows of blocks that hold it, and what is odd."""
    above: dict[str, tuple[str, ...]] = {block.name: (block.name,) for block in blocks.blocks}
    for rows in blocks.aggregates().values():
        for row in rows:
            label = fold_hostlist(block.name for block in row)
            for block in row:
                above[block.name] += (label,)
    homes: dict[str, list[str]] = {}
    for block in blocks.blocks:
        for node in dict.fromkeys(block.nodes):
            homes.setdefault(node, []).append(block.name)
    nodes = tuple(
        NodeFacts(name=name, fabric=above[found[0]] if len(found) == 1 else None, leaves=tuple(found))
        for name, found in homes.items()
    )
    return nodes, tuple(_findings(blocks, nodes))


def _findings(blocks: Blocks, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    for node in nodes:
        if len(node.leaves) > 1:
            text = (
                f"node {node.name} is in blocks {', '.join(node.leaves)}: its place is unknown and it is left out of "
                "the tree; remove it from all but one"
            )
            yield Finding(code="multi-block-node", subject=node.name, text=text)
    for block in blocks.blocks:
        if not block.nodes:
            yield Finding(code="empty-block", subject=block.name, text=f"block {block.name} has no nodes")
    largest, room = blocks.sizes[-1], len(blocks.blocks) * blocks.sizes[0]
    if largest > room:
        text = f"size {largest} is more than the {room} nodes of {len(blocks.blocks)} blocks of {blocks.sizes[0]}"
        yield Finding(code="blocksize-exceeds-cluster", text=f"{text}; no row of blocks forms it")

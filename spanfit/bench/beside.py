"""The noise of a campaign: drawn once, beside the arms of all its jobs, and what of it they share links with; pure."""

from collections.abc import Iterable, Sequence

from spanfit.bench.groups import NodeTree
from spanfit.bench.noise import NoiseJob, NoiseTable, PlacementClass, draw_noise
from spanfit.topology.model import SwitchPath


def noise_beside(table: NoiseTable, tree: NodeTree, arms: Sequence[Sequence[int]], seed: int) -> tuple[NoiseJob, ...]:
    """Return the jobs of a table as :func:`draw_noise` does, all of which have a place.

    Parameters
    ----------
    arms : sequence of sequence of int
        Node ranks of every arm of every job: none of them runs noise, so that the same noise is beside all.

    Raises
    ------
    ValueError
        With a line for each size and class that have no place, or one where no job fits the nodes left over, or none
        of those that cross switches shares a link with an arm.
    """
    used = {node for arm in arms for node in arm}
    noise = draw_noise(table, tree, sorted(used), seed)
    nfree = len(tree.fabric) - len(used)
    if not noise.jobs and not noise.unplaced:
        raise ValueError(
            f"noise {table.name}: no job fits {table.utilisation:g} of the {nfree} nodes left over; expected more "
            "nodes, smaller jobs or more utilisation"
        )
    if noise.unplaced:
        raise ValueError(
            "\n".join(
                f"noise {table.name}: a job of {size} nodes has no place of class {placement} on the {nfree} nodes "
                "left over; lower nodes or utilisation, name another class, or draw with another seed"
                for size, placement in dict.fromkeys(noise.unplaced)
            )
        )
    crossing = [job.node_ranks for job in noise.jobs if job.placement is not PlacementClass.LEAF]
    if crossing and not crossed(tree, crossing) & crossed(tree, arms):
        raise ValueError(
            f"noise {table.name}: shares no uplink with an arm of a job, so it would disturb none; expected nodes left "
            "over under the switches that arms cross: draw with another seed, shrink the jobs, or name class leaf for "
            "noise that shares none"
        )
    return noise.jobs


def crossed(tree: NodeTree, groups: Iterable[Sequence[int]]) -> set[SwitchPath]:
    """Return the switches whose uplinks groups use: a group has nodes below each of them, and others elsewhere."""
    return {switch for nodes in groups for level in range(len(tree.tiers)) for switch in _several(tree, nodes, level)}


def _several(tree: NodeTree, nodes: Sequence[int], level: int) -> set[SwitchPath]:
    """Return the switches of a tier above a group, none where it stays under one."""
    switches = {tree.fabric[node][level:] for node in nodes}
    return switches if len(switches) > 1 else set()

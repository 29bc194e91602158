"""Placements that other schedulers would make, as arXiv 2509.15940 names them in words (its section 7.1).

The paper does not say how a baseline orders ranks inside the job. Here each baseline only decides how many nodes each
minipod gives and in which order the minipods come; nodes of a minipod then get consecutive places in the grid, row by
row. Topo-aware alone cuts the grid itself.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from spanfit.placer.bisection import bisect
from spanfit.placer.model import Grid, Problem


class Baseline(StrEnum):
    """The baselines of the paper, under its names, and two things that schedulers do."""

    BEST_FIT = "best-fit"
    RANDOM_FIT = "random-fit"
    GPU_PACKING = "GPU-packing"
    TOPO_AWARE = "topo-aware"
    SLURM_TREE = "Slurm tree"
    AS_GIVEN = "scheduler order"


def fill_rows(counts: Iterable[tuple[int, int]], problem: Problem) -> Grid:
    """Return the grid filled row by row from (minipod, nodes), cut at the end of the grid."""
    cells = [minipod for minipod, nodes in counts for _ in range(nodes)][: problem.ncells]
    if len(cells) < problem.ncells:
        raise ValueError(f"{len(cells)} nodes given; expected {problem.ncells}")
    width = problem.ncolumns
    return tuple(tuple(cells[start : start + width]) for start in range(0, problem.ncells, width))


def best_fit(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of best-fit (Panigrahy et al., MSR-TR 2011): fill the minipod with the least room left.

    Read as: a job that fits one minipod goes whole into the tightest such one; else the minipod with the least room
    is filled to the brim, then the next, ties in minipod order.
    """
    tightest = sorted(range(len(problem.free)), key=lambda m: problem.free[m])
    for minipod in tightest:
        if problem.free[minipod] >= problem.ncells:
            return fill_rows([(minipod, problem.ncells)], problem)
    return fill_rows([(m, problem.free[m]) for m in tightest], problem)


def gpu_packing(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of GPU-packing (MLaaS, NSDI'22; Gandiva, OSDI'18): fewest minipods, the largest filled first.

    Read as the paper changed it, from packing jobs into a GPU to packing a job into a minipod.
    """
    return fill_rows(_largest_first(problem), problem)


def _largest_first(problem: Problem) -> list[tuple[int, int]]:
    """Return the nodes that each minipod gives where the largest are used up first, none for the others."""
    left, counts = problem.ncells, []
    for minipod in sorted(range(len(problem.free)), key=lambda m: -problem.free[m]):
        nodes = min(left, problem.free[minipod])
        if nodes:
            counts.append((minipod, nodes))
        left -= nodes
    if left:
        raise ValueError(f"{problem.ncells - left} nodes given; expected {problem.ncells}")
    return counts


def random_fit(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of random-fit (FGD, ATC'23): each node comes from a random minipod that still has room.

    The draw decides how many nodes each minipod gives; they are placed in minipod order.
    """
    source = random.Random(seed)
    left, counts = list(problem.free), [0] * len(problem.free)
    roomy = [m for m, nodes in enumerate(left) if nodes]
    for _ in range(problem.ncells):
        index = source.randrange(len(roomy))
        minipod = roomy[index]
        counts[minipod] += 1
        if counts[minipod] == left[minipod]:
            roomy[index] = roomy[-1]
            roomy.pop()
    return fill_rows(enumerate(counts), problem)


def topo_aware(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of topo-aware (Amaral et al., SC'17): the job's graph mapped by dual recursive bi-partition.

    Read as: the fewest minipods, the largest first, are halved again and again into halves of about as many nodes, and
    the job's graph is cut to match by Fiduccia-Mattheyses, from the better of a cut between rows and one between
    columns. Edges are rings over columns (weight alpha) and chains along rows (beta); sizes are exact, a pass ends
    after 50 moves without a better cut, and at most four passes are made. The paper states none of these.
    """
    return bisect(problem, _largest_first(problem))


def slurm_tree(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of Slurm's topology/tree: best fit over switches, then ranks in the order of the node table.

    Read as: while nodes are missing, the smallest minipod that holds all of them is taken, else the largest one.
    Minipods stand for Slurm's leaves, and their order in the problem for that of node names.
    """
    left, counts = problem.ncells, {}
    unused = set(range(len(problem.free)))
    while left and unused:
        minipod = min(unused, key=lambda m: (problem.free[m] < left, abs(problem.free[m] - left), m))
        unused.remove(minipod)
        counts[minipod] = min(left, problem.free[minipod])
        left -= counts[minipod]
    return fill_rows(sorted(counts.items()), problem)


def as_given(problem: Problem, seed: int = 0) -> Grid:
    """Return the grid of nodes as a scheduler lists them: minipods in the order of the cluster, each used up.

    What a job gets that asks for nothing; the paper's production baseline took whatever its scheduler gave.
    """
    return fill_rows(enumerate(problem.free), problem)


BASELINES: Mapping[Baseline, Callable[[Problem, int], Grid]] = {
    Baseline.BEST_FIT: best_fit,
    Baseline.RANDOM_FIT: random_fit,
    Baseline.GPU_PACKING: gpu_packing,
    Baseline.TOPO_AWARE: topo_aware,
    Baseline.SLURM_TREE: slurm_tree,
    Baseline.AS_GIVEN: as_given,
}
"""Every baseline by its name; the second argument is the seed, which only random-fit uses."""

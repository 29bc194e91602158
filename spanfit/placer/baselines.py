"""Placements that other schedulers would make, as arXiv 2509.15940 names them in words (its section 7.1).

The paper does not say how a baseline orders ranks inside the job. Here each baseline only decides how many nodes each
minipod gives and in which order the minipods come; nodes of a minipod then get consecutive places in the grid, row by
row.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from spanfit.placer.model import Grid, Problem


class Baseline(StrEnum):
    """The baselines of the paper, under its names."""

    BEST_FIT = "best-fit"
    RANDOM_FIT = "random-fit"
    GPU_PACKING = "GPU-packing"


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
    """Return the grid of GPU-packing (MLaaS, NSDI'22; Gandiva, OSDI'18): fewest minipods, the largest filled first."""
    largest = sorted(range(len(problem.free)), key=lambda m: -problem.free[m])
    return fill_rows([(m, problem.free[m]) for m in largest], problem)


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


BASELINES: Mapping[Baseline, Callable[[Problem, int], Grid]] = {
    Baseline.BEST_FIT: best_fit,
    Baseline.RANDOM_FIT: random_fit,
    Baseline.GPU_PACKING: gpu_packing,
}
"""Every baseline by its name; the second argument is the seed, which only random-fit uses."""

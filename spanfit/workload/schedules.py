"""The order in which a pipeline stage takes its passes."""

from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from spanfit.workload.program import Direction


class Schedule(StrEnum):
    """The order of microbatches in a pipeline."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


class Pass(NamedTuple):
    """A microbatch going forward or backward through one of a rank's chunks of the model."""

    direction: Direction
    chunk: int
    microbatch: int


def pass_order(
    schedule: Schedule, *, stage: int, nstages: int, nmicrobatches: int, nchunks: int = 1
) -> tuple[Pass, ...]:
    """Return the passes of the ranks of a stage, in order.

    Parameters
    ----------
    nchunks : int
        Chunks of the model that each rank holds; chunk c of stage s is virtual stage c x nstages + s. More than one
        only where ``schedule`` is interleaved, which then needs a multiple of ``nstages`` microbatches.
    """
    forwards = _passes(Direction.FORWARD, nstages, nmicrobatches, nchunks)
    backwards = _passes(Direction.BACKWARD, nstages, nmicrobatches, nchunks)
    ahead = _ahead(schedule, stage, nstages, nmicrobatches, nchunks)
    alternating = chain.from_iterable(zip(forwards[ahead:], backwards, strict=False))
    return (*forwards[:ahead], *alternating, *backwards[len(forwards) - ahead :])


def _ahead(schedule: Schedule, stage: int, nstages: int, nmicrobatches: int, nchunks: int) -> int:
    """Return how many forward passes a stage is ahead of its backward passes while it alternates."""
    total = nmicrobatches * nchunks
    if schedule is Schedule.GPIPE:
        return total
    if schedule is Schedule.ONE_F_ONE_B:
        return min(total, nstages - 1 - stage)
    return min(total, 2 * (nstages - 1 - stage) + (nchunks - 1) * nstages)


def _passes(direction: Direction, nstages: int, nmicrobatches: int, nchunks: int) -> list[Pass]:
    """Return the passes of one direction: nstages microbatches through a chunk, then the next chunk."""
    chunks = range(nchunks) if direction is Direction.FORWARD else range(nchunks - 1, -1, -1)
    size = nstages if nchunks > 1 else nmicrobatches
    return [
        Pass(direction, chunk, microbatch)
        for first in range(0, nmicrobatches, size)
        for chunk in chunks
        for microbatch in range(first, first + size)
    ]

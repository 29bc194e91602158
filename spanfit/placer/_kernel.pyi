"""The compiled search by columns (``kernel/``)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST_MINIPODS: int

def most_rows(*, capacity: Sequence[int], row_spread: int, sets: Sequence[npt.NDArray[np.bool_]]) -> list[float]:
    """Return the values of the linear programs of sets, of shape (ncolumns, nminipods), each from the last basis."""

class Search:
    """A search for rows, each of at most ``row_spread`` minipods, in which each column touches at most ``depth``.

    Parameters
    ----------
    capacity : sequence of int
        Free nodes of each minipod, at least 1.
    nrows, ncolumns, depth, row_spread, seed : int
    """

    def __init__(
        self, *, capacity: Sequence[int], nrows: int, ncolumns: int, depth: int, row_spread: int, seed: int
    ) -> None: ...
    def run(self, work: float) -> bool:
        """Go on for so much work, in about nanoseconds; return whether all rows were found."""

    @property
    def work_done(self) -> float:
        """Work so far, which may be a little more than was given."""

    @property
    def best(self) -> float:
        """Most rows, as a fraction, that the linear program of any sets had."""

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The minipod of each cell, of shape (nrows, ncolumns); no rows before ``run`` has returned True."""

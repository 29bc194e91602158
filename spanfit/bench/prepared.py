"""An operation that is ready to run, whichever library runs it, on one or several sets of buffers."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A collective that is ready to run.

    Attributes
    ----------
    run : callable
        Runs it once; on GPUs it only enqueues.
    fill : callable
        Gives the buffers values from which the result follows, and none that it could be mistaken for.
    holds : callable
        Returns whether this rank's result is what arithmetic says, after ``fill`` and ``run``.
    """

    run: Callable[[], object]
    fill: Callable[[], object]
    holds: Callable[[], bool]

    def is_right(self) -> bool:
        """Fill the buffers, run once and return whether the result is right."""
        self.fill()
        self.run()
        return self.holds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """An operation on each of several buffer sets."""

    sets: tuple[Prepared, ...]

    @property
    def runs(self) -> tuple[Callable[[], object], ...]:
        """Return what runs the operation on each set."""
        return tuple(one.run for one in self.sets)

    def is_right(self) -> bool:
        """Give every set ordinary values, run the first and return whether its result is right."""
        for one in self.sets:
            one.fill()
        self.sets[0].run()
        return self.sets[0].holds()

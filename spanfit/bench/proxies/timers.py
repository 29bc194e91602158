"""When the operations of a step ended: marks taken as a step runs, looked at when it is over."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from time import perf_counter_ns
from typing import Any

import torch

from spanfit.workload.program import Collect, Operation, Program, Receive, Timer, Wait

Mark = Any
"""Integer nanoseconds of the monotonic clock; on GPUs an event of the current stream."""


def marker(device: torch.device) -> Callable[[], Mark]:
    """Return what gives the mark of now."""
    if device.type != "cuda":
        return perf_counter_ns

    def record() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    return record


def seconds(start: Mark, end: Mark) -> float:
    """Return the seconds between two marks, in double precision; events must have ended."""
    if isinstance(start, int):
        return float(end - start) / 1e9
    return float(start.elapsed_time(end)) / 1e3


def waits(operation: Operation) -> bool:
    """Return whether an operation holds its rank up until bytes have moved."""
    return isinstance(operation, Receive | Wait) or (isinstance(operation, Collect) and operation.handle is None)


class Timers:
    """The times of a rank's operations, run after run; nothing is ever overwritten.

    Parameters
    ----------
    program : Program
        Its operations end one after the other.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._runs: list[Sequence[Mark]] = []

    def add(self, marks: Sequence[Mark]) -> None:
        """Keep a run: the mark of its start, and one as each operation ended."""
        self._runs.append(marks)

    def entries(self) -> dict[Timer, list[float]]:
        """Return the seconds of every operation of every run, by its timer, in the order in which they ran."""
        found: dict[Timer, list[float]] = {}
        for marks in self._runs:
            for operation, (start, end) in zip(self.program, pairwise(marks), strict=True):
                found.setdefault(operation.timer, []).append(seconds(start, end))
        return found

    def communication_s(self, nruns: int) -> list[float]:
        """Return for each of the last runs the seconds that the rank spent in receives, waits and collectives."""
        return [sum(self._waited(marks)) for marks in self._runs[len(self._runs) - nruns :]]

    def _waited(self, marks: Sequence[Mark]) -> Iterable[float]:
        for operation, (start, end) in zip(self.program, pairwise(marks), strict=True):
            if waits(operation):
                yield seconds(start, end)

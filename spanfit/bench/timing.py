"""The timed loop: a barrier before every repetition, then one clock around one operation, or around a batch on GPUs."""

import math
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from time import perf_counter

import torch

Run = Callable[[], object]

BATCH_S = 100e-6
"""On GPUs as many operations stand between two events as take this long: events resolve no less than 0.5 us."""
_MAX_BATCH = 100


def batch_size(time_s: float) -> int:
    """Return how many operations of ``time_s`` are timed together on a GPU; 1 where the time is not known."""
    if not time_s > 0:
        return 1
    return max(1, min(_MAX_BATCH, math.ceil(BATCH_S / time_s)))


def time_on_cpu(runs: Sequence[Run], barrier: Callable[[], None], repetitions: int) -> list[float]:
    """Return the seconds of each repetition by the monotonic clock of this rank, buffer sets taken in turn."""
    times_s = []
    for run in list(islice(cycle(runs), repetitions)):
        barrier()
        start = perf_counter()
        run()
        times_s.append(perf_counter() - start)
    return times_s


def time_on_gpu(runs: Sequence[Run], barrier: Callable[[], None], repetitions: int, batch: int = 1) -> list[float]:
    """Return the seconds of one operation in each repetition, by events on the current stream of this rank's GPU.

    A repetition is ``batch`` operations back to back, each on the next buffer set.
    """
    turns = cycle(runs)
    times_s = []
    for _ in range(repetitions):
        chosen = list(islice(turns, batch))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        barrier()
        start.record()
        for run in chosen:
            run()
        end.record()
        end.synchronize()
        times_s.append(start.elapsed_time(end) / 1e3 / batch)
    return times_s


def ended(run: Run, device: torch.device) -> Run:
    """Return what runs an operation to its end: on GPUs calls only enqueue."""
    if device.type != "cuda":
        return run

    def to_the_end() -> None:
        run()
        torch.cuda.synchronize(device)

    return to_the_end

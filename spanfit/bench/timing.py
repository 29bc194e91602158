"""The timed loop: a barrier before every repetition, then one clock around one operation."""

from collections.abc import Callable
from time import perf_counter

import torch


def time_on_cpu(run: Callable[[], object], barrier: Callable[[], None], repetitions: int) -> list[float]:
    """Return the seconds of each repetition by the monotonic clock of this rank."""
    times_s = []
    for _ in range(repetitions):
        barrier()
        start = perf_counter()
        run()
        times_s.append(perf_counter() - start)
    return times_s


def time_on_gpu(run: Callable[[], object], barrier: Callable[[], None], repetitions: int) -> list[float]:
    """Return the seconds of each repetition by events on the current stream of this rank's GPU."""
    times_s = []
    for _ in range(repetitions):
        torch.cuda.synchronize()
        barrier()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        run()
        end.record()
        end.synchronize()
        times_s.append(start.elapsed_time(end) / 1e3)
    return times_s


def timer(device: torch.device) -> Callable[[Callable[[], object], Callable[[], None], int], list[float]]:
    """Return the timed loop for a device."""
    return time_on_gpu if device.type == "cuda" else time_on_cpu

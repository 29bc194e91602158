"""Buffers that no cache holds: an operation gets several sets of them and takes them in turn."""

from collections.abc import Callable

import torch

from spanfit.bench.operations import Allocate
from spanfit.bench.prepared import Prepared, Ring
from spanfit.bench.rotation import aligned, cpu_rotation_bytes, layout

_UNKNOWN_GPU_CACHE_BYTES = 64 << 20


class Arena:
    """Memory of a rank that all its cases share, so that a case costs no allocation.

    Parameters
    ----------
    device : torch.device
    rotation_bytes : int
        What the buffer sets of an operation exceed together; 0 gives one set.
    """

    def __init__(self, device: torch.device, rotation_bytes: int) -> None:
        self.device = device
        self.rotation_bytes = rotation_bytes
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)

    def ring(self, make: Callable[[Allocate], Prepared], dtype: torch.dtype) -> Ring:
        """Return an operation on as many buffer sets as exceed ``rotation_bytes``.

        Parameters
        ----------
        make : callable
            Prepares the operation on the buffers that it is given.
        dtype : torch.dtype
        """
        counted = _Counter(dtype)
        make(counted.take)
        nsets, stride = layout(counted.nbytes, self.rotation_bytes)
        if self._memory.numel() < nsets * stride:
            self._memory = torch.empty(nsets * stride, dtype=torch.uint8, device=self.device)
        taken = [_Taker(self._memory[index * stride : (index + 1) * stride], dtype) for index in range(nsets)]
        return Ring(sets=tuple(make(taker.take) for taker in taken))


class _Counter:
    """Counts the bytes that an operation takes, giving buffers without memory."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.nbytes = 0

    def take(self, count: int) -> torch.Tensor:
        self.nbytes += aligned(count * self.dtype.itemsize)
        return torch.empty(count, dtype=self.dtype, device="meta")


class _Taker:
    """Gives buffers out of a stretch of memory, one after the other."""

    def __init__(self, memory: torch.Tensor, dtype: torch.dtype) -> None:
        self.memory = memory
        self.dtype = dtype
        self.offset = 0

    def take(self, count: int) -> torch.Tensor:
        nbytes = count * self.dtype.itemsize
        buffer = self.memory[self.offset : self.offset + nbytes].view(self.dtype)
        self.offset += aligned(nbytes)
        return buffer


def rotation_bytes(device: torch.device) -> int:
    """Return over how many bytes a rank's buffers are rotated: the last-level cache, on CPUs at most a cap."""
    if device.type == "cuda":
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", _UNKNOWN_GPU_CACHE_BYTES))
    return cpu_rotation_bytes()

"""Over how many buffer sets an operation is rotated, so that no cache holds them; standard library only."""

import re
from pathlib import Path

ROTATION_CAP_BYTES = 64 << 20
"""Where a last-level cache is larger, buffers of a rank on CPUs are rotated over this much."""

MAX_SETS = 64
"""Sets of small buffers, which latency rules and no cache: more would only cost memory."""

_ALIGNMENT = 512
_UNKNOWN_CACHE_BYTES = 32 << 20
_CACHE_SIZE = re.compile(r"(\d+)([KM])")


def layout(set_bytes: int, rotation_bytes: int) -> tuple[int, int]:
    """Return how many buffer sets there are and how many bytes lie between the starts of two.

    Together they exceed ``rotation_bytes``; at most ``MAX_SETS``, which then lie spread over that much.
    """
    nsets = max(1, min(MAX_SETS, rotation_bytes // max(1, set_bytes) + 1))
    spread = rotation_bytes // nsets // _ALIGNMENT * _ALIGNMENT
    return (1, set_bytes) if nsets == 1 else (nsets, max(set_bytes, spread))


def aligned(nbytes: int) -> int:
    """Return a size rounded up to where the next buffer may start."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def cpu_rotation_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return over how many bytes a rank's buffers are rotated on CPUs: the last-level cache, at most the cap."""
    sizes = [path.read_text() for path in sorted(caches.glob("index*/size"))]
    return min(ROTATION_CAP_BYTES, max(map(cache_bytes, sizes), default=_UNKNOWN_CACHE_BYTES))


def cache_bytes(text: str) -> int:
    """Return the size of a cache as the kernel writes it, such as ``32768K``; 0 where it is none."""
    found = _CACHE_SIZE.match(text)
    return int(found[1]) * {"K": 1 << 10, "M": 1 << 20}[found[2]] if found else 0

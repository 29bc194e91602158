from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.buffers import Arena
from spanfit.bench.operations import Allocate
from spanfit.bench.prepared import Prepared
from spanfit.bench.rotation import MAX_SETS, ROTATION_CAP_BYTES, cache_bytes, cpu_rotation_bytes, layout

CPU = torch.device("cpu")


@given(st.integers(0, 1 << 28), st.integers(0, 1 << 28))
def test_sets_together_exceed_the_cache_unless_there_would_be_too_many(set_bytes: int, rotation_bytes: int) -> None:
    nsets, stride = layout(set_bytes, rotation_bytes)
    assert 1 <= nsets <= MAX_SETS
    assert stride >= set_bytes
    assert nsets * set_bytes > rotation_bytes or nsets == MAX_SETS or set_bytes == rotation_bytes == 0
    # One set fewer would fit the cache.
    assert (nsets - 1) * set_bytes <= rotation_bytes
    if set_bytes > rotation_bytes:
        assert (nsets, stride) == (1, set_bytes)


def test_small_sets_lie_spread_over_the_cache() -> None:
    nsets, stride = layout(512, 32 << 20)
    assert nsets * stride == 32 << 20


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("32768K\n", 32 << 20), ("1M", 1 << 20), ("", 0), ("unknown", 0), ("512K", 512 << 10)]
)
def test_cache_sizes_are_read_as_the_kernel_writes_them(text: str, size_bytes: int) -> None:
    assert cache_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(["32K", "1M", "16M"], 16 << 20), (["32K", "1G", "512M"], ROTATION_CAP_BYTES), ([], 32 << 20)],
)
def test_the_largest_cache_counts_up_to_a_cap(tmp_path: Path, sizes: list[str], expected: int) -> None:
    for index, size in enumerate(sizes):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert cpu_rotation_bytes(tmp_path) == expected


class Recorder:
    """Prepares an operation on two buffers of 100 and 28 elements, and keeps those that have memory."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []

    def make(self, allocate: Allocate) -> Prepared:
        pair = [allocate(100), allocate(28)]
        self.buffers += [buffer for buffer in pair if buffer.device.type != "meta"]
        return Prepared(run=lambda: pair[1].fill_(2), fill=lambda: [one.fill_(1) for one in pair], holds=lambda: True)


def extents(buffers: list[torch.Tensor]) -> list[tuple[int, int]]:
    return sorted((one.data_ptr(), one.data_ptr() + one.numel() * one.itemsize) for one in buffers)


@pytest.mark.parametrize(("dtype", "nsets"), [(torch.float32, 11), (torch.float64, 7), (torch.int8, 11)])
def test_the_buffers_of_all_sets_are_apart_and_as_large_as_asked(dtype: torch.dtype, nsets: int) -> None:
    recorder = Recorder()
    ring = Arena(CPU, 10 * 1024).ring(recorder.make, dtype)
    assert len(ring.sets) == nsets
    assert [one.numel() for one in recorder.buffers] == [100, 28] * nsets
    spans = extents(recorder.buffers)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert ring.is_right()
    assert [int(one[0]) for one in recorder.buffers] == [1, 2] + [1] * (2 * nsets - 2)


def test_cases_share_the_memory_which_only_grows() -> None:
    arena = Arena(CPU, 10 * 1024)
    first, second = Recorder(), Recorder()
    arena.ring(first.make, torch.float32)
    arena.ring(second.make, torch.float32)
    assert extents(first.buffers) == extents(second.buffers)


def test_without_rotation_there_is_one_set() -> None:
    recorder = Recorder()
    assert len(Arena(CPU, 0).ring(recorder.make, torch.float32).sets) == 1

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.collectives import (
    Collective,
    buffer_elements,
    busbw,
    busbw_factor,
    is_shared,
    misfit,
    real_size_bytes,
    uneven_shares,
)

F = Fraction
# busbw / algbw of nccl-tests for 2, 3 and 8 ranks, written out from its sources.
NCCL_TESTS = {
    "all_reduce": (F(1), F(4, 3), F(7, 4)),
    "all_gather": (F(1, 2), F(2, 3), F(7, 8)),
    "reduce_scatter": (F(1, 2), F(2, 3), F(7, 8)),
    "all_to_all": (F(1, 2), F(2, 3), F(7, 8)),
    "gather": (F(1, 2), F(2, 3), F(7, 8)),
    "scatter": (F(1, 2), F(2, 3), F(7, 8)),
    "broadcast": (F(1), F(1), F(1)),
    "reduce": (F(1), F(1), F(1)),
    "send_recv": (F(1), F(1), F(1)),
    "all_to_all_v": (F(1, 2), F(2, 3), F(7, 8)),
    # nccl-tests has factor 1 on an algbw of S (n-1)/n / t.
    "hypercube": (F(1, 2), F(2, 3), F(7, 8)),
    # One direction of a pair, as for send_recv.
    "send": (F(1), F(1), F(1)),
    "exchange": (F(1), F(1), F(1)),
}
COLLECTIVES = st.sampled_from(list(Collective))


def test_the_table_names_every_collective() -> None:
    assert {*NCCL_TESTS, "barrier"} == {str(collective) for collective in Collective}


@pytest.mark.parametrize("name", NCCL_TESTS)
def test_factors_are_those_of_nccl_tests(name: str) -> None:
    for nranks, factor in zip((2, 3, 8), NCCL_TESTS[name], strict=True):
        assert busbw_factor(Collective(name), nranks) == pytest.approx(float(factor), rel=1e-15)


def test_one_rank_has_no_bus() -> None:
    assert busbw_factor(Collective.ALL_REDUCE, 1) == 0
    assert busbw_factor(Collective.ALL_GATHER, 1) == 0


def test_a_barrier_has_no_bandwidth() -> None:
    assert math.isnan(busbw_factor(Collective.BARRIER, 8))
    assert math.isnan(busbw(Collective.BARRIER, 8, 0, 1e-5))
    assert real_size_bytes(Collective.BARRIER, 8, 0, 4) == 0


@pytest.mark.parametrize(
    ("name", "fitting"), [("hypercube", {1, 2, 4, 8}), ("send", {2, 4, 6, 8}), ("exchange", {2, 4, 6, 8})]
)
def test_collectives_in_pairs_and_powers_say_what_they_need(name: str, fitting: set[int]) -> None:
    assert {nranks for nranks in range(1, 9) if not misfit(Collective(name), nranks)} == fitting
    assert "ranks, since it" in misfit(Collective(name), 3)


@given(st.integers(2, 64), st.integers(2**16, 2**24), st.sampled_from([1, 2, 4, 8]), st.floats(1, 2))
def test_uneven_shares_fall_from_the_first_rank_which_gets_the_size(
    nranks: int, size_bytes: int, itemsize: int, skew: float
) -> None:
    shares = uneven_shares(nranks, size_bytes, itemsize, skew)
    assert shares[0] * itemsize * nranks == real_size_bytes(Collective.ALL_TO_ALL_V, nranks, size_bytes, itemsize)
    assert list(shares) == sorted(shares, reverse=True)
    assert all(share * itemsize % 16 == 0 for share in shares)
    # The largest share is skew times the mean, but for what is rounded down: 16 bytes a share.
    mean_bytes = sum(shares) * itemsize / nranks
    assert skew * mean_bytes <= shares[0] * itemsize <= skew * (mean_bytes + 16) + 1e-6
    assert len(set(uneven_shares(nranks, size_bytes, itemsize, 1.0))) == 1


def test_busbw_is_the_whole_size_by_time_by_the_factor() -> None:
    assert busbw(Collective.ALL_REDUCE, 8, 1_000_000, 0.001) == pytest.approx(1.75e9)
    assert busbw(Collective.ALL_GATHER, 8, 1_000_000, 0.001) == pytest.approx(0.875e9)


@pytest.mark.parametrize(
    ("collective", "nranks", "size_bytes", "itemsize", "elements", "moved"),
    [
        # A share is a multiple of 16 bytes; the whole buffer is whole elements only.
        (Collective.ALL_GATHER, 3, 1048576, 4, 87380, 1048560),
        (Collective.ALL_GATHER, 3, 1048576, 2, 174760, 1048560),
        (Collective.ALL_TO_ALL, 3, 100, 8, 4, 96),
        (Collective.SCATTER, 8, 127, 4, 0, 0),
        (Collective.SCATTER, 8, 128, 4, 4, 128),
        (Collective.REDUCE_SCATTER, 4, 4194304, 4, 262144, 4194304),
        (Collective.ALL_REDUCE, 3, 1048576, 4, 262144, 1048576),
        (Collective.BROADCAST, 3, 1023, 4, 255, 1020),
        (Collective.SEND_RECV, 3, 7, 2, 3, 6),
    ],
)
def test_sizes_are_rounded_as_in_nccl_tests(
    collective: Collective, nranks: int, size_bytes: int, itemsize: int, elements: int, moved: int
) -> None:
    assert buffer_elements(collective, nranks, size_bytes, itemsize) == elements
    assert real_size_bytes(collective, nranks, size_bytes, itemsize) == moved


@given(COLLECTIVES, st.integers(1, 64), st.integers(0, 2**30), st.sampled_from([2, 4, 8]))
def test_the_real_size_is_the_largest_that_divides(
    collective: Collective, nranks: int, size_bytes: int, itemsize: int
) -> None:
    granule = 16 * nranks if is_shared(collective) else itemsize
    moved = real_size_bytes(collective, nranks, size_bytes, itemsize)
    assert moved % granule == 0
    assert size_bytes - granule < moved <= size_bytes
    assert real_size_bytes(collective, nranks, moved, itemsize) == moved

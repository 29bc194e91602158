"""What counts as a right result, without any world: buffers are filled and changed by hand."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
import torch.distributed as dist

from spanfit.bench import operations
from spanfit.bench.operations import Seat
from spanfit.bench.prepared import Prepared
from spanfit.collectives import Collective

SEAT = Seat(group=cast(dist.ProcessGroup, None), ranks=(4, 9), me=0)
Make = Callable[[operations.Allocate], Prepared]
CASES: dict[str, tuple[Make, int, list[float]]] = {
    # How it is prepared, which of its buffers the result arrives in, and the right result.
    "all_reduce": (
        lambda take: operations._prepare_whole(Collective.ALL_REDUCE, SEAT, take(4), "sum"),
        0,
        [3, 3, 3, 3],
    ),
    "all_gather": (
        lambda take: operations._prepare_shared(Collective.ALL_GATHER, SEAT, take, 2, "none", in_place=False),
        0,
        [1, 1, 2, 2],
    ),
    "reduce_scatter": (
        lambda take: operations._prepare_shared(Collective.REDUCE_SCATTER, SEAT, take, 2, "product", in_place=False),
        1,
        [4, 4],
    ),
    "all_to_all_v": (
        lambda take: operations._prepare_all_to_all(SEAT, (2, 1), take, is_uneven=True),
        1,
        [1, 1, 3, 3],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_the_right_values_in_the_right_places_count(name: str) -> None:
    make, where, right = CASES[name]
    taken: list[torch.Tensor] = []

    def take(count: int) -> torch.Tensor:
        # What an earlier case left there is the right result: filling must wipe it out.
        taken.append(torch.full((count,), 7.0))
        return taken[-1]

    prepared = make(take)
    received = taken[where]
    received.copy_(torch.tensor(right))
    prepared.fill()
    assert not prepared.holds()
    received.copy_(torch.tensor(right))
    assert prepared.holds()
    for index in range(len(right)):
        received.copy_(torch.tensor(right))
        received[index] += 1
        assert not prepared.holds()

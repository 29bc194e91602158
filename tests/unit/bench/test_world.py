import math
from dataclasses import replace

from spanfit.bench.case import CaseKind
from spanfit.bench.lines import startup_parts
from spanfit.bench.overlap import part_names as overlap_parts
from spanfit.bench.world import Place, crowded, no_part, unorderable
from tests.unit.bench.test_case import CASE

PLACE = Place(host="n0", pid=1, machine="m", ncores=2, device="", init_s=0.1)


def test_more_ranks_than_cores_on_a_machine_are_told_whatever_its_hosts_are_called() -> None:
    assert crowded([PLACE, replace(PLACE, host="n1")]) == ""
    found = crowded([PLACE, replace(PLACE, host="n1"), replace(PLACE, host="n2")])
    assert found.startswith("3 ranks share 2 cores on n0, expected a core a rank")
    assert crowded([replace(PLACE, machine=name) for name in "aabbc"]) == ""


def test_ranks_with_a_gpu_need_no_core_of_their_own() -> None:
    assert crowded([replace(PLACE, device=str(index)) for index in range(8)]) == ""


def test_a_rank_that_takes_no_part_has_a_nan_for_every_repetition() -> None:
    parts = no_part(("a", "b"), 3)
    assert list(parts) == ["a", "b"]
    assert all(len(part) == 3 and all(map(math.isnan, part)) for part in parts.values())


def test_parts_are_named_by_the_collective() -> None:
    case = replace(CASE, kind=CaseKind.OVERLAP, operation="all_gather")
    assert startup_parts(case) == ("communicator", "first_all_gather", "second_all_gather")
    assert overlap_parts(case) == (
        "matmul_alone",
        "all_gather_alone",
        "matmul_beside_all_gather",
        "all_gather_beside_matmul",
    )


def test_a_torch_that_sorts_ranks_is_told_from_one_that_keeps_their_order() -> None:
    assert unorderable([(0, 1), (2, 5)], keeps_order=False) == ""
    assert "need torch 2.12 or newer" in unorderable([(0, 1), (5, 2)], keeps_order=False)
    assert unorderable([(5, 2)], keeps_order=True) == ""

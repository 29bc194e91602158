from dataclasses import replace

import numpy as np
import pytest

from spanfit.profiler.cases import CaseKey, case_times, with_failed_parts
from tests.unit.profiler.factory import MEASUREMENT, failed, framed

KEY = CaseKey(
    kind="collective",
    operation="all_reduce",
    arm="",
    compute="",
    dtype="float32",
    redop="sum",
    in_place=False,
    nranks=4,
    nnodes=4,
    tier="minipod",
    span=1,
    rank_order="sorted",
    concurrency="all",
    rail=-1,
    size_bytes=1 << 20,
)
STARTUP = replace(MEASUREMENT, kind="startup", dtype="", redop="none")
PARTS = [replace(STARTUP, operation=name) for name in ("communicator", "first_all_reduce")]


def test_nodes_draws_and_groups_are_one_case_whose_units_are_communicators() -> None:
    rows = [
        replace(MEASUREMENT, launch=launch, comm_id=f"{launch}.{block}", draw=draw, nodes=f"{draw},9", time_s=time_s)
        for launch, block, draw, time_s in [
            (0, 0, 0, 1.0),
            (0, 0, 1, 3.0),
            (0, 0, 2, 2.0),
            (0, 1, 0, 8.0),
            (2, 0, 0, 4.0),
        ]
    ]
    ((key, case),) = case_times(framed(rows)).items()
    assert key == KEY
    assert case.unit_logs == pytest.approx(np.log([2.0, 8.0, 4.0]))
    assert (case.launches, case.nlaunches) == ((0, 0, 2), 2)
    assert case.launch_means() == pytest.approx(np.log([4.0, 4.0]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("kind", "pairs"), ("operation", "reduce"), ("arm", "packed"), ("compute", "wait"), ("dtype", "int8")),
        *(("redop", "max"), ("in_place", True), ("nranks", 8), ("nnodes", 2), ("tier", "leaf"), ("span", 2)),
        *(("rank_order", "job"), ("concurrency", "alone"), ("rail", 1), ("size_bytes", 1 << 21)),
    ],
)
def test_what_was_measured_tells_cases_apart(field: str, value: object) -> None:
    other = replace(MEASUREMENT, **{field: value})  # type: ignore[arg-type]
    assert set(case_times(framed([MEASUREMENT, other]))) == {KEY, replace(KEY, **{field: value})}  # type: ignore[arg-type]
    assert replace(KEY, **{field: value}).label() != KEY.label() or field == "kind"  # type: ignore[arg-type]


def test_failed_rows_are_counted_with_their_reason_and_a_case_of_nothing_else_is_there() -> None:
    wide = replace(MEASUREMENT, span=2)
    cases = case_times(framed([MEASUREMENT, failed(MEASUREMENT), failed(wide, "no route"), failed(wide, "no route")]))
    assert (cases[KEY].nlaunches, cases[KEY].nfailed, cases[KEY].reason) == (1, 1, "rank 3 died")
    lost = cases[replace(KEY, span=2)]
    assert (lost.nlaunches, lost.nfailed, lost.reason, lost.time_s()) == (0, 2, "no route", None)


def test_a_failed_start_up_belongs_to_each_of_its_parts() -> None:
    cases = case_times(framed([*PARTS, failed(STARTUP)]))
    assert {key.operation: case.nfailed for key, case in cases.items()} == {"communicator": 1, "first_all_reduce": 1}


def test_a_start_up_that_only_failed_takes_the_names_of_the_parts_that_another_run_timed() -> None:
    lost, whole = case_times(framed([failed(STARTUP)])), case_times(framed(PARTS))
    assert {key.operation for key in lost} == {"all_reduce"}
    assert {key.operation for key in with_failed_parts(lost, whole)} == {"communicator", "first_all_reduce"}
    assert with_failed_parts(lost, lost) == lost
    assert with_failed_parts(whole, lost) == whole


def test_the_coarsest_print_of_a_case_is_its_resolution() -> None:
    rows = [replace(MEASUREMENT, time_s=16.0, time_resolution_s=0.5), replace(MEASUREMENT, time_s=10.0, launch=1)]
    assert case_times(framed(rows))[KEY].resolution == pytest.approx(0.5 / 16)

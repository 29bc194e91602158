from pathlib import Path
from typing import Any

import pytest

from spanfit.bench.case import CaseKind
from spanfit.bench.gpu_check import (
    plan_cases,
    render_cases,
    render_table,
    run_nccl_tests,
    unbatched,
    version_faults,
)
from spanfit.collectives import Collective


def line(operation: str, time_s: float, **more: Any) -> dict[str, Any]:
    case = {"operation": operation, "size_bytes": 8, "graph": False}
    return {"case": case, "status": "ok", "reason": "", "times_s": [[[time_s, time_s, 9.0]]], "batch": 1} | more


@pytest.mark.parametrize(
    ("python", "torch", "faults"),
    [
        ((3, 11), "2.6.0", []),
        ((3, 13), "2.13.0+cu130", []),
        ((3, 14), "3.0.1", ["Python 3.14; expected 3.11 to 3.13"]),
        ((3, 10), "2.5.1", ["Python 3.10; expected 3.11 to 3.13", "torch 2.5.1; expected 2.6 or newer"]),
    ],
)
def test_what_is_too_old_or_too_new_is_named(python: tuple[int, int], torch: str, faults: list[str]) -> None:
    assert version_faults(python, torch) == faults


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_every_collective_that_one_rank_can_do_is_checked(backend: str) -> None:
    cases = plan_cases(backend)
    measured = {case.operation for case in cases if case.kind is CaseKind.COLLECTIVE}
    without = {Collective.SEND, Collective.EXCHANGE} | ({Collective.SEND_RECV} if backend == "gloo" else set())
    assert measured == set(Collective) - without
    assert any(case.graph for case in cases) == (backend == "nccl")
    assert {case.groups for case in cases} == {((0,),)}
    assert len({case.case_id for case in cases}) == len(cases)


def test_a_case_is_a_row_with_its_median_and_its_batch_and_each_part_has_its_own() -> None:
    parts = {"matmul_alone": [[[1e-3] * 3]], "all_reduce_alone": [[[2e-3] * 3]]}
    failed = line("gather", 0.0, status="failed", reason="it broke", times_s=[])
    lines = [line("all_reduce", 5e-6, batch=20), line("all_reduce", 1.0, parts=parts), failed]
    assert render_cases(lines)[1:] == [
        ("all_reduce", "8", "5.0", "ok, 20 at once"),
        ("matmul_alone", "8", "1000.0", "ok"),
        ("all_reduce_alone", "8", "2000.0", "ok"),
        ("gather", "8", "nan", "failed: it broke"),
    ]
    assert render_table("T", [("a", "b"), ("long", "c")]) == "T\n  a     b\n  long  c\n"


def test_a_quick_operation_that_was_timed_alone_is_a_fault() -> None:
    quick, slow, batched = line("barrier", 4e-6), line("reduce", 4e-3), line("scatter", 4e-6, batch=25)
    assert unbatched([quick, slow, batched]) == ["barrier of 8 B was timed alone"]


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo '# Out of bounds values : 0 OK'", "ok"),
        ("echo '# Out of bounds values : 3 FAILED'", "failed"),
        ("echo 'all_reduce_perf: invalid option -- x'", "failed"),
        ("echo '# Out of bounds values : 0 OK'; exit 2", "failed"),
    ],
)
def test_nccl_tests_is_believed_by_its_verdict_and_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, verdict: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found, output = run_nccl_tests()
    assert found == verdict
    assert output


def test_without_nccl_tests_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_nccl_tests() == ("absent", "")

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.bench.case import (
    BenchCase,
    CaseKind,
    Concurrency,
    LaunchPlan,
    RankOrder,
    Visit,
    dump_launch,
    load_case,
    load_launch,
)
from spanfit.workload.job import StepJob, TrainingJob
from spanfit.workload.program import ComputeMode
from spanfit.workload.schedules import Schedule
from tests.unit.workload.factory import JOBS

STEP = StepJob(
    name="job",
    dp=2,
    pp=2,
    nmicrobatches=4,
    activation_bytes=1024,
    gradient_bytes=4096,
    forward_s=0.006,
    backward_s=0.012,
    schedule=Schedule.ONE_F_ONE_B,
    compute=ComputeMode.NONE,
)
CASE = BenchCase(
    kind=CaseKind.STEP,
    operation="job",
    size_bytes=4096,
    dtype="float32",
    redop="sum",
    in_place=False,
    tier="minipod",
    groups=((0, 1, 2, 3),),
    span=2,
    rank_order=RankOrder.JOB,
    concurrency=Concurrency.ALL,
    draw=0,
    arm="dp-aligned",
    warmup=1,
    repetitions=3,
    step=STEP,
)
# For every field, another value; the test below fails where a field is left out.
OTHER_CASE = {
    "kind": CaseKind.COLLECTIVE,
    "operation": "all_reduce",
    "size_bytes": 8192,
    "dtype": "float16",
    "redop": "max",
    "groups": ((0, 1), (2, 3)),
    "in_place": True,
    "tier": "leaf",
    "span": 1,
    "rank_order": RankOrder.ALTERNATING,
    "concurrency": Concurrency.ALONE,
    "draw": 1,
    "arm": "packed",
    "warmup": 2,
    "repetitions": 4,
    "skew": 1.5,
    "graph": True,
    "cta": 8,
    "matrix": 1024,
    "products": 10,
    "rail": 1,
    "step": None,
    "noise": (replace(STEP, name="noise"),),
}
OTHER_STEP = {
    "name": "other",
    "dp": 4,
    "pp": 4,
    "nmicrobatches": 8,
    "activation_bytes": 2048,
    "gradient_bytes": 8192,
    "forward_s": 0.0060000001,
    "backward_s": 0.013,
    "schedule": Schedule.GPIPE,
    "compute": ComputeMode.WAIT,
}


def variants() -> list[BenchCase]:
    cases = [replace(CASE, **{field: value}) for field, value in OTHER_CASE.items()]  # type: ignore[arg-type]
    cases += [replace(CASE, step=replace(STEP, **{field: value})) for field, value in OTHER_STEP.items()]  # type: ignore[arg-type]
    return [CASE, replace(CASE, groups=((0, 1, 3, 2),)), replace(CASE, groups=((0, 1, 2), (3,))), *cases]


def test_another_value_is_given_for_every_field() -> None:
    assert set(OTHER_CASE) == set(BenchCase.__slots__)
    assert set(OTHER_STEP) == set(StepJob.__slots__)


def test_the_case_id_differs_when_anything_differs() -> None:
    ids = [case.case_id for case in variants()]
    assert len(set(ids)) == len(ids)


def test_equal_cases_have_equal_ids_of_twelve_hexadecimal_digits() -> None:
    assert replace(CASE).case_id == CASE.case_id
    assert len(CASE.case_id) == 12
    assert int(CASE.case_id, 16) >= 0


@pytest.mark.parametrize("case", variants(), ids=lambda case: str(case.case_id))
def test_a_case_survives_its_launch_file(case: BenchCase) -> None:
    plan = LaunchPlan(
        run_id="demo-1",
        launch=3,
        attempt=1,
        backend="gloo",
        node_names=("n0", "n1", "n2", "n3"),
        ngpus_per_node=2,
        timeout_s=12.5,
        shard="/tmp/é shard.jsonl",
        visits=(Visit(position=0, block=0, case=case), Visit(position=1, block=1, case=CASE)),
    )
    loaded = load_launch(dump_launch(plan))
    assert loaded == plan
    assert [visit.case.case_id for visit in loaded.visits] == [case.case_id, CASE.case_id]
    assert isinstance(loaded.visits[1].case.kind, CaseKind)
    assert loaded.comm_id == "3.1"


@given(st.floats(0, 10), st.lists(st.lists(st.integers(0, 99), min_size=1), min_size=1))
def test_the_id_survives_json_for_any_time_and_groups(forward_s: float, groups: list[list[int]]) -> None:
    case = replace(CASE, step=replace(STEP, forward_s=forward_s), groups=tuple(map(tuple, groups)))
    plan = LaunchPlan(
        run_id="r",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(),
        ngpus_per_node=1,
        timeout_s=1.0,
        shard="s",
        visits=(Visit(position=0, block=0, case=case),),
    )
    document = json.loads(dump_launch(plan))
    assert load_case(document["visits"][0]["case"]).case_id == case.case_id


@given(JOBS)
def test_a_job_with_a_model_survives_its_launch_file(job: TrainingJob) -> None:
    case = replace(CASE, step=job)
    loaded = load_case(json.loads(json.dumps(asdict(case))))
    assert loaded == case
    assert loaded.case_id == case.case_id


def test_labels_say_what_is_measured() -> None:
    assert CASE.label() == "step of job, dp-aligned"
    collective = replace(CASE, kind=CaseKind.COLLECTIVE, operation="all_reduce", rank_order=RankOrder.SORTED, step=None)
    assert collective.label() == "all_reduce 4096 B over 2 minipods, sorted, all"
    assert replace(collective, span=1).label() == "all_reduce 4096 B over 1 minipod, sorted, all"
    overlap = replace(collective, kind=CaseKind.OVERLAP, span=1, matrix=512)
    assert overlap.label() == "all_reduce 4096 B beside products of 512 over 1 minipod, sorted, all"
    assert replace(collective, kind=CaseKind.STARTUP).label() == "start of a communicator of 4 nodes"

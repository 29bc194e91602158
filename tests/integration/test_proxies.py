"""Every strategy of training steps on real ranks, with tiny models: values, timers, overlap, and rows of a campaign."""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from spanfit.bench.case import BenchCase, CaseKind, Concurrency, RankOrder
from spanfit.results.shards import measurements, read_shard
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.program import Compute, ComputeMode
from spanfit.workload.schedules import Schedule
from spanfit.workload.strategies import plan_job
from spanfit.workload.traffic import gradient_bytes
from tests.integration.proxy_ranks import NRUNS
from tests.integration.test_world import free_port, run_here
from tests.unit.workload.factory import MODELS, job

INTERLEAVED: dict[str, Any] = {"virtual_stages": 2, "schedule": Schedule.INTERLEAVED}
EIGHT = {
    "dp-pp-tp": job(dp=2, pp=2, tp=2, microbatches=2, buckets=2),
    "dp-pp-ep": job(model="tiny-moe", dp=4, pp=2, ep=2, microbatches=2),
    "cp": job(model="tiny-moe", dp=2, pp=2, cp=2, microbatches=2, order="tp-cp-ep-pp-dp"),
}
FOUR: dict[str, Job] = {
    "dp": job(dp=4, buckets=4),
    "fsdp": job(dp=4, fsdp=2, buckets=4, microbatches=2),
    "dp-pp-gpipe": job(dp=2, pp=2, microbatches=4, buckets=2, schedule=Schedule.GPIPE),
    "dp-pp-1f1b": job(dp=2, pp=2, microbatches=4, schedule=Schedule.ONE_F_ONE_B),
    "dp-pp-interleaved": job(dp=2, pp=2, microbatches=4, **INTERLEAVED),
    "pp-4": job(pp=4, microbatches=4),
    "ep": job(model="tiny-moe", dp=2, pp=2, ep=2, microbatches=2),
    "volumes": StepJob(
        name="volumes",
        dp=2,
        pp=2,
        nmicrobatches=3,
        activation_bytes=1024,
        gradient_bytes=4096,
        forward_s=0.0,
        backward_s=0.0,
    ),
}


def run_ranks(folder: Path, jobs: list[Job], nranks: int) -> list[list[dict[str, Any]]]:
    """Return what each rank of a world said of each job."""
    (folder / "jobs.json").write_text(json.dumps([asdict(each) for each in jobs]))
    script = Path(__file__).with_name("proxy_ranks.py")
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(nranks)}
    settings |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(folder / "jobs.json"), str(folder)],
            env={**os.environ, **settings, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(nranks)
    ]
    talk = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * nranks, "\n".join(talk)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(nranks)]


def without_compute(each: Job) -> Job:
    return replace(each, compute=ComputeMode.NONE)


@pytest.mark.parametrize(("jobs", "nranks"), [(FOUR, 4), (EIGHT, 8)], ids=["4 ranks", "8 ranks"])
def test_every_strategy_moves_what_it_says_and_defect_1_times_it_on_every_rank(
    tmp_path: Path, jobs: dict[str, Job], nranks: int
) -> None:
    by_rank = run_ranks(tmp_path, [without_compute(each) for each in jobs.values()], nranks)
    for index, (name, described) in enumerate(jobs.items()):
        for found in (said[index] for said in by_rank):
            # Whole, and defect 2: with calls of few elements each.
            assert found["right"] == [True, True], name
            assert found["is_noticed"], f"{name}: buffers that nothing came to pass the check"
            expected = Counter(json.dumps(asdict(each.timer)) for each in plan_job(described, found["rank"]))
            counted = {json.dumps(timer): count for timer, count in found["entries"]}
            assert counted == {timer: NRUNS * count for timer, count in expected.items()}, name
            for waited_s, step_s in zip(found["communication_s"], found["seconds"], strict=True):
                assert 0 < waited_s <= step_s


def step_case(described: Job, nodes: tuple[int, ...], repetitions: int = 2) -> BenchCase:
    return BenchCase(
        kind=CaseKind.STEP,
        operation=described.name,
        size_bytes=gradient_bytes(described),
        dtype="float32",
        redop="sum",
        in_place=True,
        tier="minipod",
        groups=(nodes,),
        span=1,
        rank_order=RankOrder.JOB,
        concurrency=Concurrency.ALL,
        draw=0,
        arm="packed",
        warmup=1,
        repetitions=repetitions,
        step=described,
    )


def waiting(described: TrainingJob, flops_per_s: float) -> TrainingJob:
    return replace(described, compute=ComputeMode.WAIT, flops_per_s=flops_per_s)


def test_steps_give_rows_of_time_and_of_communication_over_the_ranks_of_the_job(tmp_path: Path) -> None:
    tp = waiting(job(pp=2, tp=2, microbatches=2), 1e10)
    failure, (line,) = run_here(tmp_path, [step_case(tp, (1, 0))], socket.gethostname(), 4, ngpus_per_node=2)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert (line["status"], line["reason"]) == ("ok", "")
    assert line["ranks"] == [[2, 3, 0, 1]]
    shares = line["communication_share"]
    assert isinstance(shares, list)
    assert all(0 < share <= 1 for share in shares)
    shard = read_shard(tmp_path / "shard.jsonl")
    rows = list(measurements("r", [shard], 2, {"minipod": ["m", "m"]}))
    assert [row.operation for row in rows] == ["job", "job", "job/communication", "job/communication"]
    assert {(row.kind, row.compute, row.nranks, row.nodes) for row in rows} == {("step", "wait", 4, "1,0")}
    steps, waits = rows[:2], rows[2:]
    assert all(0 < wait.time_s <= step.time_s for step, wait in zip(steps, waits, strict=True))


def test_jobs_beside_a_step_run_until_it_is_timed_and_no_rank_is_left_behind(tmp_path: Path) -> None:
    """Two jobs of unlike speed beside a step of two ranks, then the step alone: each job's ranks end together."""
    volumes = FOUR["volumes"]
    assert isinstance(volumes, StepJob)
    step = step_case(replace(volumes, pp=1, forward_s=0.02), (1, 0), repetitions=4)
    quick = replace(volumes, name="quick", pp=1, nmicrobatches=1)
    slow = replace(quick, name="slow", dp=1, pp=2, forward_s=0.03)
    noisy = replace(step, groups=((1, 0), (2, 3), (4, 5)), noise=(quick, slow))
    failure, lines = run_here(tmp_path, [noisy, step], socket.gethostname(), 6, ngpus_per_node=1)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert [(line["status"], line["ranks"]) for line in lines] == [("ok", [[1, 0]])] * 2
    nsteps = lines[0]["noise_steps"]
    assert isinstance(nsteps, list)
    assert nsteps[0] > nsteps[1] > 1, "of the quick job, and of the slow one"
    assert "noise_steps" not in lines[1]
    rows = list(measurements("r", [read_shard(tmp_path / "shard.jsonl")], 1, {"minipod": ["m"] * 6}))
    assert {row.nodes for row in rows} == {"1,0"}


def test_jobs_beside_a_step_run_until_its_last_repetition_ends(tmp_path: Path) -> None:
    volumes = FOUR["volumes"]
    assert isinstance(volumes, StepJob)
    second = replace(volumes, pp=1, nmicrobatches=1, forward_s=1.0)
    noise = replace(second, name="noise", forward_s=0.05)
    case = replace(step_case(second, (0, 1), repetitions=1), groups=((0, 1), (2, 3)), noise=(noise,))
    failure, (line,) = run_here(tmp_path, [case], socket.gethostname(), 4, ngpus_per_node=1)
    assert failure is None, Path(failure.log).read_text() if failure else ""
    # 40 beside its warm-up of a second and the second that is timed; 20 if it stopped when that began.
    nsteps = line["noise_steps"]
    assert isinstance(nsteps, list) and 25 < nsteps[0] <= 42


def test_defect_7_products_need_cores_and_the_mode_is_in_the_row(tmp_path: Path) -> None:
    nranks = len(os.sched_getaffinity(0)) + 1
    products = job(dp=nranks)
    failure, (line,) = run_here(
        tmp_path, [step_case(products, tuple(range(nranks)))], socket.gethostname(), nranks, ngpus_per_node=1
    )
    assert failure is None, Path(failure.log).read_text() if failure else ""
    assert line["status"] == "failed"
    assert f"{nranks} ranks share {nranks - 1} cores" in str(line["reason"])
    (row,) = measurements("r", [read_shard(tmp_path / "shard.jsonl")], 1, {"minipod": ["m"] * nranks})
    assert (row.operation, row.compute, row.status) == ("job", "products", "failed")


def test_defect_7_overlap_is_real_and_differs_between_a_wait_and_products(tmp_path: Path) -> None:
    """Two ranks reduce 26 MB in eight buckets beside compute: a wait leaves cores to gloo, products take them."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("products need a core a rank")
    model = replace(MODELS["tiny"], hidden=256, mlp=1024, head_width=64)
    base = replace(job(dp=2, buckets=8, dtype=Dtype.FLOAT32), model=model)
    none = replace(base, name="none", compute=ComputeMode.NONE)
    cases = [step_case(each, (0, 1), repetitions=5) for each in (none, replace(base, name="products"))]
    _, (alone, beside_products) = run_here(tmp_path, cases, socket.gethostname(), 2, ngpus_per_node=1)
    compute_s = 3 * _median(alone["times_s"])
    flops = sum(each.flops for each in plan_job(base, 0) if isinstance(each, Compute))
    (tmp_path / "wait").mkdir()
    case = step_case(waiting(replace(base, name="wait"), flops / compute_s), (0, 1), repetitions=5)
    _, (beside_wait,) = run_here(tmp_path / "wait", [case], socket.gethostname(), 2, ngpus_per_node=1)
    # One after the other they would take 4/3 of the compute.
    assert compute_s <= _median(beside_wait["times_s"]) < 1.25 * compute_s
    assert waited_s(beside_wait) < 0.5 * waited_s(alone)
    assert waited_s(beside_wait) < waited_s(beside_products)
    lines = (alone, beside_wait, beside_products)
    assert [line["case"]["step"]["compute"] for line in lines] == ["none", "wait", "products"]  # type: ignore[index]


def waited_s(line: dict[str, Any]) -> float:
    return _median([times for name, times in line["parts"].items() if name.endswith("/communication")])


def _median(nested: object) -> float:
    while isinstance(nested, list) and isinstance(nested[0], list):
        nested = [value for inner in nested for value in inner]
    assert isinstance(nested, list)
    return float(sorted(nested)[len(nested) // 2])

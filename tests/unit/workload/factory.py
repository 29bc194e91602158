"""Training jobs that are small enough to look at every rank."""

from dataclasses import replace
from itertools import permutations

from hypothesis import strategies as st

from spanfit.bench.job_file import read_models
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.program import Collect, Operation, Program, Receive, Send
from spanfit.workload.schedules import Schedule
from spanfit.workload.script import Script
from spanfit.workload.strategies import plan_step

MODELS = read_models()
ORDERS = ["-".join(axes) for axes in permutations(("tp", "cp", "ep", "dp", "pp"))]


def job(
    *,
    model: str = "tiny",
    dp: int = 1,
    pp: int = 1,
    tp: int = 1,
    cp: int = 1,
    ep: int = 1,
    order: str = ORDERS[0],
    microbatches: int = 1,
    microbatch: int = 1,
    fsdp: int = 1,
    buckets: int = 1,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    virtual_stages: int = 1,
    dtype: Dtype = Dtype.BFLOAT16,
    gradient_dtype: Dtype = Dtype.FLOAT32,
) -> TrainingJob:
    return TrainingJob(
        name="job",
        model=MODELS[model],
        layout=ParallelLayout(dp=dp, pp=pp, tp=tp, cp=cp, ep=ep, order=order),
        global_batch=microbatches * microbatch * dp,
        microbatch=microbatch,
        fsdp=fsdp,
        dtype=dtype,
        gradient_dtype=gradient_dtype,
        schedule=schedule,
        virtual_stages=virtual_stages,
        buckets=buckets,
    )


def programs(job: TrainingJob) -> list[Program]:
    return [plan_step(job, rank) for rank in range(job.layout.nranks)]


def program_of(script: Script, rank: int) -> Program:
    """Return what a rank does, in names of its own."""

    def named(operation: Operation) -> Operation:
        if isinstance(operation, Send | Receive):
            return replace(operation, peer=script.peer(rank, operation.peer))
        if isinstance(operation, Collect):
            return replace(operation, group=script.group(rank, operation.axis))
        return operation

    return tuple(map(named, script.programs[script.stage(rank)]))


DEGREES = st.sampled_from([1, 2])
PIPELINES = st.one_of(
    st.fixed_dictionaries(
        {"pp": st.integers(1, 3), "schedule": st.sampled_from([Schedule.GPIPE, Schedule.ONE_F_ONE_B])}
    ),
    st.just({"pp": 2, "virtual_stages": 2, "schedule": Schedule.INTERLEAVED}),
)
HYBRIDS = st.builds(
    lambda pipeline, rounds, **rest: job(**pipeline, microbatches=rounds * pipeline["pp"], **rest),
    PIPELINES,
    st.integers(1, 3),
    model=st.sampled_from(["tiny", "tiny-moe"]),
    dp=st.integers(1, 3),
    tp=DEGREES,
    cp=DEGREES,
    microbatch=DEGREES,
    buckets=st.integers(1, 3),
    order=st.sampled_from(ORDERS),
    dtype=st.sampled_from(Dtype),
)
EXPERTS = st.builds(
    lambda pipeline, rounds, **rest: job(model="tiny-moe", **pipeline, microbatches=rounds * pipeline["pp"], **rest),
    PIPELINES,
    st.integers(1, 2),
    dp=st.sampled_from([2, 4]),
    ep=st.just(2),
    tp=DEGREES,
    cp=DEGREES,
    buckets=st.integers(1, 3),
    order=st.sampled_from(ORDERS),
)
SHARDED = st.builds(
    job,
    model=st.sampled_from(["tiny", "tiny-moe"]),
    dp=st.sampled_from([2, 4, 6]),
    fsdp=st.just(2),
    tp=DEGREES,
    cp=DEGREES,
    microbatches=st.integers(1, 3),
    buckets=st.integers(1, 5),
    order=st.sampled_from(ORDERS),
)
JOBS = st.one_of(HYBRIDS, EXPERTS, SHARDED)
"""Jobs of every strategy: degrees, orders, schedules, uneven layers over stages."""

"""Timing a training step in one placement: prepared, checked on small values, warmed up, then run with a clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spanfit.bench.case import COMMUNICATION, BenchCase
from spanfit.bench.heartbeat import Phase
from spanfit.bench.lines import world_ranks
from spanfit.bench.prepared import Prepared
from spanfit.bench.proxies.channels import Channels
from spanfit.bench.proxies.compute import Computer
from spanfit.bench.proxies.execution import Execution, Pool, miniature, whole_step
from spanfit.bench.proxies.noise import fewest_steps, running_noise, silent_jobs
from spanfit.bench.proxies.timers import Timers
from spanfit.bench.timing import Run, ended, time_on_cpu, time_on_gpu
from spanfit.bench.warmup import warm_up
from spanfit.bench.world import Outcome, Place, World, crowded, no_part
from spanfit.workload.job import Job, TrainingJob
from spanfit.workload.program import ComputeMode
from spanfit.workload.strategies import plan_job


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a rank does in a step; there are no ``timers`` where torch trains the model itself."""

    checked: Prepared | Execution
    run: Run
    timers: Timers | None = None


def measure_step(world: World, case: BenchCase, places: Sequence[Place]) -> Outcome:
    """Return the seconds of a training step on this rank; every rank of the world calls this.

    On CPUs a machine that has fewer cores than ranks is refused where compute is products. A model that torch trains
    is not, since it may compute little.
    """
    job = case.step
    assert job is not None
    if fault := crowded(places) if job.compute is ComputeMode.PRODUCTS else "":
        return Outcome(is_right=True, parts=no_part((case.operation,), case.repetitions), fault=fault)
    part = _prepare(world, case, job)
    run: Run = part.run if part else lambda: None
    world.barrier()
    world.beat(Phase.CHECK)
    is_right = _is_right(part.checked) if part else True
    # A rank that only waits at the barriers must not wait for its GPU, which may be busy with the noise.
    clock = time_on_gpu if part and world.device.type == "cuda" else time_on_cpu
    with running_noise(world, case) as nsteps:
        world.beat(Phase.WARMUP)
        warmed = warm_up([ended(run, world.device) if part else run], world.barrier, world.slowest, case.warmup)
        world.beat(Phase.TIMED)
        times_s = clock((run,), world.barrier, case.repetitions)
        # The noise lasts until the last repetition has ended on every rank.
        world.barrier()
    notes: dict[str, Any] = {"warmup": warmed.iterations, "is_warm": warmed.is_stable, "batch": 1}
    fault = ""
    if case.noise:
        notes["noise_steps"] = fewest_steps(world, nsteps)
        fault = silent_jobs(case, notes["noise_steps"])
    parts = {case.operation: times_s}
    if job.compute is not ComputeMode.TORCH:
        waited_s = part.timers.communication_s(case.repetitions) if part and part.timers else []
        shares = [waited / time_s for waited, time_s in zip(waited_s, times_s, strict=False)]
        notes["communication_share"] = world.slowest(shares or [0.0] * case.repetitions)
        parts[case.operation + COMMUNICATION] = waited_s
    timed = parts if part else no_part(tuple(parts), case.repetitions)
    return Outcome(is_right=is_right, parts=timed, notes=notes, fault=fault)


def _prepare(world: World, case: BenchCase, job: Job) -> _Part | None:
    """Return this rank's part, None where it has none; every rank helps to make the communicators."""
    mine = None
    for ranks in world_ranks(case, world.plan.ngpus_per_node):
        if isinstance(job, TrainingJob) and job.compute is ComputeMode.TORCH:
            part = _train(world, job, ranks)
        else:
            part = _execute(world, job, ranks, case.cta)
        mine = part or mine
    return mine


def _execute(world: World, job: Job, ranks: tuple[int, ...], cta: int) -> _Part | None:
    channels = Channels(world, job, ranks, cta)
    if world.rank not in ranks:
        return None
    rank, device = ranks.index(world.rank), world.device
    program = plan_job(job, rank)
    nothing = Computer(ComputeMode.NONE, program, torch.float32, device)
    checked = Execution(miniature(program), rank, channels, nothing, Pool(device, is_kept=True))
    timers = Timers(program)
    return _Part(checked=checked, run=whole_step(job, program, rank, channels, device, timers).run, timers=timers)


def _train(world: World, job: TrainingJob, ranks: tuple[int, ...]) -> _Part | None:
    # What trains models takes long to import, and few campaigns do.
    from spanfit.bench.training.parallel import prepare_training

    layout = job.layout
    cells = tuple(ranks[layout.rank(dp=row, pp=stage)] for row in range(layout.dp) for stage in range(layout.pp))
    prepared = prepare_training(job, cells, world)
    return _Part(checked=prepared, run=prepared.run) if prepared else None


def _is_right(checked: Prepared | Execution) -> bool:
    checked.fill()
    checked.run()
    return checked.holds()

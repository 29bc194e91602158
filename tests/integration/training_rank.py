"""A rank that trains every kind of job once and says what it found: started by test_training, not a test.

Run as ``python -m tests.integration.training_rank LAUNCH.json FOLDER``.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from spanfit.bench.case import load_launch
from spanfit.bench.training.parallel import prepare_training
from spanfit.bench.training.shapes import model_for
from spanfit.bench.world import World
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import MEGATRON_PP_FIRST, ParallelLayout
from spanfit.workload.schedules import Schedule

CELLS = (2, 0, 3, 1)
_OPERATIONS = {
    "send": "send",
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
}


def job(
    *,
    dp: int,
    pp: int,
    schedule: Schedule = Schedule.GPIPE,
    virtual_stages: int = 1,
    fsdp: int = 1,
    buckets: int = 1,
    dtype: Dtype = Dtype.FLOAT32,
) -> TrainingJob:
    nstages = max(2, pp * virtual_stages)
    model = model_for("m", nstages=nstages, activation_bytes=1 << 13, gradient_bytes=1 << 16, dtype=dtype)
    # FSDP2 pads the rows of each matrix to a multiple of its shares: here they are one.
    model = replace(model, mlp=-(-model.mlp // fsdp) * fsdp)
    return TrainingJob(
        name="job",
        model=model,
        layout=ParallelLayout(dp=dp, pp=pp, order=MEGATRON_PP_FIRST),
        global_batch=4 * dp,
        schedule=schedule,
        virtual_stages=virtual_stages,
        fsdp=fsdp,
        buckets=buckets,
        dtype=dtype,
        gradient_dtype=dtype,
    )


JOBS = {
    "ddp": job(dp=4, pp=1),
    "ddp in buckets": job(dp=4, pp=1, buckets=2),
    "fsdp": job(dp=4, pp=1, fsdp=4, buckets=2),
    "fsdp of replicas": job(dp=4, pp=1, fsdp=2, buckets=2),
    "gpipe": job(dp=1, pp=4),
    "1f1b": job(dp=1, pp=4, schedule=Schedule.ONE_F_ONE_B),
    "interleaved": job(dp=1, pp=4, schedule=Schedule.INTERLEAVED, virtual_stages=2),
    "dp + gpipe": job(dp=2, pp=2),
    "dp + 1f1b": job(dp=2, pp=2, schedule=Schedule.ONE_F_ONE_B),
    "dp + interleaved": job(dp=2, pp=2, schedule=Schedule.INTERLEAVED, virtual_stages=2),
    "bfloat16": job(dp=2, pp=2, dtype=Dtype.BFLOAT16),
    "two ranks of the world": job(dp=2, pp=1),
}


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each operation that is given to a communicator, with the bytes of its buffer (S of nccl-tests)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("c10d::")
        if name in _OPERATIONS:
            self.found.append((_OPERATIONS[name], sum(map(_size, _tensors(args[:2])))))
        return func(*args, **(kwargs or {}))


def _tensors(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors of the largest of an operation's arguments: inputs, or outputs where they are more."""
    lists = [each if isinstance(each, list) else [each] for each in arguments]
    tensors = [[each for each in one if isinstance(each, torch.Tensor)] for one in lists]
    return max(tensors, key=lambda one: sum(map(_size, one)))


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def findings(world: World) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in JOBS.items():
        prepared = prepare_training(each, CELLS[: each.layout.nranks], world)
        if prepared is None:
            yield name, {}
            continue
        is_right = prepared.is_right()
        with Calls() as calls:
            prepared.run()
        yield name, {"is_right": is_right, "calls": sorted(calls.found)}


def main() -> None:
    torch.set_num_threads(1)
    world = World(load_launch(Path(sys.argv[1]).read_text()))
    found = dict(findings(world))
    (Path(sys.argv[2]) / f"rank-{world.rank}.json").write_text(json.dumps(found))
    world.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

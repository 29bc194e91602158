"""A rank that runs steps of jobs, started by ``test_proxies``: says what its executions held and its timers counted."""

import json
import os
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import torch

from spanfit.bench.case import LaunchPlan
from spanfit.bench.proxies.channels import Channels
from spanfit.bench.proxies.compute import Computer
from spanfit.bench.proxies.execution import Execution, Pool, miniature, whole_step
from spanfit.bench.proxies.timers import Timers
from spanfit.bench.world import World
from spanfit.workload.job import load_job
from spanfit.workload.program import Collect, ComputeMode, Receive
from spanfit.workload.strategies import plan_job

NRUNS = 2
FEW_AT_ONCE = 3
"""Elements of a call where everything is split."""


def main(jobs_file: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    nranks = int(os.environ["WORLD_SIZE"])
    plan = LaunchPlan(
        run_id="here",
        launch=0,
        attempt=0,
        backend="gloo",
        node_names=(socket.gethostname(),) * nranks,
        ngpus_per_node=1,
        timeout_s=60.0,
        shard="",
        visits=(),
    )
    world = World(plan)
    found = []
    for document in json.loads(jobs_file.read_text()):
        job = load_job(document)
        # The last rank of the world is the first of the job, so that neither is taken for the other.
        ranks = tuple(reversed(range(nranks)))[: job.layout.nranks]
        channels = Channels(world, job, ranks)
        if world.rank not in ranks:
            continue
        rank = ranks.index(world.rank)
        program, device = plan_job(job, rank), torch.device("cpu")
        idle = Computer(ComputeMode.NONE, program, torch.float32, device)
        right, is_noticed = [], False
        for limit in (1 << 20, FEW_AT_ONCE):
            checked = Execution(miniature(program), rank, channels, idle, Pool(device, is_kept=True), limit)
            checked.fill()
            checked.run()
            right.append(checked.holds())
            checked.fill()
            is_noticed = not checked.holds()
        timers = Timers(program)
        timed = whole_step(job, program, rank, channels, device, timers)
        seconds = []
        for _ in range(NRUNS):
            world.barrier() if len(ranks) == nranks else None
            start = perf_counter()
            timed.run()
            seconds.append(perf_counter() - start)
        entries = [(asdict(timer), len(times)) for timer, times in timers.entries().items()]
        found.append(
            {
                "rank": rank,
                "right": right,
                "is_noticed": is_noticed or not any(isinstance(each, Receive | Collect) for each in program),
                "entries": entries,
                "seconds": seconds,
                "communication_s": timers.communication_s(NRUNS),
            }
        )
    (folder / f"rank-{world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

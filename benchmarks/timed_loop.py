"""What the timed loop adds to a collective: against a bare torch.distributed loop, and against PARAM's comms.py.

Two ranks on loopback, gloo, all_reduce from 8 B to 4 MiB. First in one process group, on the same buffers in the same
rotation: rounds of spanfit's loop and of a bare loop in random order, and of the bare loop again: what two equal loops
differ by (noise_max) is what a ratio can be trusted to. Then launch by launch, spanfit and PARAM
(facebookresearch/param, a checkout named by ``--param`` or SPANFIT_PARAM) in random order, one buffer set each as PARAM
has it, and as many iterations. PARAM runs them in one communicator, size after size; spanfit as a campaign does, in
blocks that shuffle the sizes and make the communicator anew. PARAM reports the median over ranks of each rank's mean,
spanfit the geometric mean over communicators of the median over repetitions of the slowest rank; both readings of
spanfit's samples are compared with it, and how far launches lie apart by each: where an operation has a fast and a slow
mode, a median falls on one of them and a mean between. A launch of PARAM that dies is told and made again.

Example: benchmarks/timed_loop.py --quick --param ../param
"""

import argparse
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean, geometric_mean, median, stdev
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from spanfit import units
from spanfit.bench.buffers import Arena
from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch, load_launch
from spanfit.bench.operations import Allocate, prepare
from spanfit.bench.prepared import Prepared
from spanfit.bench.timing import time_on_cpu
from spanfit.bench.worker import measure
from spanfit.bench.world import World
from spanfit.collectives import Collective

NRANKS = 2
SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20)
SMALL = 64 << 10
"""Up to this size a round and a launch have more repetitions."""
RESULT = re.compile(r"COMMS-RES-all_reduce-float32\s+(\d+)\s+\d+\s+([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured: rounds and repetitions of the loop; launches, their blocks and repetitions beside PARAM."""

    rounds: int
    repetitions: int
    launches: int
    blocks: int
    iterations: int


QUICK = Effort(rounds=30, repetitions=3, launches=2, blocks=2, iterations=10)
FULL = Effort(rounds=400, repetitions=5, launches=10, blocks=10, iterations=10)


def all_reduce_case(size_bytes: int, repetitions: int) -> BenchCase:
    """Return the case as a campaign would plan it."""
    return BenchCase(
        kind=CaseKind.COLLECTIVE,
        operation=Collective.ALL_REDUCE,
        size_bytes=size_bytes,
        dtype="float32",
        redop="sum",
        in_place=False,
        groups=(tuple(range(NRANKS)),),
        tier="minipod",
        span=1,
        rank_order=RankOrder.SORTED,
        concurrency=Concurrency.ALONE,
        draw=0,
        arm="",
        warmup=20,
        repetitions=repetitions,
    )


def launch_plan(folder: Path, cases: Sequence[BenchCase], seed: int, blocks: int) -> LaunchPlan:
    """Return the plan of a world of two ranks on this machine, with the cases in random order in each block."""
    rng = random.Random(seed)
    order = [(block, case) for block in range(blocks) for case in rng.sample(cases, len(cases))]
    return LaunchPlan(
        run_id="timed_loop",
        launch=seed,
        attempt=0,
        backend="gloo",
        node_names=(socket.gethostname(),) * NRANKS,
        ngpus_per_node=1,
        timeout_s=120.0,
        shard=str(folder / "result.json"),
        visits=tuple(Visit(position=index, block=block, case=case) for index, (block, case) in enumerate(order)),
    )


# What the ranks do.


def bare_loop(
    buffers: Sequence[torch.Tensor], group: dist.ProcessGroup, control: dist.ProcessGroup, repetitions: int
) -> list[float]:
    """Return the seconds of each repetition of the loop that anyone would write."""
    times_s = []
    for turn in range(repetitions):
        buffer = buffers[turn % len(buffers)]
        dist.barrier(group=control)
        start = perf_counter()
        dist.all_reduce(buffer, group=group)
        times_s.append(perf_counter() - start)
    return times_s


def run_rounds(world: World, effort: Effort) -> list[dict[str, Any]]:
    """Return for each size and round the seconds of the slowest rank in each repetition of both loops."""
    rng = random.Random(world.plan.launch)
    rows = []
    for visit in world.plan.visits:
        ranks = tuple(range(NRANKS))
        group = world.group(ranks)
        buffers: list[torch.Tensor] = []
        ring = world.arena.ring(partial(_recorded, world, visit.case, group, ranks, buffers), torch.float32)
        assert ring.is_right()
        bare = partial(bare_loop, buffers, group, world.control)
        ours = partial(time_on_cpu, ring.runs, world.barrier)
        loops: dict[str, Callable[[int], list[float]]] = {"ours": ours, "bare": bare, "again": bare}
        repetitions = effort.repetitions * (4 if visit.case.size_bytes <= SMALL else 1)
        for turn in range(-2, effort.rounds):
            order = rng.sample(sorted(loops), len(loops))
            times_s = {name: world.slowest(loops[name](repetitions)) for name in order}
            if turn >= 0:
                rows.append({"size_bytes": visit.case.size_bytes, **times_s})
    return rows


def _recorded(
    world: World,
    case: BenchCase,
    group: dist.ProcessGroup,
    ranks: tuple[int, ...],
    buffers: list[torch.Tensor],
    allocate: Allocate,
) -> Prepared:
    """Return the operation as the worker prepares it, noting the buffers that it really gets."""

    def take(count: int) -> torch.Tensor:
        buffer = allocate(count)
        if buffer.device.type != "meta":
            buffers.append(buffer)
        return buffer

    return prepare(Collective.ALL_REDUCE, group, ranks, case.size_bytes, torch.float32, world.device, allocate=take)


def run_cases(world: World) -> list[dict[str, Any]]:
    """Return for each visit the seconds by rank and repetition, measured as a campaign does on one buffer set."""
    world.arena = Arena(world.device, 0)
    places = world.check_places()
    rows = []
    for _, visits in groupby(world.plan.visits, key=lambda visit: visit.block):
        for visit in visits:
            (times_s,) = measure(world, visit.case, places).parts.values()
            everyone: list[list[float]] = [[] for _ in range(NRANKS)]
            dist.all_gather_object(everyone, times_s, group=world.control)
            rows.append({"size_bytes": visit.case.size_bytes, "times_s": everyone})
        world.make_anew()
    return rows


def rank_main(plan_file: Path, effort: Effort | None) -> None:
    """Run one rank and let rank 0 write what was found."""
    torch.set_num_threads(1)
    world = World(load_launch(plan_file.read_text(encoding="utf-8")))
    rows = run_rounds(world, effort) if effort else run_cases(world)
    if world.rank == 0:
        Path(world.plan.shard).write_text(json.dumps(rows), encoding="utf-8")
    world.barrier()
    dist.destroy_process_group()


# What the parent does.


def start_ranks(argv: Sequence[str], folder: Path, environment: dict[str, str]) -> list[str]:
    """Run two ranks to their end and return what each printed; CalledProcessError where one fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(NRANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [*argv, *(["--master-port", port] if "--master-ip" in argv else [])],
            cwd=folder,
            env=os.environ
            | common
            | {"OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank)}
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(NRANKS)
    ]
    texts = [rank.communicate(timeout=1800)[0] for rank in ranks]
    for rank, text in zip(ranks, texts, strict=True):
        if rank.returncode:
            raise subprocess.CalledProcessError(rank.returncode, rank.args, output=text)
    return texts


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for a launch."""
    with tempfile.TemporaryDirectory(prefix="timed-loop-") as name:
        yield Path(name)


def launch_ours(cases: Sequence[BenchCase], seed: int, blocks: int, flags: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of one launch of this script's ranks."""
    with scratch() as folder:
        plan = launch_plan(folder, cases, seed, blocks)
        (folder / "plan.json").write_text(dump_launch(plan), encoding="utf-8")
        start_ranks([sys.executable, __file__, "--rank", str(folder / "plan.json"), *flags], folder, {})
        rows: list[dict[str, Any]] = json.loads(Path(plan.shard).read_text(encoding="utf-8"))
        return rows


def launch_param(checkout: Path, iterations: int, console: Console) -> dict[int, float]:
    """Return for each size what one launch of PARAM calls its p50 [s]; one that dies is made again, at most twice."""
    for _ in range(2):
        try:
            return run_param(checkout, iterations)
        except subprocess.CalledProcessError as error:
            console.print(f"PARAM died with exit code {error.returncode}; launched again")
    return run_param(checkout, iterations)


def run_param(checkout: Path, iterations: int) -> dict[int, float]:
    """Run PARAM once and return for each size what it calls its p50 [s]."""
    with scratch() as folder:
        (folder / "param_bench").symlink_to(checkout.resolve())
        options = f"--n {iterations} --w 20 --z 1 --collective all_reduce --backend gloo --device cpu --log ERROR"
        script = "param_bench/train/comms/pt/comms.py"
        sizes = ["--ss", ",".join(map(str, SIZES))]
        argv = [sys.executable, script, "--master-ip", "127.0.0.1", *options.split(), *sizes]
        text = start_ranks(argv, folder, {"PYTHONPATH": str(folder)})[0]
        return {int(size): float(time_us) / 1e6 for size, time_us in RESULT.findall(text)}


def geometric(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios with its 95% interval (Student's t on logs)."""
    from spanfit.profiler.statistics import interval

    found = interval([math.log(ratio) for ratio in ratios])
    low, high = found.ci_low, found.ci_high
    bounds = (low, high) if low is not None and high is not None else (-math.inf, math.inf)
    return math.exp(found.value), math.exp(bounds[0]), math.exp(bounds[1])


def spread(values: Sequence[float]) -> float:
    """Return how far launches lie apart, as a factor: exp of the standard deviation of logs."""
    return math.exp(stdev(math.log(value) for value in values)) if len(values) > 1 else 1.0


def compare_bare(effort: Effort, seed: int, console: Console) -> dict[str, float]:
    """Print and return the worst p50 of spanfit's loop, and of the bare loop again, over the bare loop's."""
    flags = ["--rounds", str(effort.rounds), "--repetitions", str(effort.repetitions)]
    rows = launch_ours([all_reduce_case(size, 1) for size in SIZES], seed, 1, flags)
    table = Table("size", "rounds", "bare p50", "ours p50", "ours / bare", "by rounds (95%)", "bare / bare")
    figures = {"ratio_max": 0.0, "noise_max": 0.0}
    for size in SIZES:
        own = [row for row in rows if row["size_bytes"] == size]
        p50 = {name: median(time_s for row in own for time_s in row[name]) for name in ("bare", "ours", "again")}
        mean, low, high = geometric([median(row["ours"]) / median(row["bare"]) for row in own])
        ratio, noise = p50["ours"] / p50["bare"], p50["again"] / p50["bare"]
        figures = {
            "ratio_max": max(figures["ratio_max"], ratio),
            "noise_max": max(figures["noise_max"], noise, 1 / noise),
        }
        times = [units.format_time(p50[name]) for name in ("bare", "ours")]
        interval = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        table.add_row(units.format_size(size), str(len(own)), *times, f"{ratio:.3f}", interval, f"{noise:.3f}")
    console.print(table)
    return figures


def compare_param(checkout: Path, effort: Effort, seed: int, console: Console) -> dict[str, float]:
    """Print and return how spanfit compares with PARAM, launch beside launch."""
    rng = random.Random(seed)
    ours: dict[int, list[float]] = {size: [] for size in SIZES}
    ours_mean: dict[int, list[float]] = {size: [] for size in SIZES}
    param: dict[int, list[float]] = {size: [] for size in SIZES}
    cases = [all_reduce_case(size, effort.iterations) for size in SIZES]
    for launch in range(effort.launches):
        for who in rng.sample(["ours", "param"], 2):
            if who == "param":
                for size, time_s in launch_param(checkout, effort.blocks * effort.iterations, console).items():
                    param[size].append(time_s)
                continue
            rows = launch_ours(cases, seed + launch, effort.blocks, [])
            for size in SIZES:
                units_s = [row["times_s"] for row in rows if row["size_bytes"] == size]
                ours[size].append(geometric_mean(median(map(max, zip(*by_rank, strict=True))) for by_rank in units_s))
                ours_mean[size].append(median(median(map(fmean, by_rank)) for by_rank in units_s))
    table = Table("size", "PARAM", "ours", "ours / PARAM (95%)", "same statistic", "PARAM spread", "our spread", "same")
    figures: dict[str, list[float]] = {"p50": [], "low": [], "mean": [], "param": [], "ours": [], "ours_mean": []}
    for size in SIZES:
        value, low, high = geometric([a / b for a, b in zip(ours[size], param[size], strict=True)])
        same = geometric([a / b for a, b in zip(ours_mean[size], param[size], strict=True)])
        spreads = spread(param[size]), spread(ours[size]), spread(ours_mean[size])
        for name, figure in zip(figures, (value, low, same[0], *spreads), strict=True):
            figures[name].append(figure)
        table.add_row(
            units.format_size(size),
            units.format_time(median(param[size])),
            units.format_time(median(ours[size])),
            f"{value:.3f} [{low:.3f}, {high:.3f}]",
            f"{same[0]:.3f} [{same[1]:.3f}, {same[2]:.3f}]",
            *(f"x {one:.3f}" for one in spreads),
        )
    console.print(table)
    return {
        "vs_param_max": max(figures["p50"]),
        "vs_param_low_max": max(figures["low"]),
        "vs_param_mean_max": max(figures["mean"]),
        "param_spread": geometric(figures["param"])[0],
        "our_spread": geometric(figures["ours"])[0],
        "our_spread_mean": geometric(figures["ours_mean"])[0],
    }


ABSENT = dict.fromkeys(
    ("vs_param_max", "vs_param_low_max", "vs_param_mean_max", "param_spread", "our_spread", "our_spread_mean")
)


def main() -> None:
    """Compare and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--param", type=Path, default=os.environ.get("SPANFIT_PARAM"), help="a checkout of PARAM")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--repetitions", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        effort = Effort(rounds=given.rounds, repetitions=given.repetitions, launches=0, blocks=0, iterations=0)
        rank_main(given.rank, effort if given.rounds else None)
        return
    effort, console = QUICK if given.quick else FULL, Console()
    figures: dict[str, Any] = {"benchmark": "timed_loop", **compare_bare(effort, given.seed, console)}
    if given.param:
        figures |= compare_param(Path(given.param), effort, given.seed, console)
    else:
        console.print("PARAM: not compared; name a checkout of facebookresearch/param by --param or SPANFIT_PARAM")
        figures |= ABSENT
    print(json.dumps({name: round(one, 4) if isinstance(one, float) else one for name, one in figures.items()}))


if __name__ == "__main__":
    main()

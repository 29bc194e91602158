"""Matrix products with a collective beside them: what each costs alone, and what each loses to the other."""

import threading
from collections.abc import Callable, Sequence
from itertools import cycle
from time import perf_counter

import torch

from spanfit.bench.case import BenchCase
from spanfit.bench.heartbeat import Phase
from spanfit.bench.lines import world_ranks
from spanfit.bench.operations import prepare
from spanfit.bench.timing import ended
from spanfit.bench.warmup import warm_up
from spanfit.bench.world import Outcome, Place, World, crowded, no_part
from spanfit.collectives import Collective

Run = Callable[[], object]


def part_names(case: BenchCase) -> tuple[str, str, str, str]:
    """Return what an overlap case times, in the order in which it does."""
    operation = case.operation
    return "matmul_alone", f"{operation}_alone", f"matmul_beside_{operation}", f"{operation}_beside_matmul"


def measure_overlap(world: World, case: BenchCase, places: Sequence[Place]) -> Outcome:
    """Return the seconds of products and collective, alone and beside each other; every rank of the world calls this.

    The three are interleaved in each repetition, so that drift does not tell them apart. On CPUs a machine that has
    fewer cores than ranks is refused.
    """
    names = part_names(case)
    if fault := crowded(places):
        return Outcome(is_right=True, parts=no_part(names, case.repetitions), fault=fault)
    (ranks,) = world_ranks(case, world.plan.ngpus_per_node)
    group, takes_part = world.group(ranks, case.cta), world.rank in ranks
    products: Run = lambda: None  # noqa: E731
    runs: tuple[Run, ...] = (products,)
    right = True
    world.beat(Phase.CHECK)
    if takes_part:
        dtype = getattr(torch, case.dtype)
        ring = world.arena.ring(
            lambda allocate: prepare(
                Collective(case.operation), group, ranks, case.size_bytes, dtype, world.device, allocate=allocate
            ),
            dtype,
        )
        products, holds = _products(case, dtype, world.device)
        runs = ring.runs
        right = ring.is_right()
        products()
        right = right and holds()
    both = _both_on_gpu if world.device.type == "cuda" else _both_on_cpu
    world.beat(Phase.WARMUP)
    warmed = warm_up([ended(run, world.device) for run in runs], world.barrier, world.slowest, case.warmup)
    world.beat(Phase.TIMED)
    times_s = []
    for _, run in zip(range(case.repetitions), cycle(runs), strict=False):
        world.barrier()
        alone_s = _seconds(ended(products, world.device))
        world.barrier()
        collective_s = _seconds(ended(run, world.device))
        world.barrier()
        times_s.append((alone_s, collective_s, *both(products, run)))
    parts = {name: list(part) for name, part in zip(names, zip(*times_s, strict=True), strict=True)}
    return Outcome(
        is_right=right,
        parts=parts if takes_part else no_part(names, case.repetitions),
        notes={"warmup": warmed.iterations, "is_warm": warmed.is_stable},
    )


def _products(case: BenchCase, dtype: torch.dtype, device: torch.device) -> tuple[Run, Callable[[], bool]]:
    """Return what multiplies matrices of ones ``case.products`` times, and whether the product is right."""
    left, right, product = (torch.ones(case.matrix, case.matrix, dtype=dtype, device=device) for _ in range(3))

    def run() -> None:
        for _ in range(case.products):
            torch.mm(left, right, out=product)

    expected = torch.tensor(float(case.matrix)).to(dtype).item()
    return run, lambda: bool((product == expected).all().item())


def _seconds(run: Run) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _both_on_cpu(products: Run, collective: Run) -> tuple[float, float]:
    """Return the seconds of products and of a collective that start together, the collective on a thread."""
    seconds: list[float] = []
    other = threading.Thread(target=lambda: seconds.append(_seconds(collective)))
    other.start()
    products_s = _seconds(products)
    other.join()
    return products_s, seconds[0]


def _both_on_gpu(products: Run, collective: Run) -> tuple[float, float]:
    """Return the seconds of products and of a collective that are enqueued together on two streams."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        events[0].record()
        collective()
        events[1].record()
    events[2].record()
    products()
    events[3].record()
    torch.cuda.synchronize()
    return events[2].elapsed_time(events[3]) / 1e3, events[0].elapsed_time(events[1]) / 1e3

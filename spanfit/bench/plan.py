"""From a campaign file to the cases of every launch: pure, seeded, and the same for the same file.

Groups are drawn so that each spans exactly k minipods, balanced within one node. The order of cases is shuffled anew in
each block of each launch, so that drift spreads over all cases alike.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, product, zip_longest

from spanfit import files
from spanfit.bench.arms import plan_arms
from spanfit.bench.case import BenchCase, CaseKind, Concurrency, RankOrder, Visit
from spanfit.collectives import Collective, real_size_bytes
from spanfit.workload.step import ComputeMode, Schedule, StepJob


class Backend(StrEnum):
    """The torch.distributed backend that is measured."""

    GLOO = "gloo"
    NCCL = "nccl"


class Launcher(StrEnum):
    """How ranks are started on the nodes."""

    TESTBED = "testbed"
    TESTBED_TORCHRUN = "testbed-torchrun"
    SSH = "ssh"


class Dtype(StrEnum):
    """Element types of the buffers."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"


DTYPE_ITEMSIZE = {Dtype.FLOAT32: 4, Dtype.FLOAT16: 2, Dtype.BFLOAT16: 2, Dtype.FLOAT64: 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """The ``[launch]`` table: how ranks start, what they may inherit, how long a collective may take."""

    __pydantic_config__ = files.CONFIG
    launcher: Launcher
    testbed: str | None = None
    ranks_per_node: files.Count = 1
    port: files.Count = 29500
    timeout: files.Seconds = 60.0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivesFile:
    """The ``[collectives]`` table: what is swept over groups of a fixed size."""

    __pydantic_config__ = files.CONFIG
    operations: tuple[Collective, ...]
    sizes: tuple[files.SizeBytes, ...]
    nodes_per_group: files.Count
    spans: tuple[files.Count, ...]
    rank_orders: tuple[RankOrder, ...] = (RankOrder.SORTED,)
    concurrency: tuple[Concurrency, ...] = (Concurrency.ALONE,)
    dtype: Dtype = Dtype.FLOAT32
    draws: files.Count = 1
    warmup: files.Count = 1
    repetitions: files.Count = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A ``[[jobs]]`` table: a training step by its volumes and its compute."""

    __pydantic_config__ = files.CONFIG
    name: str
    dp: files.Count
    pp: files.Count
    microbatches: files.Count
    activation: files.SizeBytes
    gradient: files.SizeBytes
    forward: files.Seconds
    backward: files.Seconds
    schedule: Schedule = Schedule.GPIPE
    compute: ComputeMode = ComputeMode.WAIT
    warmup: files.Count = 1
    repetitions: files.Count = 3

    def step(self) -> StepJob:
        """Return the step in stored units."""
        return StepJob(
            name=self.name,
            dp=self.dp,
            pp=self.pp,
            nmicrobatches=self.microbatches,
            activation_bytes=self.activation,
            gradient_bytes=self.gradient,
            forward_s=self.forward,
            backward_s=self.backward,
            schedule=self.schedule,
            compute=self.compute,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFile:
    """A campaign file as people write it."""

    __pydantic_config__ = files.CONFIG
    name: files.Name
    cluster: str
    launch: LaunchFile
    nodes: str | None = None
    backend: Backend = Backend.GLOO
    seed: int = 0
    launches: files.Count = 6
    blocks: files.Count = 1
    collectives: CollectivesFile | None = None
    jobs: tuple[JobFile, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a campaign that measures nothing or contradicts itself."""
        faults = []
        if self.collectives is None and not self.jobs:
            faults.append("nothing to measure; expected a [collectives] table or at least one [[jobs]] table")
        if self.launch.launcher is not Launcher.SSH and self.launch.testbed is None:
            faults.append(f"launch.testbed: missing; launcher {self.launch.launcher!s} needs a testbed file")
        if self.collectives is not None and RankOrder.JOB in self.collectives.rank_orders:
            faults.append("collectives.rank_orders: found 'job', expected 'sorted' or 'alternating'")
        names = [job.name for job in self.jobs]
        faults += [
            f"jobs: the name {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        if faults:
            raise ValueError("\n".join(faults))


def plan_cases(campaign: CampaignFile, minipods: Sequence[Sequence[int]]) -> tuple[BenchCase, ...]:
    """Return the distinct cases of a campaign.

    Parameters
    ----------
    campaign : CampaignFile
    minipods : sequence of sequence of int
        Node ranks of the world by minipod, minipods and nodes in the cluster's order.

    Raises
    ------
    ValueError
        One line for each part of the campaign that the nodes cannot hold.
    """
    cases: list[BenchCase] = []
    faults: list[str] = []
    for part in (
        _plan_collectives(campaign, minipods),
        *(_plan_steps(job, minipods, campaign.seed) for job in campaign.jobs),
    ):
        try:
            cases += part
        except ValueError as error:
            faults.append(str(error))
    if not cases and not faults:
        faults.append(
            "nothing to measure; expected at least one operation, size and span, and a rank order and concurrency that "
            "the groups allow ('alternating' needs a span of 2, 'all' a second group)"
        )
    if faults:
        raise ValueError("\n".join(faults))
    # Two sizes that are rounded down to the same shares are one case.
    return tuple(dict.fromkeys(cases))


def plan_visits(campaign: CampaignFile, cases: Sequence[BenchCase], launch: int) -> tuple[Visit, ...]:
    """Return the cases of a launch in its own seeded order, block after block."""
    rng = random.Random(f"{campaign.seed}/{launch}")
    order: list[tuple[int, BenchCase]] = []
    for block in range(campaign.blocks):
        shuffled = list(cases)
        rng.shuffle(shuffled)
        order += [(block, case) for case in shuffled]
    return tuple(Visit(position=position, block=block, case=case) for position, (block, case) in enumerate(order))


def _plan_collectives(campaign: CampaignFile, minipods: Sequence[Sequence[int]]) -> Iterator[BenchCase]:
    sweep = campaign.collectives
    if sweep is None:
        return
    nranks = sweep.nodes_per_group * campaign.launch.ranks_per_node
    if faults := list(_empty_buffers(sweep, nranks)):
        raise ValueError("\n".join(faults))
    for span in sweep.spans:
        for draw in range(sweep.draws):
            groups = draw_groups(minipods, sweep.nodes_per_group, span, random.Random(f"{campaign.seed}/{span}/{draw}"))
            for rank_order in sweep.rank_orders:
                if span == 1 and rank_order is not RankOrder.SORTED:
                    continue
                ordered = tuple(order_ranks(group, minipods, rank_order) for group in groups)
                for concurrency in sweep.concurrency:
                    if concurrency is Concurrency.ALL and len(ordered) == 1:
                        continue
                    chosen = ordered if concurrency is Concurrency.ALL else ordered[:1]
                    for operation in sweep.operations:
                        for size_bytes in sweep.sizes:
                            yield BenchCase(
                                kind=CaseKind.COLLECTIVE,
                                operation=operation,
                                size_bytes=real_size_bytes(operation, nranks, size_bytes, DTYPE_ITEMSIZE[sweep.dtype]),
                                dtype=sweep.dtype,
                                redop="sum",
                                groups=chosen,
                                span=span,
                                rank_order=rank_order,
                                concurrency=concurrency,
                                draw=draw,
                                arm="",
                                warmup=sweep.warmup,
                                repetitions=sweep.repetitions,
                            )


def _empty_buffers(sweep: CollectivesFile, nranks: int) -> Iterator[str]:
    for operation, size_bytes in product(sweep.operations, sweep.sizes):
        if not real_size_bytes(operation, nranks, size_bytes, DTYPE_ITEMSIZE[sweep.dtype]):
            yield (
                f"collectives.sizes: {size_bytes} B leave nothing to send for {operation} of {sweep.dtype} over "
                f"{nranks} ranks; expected an element, or 16 bytes a rank where ranks share the buffer"
            )


def draw_groups(
    minipods: Sequence[Sequence[int]], nodes_per_group: int, span: int, rng: random.Random
) -> tuple[tuple[int, ...], ...]:
    """Return disjoint groups, each of ``nodes_per_group`` nodes over exactly ``span`` minipods.

    The nodes of a group are balanced within one over its minipods, and sorted by minipod. Each group takes from the
    minipods with the most free nodes, until these cannot give another.

    Raises
    ------
    ValueError
        If not even one group fits.
    """
    if nodes_per_group < max(2, span):
        raise ValueError(
            f"collectives: groups of {nodes_per_group} nodes cannot span {span} minipods; "
            f"expected nodes_per_group of at least {max(2, span)}"
        )
    left = [rng.sample(list(nodes), len(nodes)) for nodes in minipods]
    quotas = [nodes_per_group // span + (index < nodes_per_group % span) for index in range(span)]
    groups: list[tuple[int, ...]] = []
    while True:
        fullest = sorted(range(len(left)), key=lambda index: -len(left[index]))[:span]
        if len(fullest) < span or any(len(left[index]) < quota for index, quota in zip(fullest, quotas, strict=True)):
            break
        taken = {
            index: sorted(left[index].pop() for _ in range(quota)) for index, quota in zip(fullest, quotas, strict=True)
        }
        groups.append(tuple(chain.from_iterable(taken[index] for index in sorted(taken))))
    if not groups:
        sizes = ", ".join(str(len(nodes)) for nodes in minipods)
        raise ValueError(
            f"collectives: no group of {nodes_per_group} nodes over {span} minipods fits minipods of {sizes} nodes; "
            "lower nodes_per_group or spans"
        )
    return tuple(groups)


def order_ranks(group: Sequence[int], minipods: Sequence[Sequence[int]], rank_order: RankOrder) -> tuple[int, ...]:
    """Return a group minipod by minipod (sorted), or changing minipod at every hop (alternating)."""
    if rank_order is not RankOrder.ALTERNATING:
        return tuple(group)
    members = [[node for node in group if node in nodes] for nodes in minipods]
    # Minipods with a node more come first, so that only the hop from the last rank to the first may stay in one.
    dealt = zip_longest(*sorted((nodes for nodes in members if nodes), key=len, reverse=True))
    return tuple(node for round_of_nodes in dealt for node in round_of_nodes if node is not None)


def choose_minipods(minipods: Sequence[Sequence[int]], ncells: int) -> tuple[tuple[int, ...], ...]:
    """Return ``ncells`` nodes shared evenly by the fewest minipods, at least two, that can give them.

    Raises
    ------
    ValueError
        If no number of minipods can share them evenly.
    """
    by_size = sorted(range(len(minipods)), key=lambda index: -len(minipods[index]))
    for count in range(2, len(minipods) + 1):
        share, rest = divmod(ncells, count)
        if not rest and all(len(minipods[index]) >= share for index in by_size[:count]):
            return tuple(tuple(minipods[index][:share]) for index in sorted(by_size[:count]))
    sizes = ", ".join(str(len(nodes)) for nodes in minipods)
    raise ValueError(f"{ncells} nodes cannot be shared evenly by two or more minipods of {sizes} nodes")


def _plan_steps(job: JobFile, minipods: Sequence[Sequence[int]], seed: int) -> Iterator[BenchCase]:
    try:
        chosen = choose_minipods(minipods, job.dp * job.pp)
        arms = plan_arms(job.dp, job.pp, chosen, seed)
    except ValueError as error:
        raise ValueError(f"job {job.name}: {error}") from None
    for arm in arms:
        yield BenchCase(
            kind=CaseKind.STEP,
            operation=job.name,
            size_bytes=job.gradient,
            dtype="float32",
            redop="sum",
            groups=(arm.node_ranks,),
            span=len(chosen),
            rank_order=RankOrder.JOB,
            concurrency=Concurrency.ALL,
            draw=0,
            arm=arm.name,
            warmup=job.warmup,
            repetitions=job.repetitions,
            step=job.step(),
        )

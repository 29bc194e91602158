"""From a campaign file to the cases of every launch: pure, seeded, and the same for the same file.

Groups are drawn so that each spans exactly k switches of a tier, balanced within one node. The order of cases is
shuffled anew in each block of each launch, so that drift spreads over all cases alike.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TypeVar

from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED, Arm, in_one_minipod, moved, plan_arms
from spanfit.bench.beside import noise_beside
from spanfit.bench.campaign_file import CampaignFile, CollectivesFile, Redop
from spanfit.bench.case import ALL_GPUS, EACH_RAIL, BenchCase, CaseKind, Concurrency, RankOrder, Visit
from spanfit.bench.first_nodes import OverlapFile, StartupFile
from spanfit.bench.groups import Domain, NodeTree, choose_minipods, draw_groups, order_ranks
from spanfit.bench.job_inputs import JobInputs
from spanfit.bench.job_table import JobTable
from spanfit.bench.tournament import plan_pairs
from spanfit.bench.variants import Variant
from spanfit.collectives import HAS_BOTH_PLACES, REDUCES, Collective, misfit, real_size_bytes
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import Job, StepJob, node_grid, seat_ranks
from spanfit.workload.traffic import gradient_bytes

T = TypeVar("T")

_AT_ONCE: dict[Concurrency, int | None] = {Concurrency.ALONE: 1, Concurrency.PAIR: 2, Concurrency.ALL: None}
"""How many of the groups run at the same time; None: all."""

NO_REDOP = "none"
"""The redop of what reduces nothing, as nccl-tests prints it."""


def plan_cases(campaign: CampaignFile, tree: NodeTree, inputs: JobInputs | None = None) -> tuple[BenchCase, ...]:
    """Return the distinct cases of a campaign on the nodes of a world.

    Parameters
    ----------
    campaign : CampaignFile
    tree : NodeTree
    inputs : JobInputs, optional
        What its jobs name; jobs that are known by their volumes need none.

    Raises
    ------
    ValueError
        One line for each part of the campaign that the nodes cannot hold.
    """
    parts = (
        _plan_collectives(campaign, tree),
        _plan_startup(campaign, tree),
        _plan_overlap(campaign, tree),
        plan_pairs(campaign, tree),
        _plan_steps(campaign, tree, inputs or JobInputs()),
    )
    cases = [case for part in _all_of(partial(tuple, part) for part in parts) for case in part]
    if not cases:
        raise ValueError(
            "nothing to measure; expected at least one operation, size and span, and a rank order and concurrency that "
            "the groups allow ('alternating' needs a span of 2, 'all' a second group)"
        )
    # Two sizes that are rounded down to the same shares are one case.
    return tuple(dict.fromkeys(cases))


def _all_of(makers: Iterable[Callable[[], T]]) -> tuple[T, ...]:
    """Return what each makes; ValueError has the lines of all that make nothing."""
    made: list[T] = []
    faults: list[str] = []
    for make in makers:
        try:
            made.append(make())
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("\n".join(faults))
    return tuple(made)


def plan_visits(campaign: CampaignFile, cases: Sequence[BenchCase], launch: int) -> tuple[Visit, ...]:
    """Return the cases of a launch in its own seeded order, block after block."""
    rng = random.Random(f"{campaign.seed}/{launch}")
    order: list[tuple[int, BenchCase]] = []
    for block in range(campaign.blocks):
        shuffled = list(cases)
        rng.shuffle(shuffled)
        order += [(block, case) for case in shuffled]
    return tuple(Visit(position=position, block=block, case=case) for position, (block, case) in enumerate(order))


def _plan_collectives(campaign: CampaignFile, tree: NodeTree) -> Iterator[BenchCase]:
    sweep = campaign.collectives
    if sweep is None:
        return
    per_node = campaign.launch.ranks_per_node
    nranks = sweep.nodes_per_group * (1 if sweep.rails else per_node)
    works = tuple(_works(sweep, nranks))
    if faults := [*_misfits("collectives", sweep.operations, nranks), *_empty_buffers(works, nranks)]:
        raise ValueError("\n".join(faults))
    for tier, span, draw in product(sweep.tiers, sweep.spans, range(sweep.draws)):
        rng = random.Random(f"{campaign.seed}/{tier}/{span}/{draw}")
        groups = draw_groups(tree.siblings(tier), sweep.nodes_per_group, span, rng)
        for rank_order, concurrency in product(sweep.rank_orders, sweep.concurrency):
            if span == 1 and rank_order is not RankOrder.SORTED:
                continue
            chosen = groups[: _AT_ONCE[concurrency]]
            rails = _rails(concurrency, per_node) if sweep.rails else (ALL_GPUS,)
            if len(chosen) == 1 and concurrency is not Concurrency.ALONE and EACH_RAIL not in rails:
                continue
            ordered = tuple(order_ranks(group, tree.domains(tier), rank_order) for group in chosen)
            for work, rail in product(works, rails):
                yield BenchCase(
                    kind=CaseKind.COLLECTIVE,
                    operation=work.operation,
                    size_bytes=work.real_size_bytes(nranks),
                    dtype=work.dtype,
                    redop=work.redop,
                    in_place=work.in_place,
                    groups=ordered,
                    tier=tier,
                    span=span,
                    rank_order=rank_order,
                    concurrency=concurrency,
                    draw=draw,
                    arm="",
                    warmup=sweep.warmup,
                    repetitions=sweep.repetitions,
                    skew=sweep.skew if work.operation is Collective.ALL_TO_ALL_V else 1.0,
                    graph=sweep.graph,
                    rail=rail,
                )


def _rails(concurrency: Concurrency, per_node: int) -> Sequence[int]:
    """Return the rails that have cases of their own: all groups of a kind are those of every rail."""
    return (EACH_RAIL,) if concurrency is Concurrency.ALL else range(per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a group does in a case, wherever its nodes are."""

    operation: Collective
    size_bytes: int
    dtype: Dtype
    redop: str = NO_REDOP
    in_place: bool = False

    def real_size_bytes(self, nranks: int) -> int:
        return real_size_bytes(self.operation, nranks, self.size_bytes, self.dtype.itemsize)


def _works(sweep: CollectivesFile, nranks: int) -> Iterator[_Work]:
    for operation in sweep.operations:
        if operation is Collective.BARRIER:
            yield _Work(operation=operation, size_bytes=0, dtype=sweep.dtypes[0])
            continue
        redops: tuple[str, ...] = sweep.redops if operation in REDUCES else (NO_REDOP,)
        places = sweep.in_place if operation in HAS_BOTH_PLACES else (False,)
        for size_bytes, dtype, redop, in_place in product(sweep.sizes, sweep.dtypes, redops, places):
            yield _Work(operation=operation, size_bytes=size_bytes, dtype=dtype, redop=redop, in_place=in_place)


def _misfits(table: str, operations: Iterable[Collective], nranks: int) -> Iterator[str]:
    for operation in operations:
        if expected := misfit(operation, nranks):
            yield f"{table}: {operation} cannot run on groups of {nranks} ranks; expected {expected}"


def _empty_buffers(works: Iterable[_Work], nranks: int) -> Iterator[str]:
    sizes = dict.fromkeys((work.operation, work.size_bytes, work.dtype) for work in works)
    for operation, size_bytes, dtype in sizes:
        work = _Work(operation=operation, size_bytes=size_bytes, dtype=dtype)
        if operation is not Collective.BARRIER and not work.real_size_bytes(nranks):
            yield (
                f"collectives.sizes: {size_bytes} B leave nothing to send for {operation} of {dtype} over "
                f"{nranks} ranks; expected an element, or 16 bytes a rank where ranks share the buffer"
            )


def _plan_startup(campaign: CampaignFile, tree: NodeTree) -> Iterator[BenchCase]:
    table = campaign.startup
    for nnodes in table.nodes_per_group if table is not None else ():
        assert table is not None
        yield _first_nodes(campaign, tree, table, nnodes, CaseKind.STARTUP)


def _plan_overlap(campaign: CampaignFile, tree: NodeTree) -> Iterator[BenchCase]:
    table = campaign.overlap
    for cta in table.ctas if table is not None else ():
        assert table is not None
        case = _first_nodes(campaign, tree, table, table.nodes_per_group, CaseKind.OVERLAP)
        yield replace(
            case,
            arm=f"cta-{cta}" if cta else "",
            warmup=table.warmup,
            cta=cta,
            matrix=table.matrix,
            products=table.products,
        )


def _first_nodes(
    campaign: CampaignFile, tree: NodeTree, table: StartupFile | OverlapFile, nnodes: int, kind: CaseKind
) -> BenchCase:
    """Return a case of the first ``nnodes`` nodes of the world; ValueError where it has fewer."""
    nranks = nnodes * campaign.launch.ranks_per_node
    work = _Work(operation=table.operation, size_bytes=table.size, dtype=table.dtype)
    faults = list(_misfits(kind, (table.operation,), nranks))
    if nnodes > len(tree.fabric):
        faults.append(f"{kind}.nodes_per_group: found {nnodes}, expected at most the world's {len(tree.fabric)} nodes")
    if table.operation is not Collective.BARRIER and not work.real_size_bytes(nranks):
        faults.append(f"{kind}.size: {table.size} B leave nothing to send over {nranks} ranks; expected more")
    if faults:
        raise ValueError("\n".join(faults))
    group = tuple(range(nnodes))
    return BenchCase(
        kind=kind,
        operation=work.operation,
        size_bytes=work.real_size_bytes(nranks),
        dtype=work.dtype,
        redop=Redop.SUM if work.operation in REDUCES else NO_REDOP,
        in_place=False,
        groups=(group,),
        tier="minipod",
        span=sum(bool(set(group) & set(domain)) for domain in tree.domains("minipod")),
        rank_order=RankOrder.SORTED,
        concurrency=Concurrency.ALONE,
        draw=0,
        arm="",
        warmup=1,
        repetitions=table.repetitions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedJob:
    """A job with the placements that it is measured in."""

    table: JobTable
    job: Job
    arms: tuple[Arm, ...]


def _plan_steps(campaign: CampaignFile, tree: NodeTree, inputs: JobInputs) -> Iterator[BenchCase]:
    minipods = tree.domains("minipod")
    placed = _all_of(partial(_place, table, campaign, minipods, inputs) for table in campaign.jobs)
    arms = [arm.node_ranks for each in placed for arm in each.arms]
    drawn = _all_of(partial(noise_beside, noise, tree, arms, campaign.seed) for noise in campaign.noise)
    beside = {noise.name: jobs for noise, jobs in zip(campaign.noise, drawn, strict=True)}
    for each in placed:
        steps = [*_steps(each, minipods)]
        for variant, step in product(job_variants(each.table, campaign), steps):
            jobs = beside[variant.noise] if variant.noise else ()
            yield replace(
                _variant(step, each.job, variant),
                groups=(*step.groups, *(noise.node_ranks for noise in jobs)),
                noise=tuple(noise.step for noise in jobs),
            )


def job_variants(table: JobTable, campaign: CampaignFile) -> tuple[Variant, ...]:
    """Return the variants in which a job's steps are timed: alone, with limits of CTAs, then beside noise."""
    limits = (Variant(cta=cta) for cta in dict.fromkeys((0, *table.ctas)))
    return (*limits, *(Variant(noise=noise.name) for noise in campaign.noise))


def _place(table: JobTable, campaign: CampaignFile, minipods: Sequence[Domain], inputs: JobInputs) -> _PlacedJob:
    try:
        job = table.job(inputs.models.get(table.models or "", {}))
        return _PlacedJob(table=table, job=job, arms=_arms(table, job, campaign, minipods, inputs))
    except ValueError as error:
        raise ValueError("\n".join(f"job {table.name}: {line}" for line in str(error).splitlines())) from None


def _variant(step: BenchCase, job: Job, variant: Variant) -> BenchCase:
    """Return a step of a job as a variant of it, which has a name of its own."""
    name = variant.name(job.name)
    return replace(step, operation=name, step=replace(job, name=name), cta=variant.cta)


def _steps(placed: _PlacedJob, minipods: Sequence[Domain]) -> Iterator[BenchCase]:
    table, job = placed.table, placed.job
    size_bytes, dtype = gradient_bytes(job), Dtype.FLOAT32 if isinstance(job, StepJob) else job.gradient_dtype
    for arm in placed.arms:
        yield BenchCase(
            kind=CaseKind.STEP,
            operation=table.name,
            size_bytes=size_bytes,
            dtype=dtype,
            redop="sum",
            in_place=True,
            groups=(arm.node_ranks,),
            tier="minipod",
            span=sum(bool(set(arm.node_ranks) & set(domain)) for domain in minipods),
            rank_order=RankOrder.JOB,
            concurrency=Concurrency.ALL,
            draw=0,
            arm=arm.name,
            warmup=table.warmup,
            repetitions=table.repetitions,
            step=job,
        )


def _arms(
    table: JobTable, job: Job, campaign: CampaignFile, minipods: Sequence[Domain], inputs: JobInputs
) -> tuple[Arm, ...]:
    """Return the placements that a job is measured in."""
    nrows, ncolumns = node_grid(job, campaign.launch.ranks_per_node)
    chosen = choose_minipods(minipods, nrows * ncolumns)
    arms = (*in_one_minipod(nrows, ncolumns, minipods), *plan_arms(nrows, ncolumns, chosen, campaign.seed))
    # Ranks that share no node cleanly are told before anything starts.
    seat_ranks(job, arms[0].node_ranks, campaign.launch.ranks_per_node)
    aligned = [arm for arm in arms if table.moves and arm.name in (DP_ALIGNED, PP_ALIGNED)]
    return (
        *arms,
        *(each for arm in aligned for each in moved(arm, minipods, table.moves, campaign.seed)),
        *inputs.arms(table, nrows, ncolumns),
    )

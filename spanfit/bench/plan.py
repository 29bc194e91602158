"""From a campaign file to the cases of every launch: pure, seeded, and the same for the same file.

Groups are drawn so that each spans exactly k switches of a tier, balanced within one node. The order of cases is
shuffled anew in each block of each launch, so that drift spreads over all cases alike.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import product

from spanfit.bench.arms import plan_arms
from spanfit.bench.campaign_file import DTYPE_ITEMSIZE, CampaignFile, CollectivesFile, JobFile
from spanfit.bench.case import BenchCase, CaseKind, Concurrency, RankOrder, Visit
from spanfit.bench.groups import NodeTree, choose_minipods, draw_groups, order_ranks
from spanfit.collectives import HAS_BOTH_PLACES, real_size_bytes

_AT_ONCE: dict[Concurrency, int | None] = {Concurrency.ALONE: 1, Concurrency.PAIR: 2, Concurrency.ALL: None}
"""How many of the groups run at the same time; None: all."""


def plan_cases(campaign: CampaignFile, tree: NodeTree) -> tuple[BenchCase, ...]:
    """Return the distinct cases of a campaign on the nodes of a world.

    Raises
    ------
    ValueError
        One line for each part of the campaign that the nodes cannot hold.
    """
    cases: list[BenchCase] = []
    faults: list[str] = []
    for part in (
        _plan_collectives(campaign, tree),
        *(_plan_steps(job, tree.domains("minipod"), campaign.seed) for job in campaign.jobs),
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


def _plan_collectives(campaign: CampaignFile, tree: NodeTree) -> Iterator[BenchCase]:
    sweep = campaign.collectives
    if sweep is None:
        return
    nranks = sweep.nodes_per_group * campaign.launch.ranks_per_node
    if faults := list(_empty_buffers(sweep, nranks)):
        raise ValueError("\n".join(faults))
    for tier, span, draw in product(sweep.tiers, sweep.spans, range(sweep.draws)):
        rng = random.Random(f"{campaign.seed}/{tier}/{span}/{draw}")
        groups = draw_groups(tree.siblings(tier), sweep.nodes_per_group, span, rng)
        for rank_order, concurrency in product(sweep.rank_orders, sweep.concurrency):
            if span == 1 and rank_order is not RankOrder.SORTED:
                continue
            chosen = groups[: _AT_ONCE[concurrency]]
            if len(chosen) == 1 and concurrency is not Concurrency.ALONE:
                continue
            ordered = tuple(order_ranks(group, tree.domains(tier), rank_order) for group in chosen)
            for operation, size_bytes in product(sweep.operations, sweep.sizes):
                for in_place in sweep.in_place if operation in HAS_BOTH_PLACES else (False,):
                    yield BenchCase(
                        kind=CaseKind.COLLECTIVE,
                        operation=operation,
                        size_bytes=real_size_bytes(operation, nranks, size_bytes, DTYPE_ITEMSIZE[sweep.dtype]),
                        dtype=sweep.dtype,
                        redop=sweep.redop,
                        in_place=in_place,
                        groups=ordered,
                        tier=tier,
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
            in_place=True,
            groups=(arm.node_ranks,),
            tier="minipod",
            span=len(chosen),
            rank_order=RankOrder.JOB,
            concurrency=Concurrency.ALL,
            draw=0,
            arm=arm.name,
            warmup=job.warmup,
            repetitions=job.repetitions,
            step=job.step(),
        )

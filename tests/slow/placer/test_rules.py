"""Placements under rules against every grid of small jobs, tried one by one."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from spanfit.errors import InfeasibleError
from spanfit.placer.model import Grid, PlacementStatus, column_spreads, row_spreads
from spanfit.placer.place import place
from spanfit.placer.rules import OneModel, Rules
from spanfit.placer.seats import ep_spreads
from spanfit.placer.verify import verify
from spanfit.topology.model import Cluster
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.test_place import cluster, job, node
from tests.unit.placer.test_rules import mixed


def grids(nrows: int, ncolumns: int, free: tuple[int, ...]) -> Iterator[Grid]:
    """Yield every grid that fits the minipods."""
    for cells in product(range(len(free)), repeat=nrows * ncolumns):
        counts = Counter(cells)
        if all(counts[m] <= nodes for m, nodes in enumerate(free)):
            yield tuple(cells[row * ncolumns : (row + 1) * ncolumns] for row in range(nrows))


def lowest(found: Iterator[Grid], alpha: float, cost: Callable[[Grid], float] = lambda grid: 0.0) -> float | None:
    values = (alpha * max(column_spreads(grid)) + (1 - alpha) * max(row_spreads(grid)) + cost(grid) for grid in found)
    return min(values, default=None)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rule", [OneModel.DP, OneModel.PP])
def test_groups_on_one_model_are_bounded_rightly(seed: int, rule: OneModel) -> None:
    source = random.Random(seed)
    sizes: dict[str, tuple[int, ...]] = {
        "A": (source.randint(1, 4), source.randint(0, 3)),
        "B": (source.randint(1, 4), source.randint(0, 3)),
    }
    alpha, free = source.choice((0.2, 0.5, 0.8)), sizes["A"] + sizes["B"]

    def is_pure(grid: Grid) -> bool:
        groups = grid if rule is OneModel.PP else zip(*grid, strict=True)
        return all(len({cell // 2 for cell in group}) == 1 for group in groups)

    best = lowest(filter(is_pure, grids(3, 2, free)), alpha)
    given = mixed(sizes)
    if best is None:
        with pytest.raises(InfeasibleError):
            place(job(3, 2), given, alpha=alpha, beta=1 - alpha, rules=Rules(one_model=rule))
        return
    found = place(job(3, 2), given, alpha=alpha, beta=1 - alpha, rules=Rules(one_model=rule), time_limit_s=1)
    verify(found, given)
    assert found.bound <= best + 1e-9
    assert found.objective == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
def test_pinned_nodes_are_bounded_rightly(seed: int) -> None:
    source = random.Random(seed)
    free = tuple(source.randint(2, 6) for _ in range(3))
    pins = [source.randint(0, 2) for _ in free]
    given, alpha = cluster(*free), source.choice((0.2, 0.5, 0.8))
    pinned = tuple(f"p{minipod}n{index}" for minipod, count in enumerate(pins) for index in range(count))

    def has_pins(grid: Grid) -> bool:
        counts = Counter(cell for row in grid for cell in row)
        return all(counts[minipod] >= count for minipod, count in enumerate(pins))

    best = lowest(filter(has_pins, grids(3, 2, free)), alpha)
    assert best is not None
    found = place(job(3, 2), given, alpha=alpha, beta=1 - alpha, rules=Rules(pinned=pinned), time_limit_s=1)
    verify(found, given)
    assert found.bound <= best + 1e-9 <= found.objective + 2e-9


@pytest.mark.parametrize("seed", range(12))
def test_weighed_ep_groups_reach_the_optimum_where_they_say_so(seed: int) -> None:
    source = random.Random(seed)
    free = (source.randint(1, 6), source.randint(1, 6), 6)
    alpha, beta, share = source.choice(((0.2, 0.2, 0.6), (0.6, 0.2, 0.2), (0.1, 0.7, 0.2)))
    spec = job(4, 2, layout=ParallelLayout(dp=4, pp=2, tp=8, ep=2))
    found = place(spec, cluster(*free), alpha=alpha, beta=beta, ep_weight=share, time_limit_s=1)
    verify(found, cluster(*free))
    best = min(
        alpha * max(column_spreads(grid)) + beta * max(row_spreads(grid)) + share * max(ep_spreads(grid, 2))
        for grid in grids(4, 2, free)
    )
    assert found.bound <= best + 1e-9 <= found.objective + 2e-9
    if found.status is PlacementStatus.OPTIMAL:
        assert found.objective == pytest.approx(best)


Kind = tuple[str, str, str]
"""Core, minipod and GPU model: nodes of one kind are alike to every rule."""


def keeps(cells: tuple[Kind, ...], counts: Counter[Kind], pins: Counter[Kind], rules: Rules) -> bool:
    """Return whether a grid of 3 x 2 kinds, row by row, holds what the rules ask for."""
    used = Counter(cells)
    if any(used[kind] > counts[kind] for kind in used) or any(used[kind] < pins[kind] for kind in pins):
        return False
    for _, pod, model in used:
        left = sum(
            counts[kind] - used[kind] for kind in counts if kind[1] == pod and rules.binds_models <= (kind[2] == model)
        )
        if left < rules.spares:
            return False
    groups = {
        None: (),
        OneModel.JOB: (cells,),
        OneModel.PP: (cells[0:2], cells[2:4], cells[4:6]),
        OneModel.DP: (cells[0::2], cells[1::2]),
    }
    mixes = any(len({model for *_, model in group}) > 1 for group in groups[rules.one_model])
    stages = rules.stage_models
    is_staged = not stages or all(model == stages[place % 2] for place, (*_, model) in enumerate(cells))
    return is_staged and not mixes and not (rules.within and len({core for core, *_ in cells}) > 1)


@pytest.mark.parametrize("seed", range(150))
def test_rules_together_are_as_trying_every_grid_says(seed: int) -> None:
    source = random.Random(seed)
    kinds = [(core, core + pod, model) for core in "xy" for pod in "ab" for model in "AB"]
    counts = Counter({kind: source.randint(0, 4) for kind in source.sample(kinds, source.randint(2, 5))})
    nodes = [
        replace(
            node(f"{'-'.join(kind)}-{index}", "leaf", kind[1], gpu_model=kind[2]), fabric=("leaf", kind[1], kind[0])
        )
        for kind in counts
        for index in range(counts[kind])
    ]
    if not nodes:
        return
    source.shuffle(nodes)
    pinned = source.sample(nodes, min(len(nodes), source.choice((0, 0, 1, 2))))
    one_model = source.choice((None, *OneModel))
    rules = Rules(
        pinned=tuple(each.name for each in pinned),
        spares=source.choice((0, 0, 1)),
        within=source.choice((None, "core")),
        one_model=one_model,
        stage_models=source.choice(((), ("A", "B"))) if one_model is None else (),
    )
    pins = Counter((each.fabric[2], each.fabric[1], each.gpu_model or "") for each in pinned)
    alpha = source.choice((0.2, 0.5, 0.8))
    found = (cells for cells in product(counts, repeat=6) if keeps(cells, counts, pins, rules))
    grids = ([[pod for _, pod, _ in cells[row : row + 2]] for row in (0, 2, 4)] for cells in found)
    best = min((alpha * spread(zip(*grid, strict=True)) + (1 - alpha) * spread(grid) for grid in grids), default=None)
    given_cluster = Cluster(name="mixed", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    try:
        placed = place(job(3, 2), given_cluster, alpha=alpha, beta=1 - alpha, rules=rules, time_limit_s=2)
    except InfeasibleError:
        assert best is None
        return
    verify(placed, given_cluster)
    assert best is not None
    assert placed.bound <= best + 1e-9 <= placed.objective + 2e-9


def spread(groups: Iterable[Sequence[str]]) -> int:
    return max(len(set(group)) for group in groups)

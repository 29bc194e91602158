"""Small jobs after failures: HiGHS against trying every plan, and rules that still hold."""

import random
from dataclasses import replace

import pytest

from spanfit.errors import InfeasibleError
from spanfit.placer.model import column_spreads, row_spreads
from spanfit.placer.moves import Damage, is_sound
from spanfit.placer.place import place
from spanfit.placer.repair import repair
from spanfit.placer.rules import OneModel, Rules
from spanfit.placer.settle import mend
from spanfit.topology.model import Cluster
from tests.unit.placer.test_moves import fewest
from tests.unit.placer.test_place import job, node
from tests.unit.placer.test_repair import check, running


@pytest.mark.parametrize("seed", range(20))
def test_the_fewest_moves_are_those_of_trying_every_plan(seed: int) -> None:
    source = random.Random(seed)
    grid = tuple(tuple(source.randrange(3) for _ in range(2)) for _ in range(4))
    spare = (0, source.randrange(3), source.randrange(2))
    damage = Damage(
        grid=grid,
        failed=((0, source.randrange(2)),),
        spare=spare,
        a=max(column_spreads(grid)),
        b=max(row_spreads(grid)),
    )
    found, shortest = mend(damage, time_limit_s=20), fewest(damage)
    if shortest is not None:
        assert found is not None
        assert (len(found.plan), found.is_fewest) == (shortest, True)
    if found is not None:
        assert is_sound(damage, found.plan)


@pytest.mark.parametrize("seed", range(150))
def test_a_mended_placement_holds_under_its_rules(seed: int) -> None:
    source = random.Random(seed)
    kinds = [
        (core, core + pod, model)
        for core in "xy"
        for pod in "ab"
        for model in source.choice(("A", "B", "A", "B", "AB"))
    ]
    nodes = tuple(
        replace(
            node(f"{'-'.join(kind)}-{index}", "leaf", kind[1], gpu_model=kind[2]), fabric=("leaf", kind[1], kind[0])
        )
        for kind in kinds
        for index in range(source.randint(0, 8))
    )
    given = Cluster(name="mixed", tiers=("leaf", "minipod", "core"), nodes=nodes)
    one_model = source.choice((None, *OneModel))
    rules = Rules(
        pinned=tuple(each.name for each in source.sample(nodes, min(len(nodes), source.choice((0, 0, 1, 2))))),
        spares=source.choice((0, 1)),
        within=source.choice((None, "core")),
        one_model=one_model,
        stage_models=source.choice(((), ("A", "B"))) if one_model is None else (),
    )
    alpha = source.choice((0.2, 0.5, 0.8))
    try:
        old = place(job(4, 2), given, alpha=alpha, beta=1 - alpha, rules=rules, time_limit_s=1)
        failed = source.sample([name for name in old.rank_map.node_names if name not in rules.pinned], 2)
        others = [each.name for each in nodes if each.name not in old.rank_map.node_names]
        now = running(given, old, *failed, *source.sample(others, len(others) // 2))
        found = repair(old, now, failed, time_limit_s=1)
    except InfeasibleError:
        return
    check(found, old, now, *failed)
    assert found.again_objective <= found.placement.objective + 1e-9 or rules.pinned or one_model or rules.stage_models
    assert found.placement.bound <= found.again_objective + 1e-9

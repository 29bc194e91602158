import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit import files
from spanfit.bench.groups import NodeTree
from spanfit.bench.noise import Mix, Noise, NoiseTable, PlacementClass, draw_noise
from spanfit.errors import ConfigError


def tree(minipods: int = 4, leaves: int = 2, nodes: int = 4) -> NodeTree:
    fabric = tuple(
        (f"m{minipod}l{leaf}", f"m{minipod}", "core")
        for minipod in range(minipods)
        for leaf in range(leaves)
        for _ in range(nodes)
    )
    return NodeTree(tiers=("leaf", "minipod", "core"), fabric=fabric)


def table(mix: Mix, nodes: tuple[int, ...], *placement: PlacementClass, utilisation: float = 1.0) -> NoiseTable:
    return NoiseTable(
        name="noise", mix=mix, nodes=nodes, placement=placement or (PlacementClass.CORE,), utilisation=utilisation
    )


def sizes(noise: Noise) -> list[int]:
    return [*(len(job.node_ranks) for job in noise.jobs), *(size for size, _ in noise.unplaced)]


def leaves_and_minipods(nodes: tuple[int, ...]) -> tuple[list[int], int]:
    """Return how many nodes each leaf gives, and the minipods."""
    paths = [tree().fabric[node] for node in nodes]
    counts = {path[0]: sum(other[0] == path[0] for other in paths) for path in paths}
    return list(counts.values()), len({path[1] for path in paths})


CLASSES: dict[PlacementClass, Callable[[list[int], int], bool]] = {
    PlacementClass.LEAF: lambda leaves, minipods: len(leaves) == 1,
    PlacementClass.MINIPOD: lambda leaves, minipods: len(leaves) > 1 == minipods,
    PlacementClass.MINIPOD_BY_2: lambda leaves, minipods: len(leaves) > 1 == minipods and set(leaves) == {2},
    PlacementClass.MINIPOD_BY_4: lambda leaves, minipods: len(leaves) > 1 == minipods and set(leaves) == {4},
    PlacementClass.CORE: lambda leaves, minipods: minipods > 1,
    PlacementClass.CORE_BY_2: lambda leaves, minipods: minipods > 1 and set(leaves) == {2},
    PlacementClass.CORE_BY_4: lambda leaves, minipods: minipods > 1 and set(leaves) == {4},
}


@given(
    mix=st.sampled_from([Mix.EQUAL, Mix.POWER_LAW, Mix.GEOMETRIC]),
    size=st.integers(2, 8),
    placement=st.lists(st.sampled_from(PlacementClass), min_size=1, max_size=7),
    utilisation=st.floats(0.1, 1),
    used=st.sets(st.integers(0, 31), max_size=20),
    seed=st.integers(0, 9),
)
def test_jobs_are_of_their_class_on_nodes_of_their_own(
    mix: Mix, size: int, placement: list[PlacementClass], utilisation: float, used: set[int], seed: int
) -> None:
    asked = table(mix, (size,), *placement, utilisation=utilisation)
    noise = draw_noise(asked, tree(), sorted(used), seed)
    taken = [node for job in noise.jobs for node in job.node_ranks]
    assert len(set(taken)) == len(taken) and not set(taken) & used
    assert sum(sizes(noise)) <= utilisation * (32 - len(used)) + 1e-6
    for job in noise.jobs:
        assert CLASSES[job.placement](*leaves_and_minipods(job.node_ranks)), job
        assert job.step.dp * job.step.pp == len(job.node_ranks)
    assert noise == draw_noise(asked, tree(), sorted(used), seed)


def test_equal_jobs_fill_the_nodes_left_over_and_take_classes_in_turn() -> None:
    placement = (PlacementClass.LEAF, PlacementClass.CORE)
    noise = draw_noise(table(Mix.EQUAL, (4,), *placement, utilisation=0.5), tree(), [], 1)
    assert sizes(noise) == [4] * 4 and not noise.unplaced
    assert [job.placement for job in noise.jobs] == [*placement] * 2


def test_sizes_halve_or_come_in_tiers() -> None:
    assert sizes(draw_noise(table(Mix.GEOMETRIC, (16,)), tree(), [], 1)) == [16, 8, 4, 2, 2]
    assert sizes(draw_noise(table(Mix.TIERS, (2, 4, 8)), tree(), [], 1)) == [8, 4, 2, 8, 4, 2, 4], "no second 8 fits"


def test_most_jobs_are_small_where_they_are_drawn() -> None:
    large = tree(minipods=64, leaves=4, nodes=4)
    stochastic = sizes(draw_noise(table(Mix.STOCHASTIC_TIERS, (2, 4, 8)), large, [], 1))
    shares = [stochastic.count(size) / len(stochastic) for size in (2, 4, 8)]
    assert shares == pytest.approx([0.75, 0.2, 0.05], abs=0.06)
    power = sizes(draw_noise(table(Mix.POWER_LAW, (16,)), large, [], 1))
    assert power.count(2) > power.count(4) > power.count(8) and max(power) <= 16


def test_what_has_no_place_is_told() -> None:
    noise = draw_noise(table(Mix.EQUAL, (6,), PlacementClass.LEAF), tree(), [], 1)
    assert not noise.jobs and noise.unplaced == ((6, PlacementClass.LEAF),) * 5
    flat = NodeTree(tiers=("minipod", "core"), fabric=tuple((f"m{node // 4}", "core") for node in range(8)))
    assert draw_noise(table(Mix.EQUAL, (4,), PlacementClass.MINIPOD), flat, [], 1).jobs == ()
    assert [*islice(draw_noise(table(Mix.EQUAL, (4,), PlacementClass.LEAF), flat, [], 1).jobs, 1)]


def test_more_of_the_same_noise_begins_with_the_same_jobs() -> None:
    placement = (PlacementClass.CORE, PlacementClass.LEAF)
    half, full = (
        draw_noise(table(Mix.EQUAL, (4,), *placement, utilisation=share), tree(), [0, 1], 1) for share in (0.5, 0.9)
    )
    assert full.jobs[: len(half.jobs)] == half.jobs
    assert len(half.jobs) < len(full.jobs)


def test_pipelines_have_two_stages_where_nodes_are_even() -> None:
    asked = replace(table(Mix.EQUAL, (6,), utilisation=0.5), pipelines=True, activation=1024)
    assert {(job.step.dp, job.step.pp) for job in draw_noise(asked, tree(), [], 1).jobs} == {(3, 2)}


def test_a_table_is_read_and_all_its_mistakes_are_told() -> None:
    document = {"name": "n", "mix": "tiers", "nodes": [8, 2, 4], "placement": [], "utilisation": 1.2}
    with pytest.raises(ConfigError) as caught:
        files.parse(NoiseTable, document, "campaign.toml")
    text = str(caught.value)
    assert "nodes: found [8, 2, 4], expected 3 for mix tiers, smallest first" in text
    assert "utilisation: found 1.2, expected more than 0 and at most 1" in text
    assert "placement: found none, expected at least one of leaf, minipod" in text
    good = files.parse(NoiseTable, document | {"nodes": [2, 4, 8], "placement": ["core-by-2"], "utilisation": 1}, "c")
    assert good.placement[0].per_leaf == 2 and good.placement[0].scope is PlacementClass.CORE


@pytest.mark.parametrize(
    ("volumes", "fault"),
    [
        ({"activation": 64}, "activation: found 64, which only stages send; leave it out or set pipelines = true"),
        ({"pipelines": True}, "activation: missing; pipelines = true needs the bytes that stages send each other"),
        ({"gradient": 0}, "gradient: found 0, expected bytes"),
        ({"pipelines": True, "gradient": 0}, "gradient: found 0, expected bytes"),
    ],
)
def test_volumes_that_no_job_would_send_are_refused(volumes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        replace(table(Mix.EQUAL, (2,)), **volumes)

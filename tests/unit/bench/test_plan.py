import random
import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import EACH_RAIL, BenchCase, CaseKind, Concurrency, RankOrder
from spanfit.bench.groups import NodeTree, choose_minipods, draw_groups, order_ranks
from spanfit.bench.plan import plan_cases, plan_visits
from spanfit.errors import ConfigError
from spanfit.workload.job import StepJob

CAMPAIGN = """
name = "c"
cluster = "cluster.toml"
seed = 5
launches = 2
blocks = 3
[launch]
launcher = "ssh"
[collectives]
operations = ["all_reduce", "all_gather"]
sizes = ["1M", "4M"]
nodes_per_group = 4
spans = [1, 2]
rank_orders = ["sorted", "alternating"]
concurrency = ["alone", "all"]
[[jobs]]
name = "j"
dp = 4
pp = 2
microbatches = 4
activation = "64K"
gradient = "2M"
forward = "6ms"
backward = "12ms"
"""
TWO_BY_FOUR = ((0, 1, 2, 3), (4, 5, 6, 7))
TREE = NodeTree(tiers=("minipod", "core"), fabric=(("m0", "core"),) * 4 + (("m1", "core"),) * 4)


def campaign_of(**replacements: str) -> CampaignFile:
    """Return the campaign above with the values of some keys replaced by other TOML."""
    lines = []
    for line in CAMPAIGN.splitlines():
        key = line.partition(" = ")[0]
        lines.append(f"{key} = {replacements.pop(key)}" if key in replacements else line)
    assert not replacements
    return files.parse(CampaignFile, tomllib.loads("\n".join(lines)), "c.toml")


def minipods_of(sizes: list[int]) -> list[list[int]]:
    nodes = iter(range(sum(sizes)))
    return [[next(nodes) for _ in range(size)] for size in sizes]


def share(group: tuple[int, ...], minipods: list[list[int]]) -> list[int]:
    """Return how many nodes of the group each minipod that it touches gives."""
    return [count for nodes in minipods if (count := len(set(group) & set(nodes)))]


def hops(group: tuple[int, ...], minipods: list[list[int]]) -> list[bool]:
    """Return for each hop of the ring, the one back to the start last, whether it crosses minipods."""
    where = {node: index for index, nodes in enumerate(minipods) for node in nodes}
    return [where[a] != where[b] for a, b in pairwise((*group, group[0]))]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(SIZES, st.integers(2, 8), st.integers(1, 5), st.integers(0, 99))
def test_groups_span_exactly_k_minipods_disjoint_and_balanced(
    sizes: list[int], nodes_per_group: int, span: int, seed: int
) -> None:
    minipods = minipods_of(sizes)
    try:
        groups = draw_groups([minipods], nodes_per_group, span, random.Random(seed))
    except ValueError:
        # Then not even the fullest minipods hold a group.
        quotas = [len(range(index, nodes_per_group, span)) for index in range(span)]
        fullest = sorted(sizes, reverse=True)[:span]
        assert nodes_per_group < span or len(fullest) < span or any(map(int.__lt__, fullest, quotas))
        return
    used = [node for group in groups for node in group]
    assert len(used) == len(set(used)) == nodes_per_group * len(groups)
    for group in groups:
        shares = share(group, minipods)
        assert len(shares) == span
        assert max(shares) - min(shares) <= 1
        assert list(group) == sorted(group)


@given(st.integers(1, 6), st.integers(2, 4), st.integers(2, 4))
def test_even_groups_use_every_node(groups_of_each: int, per_minipod: int, nminipods: int) -> None:
    minipods = minipods_of([groups_of_each * per_minipod] * nminipods)
    alone = draw_groups([minipods], per_minipod, 1, random.Random(0))
    across = draw_groups([minipods], per_minipod * nminipods, nminipods, random.Random(0))
    assert len(alone) == groups_of_each * nminipods
    assert len(across) == groups_of_each


@given(SIZES, st.integers(2, 8), st.integers(2, 4), st.integers(0, 99))
def test_alternating_crosses_at_every_hop_and_sorted_once_a_minipod(
    sizes: list[int], nodes_per_group: int, span: int, seed: int
) -> None:
    minipods = minipods_of(sizes)
    try:
        groups = draw_groups([minipods], nodes_per_group, span, random.Random(seed))
    except ValueError:
        return
    for group in groups:
        alternating = order_ranks(group, minipods, RankOrder.ALTERNATING)
        assert sorted(alternating) == sorted(group)
        crossings = hops(alternating, minipods)
        assert all(crossings[:-1])
        assert crossings[-1] or nodes_per_group % span
        assert sum(hops(order_ranks(group, minipods, RankOrder.SORTED), minipods)) == span


def test_a_ring_over_two_minipods_crosses_twice_sorted_and_always_alternating() -> None:
    minipods = [list(nodes) for nodes in TWO_BY_FOUR]
    assert hops((0, 1, 4, 5), minipods) == [False, True, False, True]
    assert order_ranks((0, 1, 4, 5), minipods, RankOrder.ALTERNATING) == (0, 4, 1, 5)


def test_cases_are_every_combination_once() -> None:
    cases = [case for case in plan_cases(campaign_of(), TREE) if case.kind is CaseKind.COLLECTIVE]
    found = [(c.operation, c.size_bytes, c.span, c.rank_order, c.concurrency) for c in cases]
    expected = {
        (operation, size, span, rank_order, concurrency)
        for operation in ("all_reduce", "all_gather")
        for size in (1 << 20, 4 << 20)
        for span, rank_order in ((1, "sorted"), (2, "sorted"), (2, "alternating"))
        for concurrency in ("alone", "all")
    }
    assert len(found) == len(expected) == 24
    assert set(found) == expected
    for case in cases:
        assert len(case.groups) == (2 if case.concurrency is Concurrency.ALL else 1)


def test_orders_and_concurrencies_are_compared_on_the_same_nodes() -> None:
    by_span: dict[int, set[frozenset[int]]] = {}
    for case in plan_cases(campaign_of(), TREE):
        if case.kind is CaseKind.COLLECTIVE:
            by_span.setdefault(case.span, set()).add(frozenset(case.groups[0]))
    assert {span: len(groups) for span, groups in by_span.items()} == {1: 1, 2: 1}


def test_a_job_gives_a_case_for_each_arm() -> None:
    steps = [case for case in plan_cases(campaign_of(), TREE) if case.kind is CaseKind.STEP]
    assert [case.arm for case in steps] == ["dp-aligned", "pp-aligned", "packed"] + [
        f"misaligned-{index:02d}" for index in range(7)
    ]
    assert {(case.operation, case.size_bytes, case.span) for case in steps} == {("j", 2 << 20, 2)}
    assert all(isinstance(case.step, StepJob) and case.step.forward_s == 0.006 for case in steps)


def test_sizes_that_round_to_the_same_shares_are_one_case() -> None:
    cases = plan_cases(campaign_of(sizes='["1M", "1024K", "1048577"]', operations='["all_gather"]'), TREE)
    collectives = [case for case in cases if case.kind is CaseKind.COLLECTIVE]
    assert len(collectives) == 6
    assert {case.size_bytes for case in collectives} == {1048576}
    assert len({case.case_id for case in cases}) == len(cases)


def ids(cases: tuple[BenchCase, ...]) -> list[str]:
    return [case.case_id for case in cases]


def test_the_same_file_and_seed_give_the_same_plan() -> None:
    one, other = plan_cases(campaign_of(), TREE), plan_cases(campaign_of(), TREE)
    assert one == other
    assert plan_visits(campaign_of(), one, 1) == plan_visits(campaign_of(), other, 1)
    reseeded = plan_cases(campaign_of(seed="6"), TREE)
    assert sorted(ids(one)) != sorted(ids(reseeded))


def test_every_launch_and_block_has_another_order_of_the_same_cases() -> None:
    campaign = campaign_of()
    cases = plan_cases(campaign, TREE)
    orders = []
    for launch in range(campaign.launches):
        visits = plan_visits(campaign, cases, launch)
        assert [visit.position for visit in visits] == list(range(3 * len(cases)))
        assert [visit.block for visit in visits] == sorted(visit.block for visit in visits)
        for block in range(campaign.blocks):
            order = [visit.case.case_id for visit in visits if visit.block == block]
            assert sorted(order) == sorted(ids(cases))
            orders.append(tuple(order))
    assert len(set(orders)) == 2 * 3
    assert tuple(ids(cases)) not in orders


@pytest.mark.parametrize(
    ("nodes_per_group", "span", "message"),
    [
        (1, 2, "groups of 1 nodes cannot span 2 domains; expected nodes_per_group of at least 2"),
        (2, 3, "groups of 2 nodes cannot span 3 domains; expected nodes_per_group of at least 3"),
        (5, 1, "no group of 5 nodes over 1 domains fits domains of 4, 4 nodes; lower nodes_per_group or spans"),
        (4, 3, "no group of 4 nodes over 3 domains fits domains of 4, 4 nodes"),
        (10, 2, "no group of 10 nodes over 2 domains fits domains of 4, 4 nodes"),
    ],
)
def test_impossible_spans_are_refused_with_numbers(nodes_per_group: int, span: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_groups([TWO_BY_FOUR], nodes_per_group, span, random.Random(0))


def test_every_part_that_the_nodes_cannot_hold_is_told_at_once() -> None:
    with pytest.raises(ValueError) as error:
        plan_cases(campaign_of(spans="[1, 3]", dp="5"), TREE)
    assert str(error.value).splitlines() == [
        "collectives: no group of 4 nodes over 3 domains fits domains of 4, 4 nodes; lower nodes_per_group or spans",
        "job j: 10 nodes cannot be shared evenly by two or more minipods of 4, 4 nodes",
    ]


def test_sizes_that_leave_nothing_to_send_are_refused() -> None:
    with pytest.raises(ValueError) as error:
        plan_cases(campaign_of(sizes='["3", "32", "64"]'), TREE)
    rule = "expected an element, or 16 bytes a rank where ranks share the buffer"
    assert str(error.value).splitlines() == [
        f"collectives.sizes: 3 B leave nothing to send for all_reduce of float32 over 4 ranks; {rule}",
        f"collectives.sizes: 3 B leave nothing to send for all_gather of float32 over 4 ranks; {rule}",
        f"collectives.sizes: 32 B leave nothing to send for all_gather of float32 over 4 ranks; {rule}",
    ]


@pytest.mark.parametrize(
    "changes",
    [{"operations": "[]"}, {"sizes": "[]"}, {"spans": "[]"}, {"spans": "[1]", "rank_orders": '["alternating"]'}],
)
def test_a_sweep_of_nothing_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="nothing to measure"):
        plan_cases(replace(campaign_of(**changes), jobs=()), TREE)


def test_limits_of_launches_that_contradict_one_another_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        campaign_of(launches="6\nmax_launches = 4")
    assert str(error.value).splitlines() == [
        "c.toml: max_launches: found 4 without precision, which alone asks for more launches",
        "c.toml: max_launches: found 4, expected at least launches = 6",
    ]


def test_a_campaign_that_contradicts_itself_is_refused_all_at_once() -> None:
    text = CAMPAIGN.replace('"ssh"', '"testbed"').replace('"alternating"', '"job"')
    text += text[text.index("[[jobs]]") :]
    with pytest.raises(ConfigError) as error:
        files.parse(CampaignFile, tomllib.loads(text), "c.toml")
    assert str(error.value).splitlines() == [
        "c.toml: launch.testbed: missing; launcher testbed needs a testbed file",
        "c.toml: collectives.rank_orders: found 'job', expected 'sorted' or 'alternating'",
        "c.toml: jobs: the name 'j' appears twice",
    ]
    with pytest.raises(ConfigError, match="nothing to measure"):
        files.parse(CampaignFile, tomllib.loads(CAMPAIGN[: CAMPAIGN.index("[collectives]")]), "c.toml")


@pytest.mark.parametrize(
    ("sizes", "ncells", "expected"),
    [
        ([4, 4], 8, [4, 4]),
        ([4, 4], 6, [3, 3]),
        ([1, 5, 4], 8, [4, 4]),
        ([3, 3, 3], 6, [3, 3]),
        ([3, 3, 3], 9, [3, 3, 3]),
        ([2, 2, 2, 2], 8, [2, 2, 2, 2]),
    ],
)
def test_a_job_takes_the_fewest_minipods_that_share_it_evenly(
    sizes: list[int], ncells: int, expected: list[int]
) -> None:
    minipods = minipods_of(sizes)
    chosen = choose_minipods(minipods, ncells)
    assert [len(nodes) for nodes in chosen] == expected
    assert all(any(set(nodes) <= set(minipod) for minipod in minipods) for nodes in chosen)


@pytest.mark.parametrize(("sizes", "ncells"), [([4, 4], 7), ([4, 3], 8), ([8], 8), ([2, 2, 2], 8)])
def test_a_job_that_no_minipods_share_evenly_is_refused(sizes: list[int], ncells: int) -> None:
    with pytest.raises(ValueError, match=f"{ncells} nodes cannot be shared evenly by two or more minipods"):
        choose_minipods(minipods_of(sizes), ncells)


def collectives_of(**replacements: str) -> list[BenchCase]:
    return [case for case in plan_cases(campaign_of(**replacements), TREE) if case.kind is CaseKind.COLLECTIVE]


def swept(text: str, backend: str = "gloo") -> CampaignFile:
    """Return the campaign with more lines in its [collectives] table, or with another table in place of it."""
    head, rest = CAMPAIGN.split("[collectives]")
    table, jobs = rest.split("[[jobs]]")
    body = text if text.startswith("[") else f"[collectives]{table}{text}\n"
    head = head.replace("[launch]", f'backend = "{backend}"\n[launch]')
    document = tomllib.loads(f"{head}{body}\n[[jobs]]{jobs}")
    return files.parse(CampaignFile, document, "c.toml")


def test_dtypes_and_redops_are_combined_where_they_mean_something() -> None:
    campaign = swept('dtypes = ["float32", "int8"]\nredops = ["sum", "max"]\nin_place = [false, true]')
    cases = [case for case in plan_cases(campaign, TREE) if case.kind is CaseKind.COLLECTIVE and case.span == 1]
    found = {(c.operation, c.dtype, c.redop, c.in_place) for c in cases}
    reduced = {("all_reduce", dtype, redop, False) for dtype in ("float32", "int8") for redop in ("sum", "max")}
    gathered = {("all_gather", dtype, "none", place) for dtype in ("float32", "int8") for place in (False, True)}
    assert found == reduced | gathered


def two_rails(**changes: object) -> CampaignFile:
    """Return the campaign with two ranks a node, each rail measured by itself, and changes of its sweep."""
    campaign = campaign_of()
    assert campaign.collectives is not None
    table = replace(campaign.collectives, rails=True, **changes)  # type: ignore[arg-type]
    return replace(campaign, collectives=table, launch=replace(campaign.launch, ranks_per_node=2), jobs=())


def railed(**changes: object) -> list[BenchCase]:
    return [case for case in plan_cases(two_rails(**changes), TREE) if case.kind is CaseKind.COLLECTIVE]


def test_rails_are_measured_one_after_the_other_and_all_groups_at_once_are_those_of_each() -> None:
    cases = railed()
    plain = collectives_of()
    for concurrency, rails in ((Concurrency.ALONE, {0, 1}), (Concurrency.ALL, {EACH_RAIL})):
        own = [case for case in cases if case.concurrency is concurrency]
        assert {case.rail for case in own} == rails
        assert len(own) == len(rails) * sum(case.concurrency is concurrency for case in plain)
    # As many ranks as nodes, so that a group of one rank a node gets the sizes of such a group.
    assert {replace(case, rail=-1) for case in cases} == set(plain)


def test_one_group_of_each_rail_is_more_than_one_group() -> None:
    cases = railed(nodes_per_group=8, spans=(2,), concurrency=(Concurrency.ALL,))
    assert {(case.rail, len(case.groups)) for case in cases} == {(EACH_RAIL, 1)}


def test_rails_need_a_rank_for_each() -> None:
    with pytest.raises(ConfigError, match=r"collectives.rails: found true with launch.ranks_per_node = 1"):
        swept("rails = true")
    with pytest.raises(ConfigError, match=r"pairs.rails: found true with launch.ranks_per_node = 1"):
        swept('[pairs]\nsizes = ["1M"]\nrails = true')


def test_a_barrier_is_one_case_without_a_size() -> None:
    cases = collectives_of(operations='["barrier"]', rank_orders='["sorted"]', concurrency='["alone"]')
    assert [(case.size_bytes, case.redop, case.span) for case in cases] == [(0, "none", 1), (0, "none", 2)]


def test_the_skew_belongs_to_uneven_exchanges_alone() -> None:
    cases = collectives_of(operations='["all_to_all", "all_to_all_v"]')
    assert {(case.operation, case.skew) for case in cases} == {("all_to_all", 1.0), ("all_to_all_v", 1.5)}


def test_groups_that_a_collective_cannot_use_are_refused() -> None:
    operations = '["all_reduce", "hypercube", "send", "exchange"]'
    with pytest.raises(ValueError) as error:
        plan_cases(campaign_of(operations=operations, nodes_per_group="3"), TREE)
    assert str(error.value).splitlines() == [
        "collectives: hypercube cannot run on groups of 3 ranks; expected 2, 4, 8, ... ranks, since it doubles what is "
        "known in each step",
        "collectives: send cannot run on groups of 3 ranks; expected an even number of ranks, since it works in pairs",
        "collectives: exchange cannot run on groups of 3 ranks; expected an even number of ranks, since it works in "
        "pairs",
    ]
    assert {case.operation for case in collectives_of(operations=operations)} == set(
        tomllib.loads(f"x={operations}")["x"]
    )


@pytest.mark.parametrize(
    ("lines", "backend", "message"),
    [
        ('redops = ["avg"]', "gloo", "c.toml: collectives.redops: backend gloo has no avg"),
        ('redops = ["avg"]\ndtypes = ["int8"]', "nccl", "c.toml: collectives.redops: avg of int8 is not exact"),
        ("graph = true", "gloo", "c.toml: collectives.graph: backend gloo has no CUDA graphs"),
        ("skew = 2.5", "gloo", "c.toml: collectives.skew: found 2.5, expected from 1"),
        (
            "[overlap]\nnodes_per_group = 2\nctas = [8]",
            "gloo",
            "c.toml: overlap.ctas: backend gloo has no limit of CTAs",
        ),
        ("[overlap]\nnodes_per_group = 2\nctas = [0, 99]", "nccl", "c.toml: overlap.ctas: found 99, expected 1 to 64"),
        ('[overlap]\nnodes_per_group = 2\noperation = "barrier"', "gloo", "c.toml: overlap.operation: found 'barrier'"),
    ],
)
def test_what_a_backend_has_not_is_refused(lines: str, backend: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        swept(lines, backend)
    (line,) = str(error.value).splitlines()
    assert line.startswith(message)


@pytest.mark.parametrize("lines", ['redops = ["avg"]', "graph = true", "[overlap]\nnodes_per_group = 2\nctas = [0, 8]"])
def test_nccl_has_what_gloo_has_not(lines: str) -> None:
    assert plan_cases(swept(lines, "nccl"), TREE)


def test_a_start_up_is_measured_by_group_size() -> None:
    campaign = replace(swept("[startup]\nnodes_per_group = [2, 8]\nsize = 100"), jobs=())
    cases = plan_cases(campaign, TREE)
    assert [(case.kind, case.groups, case.span) for case in cases] == [
        (CaseKind.STARTUP, ((0, 1),), 1),
        (CaseKind.STARTUP, ((0, 1, 2, 3, 4, 5, 6, 7),), 2),
    ]
    assert {case.size_bytes for case in cases} == {100}


def test_products_are_measured_beside_a_collective_for_every_limit_of_ctas() -> None:
    table = "[overlap]\nnodes_per_group = 4\nsize = 4096\nmatrix = 64\nproducts = 3\nctas = [0, 4]"
    cases = plan_cases(replace(swept(table, "nccl"), jobs=()), TREE)
    assert [(case.kind, case.arm, case.cta, case.matrix, case.products) for case in cases] == [
        (CaseKind.OVERLAP, "", 0, 64, 3),
        (CaseKind.OVERLAP, "cta-4", 4, 64, 3),
    ]


def test_groups_larger_than_the_world_are_refused() -> None:
    campaign = replace(swept("[startup]\nnodes_per_group = [9]"), jobs=())
    with pytest.raises(ValueError, match="nodes_per_group: found 9, expected at most the world's 8 nodes"):
        plan_cases(campaign, TREE)


NOISE = """
name = "c"
cluster = "cluster.toml"
seed = 5
[launch]
launcher = "ssh"
[[jobs]]
name = "j"
dp = 2
pp = 2
microbatches = 4
activation = "64K"
gradient = "2M"
forward = "6ms"
backward = "12ms"
[[noise]]
name = "across"
mix = "equal"
nodes = [2]
placement = ["core"]
utilisation = 1.0
gradient = "1M"
[[noise]]
name = "inside"
mix = "equal"
nodes = [2]
placement = ["leaf"]
utilisation = 0.5
"""


def noisy(text: str = NOISE) -> CampaignFile:
    return files.parse(CampaignFile, tomllib.loads(text), "c.toml")


def test_steps_are_timed_alone_and_beside_each_noise_which_is_the_same_for_every_arm() -> None:
    by_job: dict[str, list[BenchCase]] = {}
    for case in plan_cases(noisy(), TREE):
        by_job.setdefault(case.operation, []).append(case)
        assert case.step is not None and case.step.name == case.operation
    assert list(by_job) == ["j", "j+across", "j+inside"]
    assert {(case.noise, len(case.groups)) for case in by_job["j"]} == {((), 1)}
    for name, njobs, nminipods in (("j+across", 2, 2), ("j+inside", 1, 1)):
        cases = by_job[name]
        assert [case.arm for case in cases] == [case.arm for case in by_job["j"]]
        assert len({case.groups[1:] for case in cases}) == 1
        for case in cases:
            nodes = [node for group in case.groups for node in group]
            assert len(set(nodes)) == len(nodes), "no node is in two jobs"
            assert [len(group) for group in case.groups[1:]] == [2] * njobs == [job.layout.nranks for job in case.noise]
            assert {len({node // 4 for node in group}) for group in case.groups[1:]} == {nminipods}
    assert {job.gradient_bytes for job in by_job["j+across"][0].noise if isinstance(job, StepJob)} == {1 << 20}
    assert plan_cases(noisy(), TREE) == plan_cases(noisy(), TREE)


def test_noise_without_a_job_or_a_node_left_over_is_refused() -> None:
    head, _, jobs_and_noise = NOISE.partition("[[jobs]]")
    with pytest.raises(ConfigError, match="noise: found no step to run beside, expected one"):
        noisy(head + "[startup]\nnodes_per_group = [2]\n[[noise]]" + jobs_and_noise.partition("[[noise]]")[2])
    with pytest.raises(ConfigError, match="noise: the name 'across' appears twice"):
        noisy(NOISE.replace('"inside"', '"across"'))
    with pytest.raises(ValueError) as refused:
        plan_cases(noisy(NOISE.replace("dp = 2", "dp = 4")), TREE)
    assert [line.partition(";")[0] for line in str(refused.value).splitlines()] == [
        "noise across: no job fits 1 of the 0 nodes left over",
        "noise inside: no job fits 0.5 of the 0 nodes left over",
    ]


def test_the_noise_is_the_same_beside_every_job_of_a_campaign_and_on_nodes_of_none() -> None:
    head, _, rest = NOISE.partition("[[jobs]]")
    job, _, noise = rest.partition("[[noise]]")
    pair = job.replace('"j"', '"pair"').replace("pp = 2", "pp = 1")
    cases = plan_cases(noisy(f"{head}[[jobs]]{job}[[jobs]]{pair}[[noise]]{noise}"), TREE)
    for table in ("across", "inside"):
        beside = {case.groups[1:] for case in cases if case.operation.endswith(f"+{table}")}
        assert len(beside) == 1
        taken = {node for group in beside.pop() for node in group}
        assert taken.isdisjoint(node for case in cases for node in case.groups[0])
    assert {case.operation for case in cases if case.noise} == {"j+across", "j+inside", "pair+across", "pair+inside"}


def test_the_mistakes_of_all_jobs_are_told_at_once() -> None:
    head, _, rest = NOISE.partition("[[jobs]]")
    job = rest.partition("[[noise]]")[0].replace("dp = 2", "dp = 5")
    with pytest.raises(ValueError) as refused:
        plan_cases(noisy(head + "[[jobs]]" + job + "[[jobs]]" + job.replace('"j"', '"k"')), TREE)
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == ["job j", "job k"]


def test_steps_are_timed_with_each_limit_of_ctas_where_the_backend_has_one() -> None:
    limited = NOISE.partition("[[noise]]")[0] + "ctas = [4, 0, 8]\n"
    cases = plan_cases(noisy('backend = "nccl"\n' + limited), TREE)
    assert dict.fromkeys((case.operation, case.cta) for case in cases) == dict.fromkeys(
        [("j", 0), ("j@cta-4", 4), ("j@cta-8", 8)]
    )
    assert len({case.case_id for case in cases}) == len(cases) == 3 * sum(case.cta == 0 for case in cases)
    with pytest.raises(ConfigError) as refused:
        noisy(limited)
    assert str(refused.value) == (
        "c.toml: jobs[0].ctas: backend gloo has no limit of CTAs; expected nccl, or ctas = [0]"
    )

"""Groups by the frameworks' own formulas, from nothing but what is rendered for them, against the layout's."""

import ast
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.launch.render.frameworks import Framework, framework_faults, render_framework
from spanfit.workload.layout import ParallelLayout

GOLDEN = Path(__file__).parents[2] / "data/golden"
DENSE = ParallelLayout(dp=6, pp=4, tp=8)
PP_FIRST = ParallelLayout(dp=6, pp=4, tp=8, order="tp-cp-ep-pp-dp")
EXPERTS = ParallelLayout(dp=8, pp=4, tp=2, ep=4)
Groups = set[frozenset[int]]
Mesh = tuple[dict[str, int], tuple[str, ...]]
"""Degrees, and axes from the slowest to the fastest."""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("megatron.txt", render_framework(DENSE, Framework.MEGATRON)),
        ("megatron_pp_first.txt", render_framework(PP_FIRST, Framework.MEGATRON)),
        ("deepspeed.py.txt", render_framework(EXPERTS, Framework.DEEPSPEED)),
        ("torchtitan.txt", render_framework(EXPERTS, Framework.TORCHTITAN)),
    ],
)
def test_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def mesh_groups(mesh: Mesh, *along: str) -> Groups:
    """Return the groups along some axes of a mesh that numbers ranks row by row."""
    degrees, axes = mesh
    ranks = np.arange(np.prod([degrees[axis] for axis in axes])).reshape([degrees[axis] for axis in axes])
    last = np.moveaxis(ranks, [axes.index(axis) for axis in along], range(-len(along), 0))
    return {frozenset(group.tolist()) for group in last.reshape(-1, int(np.prod([degrees[axis] for axis in along])))}


def megatron(text: str, nranks: int) -> dict[str, Groups]:
    """Megatron: the leftmost axis of its order is the fastest; experts have a mesh of their own, in which cp is 1."""
    flags = dict(re.findall(r"--([a-z]+)(?:-[a-z]+)*-size (\d+)", text))
    sizes = {axis: int(flags[word]) for axis, word in (("tp", "tensor"), ("cp", "context"), ("pp", "pipeline"))}
    ep, etp = (int(found) for found in re.findall(r"--expert-(?:model|tensor)-parallel-size (\d+)", text))
    order = "tp-cp-ep-pp-dp" if "--use-tp-pp-dp-mapping" in text else "tp-cp-ep-dp-pp"
    axes = tuple(reversed(order.split("-")))
    dense = sizes | {"ep": 1, "dp": nranks // (sizes["tp"] * sizes["cp"] * sizes["pp"])}
    sparse = {"tp": etp, "cp": 1, "ep": ep, "pp": sizes["pp"], "dp": nranks // (etp * ep * sizes["pp"])}
    assert order.endswith("pp") or sizes["pp"] == 1 or dense["dp"] == sparse["dp"], "Megatron refuses this"
    assert mesh_groups((dense, axes), "pp") == mesh_groups((sparse, axes), "pp"), "Megatron refuses this"
    found = {axis: mesh_groups((dense, axes), axis) for axis in ("tp", "cp", "dp", "pp")}
    return found | {"dp-cp": mesh_groups((dense, axes), "dp", "cp"), "ep": mesh_groups((sparse, axes), "ep")}


def deepspeed(text: str, nranks: int) -> dict[str, Groups]:
    """DeepSpeed: the last axis is the fastest; EP groups are cut from the ranks that a stride of "model" joins."""
    (call,) = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    given_ = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    degrees = dict(zip(given_["axes"], given_["dims"], strict=True))
    mesh = (degrees, tuple(given_["axes"]))
    ep = int((re.findall(r"ep_size=(\d+)", text) or ["1"])[0])
    strided = [list(range(first, nranks, degrees["model"])) for first in range(degrees["model"])]
    experts = {frozenset(ranks[start : start + ep]) for ranks in strided for start in range(0, len(ranks), ep)}
    names = {"tp": "model", "dp": "data", "pp": "pipe"}
    found = {axis: mesh_groups(mesh, name) for axis, name in names.items()}
    return found | {"ep": experts if ep > 1 else {frozenset([rank]) for rank in range(nranks)}}


def torchtitan(text: str, nranks: int) -> dict[str, Groups]:
    """Build torchtitan's two meshes over the same ranks; one of them has ep between efsdp and etp."""
    flags = {name: int(value) for name, value in re.findall(r"--parallelism\.([a-z_]+)_degree (\d+)", text)}
    names = {"pp": "pipeline", "dr": "data_parallel_replicate", "ds": "data_parallel_shard", "cp": "context"}
    names |= {"tp": "tensor", "ep": "expert"}
    degrees = {axis: flags.get(name, flags.get(f"{name}_parallel", 1)) for axis, name in names.items()}
    etp = flags.get("expert_tensor_parallel", 1)
    dense = (degrees, ("pp", "dr", "ds", "cp", "tp"))
    efsdp = degrees["ds"] * degrees["cp"] * degrees["tp"] // (etp * degrees["ep"])
    sparse = (degrees | {"efsdp": efsdp, "etp": etp}, ("pp", "dr", "efsdp", "ep", "etp"))
    assert np.prod([degrees[axis] for axis in dense[1]]) == nranks
    found = {axis: mesh_groups(dense, axis) for axis in ("tp", "cp", "pp")}
    found |= {"dp": mesh_groups(dense, "dr", "ds"), "dp-cp": mesh_groups(dense, "dr", "ds", "cp")}
    return found | {"ep": mesh_groups(sparse, "ep") if degrees["ep"] > 1 else mesh_groups(dense)}


FORMULAS = {Framework.MEGATRON: megatron, Framework.DEEPSPEED: deepspeed, Framework.TORCHTITAN: torchtitan}
ORDERS = ["-".join(axes) for axes in permutations(("tp", "cp", "ep", "dp", "pp"))]


@st.composite
def layouts(draw: st.DrawFn) -> ParallelLayout:
    ep = draw(st.sampled_from((1, 1, 2, 3)))
    cp = draw(st.sampled_from((1, 1, 2)))
    order = draw(st.sampled_from(("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", *ORDERS)))
    dp, pp, tp = ep * draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 4)))
    return ParallelLayout(dp=dp, pp=pp, tp=tp, cp=cp, ep=ep, order=order)


@pytest.mark.parametrize("framework", list(Framework))
@given(layout=layouts())
def test_what_is_rendered_makes_the_groups_that_are_placed(framework: Framework, layout: ParallelLayout) -> None:
    if [*framework_faults(layout, framework)]:
        with pytest.raises(ValueError, match=r"expected|place again"):
            render_framework(layout, framework)
        return
    found = FORMULAS[framework](render_framework(layout, framework), layout.nranks)
    for kind, groups in found.items():
        assert groups == {frozenset(group) for group in layout.groups(kind)}, kind


@pytest.mark.parametrize(
    ("framework", "given_orders"),
    [
        (Framework.MEGATRON, ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")),
        (Framework.TORCHTITAN, ("tp-cp-ep-dp-pp",)),
    ],
)
def test_an_order_is_refused_only_where_its_groups_are_none_that_the_framework_makes(
    framework: Framework, given_orders: tuple[str, ...]
) -> None:
    own = [ParallelLayout(dp=3, pp=2, tp=2, order=order) for order in given_orders]
    made = [FORMULAS[framework](render_framework(layout, framework), layout.nranks) for layout in own]
    for order in ORDERS:
        layout = ParallelLayout(dp=3, pp=2, tp=2, order=order)
        groups = {kind: {frozenset(group) for group in layout.groups(kind)} for kind in ("tp", "dp", "pp")}
        is_given = any(all(found[kind] == groups[kind] for kind in groups) for found in made)
        assert is_given != bool([*framework_faults(layout, framework)]), order


def test_deepspeed_takes_every_order_of_its_axes_but_no_context_parallelism() -> None:
    for order in ORDERS:
        layout = ParallelLayout(dp=3, pp=2, tp=2, order=order)
        found = deepspeed(render_framework(layout, Framework.DEEPSPEED), layout.nranks)
        assert all(found[kind] == {frozenset(group) for group in layout.groups(kind)} for kind in ("tp", "dp", "pp"))
    with pytest.raises(ValueError, match="cp is 2; DeepSpeed's topology has the axes pipe, data and model only"):
        render_framework(ParallelLayout(dp=2, pp=1, cp=2), Framework.DEEPSPEED)


@pytest.mark.parametrize(
    ("layout", "framework", "found"),
    [
        (
            ParallelLayout(dp=4, pp=2, ep=2, order="tp-cp-ep-pp-dp"),
            Framework.MEGATRON,
            "with PP before DP Megatron wants",
        ),
        (
            ParallelLayout(dp=4, pp=2, cp=2, order="tp-cp-ep-pp-dp"),
            Framework.MEGATRON,
            "with PP before DP Megatron wants",
        ),
        (ParallelLayout(dp=4, pp=2, ep=2, cp=2), Framework.MEGATRON, "over the ranks of CP first"),
        (ParallelLayout(dp=4, pp=2, ep=2, cp=2), Framework.TORCHTITAN, "over the ranks of CP first"),
        (ParallelLayout(dp=4, pp=2, order="tp-cp-ep-pp-dp"), Framework.TORCHTITAN, "its mesh is always pp, dp, cp, tp"),
        (ParallelLayout(dp=4, pp=2, tp=2, order="dp-tp-cp-ep-pp"), Framework.MEGATRON, "with --use-tp-pp-dp-mapping"),
        (ParallelLayout(dp=4, pp=2, ep=2, order="tp-cp-ep-pp-dp"), Framework.DEEPSPEED, "DeepSpeed cuts EP groups"),
    ],
)
def test_a_refusal_says_why(layout: ParallelLayout, framework: Framework, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        render_framework(layout, framework)

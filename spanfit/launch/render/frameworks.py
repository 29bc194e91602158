"""Training frameworks: what makes their groups of ranks those that were placed.

A framework numbers ranks in orders of its own. Node order is what a placement fixes, so a job keeps its rows and
columns only if the framework's order is that of its layout; an order that it cannot give is refused.
"""

from collections.abc import Iterator
from enum import StrEnum

from spanfit.workload.layout import MEGATRON, MEGATRON_PP_FIRST, ParallelLayout

_EVERY_AXIS = {"tp": "model", "dp": "data", "pp": "pipe"}


class Framework(StrEnum):
    """The frameworks whose orders are known."""

    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    TORCHTITAN = "torchtitan"


def render_framework(layout: ParallelLayout, framework: Framework) -> str:
    """Return the arguments (for DeepSpeed the Python lines) by which a framework numbers ranks as a layout does.

    Raises
    ------
    ValueError
        With a line for each reason why it cannot.
    """
    if faults := [*framework_faults(layout, framework)]:
        raise ValueError("\n".join(faults))
    match framework:
        case Framework.MEGATRON:
            return _megatron(layout)
        case Framework.DEEPSPEED:
            return _deepspeed(layout)
        case Framework.TORCHTITAN:
            return _torchtitan(layout)


def framework_faults(layout: ParallelLayout, framework: Framework) -> Iterator[str]:
    """Yield why a framework cannot form a layout's groups."""
    match framework:
        case Framework.MEGATRON:
            yield from _megatron_faults(layout)
        case Framework.DEEPSPEED:
            yield from _deepspeed_faults(layout)
        case Framework.TORCHTITAN:
            yield from _torchtitan_faults(layout)


def _axes(layout: ParallelLayout, order: str) -> list[str]:
    """Return the axes of an order that number ranks, fastest first: those of one rank number nothing."""
    return [axis for axis in order.split("-") if axis != "ep" and getattr(layout, axis) > 1]


def _is_ordered_as(layout: ParallelLayout, order: str) -> bool:
    return _axes(layout, layout.order) == _axes(layout, order)


def _megatron_faults(layout: ParallelLayout) -> Iterator[str]:
    if not any(_is_ordered_as(layout, order) for order in (MEGATRON, MEGATRON_PP_FIRST)):
        yield _wrong_order(layout, "Megatron", f"{MEGATRON!r}, or {MEGATRON_PP_FIRST!r} with --use-tp-pp-dp-mapping")
    if layout.ep > 1 and layout.cp > 1:
        yield _experts_over_cp(layout, "Megatron")
    # It asserts this for every model, dense ones too, whose "experts" have no CP.
    if (layout.ep > 1 or layout.cp > 1) and not _is_ordered_as(layout, MEGATRON):
        yield (
            f"ep is {layout.ep} and cp is {layout.cp} with order {layout.order!r}; with PP before DP Megatron wants as "
            f"many data-parallel ranks for experts as for the rest; write order = {MEGATRON!r}, or both as 1, and "
            "place again"
        )


def _megatron(layout: ParallelLayout) -> str:
    sizes = {
        "tensor-model-parallel-size": layout.tp,
        "context-parallel-size": layout.cp,
        "pipeline-model-parallel-size": layout.pp,
        "expert-model-parallel-size": layout.ep,
        "expert-tensor-parallel-size": layout.tp,
    }
    words = [f"--{name} {size}" for name, size in sizes.items()]
    head = f"# Megatron: {layout.nranks} ranks, of which data parallelism takes the {layout.dp} that are left.\n"
    if not _is_ordered_as(layout, MEGATRON):
        head += "# The mapping numbers pipelines before replicas, as the job's order does.\n"
        words.append("--use-tp-pp-dp-mapping")
    return head + "\n".join(words) + "\n"


def _deepspeed_faults(layout: ParallelLayout) -> Iterator[str]:
    if layout.cp > 1:
        yield f"cp is {layout.cp}; DeepSpeed's topology has the axes pipe, data and model only; expected cp = 1"
    if layout.ep > 1 and not _is_ordered_as(layout, MEGATRON):
        yield (
            f"ep is {layout.ep} with order {layout.order!r}; DeepSpeed cuts EP groups from ranks as if the order "
            f"were {MEGATRON!r}; write that, or ep = 1, and place again"
        )


def _deepspeed(layout: ParallelLayout) -> str:
    axes = [axis for axis in reversed(layout.order.split("-")) if axis in _EVERY_AXIS]
    names = ", ".join(f'"{_EVERY_AXIS[axis]}"' for axis in axes)
    dims = ", ".join(str(getattr(layout, axis)) for axis in axes)
    experts = f"# and MoE layers ep_size={layout.ep}\n" if layout.ep > 1 else ""
    return (
        "# DeepSpeed: give PipelineModule this topology; its last axis is the fastest.\n"
        "from deepspeed.runtime.pipe.topology import ProcessTopology\n\n"
        f"topology = ProcessTopology(axes=[{names}], dims=[{dims}])\n{experts}"
    )


def _torchtitan_faults(layout: ParallelLayout) -> Iterator[str]:
    if not _is_ordered_as(layout, MEGATRON):
        yield _wrong_order(
            layout, "torchtitan", f"{MEGATRON!r}: its mesh is always pp, dp, cp, tp, the last the fastest"
        )
    if layout.ep > 1 and layout.cp > 1:
        yield _experts_over_cp(layout, "torchtitan")


def _torchtitan(layout: ParallelLayout) -> str:
    degrees = {
        "pipeline_parallel_degree": layout.pp,
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": layout.dp,
        "context_parallel_degree": layout.cp,
        "tensor_parallel_degree": layout.tp,
        "expert_parallel_degree": layout.ep,
    }
    if layout.ep > 1:
        # Else EP groups would take in the ranks of TP first.
        degrees["expert_tensor_parallel_degree"] = layout.tp
    rule = f" and shard a multiple of {layout.ep}" if layout.ep > 1 else ""
    head = f"# torchtitan: replicate x shard may be any two numbers whose product is {layout.dp}{rule}.\n"
    return head + "".join(f"--parallelism.{name} {degree}\n" for name, degree in degrees.items())


def _wrong_order(layout: ParallelLayout, name: str, given: str) -> str:
    return (
        f"order is {layout.order!r}; {name} numbers ranks as {given}; its groups would not be the rows and columns "
        "that are placed; write an order that it gives into the job file and place again"
    )


def _experts_over_cp(layout: ParallelLayout, name: str) -> str:
    return (
        f"ep is {layout.ep} and cp is {layout.cp}; {name} shares experts out over the ranks of CP first, a job here "
        "over those of DP; expected one of them to be 1"
    )

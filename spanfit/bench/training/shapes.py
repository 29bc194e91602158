"""Which jobs the torch engine trains, how their ranks form a mesh, what they move, and models for given volumes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.models import Model
from spanfit.workload.program import Axis
from spanfit.workload.schedules import Schedule
from spanfit.workload.strategies import bucket_counts
from spanfit.workload.volumes import pp_volume_bytes

_FLOATS = (Dtype.FLOAT32, Dtype.FLOAT64, Dtype.FLOAT16, Dtype.BFLOAT16)
_LEAST_SEQUENCE = 16
_LEAST_PARAMETERS = 64
"""Parameters of a stage for each hidden feature: the MLP has one more or less of two each, so 1.6% at most is lost."""
_HEAD_WIDTH = 8
_VOCABULARY = 4


def faults(job: TrainingJob) -> Iterator[str]:
    """Yield what of a job the torch engine cannot train."""
    model, layout = job.model, job.layout
    for axis in ("tp", "cp", "ep"):
        if getattr(layout, axis) > 1:
            yield f"{axis}: found {getattr(layout, axis)}, expected 1: the torch engine has DP, FSDP and PP only"
    if layout.dp * layout.pp == 1:
        yield "dp: found 1 with pp = 1, expected more than one rank"
    if model.experts or model.latent:
        yield f"model: {model.name} has experts or latent attention; expected a dense transformer"
    if model.tied:
        yield f"model: {model.name} ties its output to its embedding, in another stage; expected tied = false"
    if job.dtype not in _FLOATS:
        yield f"dtype: found {job.dtype!s}, expected one of {', '.join(_FLOATS)}"
    if job.gradient_dtype is not job.dtype:
        yield f"gradient_dtype: found {job.gradient_dtype!s}, expected {job.dtype!s}, as torch keeps the gradients"
    if job.schedule is Schedule.ONE_F_ONE_B and job.nmicrobatches < layout.pp:
        yield f"global_batch: gives {job.nmicrobatches} microbatches, expected at least pp = {layout.pp} with 1f1b"


def mesh_sizes(job: TrainingJob) -> dict[str, int]:
    """Return the axes of the job's mesh with more than one rank, slowest first: the cells of its grid row by row."""
    dp, pp, fsdp = job.layout.dp, job.layout.pp, job.fsdp
    sizes = {"replica": dp // fsdp, "shard": fsdp} if fsdp > 1 else {"dp": dp, "pp": pp}
    return {name: size for name, size in sizes.items() if size > 1}


def mesh_groups(job: TrainingJob, cells: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return for each axis of the mesh the ranks of each of its communicators, in order.

    Parameters
    ----------
    cells : sequence of int
        The rank of each cell of the job's grid, row by row.
    """
    sizes = tuple(mesh_sizes(job).values())
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return tuple(
        tuple(
            tuple(cells[first : first + size * stride : stride])
            for first in range(len(cells))
            if first // stride % size == 0
        )
        for size, stride in zip(sizes, strides, strict=True)
    )


def activation_bytes(job: TrainingJob) -> int:
    """Return the bytes that a microbatch carries over the boundary of two stages, in one direction."""
    return pp_volume_bytes(job.model, microbatch=job.microbatch, tp=1, activation_itemsize=job.dtype.itemsize)


def gradient_bytes(job: TrainingJob) -> tuple[int, ...]:
    """Return the bytes of the gradients of each virtual stage."""
    return tuple(
        bucket_counts(job, job.layers(stage))[Axis.DP] * job.gradient_dtype.itemsize for stage in range(job.nstages)
    )


def model_for(name: str, *, nstages: int, activation_bytes: int, gradient_bytes: int, dtype: Dtype) -> Model:
    """Return the model of one layer a stage that moves given volumes and computes the least.

    Parameters
    ----------
    activation_bytes : int
        What a microbatch of one sequence carries over the boundary of two stages; met exactly.
    gradient_bytes : int
        Of a stage, the mean over stages; met within 2%, and by each stage as near as its embedding or output lets it.

    Raises
    ------
    ValueError
        If no model has these volumes.

    Notes
    -----
    Activations are sequence x hidden, and compute grows with sequence x parameters: so the shortest sequence, with
    the widest features, for which parameters are left.
    """
    activations, parameters = activation_bytes // dtype.itemsize, gradient_bytes // dtype.itemsize
    sequence = _LEAST_SEQUENCE
    while activations * _LEAST_PARAMETERS > parameters * sequence:
        sequence *= 2
    hidden, rest = divmod(activations, sequence)
    if rest or not hidden:
        raise ValueError(
            f"activation: found {activation_bytes} B of {dtype} beside gradients of {gradient_bytes} B, "
            f"expected a multiple of {sequence * dtype.itemsize} B, or larger gradients"
        )
    # For each feature: attention, the norms, and of the ends the embedding, the output and its norm.
    others = 4 * _HEAD_WIDTH + 2 + (2 * _VOCABULARY + 1) / nstages
    return Model(
        name=name,
        layers=nstages,
        hidden=hidden,
        mlp=round((parameters / hidden - others) / 2),
        heads=1,
        kv_heads=1,
        head_width=_HEAD_WIDTH,
        vocabulary=_VOCABULARY,
        sequence=sequence,
        gated=False,
        tied=False,
        positions=False,
        biases=False,
        source="volumes",
    )


def small(job: TrainingJob) -> TrainingJob:
    """Return the job with a model of as many layers and the same parts that one process trains in no time."""
    model = replace(
        job.model,
        hidden=16,
        mlp=24,
        heads=2,
        kv_heads=2 if job.model.heads == job.model.kv_heads else 1,
        head_width=8,
        vocabulary=19,
        sequence=6,
        parameters=None,
    )
    return replace(job, model=model, microbatch=1, global_batch=job.nmicrobatches * job.layout.dp)

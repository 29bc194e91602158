"""``spanfit workload``: models, and what a training step of a job does on every rank."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit import units
from spanfit.cli.output import console, json_option, print_json, print_table, talk
from spanfit.errors import ExitCode

if TYPE_CHECKING:
    from spanfit.workload.job import TrainingJob
    from spanfit.workload.program import Operation, Program


@click.group(epilog="Example: spanfit workload show job.toml --check")
def workload() -> None:
    """Show models, and what a training step of a job does."""


@workload.command("models", epilog="Example: spanfit workload models --models my-models.toml")
@click.option(
    "--models", "file", type=click.Path(path_type=Path), metavar="FILE", help="TOML tables of further models."
)
@json_option
def show_models(file: Path | None, as_json: bool) -> None:
    """List the models that a job file may name, and what their shapes give."""
    from spanfit.bench.job_file import read_models

    models = read_models(file)
    if as_json:
        print_json({name: asdict(model) | {"computed": model.nparameters} for name, model in models.items()})
        return
    columns = ("model", ">parameters", ">active", ">layers", ">hidden", ">heads", ">experts", ">sequence", "source")
    rows = [
        (
            *(model.name, f"{model.nparameters:,}", f"{model.active_parameters:,}", str(model.layers)),
            *(str(model.hidden), f"{model.heads}/{model.kv_heads}"),
            f"{model.experts.top_k} of {model.experts.number}" if model.experts else "",
            *(str(model.sequence), model.source),
        )
        for model in models.values()
    ]
    print_table("Models; heads are those of queries / of keys and values", columns, rows)


@workload.command("show", epilog="Example: spanfit workload show job.toml --rank 0")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(min=0), help="List the operations of this rank too.")
@click.option("--check", is_flag=True, help="Let the programs of all ranks meet: messages, collectives, no deadlock.")
@json_option
def show(job: Path, rank: int | None, check: bool, as_json: bool) -> None:
    """Show what a step of JOB (a TOML job file with a [step] table) does and moves, beside the volume model."""
    from spanfit.bench.job_file import read_training_job
    from spanfit.workload.strategies import plan_step

    spec = read_training_job(job)
    if rank is not None and rank >= spec.layout.nranks:
        raise click.UsageError(f"--rank {rank}: job {spec.name} has ranks 0 to {spec.layout.nranks - 1}")
    program = None if rank is None else plan_step(spec, rank)
    if as_json:
        print_json(_document(spec, rank, program))
    else:
        _print(spec)
        if program is not None:
            print_table(f"Rank {rank}, {_place(spec, rank or 0)}: {len(program)} operations", _COLUMNS, _rows(program))
    if check:
        _check(spec)


def _check(job: "TrainingJob") -> None:
    """Say that all programs fit together, or end with what does not."""
    from spanfit.workload.checks import faults
    from spanfit.workload.strategies import plan_step

    found = faults([plan_step(job, rank) for rank in range(job.layout.nranks)])
    for fault in found:
        talk(fault)
    if found:
        raise click.exceptions.Exit(ExitCode.INTERNAL)
    talk(f"checked {job.layout.nranks} ranks: every message and collective has its other side, and the step ends")


def _document(job: "TrainingJob", rank: int | None, program: "Program | None") -> dict[str, Any]:
    from spanfit.workload.traffic import counted_by_stage, modelled

    document = {
        "job": asdict(job),
        "nmicrobatches": job.nmicrobatches,
        "traffic": {axis: asdict(traffic) for axis, traffic in counted_by_stage(job).items()},
        "modelled_size_bytes": modelled(job),
    }
    if program is None:
        return document
    return document | {"rank": rank, "operations": [_plain(operation) for operation in program]}


def _plain(operation: "Operation") -> dict[str, Any]:
    return {"operation": type(operation).__name__.lower()} | asdict(operation)


def _print(job: "TrainingJob") -> None:
    layout = job.layout
    degrees = {"dp": layout.dp, "fsdp": job.fsdp, "pp": layout.pp, "tp": layout.tp, "cp": layout.cp, "ep": layout.ep}
    shape = ", ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1 or axis in ("dp", "pp"))
    count = "1 microbatch" if job.nmicrobatches == 1 else f"{job.nmicrobatches} microbatches"
    text = (
        f"Job {job.name}: {job.model.name} on {layout.nranks} ranks ({shape}; order {layout.order}), {count} of "
        f"{job.microbatch}, {job.schedule}, {job.dtype} with {job.gradient_dtype} gradients, compute as {job.compute}"
    )
    console().print(text, soft_wrap=True)
    columns = ["stage", "layers", ">parameters a rank", ">FLOPs", ">compute", ">calls", ">moved"]
    print_table("What a rank of each stage does in a step", columns, _stages(job))
    columns = ["groups", ">number", ">ranks", ">calls", ">a rank", ">all ranks", ">volume model", ">counted/model"]
    print_table("What a step moves, by kind of group (S of nccl-tests, summed over ranks)", columns, _traffic(job))
    for line in _paper(job):
        console().print(line, soft_wrap=True)


def _paper(job: "TrainingJob") -> Iterator[str]:
    """Yield what the paper's equations give a GPU, which knows plain GPTs only."""
    from spanfit.workload.volumes import dp_volume_bytes, pp_volume_bytes

    model, layout = job.model, job.layout
    if model.experts is None and not model.gated:
        reduced = dp_volume_bytes(model, pp=layout.pp, tp=layout.tp, gradient_itemsize=job.gradient_dtype.itemsize)
        yield f"Eq. 12: {units.format_size(reduced)} of gradients a rank, with the whole embedding on every stage"
    sent = pp_volume_bytes(
        model, microbatch=job.microbatch, tp=layout.tp, cp=layout.cp, activation_itemsize=job.dtype.itemsize
    )
    if layout.pp > 1:
        yield f"Eq. 13: {units.format_size(sent)} a rank, microbatch and direction between stages"


def _stages(job: "TrainingJob") -> list[tuple[str, ...]]:
    from spanfit.workload.program import Compute
    from spanfit.workload.strategies import bucket_counts, plan_step
    from spanfit.workload.traffic import counted

    rows: list[tuple[str, ...]] = []
    for stage, rank in enumerate(job.layout.group_of("pp", 0)):
        program = plan_step(job, rank)
        computes = [operation for operation in program if isinstance(operation, Compute)]
        layers = [job.layers(virtual) for virtual in range(stage, job.nstages, job.layout.pp)]
        held = sum(sum(bucket_counts(job, part).values()) for part in layers)
        moved = counted([program]).values()
        flops = sum(compute.flops for compute in computes)
        rows.append(
            (
                str(stage),
                ", ".join(_span(part) for part in layers),
                f"{held:,}" if job.fsdp == 1 else f"{held:,} / {job.fsdp}",
                f"{flops:.4g}",
                units.format_time(flops / job.flops_per_s) if job.flops_per_s else "",
                str(sum(each.calls for each in moved)),
                units.format_size(sum(each.size_bytes for each in moved)),
            )
        )
    return rows


def _traffic(job: "TrainingJob") -> list[tuple[str, ...]]:
    from spanfit.workload.traffic import counted_by_stage, modelled

    expected, nranks = modelled(job), job.layout.nranks
    rows: list[tuple[str, ...]] = []
    for axis, traffic in counted_by_stage(job).items():
        size = len(job.group(axis, 0))
        rows.append(
            (
                *(axis.value, str(nranks // size), str(size), str(traffic.calls)),
                units.format_size(traffic.size_bytes // nranks),
                units.format_size(traffic.size_bytes),
                units.format_size(round(expected[axis])),
                f"{traffic.size_bytes / expected[axis]:.4f}",
            )
        )
    return rows


def _span(layers: range) -> str:
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"


def _place(job: "TrainingJob", rank: int) -> str:
    return ", ".join(f"{axis} {index}" for axis, index in sorted(job.layout.coordinate(rank).items()))


_COLUMNS = (">#", "operation", "timer", ">stage", ">microbatch", "direction", "with", ">elements", ">bytes", "handle")


def _rows(program: "Program") -> Sequence[tuple[str, ...]]:
    return [(str(index), *_row(operation)) for index, operation in enumerate(program)]


def _row(operation: "Operation") -> tuple[str, ...]:
    from spanfit.workload.program import Collect, Compute, Receive, Send, Wait

    timer, name, partners, count, size = operation.timer, type(operation).__name__.lower(), "", "", ""
    if isinstance(operation, Compute):
        partners = f"{operation.flops:.4g} FLOPs"
    elif isinstance(operation, Send | Receive):
        partners = f"rank {operation.peer}"
    elif isinstance(operation, Collect):
        name, partners = operation.collective.value, f"{operation.axis}: {_shortened(operation.group)}"
    if isinstance(operation, Send | Receive | Collect):
        count, size = f"{operation.count:,}", units.format_size(operation.size_bytes)
    handle = operation.handle if isinstance(operation, Send | Collect | Wait) else None
    microbatch = "" if timer.microbatch < 0 else str(timer.microbatch)
    direction = "" if timer.direction == "neither" else timer.direction.value
    return name, timer.name, str(timer.stage), microbatch, direction, partners, count, size, handle or ""


def _shortened(group: Sequence[int]) -> str:
    shown = [str(rank) for rank in group]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:3], "...", shown[-1]])

"""Job files and the model table as people write them in TOML."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import MEGATRON, ParallelLayout
from spanfit.workload.models import Model
from spanfit.workload.program import ComputeMode
from spanfit.workload.schedules import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """The ``[step]`` table of a job file: what a training step of the job does.

    ``models`` is a file of models beside spanfit's own, relative to the job file.
    """

    __pydantic_config__ = files.CONFIG

    model: str
    global_batch: files.Count
    microbatch: files.Count = 1
    models: str | None = None
    fsdp: files.Count = 1
    dtype: Dtype = Dtype.BFLOAT16
    gradient_dtype: Dtype | None = None
    schedule: Schedule = Schedule.ONE_F_ONE_B
    virtual_stages: files.Count = 1
    buckets: files.Count = 1
    compute: ComputeMode = ComputeMode.PRODUCTS
    flops_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no mode of a program."""
        if self.compute is ComputeMode.TORCH:
            raise ValueError("compute: found torch, expected products, wait or none; a campaign's engine can be torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The keys of a job file; those without a default are required.

    Attributes
    ----------
    name : str
    dp, pp, tp, cp, ep : int
        Parallel degrees.
    order : str
        Axes from the fastest to the slowest, Megatron's unless said.
    ngpus_per_node : int
    gpu_model : str or None
        Only nodes of this model are used where it is given.
    command : tuple of str
        What torchrun starts on each node; launch files need it.
    step : StepFile or None
        Placing a job needs none.
    """

    __pydantic_config__ = files.CONFIG

    name: files.Name
    dp: files.Count
    pp: files.Count
    tp: files.Count = 1
    cp: files.Count = 1
    ep: files.Count = 1
    order: str = MEGATRON
    ngpus_per_node: files.Count = 8
    gpu_model: str | None = None
    command: tuple[str, ...] = ()
    step: StepFile | None = None

    def __post_init__(self) -> None:
        """Refuse degrees or an order that describe no layout."""
        self.layout()

    def layout(self) -> ParallelLayout:
        """Return the parallel layout; ValueError where the degrees or the order describe none."""
        return ParallelLayout(dp=self.dp, pp=self.pp, tp=self.tp, cp=self.cp, ep=self.ep, order=self.order)


def read_models(path: Path | None = None) -> dict[str, Model]:
    """Return the models by name: spanfit's own and those of a file, which come first where names are the same.

    Raises
    ------
    ConfigError
        With file, table and key of every mistake.
    """
    with resources.as_file(resources.files("spanfit.workload") / "models.toml") as own:
        models = _read_models(own)
    return models | _read_models(path) if path else models


def _read_models(path: Path) -> dict[str, Model]:
    tables = files.read_toml(path, dict[files.Name, dict[str, Any]])
    if wrong := [name for name, table in tables.items() if "name" in table]:
        raise ConfigError(
            "\n".join(f"{path}: {name}.name: unknown key; a model is named by its table" for name in wrong)
        )
    named = {name: table | {"name": name} for name, table in tables.items()}
    return files.parse(dict[str, Model], named, str(path))


def read_training_job(path: Path) -> TrainingJob:
    """Return the training job of a job file with a ``[step]`` table; ConfigError lists everything that is wrong."""
    job = files.read_toml(path, JobFile)
    if job.step is None:
        raise ConfigError(f"{path}: step: missing; what a step does needs a [step] table with model and global_batch")
    models = read_models(path.parent / job.step.models if job.step.models else None)
    try:
        return training_job(job, job.step, pick_model(job.step.model, models, "step.model"))
    except ValueError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def pick_model(name: str, models: Mapping[str, Model], key: str) -> Model:
    """Return the model of a name; ValueError, which says that ``key`` names it, where there is none."""
    if name not in models:
        raise ValueError(
            f"{key}: found {name!r}, expected one of {', '.join(sorted(models))}; "
            f"or add it to a file and name the file in {key}s"
        )
    return models[name]


def training_job(job: JobFile, step: StepFile, model: Model, message_divisor: int = 1) -> TrainingJob:
    """Return the training job of a job file and its step; ValueError has a line for everything that is wrong."""
    return TrainingJob(
        name=job.name,
        model=model,
        layout=job.layout(),
        global_batch=step.global_batch,
        microbatch=step.microbatch,
        fsdp=step.fsdp,
        dtype=step.dtype,
        gradient_dtype=step.gradient_dtype or step.dtype,
        schedule=step.schedule,
        virtual_stages=step.virtual_stages,
        buckets=step.buckets,
        compute=step.compute,
        flops_per_s=step.flops_per_s,
        message_divisor=message_divisor,
    )

"""The ``[[jobs]]`` tables of a campaign: training steps by their volumes, or by a model and how it is spread."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spanfit import files
from spanfit.bench.job_file import JobFile, StepFile, pick_model, training_job
from spanfit.bench.training import shapes
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.layout import MEGATRON
from spanfit.workload.models import Model
from spanfit.workload.program import ComputeMode
from spanfit.workload.schedules import Schedule


class StepEngine(StrEnum):
    """What runs a step: our ranks as the program of a proxy says, or torch, which trains the model itself."""

    PROXY = "proxy"
    TORCH = "torch"


_VOLUMES = ("microbatches", "activation", "gradient", "forward", "backward")
_OF_MODELS = (
    *("models", "global_batch", "microbatch", "tp", "cp", "ep", "fsdp", "order", "dtype", "gradient_dtype"),
    *("virtual_stages", "buckets", "flops_per_s", "message_divisor"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """A ``[[jobs]]`` table.

    A job is known by its volumes (``microbatches``, ``activation``, ``gradient``, ``forward``, ``backward``) or by a
    ``model`` with the keys that job files have. ``message_divisor`` divides what is sent, so that a step of a large
    model keeps its shares of compute and communication on a slow fabric. ``placements`` are files of ``spanfit place``;
    each aligned arm is measured in ``moves`` more placements that only shuffle its nodes inside minipods. A step
    is timed with the library's choice of thread blocks for its communicators, and with each limit of ``ctas``.
    """

    __pydantic_config__ = files.CONFIG

    name: files.Name
    dp: files.Count
    pp: files.Count
    microbatches: files.Count | None = None
    activation: files.SizeBytes | None = None
    gradient: files.SizeBytes | None = None
    forward: files.Seconds | None = None
    backward: files.Seconds | None = None
    model: str | None = None
    models: str | None = None
    global_batch: files.Count | None = None
    microbatch: files.Count | None = None
    tp: files.Count | None = None
    cp: files.Count | None = None
    ep: files.Count | None = None
    fsdp: files.Count | None = None
    order: str | None = None
    dtype: Dtype | None = None
    gradient_dtype: Dtype | None = None
    virtual_stages: files.Count | None = None
    buckets: files.Count | None = None
    flops_per_s: float | None = None
    message_divisor: files.Count | None = None
    schedule: Schedule | None = None
    compute: ComputeMode | None = None
    engine: StepEngine = StepEngine.PROXY
    placements: tuple[str, ...] = ()
    moves: int = 0
    ctas: tuple[int, ...] = (0,)
    warmup: files.Count = 20
    repetitions: files.Count = 3

    def __post_init__(self) -> None:
        """Refuse a job that is known by nothing, or in two ways at once."""
        faults = [*(self._volume_faults() if self.model is None else self._model_faults()), *self._other_faults()]
        if faults:
            raise ValueError("\n".join(faults))

    def _volume_faults(self) -> Iterator[str]:
        for key in _VOLUMES:
            if getattr(self, key) is None:
                yield f"{key}: missing; a job needs {', '.join(_VOLUMES)}, or model and global_batch"
        for key in _OF_MODELS:
            if getattr(self, key) is not None:
                yield f"{key}: found {getattr(self, key)}, which only a job with a model has; leave it out or add model"
        if self.schedule is Schedule.INTERLEAVED:
            yield "schedule: found interleaved, which only a job with a model has; expected gpipe or 1f1b"
        if self.compute is ComputeMode.PRODUCTS:
            yield "compute: found products, whose shapes only a model gives; expected wait or none, or add model"
        if self.engine is StepEngine.TORCH:
            yield "engine: found torch, which trains a model; expected proxy, or add model"

    def _model_faults(self) -> Iterator[str]:
        for key in _VOLUMES:
            if getattr(self, key) is not None:
                yield f"{key}: found {getattr(self, key)} beside model, whose shapes give it; leave one of them out"
        if self.global_batch is None:
            yield "global_batch: missing; a job with a model needs the sequences of a step"
        if self.engine is StepEngine.TORCH:
            for key in ("compute", "message_divisor"):
                if getattr(self, key) is not None:
                    yield f"{key}: found {getattr(self, key)} with engine torch, which trains a model; leave it out"

    def _other_faults(self) -> Iterator[str]:
        if self.compute is ComputeMode.TORCH:
            yield "compute: found torch, expected products, wait or none; it is the engine that can be torch"
        if self.moves < 0:
            yield f"moves: found {self.moves}, expected at least 0"
        if any(self.ctas) and self.engine is StepEngine.TORCH:
            yield f"ctas: found {list(self.ctas)} with engine torch, which makes its own communicators; leave it out"

    def job(self, models: Mapping[str, Model]) -> Job:
        """Return the job in stored units; ValueError has a line for everything that is wrong.

        Parameters
        ----------
        models : mapping of str to Model
            The models that the table may name.
        """
        return self._step_job() if self.model is None else self._training_job(self.model, models)

    def _step_job(self) -> StepJob:
        return StepJob(
            name=self.name,
            dp=self.dp,
            pp=self.pp,
            nmicrobatches=self.microbatches or 0,
            activation_bytes=self.activation or 0,
            gradient_bytes=self.gradient or 0,
            forward_s=self.forward or 0.0,
            backward_s=self.backward or 0.0,
            schedule=self.schedule or Schedule.GPIPE,
            compute=self.compute or ComputeMode.WAIT,
        )

    def _training_job(self, model: str, models: Mapping[str, Model]) -> TrainingJob:
        job = JobFile(
            name=self.name,
            dp=self.dp,
            pp=self.pp,
            tp=self.tp or 1,
            cp=self.cp or 1,
            ep=self.ep or 1,
            order=self.order or MEGATRON,
        )
        step = StepFile(
            model=model,
            global_batch=self.global_batch or 0,
            microbatch=self.microbatch or 1,
            fsdp=self.fsdp or 1,
            dtype=self.dtype or Dtype.BFLOAT16,
            gradient_dtype=self.gradient_dtype,
            schedule=self.schedule or Schedule.ONE_F_ONE_B,
            virtual_stages=self.virtual_stages or 1,
            buckets=self.buckets or 1,
            compute=self.compute or ComputeMode.PRODUCTS,
            flops_per_s=self.flops_per_s,
        )
        found = training_job(job, step, pick_model(model, models, "model"), self.message_divisor or 1)
        if self.engine is StepEngine.PROXY:
            return found
        if faults := [*shapes.faults(found)]:
            raise ValueError("\n".join(faults))
        return replace(found, compute=ComputeMode.TORCH)

"""The campaign file as people write it."""

from dataclasses import dataclass, field
from enum import StrEnum

from spanfit import files
from spanfit.bench.case import Concurrency, RankOrder
from spanfit.collectives import Collective
from spanfit.workload.step import ComputeMode, Schedule, StepJob


class Backend(StrEnum):
    """The torch.distributed backend that is measured."""

    GLOO = "gloo"
    NCCL = "nccl"


class Launcher(StrEnum):
    """How ranks are started on the nodes."""

    TESTBED = "testbed"
    TESTBED_TORCHRUN = "testbed-torchrun"
    SSH = "ssh"


class Dtype(StrEnum):
    """Element types of the buffers."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"


DTYPE_ITEMSIZE = {Dtype.FLOAT32: 4, Dtype.FLOAT16: 2, Dtype.BFLOAT16: 2, Dtype.FLOAT64: 8}


class Redop(StrEnum):
    """Reductions of the collectives that reduce."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """The ``[launch]`` table: how ranks start, what they may inherit, how long a collective may take."""

    __pydantic_config__ = files.CONFIG
    launcher: Launcher
    testbed: str | None = None
    ranks_per_node: files.Count = 1
    port: files.Count = 29500
    timeout: files.Seconds = 60.0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivesFile:
    """The ``[collectives]`` table: what is swept over groups of a fixed size."""

    __pydantic_config__ = files.CONFIG
    operations: tuple[Collective, ...]
    sizes: tuple[files.SizeBytes, ...]
    nodes_per_group: files.Count
    spans: tuple[files.Count, ...]
    rank_orders: tuple[RankOrder, ...] = (RankOrder.SORTED,)
    concurrency: tuple[Concurrency, ...] = (Concurrency.ALONE,)
    tiers: tuple[str, ...] = ("minipod",)
    dtype: Dtype = Dtype.FLOAT32
    redop: Redop = Redop.SUM
    in_place: tuple[bool, ...] = (False,)
    draws: files.Count = 1
    warmup: files.Count = 1
    repetitions: files.Count = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A ``[[jobs]]`` table: a training step by its volumes and its compute."""

    __pydantic_config__ = files.CONFIG
    name: str
    dp: files.Count
    pp: files.Count
    microbatches: files.Count
    activation: files.SizeBytes
    gradient: files.SizeBytes
    forward: files.Seconds
    backward: files.Seconds
    schedule: Schedule = Schedule.GPIPE
    compute: ComputeMode = ComputeMode.WAIT
    warmup: files.Count = 1
    repetitions: files.Count = 3

    def step(self) -> StepJob:
        """Return the step in stored units."""
        return StepJob(
            name=self.name,
            dp=self.dp,
            pp=self.pp,
            nmicrobatches=self.microbatches,
            activation_bytes=self.activation,
            gradient_bytes=self.gradient,
            forward_s=self.forward,
            backward_s=self.backward,
            schedule=self.schedule,
            compute=self.compute,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFile:
    """A campaign file as people write it."""

    __pydantic_config__ = files.CONFIG
    name: files.Name
    cluster: str
    launch: LaunchFile
    nodes: str | None = None
    backend: Backend = Backend.GLOO
    seed: int = 0
    launches: files.Count = 6
    max_launches: files.Count | None = None
    precision: files.Share | None = None
    time_limit: files.Seconds | None = None
    blocks: files.Count = 1
    collectives: CollectivesFile | None = None
    jobs: tuple[JobFile, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a campaign that measures nothing or contradicts itself."""
        faults = []
        if self.collectives is None and not self.jobs:
            faults.append("nothing to measure; expected a [collectives] table or at least one [[jobs]] table")
        if self.launch.launcher is not Launcher.SSH and self.launch.testbed is None:
            faults.append(f"launch.testbed: missing; launcher {self.launch.launcher!s} needs a testbed file")
        if self.collectives is not None and RankOrder.JOB in self.collectives.rank_orders:
            faults.append("collectives.rank_orders: found 'job', expected 'sorted' or 'alternating'")
        names = [job.name for job in self.jobs]
        faults += [
            f"jobs: the name {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        if faults:
            raise ValueError("\n".join(faults))

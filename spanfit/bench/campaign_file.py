"""The campaign file as people write it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from spanfit import files
from spanfit.bench.case import Concurrency, RankOrder
from spanfit.collectives import Collective
from spanfit.workload.step import ComputeMode, Schedule, StepJob


class Backend(StrEnum):
    """What moves the bytes: a torch.distributed backend, or MPI without torch."""

    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"


class Launcher(StrEnum):
    """How ranks are started on the nodes."""

    TESTBED = "testbed"
    TESTBED_TORCHRUN = "testbed-torchrun"
    TESTBED_MPIRUN = "testbed-mpirun"
    SSH = "ssh"
    MPIRUN = "mpirun"
    SRUN = "srun"

    @property
    def on_testbed(self) -> bool:
        """Whether the nodes are hosts of a testbed."""
        return self in (Launcher.TESTBED, Launcher.TESTBED_TORCHRUN, Launcher.TESTBED_MPIRUN)

    @property
    def starts_mpi(self) -> bool:
        """Whether ranks that it starts find one another by MPI."""
        return self in (Launcher.TESTBED_MPIRUN, Launcher.MPIRUN, Launcher.SRUN)


class Dtype(StrEnum):
    """Element types of the buffers."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"


DTYPE_ITEMSIZE = {
    Dtype.FLOAT32: 4,
    Dtype.FLOAT16: 2,
    Dtype.BFLOAT16: 2,
    Dtype.FLOAT64: 8,
    Dtype.INT8: 1,
    Dtype.UINT8: 1,
    Dtype.INT32: 4,
    Dtype.INT64: 8,
}
FLOATS = {Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FLOAT64}


class Redop(StrEnum):
    """Reductions of the collectives that reduce."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """The ``[launch]`` table: how ranks start, what they may inherit, and what is done about one that hangs.

    ``timeout`` is the longest that a phase of a case (preparing, checking, warming up, all timed repetitions) may take.
    With ``exclude_sick`` the campaign goes on without a host that died or hung, where it is known which.
    """

    __pydantic_config__ = files.CONFIG
    launcher: Launcher
    testbed: str | None = None
    ranks_per_node: files.Count = 1
    port: files.Count = 29500
    timeout: files.Seconds = 60.0
    exclude_sick: bool = False
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
    dtypes: tuple[Dtype, ...] = (Dtype.FLOAT32,)
    redops: tuple[Redop, ...] = (Redop.SUM,)
    skew: float = 1.5
    graph: bool = False
    in_place: tuple[bool, ...] = (False,)
    draws: files.Count = 1
    warmup: files.Count = 20
    repetitions: files.Count = 5

    def faults(self, backend: Backend) -> Iterator[str]:
        """Yield what of the table contradicts itself or is more than the backend can."""
        if RankOrder.JOB in self.rank_orders:
            yield "collectives.rank_orders: found 'job', expected 'sorted' or 'alternating'"
        if not 1 <= self.skew <= 2:
            yield f"collectives.skew: found {self.skew}, expected from 1 (even) to 2 (the last rank gets nothing)"
        if self.graph and backend is not Backend.NCCL:
            yield f"collectives.graph: backend {backend!s} has no CUDA graphs; expected nccl, or graph = false"
        if self.graph and Collective.BARRIER in self.operations:
            yield "collectives.graph: a barrier waits on the host and cannot be captured; give it another campaign"
        if Redop.AVG in self.redops:
            yield from self._avg_faults(backend)

    def _avg_faults(self, backend: Backend) -> Iterator[str]:
        if backend is not Backend.NCCL:
            yield f"collectives.redops: backend {backend!s} has no avg; expected sum, product, min or max"
        if whole := [dtype for dtype in self.dtypes if dtype not in FLOATS]:
            yield f"collectives.redops: avg of {', '.join(whole)} is not exact; expected dtypes of floats with avg"


_PAIR_OPERATIONS = (Collective.SEND, Collective.EXCHANGE, Collective.SEND_RECV)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsFile:
    """The ``[pairs]`` table: a scan over pairs of nodes.

    ``all`` measures the disjoint pairs of a round at once, ``alone`` one pair after the other. ``sample`` is the number
    of partners that each node meets in each tier; unless said, all up to 64 nodes and 16 beyond.
    """

    __pydantic_config__ = files.CONFIG
    sizes: tuple[files.SizeBytes, ...]
    operation: Collective = Collective.SEND
    concurrency: tuple[Concurrency, ...] = (Concurrency.ALL,)
    sample: files.Count | None = None
    dtype: Dtype = Dtype.FLOAT32
    warmup: files.Count = 20
    repetitions: files.Count = 5

    def faults(self) -> Iterator[str]:
        """Yield what a scan of pairs cannot do."""
        if self.operation not in _PAIR_OPERATIONS:
            yield f"pairs.operation: found {self.operation!s}, expected one of {', '.join(_PAIR_OPERATIONS)}"
        if Concurrency.PAIR in self.concurrency or not self.concurrency:
            yield f"pairs.concurrency: found {', '.join(self.concurrency) or 'nothing'}, expected all or alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupFile:
    """The ``[startup]`` table: what making a communicator costs, over the first so many nodes of the world."""

    __pydantic_config__ = files.CONFIG
    nodes_per_group: tuple[files.Count, ...]
    operation: Collective = Collective.ALL_REDUCE
    size: files.SizeBytes = 1 << 20
    dtype: Dtype = Dtype.FLOAT32
    repetitions: files.Count = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapFile:
    """The ``[overlap]`` table: matrix products with a collective beside them.

    ``products`` is best chosen so that the products alone take about as long as the collective alone. ``ctas`` are the
    limits of thread blocks that the communicator gets in turn; 0 leaves it to the library.
    """

    __pydantic_config__ = files.CONFIG
    nodes_per_group: files.Count
    operation: Collective = Collective.ALL_REDUCE
    size: files.SizeBytes = 64 << 20
    dtype: Dtype = Dtype.FLOAT32
    matrix: files.Count = 1024
    products: files.Count = 10
    ctas: tuple[int, ...] = (0,)
    warmup: files.Count = 20
    repetitions: files.Count = 5

    def faults(self, backend: Backend) -> Iterator[str]:
        """Yield what of the table contradicts itself or is more than the backend can."""
        if self.operation is Collective.BARRIER:
            yield "overlap.operation: found 'barrier', expected a collective that moves bytes"
        if wrong := [cta for cta in self.ctas if not 0 <= cta <= 64]:
            yield f"overlap.ctas: found {', '.join(map(str, wrong))}, expected 1 to 64, or 0 for the library's choice"
        if any(self.ctas) and backend is not Backend.NCCL:
            yield f"overlap.ctas: backend {backend!s} has no limit of CTAs; expected nccl, or ctas = [0]"


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
    warmup: files.Count = 20
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
    startup: StartupFile | None = None
    overlap: OverlapFile | None = None
    pairs: PairsFile | None = None
    jobs: tuple[JobFile, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a campaign that measures nothing or contradicts itself."""
        faults = []
        if not any((self.collectives, self.startup, self.overlap, self.pairs, self.jobs)):
            tables = "[collectives], [startup], [overlap], [pairs] or [[jobs]]"
            faults.append(f"nothing to measure; expected a {tables} table")
        if self.pairs is not None:
            faults += self.pairs.faults()
        if self.launch.launcher.on_testbed and self.launch.testbed is None:
            faults.append(f"launch.testbed: missing; launcher {self.launch.launcher!s} needs a testbed file")
        for table in (self.collectives, self.overlap):
            faults += table.faults(self.backend) if table is not None else ()
        names = [job.name for job in self.jobs]
        faults += [
            f"jobs: the name {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        if self.backend is Backend.MPI:
            faults += _mpi_faults(self)
        if faults:
            raise ValueError("\n".join(faults))


def _mpi_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield what the MPI engine cannot do of a campaign."""
    if not campaign.launch.launcher.starts_mpi:
        expected = ", ".join(launcher for launcher in Launcher if launcher.starts_mpi)
        yield f"launch.launcher: {campaign.launch.launcher!s} cannot start backend mpi; expected one of {expected}"
    if campaign.jobs:
        names = ", ".join(job.name for job in campaign.jobs)
        yield f"jobs: backend mpi measures collectives only, not the steps of {names}; expected backend gloo or nccl"
    for table, used in (("startup", campaign.startup), ("overlap", campaign.overlap)):
        if used is not None:
            yield f"{table}: backend mpi measures collectives only; expected backend gloo or nccl"
    sweep, pairs = campaign.collectives, campaign.pairs
    dtypes = [("collectives.dtypes", dtype) for dtype in (sweep.dtypes if sweep else ())]
    for key, dtype in [*dtypes, *([("pairs.dtype", pairs.dtype)] if pairs else [])]:
        if dtype in (Dtype.FLOAT16, Dtype.BFLOAT16):
            yield f"{key}: MPI has no {dtype!s}; expected another"

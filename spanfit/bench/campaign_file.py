"""The campaign file as people write it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from spanfit import files
from spanfit.bench import nccl_tests
from spanfit.bench.case import Concurrency, RankOrder
from spanfit.bench.first_nodes import OverlapFile, StartupFile
from spanfit.bench.job_table import JobTable
from spanfit.bench.noise import NoiseTable
from spanfit.bench.program_table import NcclTestsFile
from spanfit.bench.variants import cta_faults
from spanfit.collectives import Collective
from spanfit.workload.dtypes import Dtype


class Engine(StrEnum):
    """What times the operations: ranks of our own, or the programs of nccl-tests."""

    SPANFIT = "spanfit"
    NCCL_TESTS = "nccl-tests"


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
    LOCAL = "local"

    @property
    def on_testbed(self) -> bool:
        """Whether the nodes are hosts of a testbed."""
        return self in (Launcher.TESTBED, Launcher.TESTBED_TORCHRUN, Launcher.TESTBED_MPIRUN)

    @property
    def starts_mpi(self) -> bool:
        """Whether ranks that it starts find one another by MPI."""
        return self in (Launcher.TESTBED_MPIRUN, Launcher.MPIRUN, Launcher.SRUN)


FLOATS = {Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FLOAT64}


class Redop(StrEnum):
    """Reductions of the collectives that reduce."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


_SETTING = re.compile(r"(NCCL|GLOO|TORCH|OMP|UCX|FI|CUDA|TP|MPIR_CVAR)_[A-Z0-9_]+|OMPI_MCA_[a-z0-9_]+")
_SETTING_EXPECTED = "expected a setting of the communication library such as NCCL_*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """The ``[launch]`` table: how ranks start, what they may inherit, and what is done about one that hangs.

    ``timeout`` is the longest that a phase of a case (preparing, checking, warming up, all timed repetitions) may take.
    With ``exclude_sick`` the campaign goes on without a host that died or hung, where it is known which.
    ``local_environment`` has a table for each local rank, which wins over ``environment``.
    """

    __pydantic_config__ = files.CONFIG
    launcher: Launcher
    testbed: str | None = None
    ranks_per_node: files.Count = 1
    port: files.Count = 29500
    timeout: files.Seconds = 60.0
    exclude_sick: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    local_environment: tuple[dict[str, str], ...] = ()

    def faults(self) -> Iterator[str]:
        """Yield which variables are no settings of a library, and whether local ranks have other than a table each."""
        tables = {"environment": self.environment}
        tables |= {f"local_environment[{index}]": table for index, table in enumerate(self.local_environment)}
        for key, table in tables.items():
            for name in table:
                if not _SETTING.fullmatch(name):
                    yield f"launch.{key}.{name}: found {name!r}, {_SETTING_EXPECTED}"
        if len(self.local_environment) not in (0, self.ranks_per_node):
            yield (
                f"launch.local_environment: found {len(self.local_environment)} tables, expected one for each local "
                f"rank: {self.ranks_per_node}, as ranks_per_node says"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivesFile:
    """The ``[collectives]`` table: what is swept over groups of a fixed size.

    With ``rails`` a group has one GPU of each node, and there is one for each local rank: those of a kind run one rail
    after the other, or all rails at once where ``concurrency`` is ``all``.
    """

    __pydantic_config__ = files.CONFIG
    operations: tuple[Collective, ...]
    sizes: tuple[files.SizeBytes, ...]
    nodes_per_group: files.Count
    spans: tuple[files.Count, ...]
    rank_orders: tuple[RankOrder, ...] = (RankOrder.SORTED,)
    concurrency: tuple[Concurrency, ...] = (Concurrency.ALONE,)
    tiers: tuple[str, ...] = ("minipod",)
    rails: bool = False
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
    of partners that each node meets in each tier; unless said, all up to 64 nodes and 16 beyond. With ``rails`` the
    whole scan is made for each local rank, one GPU of each node taking part.
    """

    __pydantic_config__ = files.CONFIG
    sizes: tuple[files.SizeBytes, ...]
    operation: Collective = Collective.SEND
    concurrency: tuple[Concurrency, ...] = (Concurrency.ALL,)
    rails: bool = False
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
class CampaignFile:
    """A campaign file as people write it."""

    __pydantic_config__ = files.CONFIG
    name: files.Name
    cluster: str
    launch: LaunchFile
    nodes: str | None = None
    engine: Engine = Engine.SPANFIT
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
    jobs: tuple[JobTable, ...] = ()
    noise: tuple[NoiseTable, ...] = ()
    nccl_tests: NcclTestsFile = field(default_factory=NcclTestsFile)

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
        faults += _launch_faults(self)
        faults += _job_faults(self)
        faults += _rail_faults(self)
        faults += _lone_faults(self)
        if self.backend is Backend.MPI:
            faults += _mpi_faults(self)
        faults += _program_faults(self) if self.engine is Engine.NCCL_TESTS else _own_faults(self)
        if faults:
            raise ValueError("\n".join(faults))


def _job_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield which jobs and noise share a name, which limits no backend has, and whether noise has no job beside it."""
    for key, tables in (("jobs", campaign.jobs), ("noise", campaign.noise)):
        names = [table.name for table in tables]
        yield from (
            f"{key}: the name {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})
        )
    for index, job in enumerate(campaign.jobs):
        yield from cta_faults(f"jobs[{index}].ctas", job.ctas, campaign.backend)
    if campaign.noise and not campaign.jobs:
        yield "noise: found no step to run beside, expected one; add a [[jobs]] table"


def _launch_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield limits of launches that contradict one another."""
    if campaign.max_launches is None:
        return
    if campaign.precision is None:
        yield f"max_launches: found {campaign.max_launches} without precision, which alone asks for more launches"
    if campaign.max_launches < campaign.launches:
        yield f"max_launches: found {campaign.max_launches}, expected at least launches = {campaign.launches}"


def _rail_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield the tables that ask for rails where nodes have but one."""
    for name, table in (("collectives", campaign.collectives), ("pairs", campaign.pairs)):
        if table is not None and table.rails and campaign.launch.ranks_per_node == 1:
            yield (
                f"{name}.rails: found true with launch.ranks_per_node = 1; expected false, or a rank for each rail of "
                "a node"
            )


def _lone_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield whether groups have but one rank."""
    sweep = campaign.collectives
    if sweep is not None and sweep.nodes_per_group == 1 and (sweep.rails or campaign.launch.ranks_per_node == 1):
        yield "collectives.nodes_per_group: found 1, which gives groups of one rank; expected at least 2"


def _mpi_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield what the MPI engine cannot do of a campaign."""
    if not campaign.launch.launcher.starts_mpi:
        expected = ", ".join(launcher for launcher in Launcher if launcher.starts_mpi)
        yield f"launch.launcher: {campaign.launch.launcher!s} cannot start backend mpi; expected one of {expected}"
    if campaign.jobs:
        names = ", ".join(job.name for job in campaign.jobs)
        yield f"jobs: backend mpi measures no steps, so not those of {names}; expected backend gloo or nccl"
    if campaign.overlap is not None:
        yield "overlap: backend mpi has no matrix products; expected backend gloo or nccl"
    sweep, pairs = campaign.collectives, campaign.pairs
    dtypes = [("collectives.dtypes", dtype) for dtype in (sweep.dtypes if sweep else ())]
    for key, dtype in [*dtypes, *([("pairs.dtype", pairs.dtype)] if pairs else [])]:
        if dtype in (Dtype.FLOAT16, Dtype.BFLOAT16):
            yield f"{key}: MPI has no {dtype!s}; expected another"


def _own_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield what only the programs of nccl-tests can do."""
    if campaign.launch.launcher is Launcher.LOCAL:
        yield "launch.launcher: local starts one process of nccl-tests; expected engine = 'nccl-tests', or another"
    if campaign.nccl_tests != NcclTestsFile():
        yield "nccl_tests: only engine = 'nccl-tests' reads this table; set the engine or leave the table out"


_PROGRAM_LAUNCHERS = (Launcher.MPIRUN, Launcher.SRUN, Launcher.LOCAL)


def _program_faults(campaign: CampaignFile) -> Iterator[str]:
    """Yield what the programs of nccl-tests cannot do of a campaign."""
    launch = campaign.launch
    yield from campaign.nccl_tests.faults()
    if campaign.backend is not Backend.NCCL:
        yield f"backend: engine nccl-tests measures NCCL, found {campaign.backend!s}; expected nccl"
    if launch.launcher not in _PROGRAM_LAUNCHERS:
        expected = ", ".join(_PROGRAM_LAUNCHERS)
        yield f"launch.launcher: engine nccl-tests is not started by {launch.launcher!s}; expected one of {expected}"
    if launch.exclude_sick:
        yield "launch.exclude_sick: a program of nccl-tests does not tell which host is to blame; expected false"
    if launch.local_environment:
        yield "launch.local_environment: engine nccl-tests gives all ranks the same settings; leave it out"
    for table, used in (("startup", campaign.startup), ("overlap", campaign.overlap), ("jobs", campaign.jobs)):
        if used:
            yield f"{table}: engine nccl-tests measures collectives only; expected engine spanfit"
    if campaign.collectives is not None:
        yield from _program_sweep_faults(campaign.collectives, launch.launcher)
    if campaign.pairs is not None:
        yield from _program_pairs_faults(campaign.pairs, launch.launcher)


def _program_sweep_faults(sweep: CollectivesFile, launcher: Launcher) -> Iterator[str]:
    if missing := [operation for operation in sweep.operations if operation not in nccl_tests.PROGRAMS]:
        expected = ", ".join(nccl_tests.PROGRAMS)
        yield f"collectives.operations: nccl-tests cannot do {', '.join(missing)}; expected any of {expected}"
    if sweep.rails:
        yield "collectives.rails: engine nccl-tests gives a group all ranks of its nodes; expected false"
    if launcher is Launcher.LOCAL and sweep.nodes_per_group != 1:
        yield f"collectives.nodes_per_group: found {sweep.nodes_per_group}; expected 1, the node of launcher local"
    if launcher is Launcher.LOCAL and sweep.concurrency != (Concurrency.ALONE,):
        yield "collectives.concurrency: launcher local runs one group at a time; expected alone"


def _program_pairs_faults(pairs: PairsFile, launcher: Launcher) -> Iterator[str]:
    if pairs.operation is not Collective.SEND_RECV:
        yield f"pairs.operation: nccl-tests cannot do {pairs.operation!s}; expected send_recv"
    if pairs.concurrency != (Concurrency.ALONE,):
        yield "pairs.concurrency: nccl-tests prints one time for all groups of a run, not one a pair; expected alone"
    if pairs.rails:
        yield "pairs.rails: engine nccl-tests gives a pair all ranks of its nodes; expected false"
    if launcher is Launcher.LOCAL:
        yield "pairs: launcher local stays on one node; expected mpirun or srun"

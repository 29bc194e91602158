"""The tables of a scenario file as people write it, each of which says what in it cannot be."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from spanfit import files
from spanfit.queue.simulate.scenario import Announcement
from spanfit.queue.simulate.workload import Told
from spanfit.queue.traces.kinds import PARSERS
from spanfit.queue.traces.synthetic import SyntheticShape
from spanfit.units import parse_duration


def _faults_in(table: object, name: str, keys: tuple[str, ...], *, least_s: float = 0.0) -> Iterator[str]:
    """Yield which keys of a table are no durations, or too short ones."""
    for key in keys:
        text = getattr(table, key)
        if text is None:
            continue
        try:
            if parse_duration(text) < least_s:
                yield f"{name}.{key}: found {text!r}, expected at least {least_s:g}s"
        except ValueError as error:
            yield f"{name}.{key}: {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """The ``[cluster]`` table: a cluster file, or ``nodes`` spread evenly over ``minipods``."""

    __pydantic_config__ = files.CONFIG
    file: str | None = None
    minipods: files.Count | None = None
    nodes: files.Count | None = None
    ngpus_per_node: files.Count = 8

    def faults(self) -> Iterator[str]:
        """Yield whether it says which cluster, once."""
        sizes = (self.minipods, self.nodes)
        if (self.file is None) == (None in sizes) and (self.file is None or sizes != (None, None)):
            yield "cluster: expected either file, or both minipods and nodes"
        if self.minipods and self.nodes and self.nodes < self.minipods:
            yield f"cluster.nodes: found {self.nodes}, expected at least one for each of {self.minipods} minipods"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyTable:
    """The ``[jobs.steady]`` table: jobs drawn from a mix; ``shares`` has the share of jobs of each number of nodes."""

    __pydantic_config__ = files.CONFIG
    shares: dict[files.Count, float]
    median: str
    log_sd: float
    span: str
    load: float
    limit_factors: tuple[float, float] = (1.5, 8.0)

    def faults(self) -> Iterator[str]:
        """Yield what draws no jobs."""
        yield from _faults_in(self, "jobs.steady", ("median", "span"), least_s=1.0)
        if not self.shares or min(self.shares.values()) < 0 or not sum(self.shares.values()):
            yield "jobs.steady.shares: expected shares from 0 up with a sum above 0"
        if self.load <= 0 or self.log_sd < 0:
            yield f"jobs.steady: found load {self.load}, log_sd {self.log_sd}, expected load above 0, log_sd from 0 up"
        if not 1 <= self.limit_factors[0] <= self.limit_factors[1]:
            yield f"jobs.steady.limit_factors: found {self.limit_factors}, expected two from 1 up, in order"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTable:
    """The ``[jobs.synthetic]`` table: a synthetic trace, scaled to a load where one is given."""

    __pydantic_config__ = files.CONFIG
    shape: SyntheticShape
    njobs: files.Count
    days: float
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTable:
    """The ``[jobs.trace]`` table: a trace file, scaled to a load where one is given."""

    __pydantic_config__ = files.CONFIG
    file: str
    kind: str
    load: float | None = None

    def faults(self) -> Iterator[str]:
        """Yield whether its kind is unknown."""
        if self.kind not in PARSERS:
            yield f"jobs.trace.kind: found {self.kind!r}, expected one of {', '.join(PARSERS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTable:
    """The ``[jobs]`` table: exactly one source, and the share of jobs that may be stopped."""

    __pydantic_config__ = files.CONFIG
    steady: SteadyTable | None = None
    synthetic: SyntheticTable | None = None
    trace: TraceTable | None = None
    preemptable_share: float = 0.0

    def faults(self) -> Iterator[str]:
        """Yield what contradicts itself."""
        given = [name for name in ("steady", "synthetic", "trace") if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"jobs: found {', '.join(given) or 'no source'}, expected one of steady, synthetic, trace"
        if not 0 <= self.preemptable_share <= 1:
            yield f"jobs.preemptable_share: found {self.preemptable_share}, expected a share from 0 to 1"
        for table in (self.synthetic, self.trace):
            if table and table.load is not None and table.load <= 0:
                yield f"jobs.load: found {table.load}, expected above 0"
        for source in (self.steady, self.trace):
            if source:
                yield from source.faults()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedTable:
    """A table of ``[[announced]]``: a job that is announced; its times count from the first possible submission."""

    __pydantic_config__ = files.CONFIG
    name: files.Name
    nodes: files.Count
    announced: str
    arrives: str
    runtime: str
    expected: str | None = None
    rows: files.Count | None = None
    columns: files.Count | None = None
    alpha: float = 0.5

    def faults(self) -> Iterator[str]:
        """Yield which times are none."""
        yield from _faults_in(self, f"announced.{self.name}", ("announced", "arrives", "runtime", "expected"))
        if not 0 <= self.alpha <= 1:
            yield f"announced.{self.name}.alpha: found {self.alpha}, expected a share from 0 to 1"

    def value(self) -> Announcement:
        """Return the announced job; it is expected when it arrives unless the table says otherwise."""
        return Announcement(
            job_id=self.name,
            nnodes=self.nodes,
            announced_s=parse_duration(self.announced),
            expected_s=parse_duration(self.expected or self.arrives),
            arrives_s=parse_duration(self.arrives),
            runtime_s=parse_duration(self.runtime),
            nrows=self.rows,
            ncolumns=self.columns,
            alpha=self.alpha,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTable:
    """The ``[forecast]`` table: what the queue is told of runtimes; ``model`` is a file of ``spanfit jct train``."""

    __pydantic_config__ = files.CONFIG
    told: Told = Told.LOGNORMAL
    log_sd: float = 0.5
    model: str | None = None

    def faults(self) -> Iterator[str]:
        """Yield whether a model is given without use, or missing."""
        if (self.told is Told.MODEL) != (self.model is not None):
            yield f"forecast: found told {self.told.value!r}, model {self.model!r}; expected a model with told 'model'"
        if self.log_sd < 0:
            yield f"forecast.log_sd: found {self.log_sd}, expected from 0 up"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsTable:
    """The ``[faults]`` table: mean time between failures of a node, and until it is back."""

    __pydantic_config__ = files.CONFIG
    between: str
    repair: str

    def faults(self) -> Iterator[str]:
        """Yield which times are none."""
        yield from _faults_in(self, "faults", ("between", "repair"), least_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTable:
    """The ``[replay]`` table: what stopped jobs keep, how often levels are noted, and when the replay ends."""

    __pydantic_config__ = files.CONFIG
    checkpoint: str | None = None
    sample: str = "60s"
    until: str | None = None

    def faults(self) -> Iterator[str]:
        """Yield which times are none."""
        yield from _faults_in(self, "replay", ("checkpoint", "sample", "until"), least_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """The whole file but for its ``[rules]``, which are those of a queue."""

    __pydantic_config__ = files.CONFIG
    name: files.Name
    cluster: ClusterTable
    jobs: JobsTable
    announced: tuple[AnnouncedTable, ...] = ()
    forecast: ForecastTable = field(default_factory=ForecastTable)
    faults: FaultsTable | None = None
    replay: ReplayTable = field(default_factory=ReplayTable)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, all of it at once."""
        tables = (self.cluster, self.jobs, *self.announced, self.forecast, self.faults, self.replay)
        if found := [fault for table in tables if table is not None for fault in table.faults()]:
            raise ValueError("\n".join(found))

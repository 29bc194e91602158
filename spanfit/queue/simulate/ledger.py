"""The books of a replay: levels of the cluster, their integrals over time, and a line for each job.

Every change costs a few operations on whole numbers, never a look at all nodes or jobs, so that metrics of a replay of
100,000 jobs are a small part of its time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from spanfit.queue.model.jobs import QueueJob, Reservation
from spanfit.queue.model.nodes import Ground, NodeSet, indices
from spanfit.queue.policy.desk import node_set
from spanfit.queue.simulate.outcome import JobOutcome, Lost, ReplayOutcome, ReservationSpan, Series, Totals


def stranded_nodes(sizes: Iterable[int], largest: int) -> tuple[float, ...]:
    """Return how many of f free nodes of a minipod are stranded, for f from 0 to ``largest``.

    f times the chance that a job does not fit into f nodes, over jobs that fit the largest minipod, drawn by the nodes
    that they ask for.

    >>> stranded_nodes([1, 1, 2], 2)
    (0.0, 0.5, 0.0)
    """
    wanted = Counter[int]()
    for size in sizes:
        if size <= largest:
            wanted[size] += size
    total = sum(wanted.values())
    if not total:
        return (0.0,) * (largest + 1)
    fitting = accumulate(wanted[free] for free in range(largest + 1))
    return tuple(free * (1 - fit / total) for free, fit in enumerate(fitting))


def grid_spreads(job: QueueJob, minipods: Sequence[int]) -> tuple[int, int]:
    """Return the largest spread over columns (DP groups) and rows (PP groups) of a job; zeros without a grid.

    Parameters
    ----------
    job : QueueJob
    minipods : sequence of int
        Minipod of each node in node-rank order, which goes down the columns, as the chooser has it.
    """
    if job.nrows is None or job.ncolumns is None:
        return 0, 0
    columns = [minipods[start : start + job.nrows] for start in range(0, len(minipods), job.nrows)]
    return max(len(set(column)) for column in columns), max(len(set(row)) for row in zip(*columns, strict=True))


class _Line:
    """What is known of a job so far."""

    __slots__ = (
        "dp_spread", "ended_s", "job", "nfailures", "npreemptions", "pp_spread", "retention", "short", "spread",
        "started_s", "waited_s", "waits_since_s", "wanted_s", "was_refused",
    )  # fmt: skip

    def __init__(self, job: QueueJob) -> None:
        self.job = job
        self.wanted_s = job.submitted_s
        self.waits_since_s: float | None = None
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.waited_s = 0.0
        self.npreemptions = self.nfailures = self.spread = self.dp_spread = self.pp_spread = 0
        self.retention: float | None = None
        self.short: float | None = None
        self.was_refused = False

    def outcome(self, now_s: float) -> JobOutcome:
        return JobOutcome(
            job_id=self.job.job_id,
            nnodes=self.job.nnodes,
            is_announced=self.job.is_announced,
            submitted_s=self.job.submitted_s,
            wanted_s=self.wanted_s,
            started_s=self.started_s,
            ended_s=self.ended_s,
            waited_s=self.waited_s + (0.0 if self.waits_since_s is None else now_s - self.waits_since_s),
            npreemptions=self.npreemptions,
            nfailures=self.nfailures,
            spread=self.spread,
            dp_spread=self.dp_spread,
            pp_spread=self.pp_spread,
            retention=self.retention,
            short=self.short,
            was_refused=self.was_refused,
        )


class _Run(NamedTuple):
    """Where a job runs, and since when [s]."""

    nodes: NodeSet
    minipods: tuple[int, ...]
    since_s: float


class Ledger:
    """Keeps the books while a replay runs; every method is called at the time last given to :meth:`advance`.

    Parameters
    ----------
    ground : Ground
    jobs : iterable of QueueJob
        All that will come.
    start_s : float
        Unix time [s].
    sample_s : float
        Between two points of the series [s].
    ngpus_per_node : int
    """

    def __init__(
        self, ground: Ground, jobs: Iterable[QueueJob], *, start_s: float, sample_s: float, ngpus_per_node: int
    ) -> None:
        self._ground, self._start_s, self._sample_s = ground, start_s, sample_s
        self._ngpus_per_node = ngpus_per_node
        self._lines = {job.job_id: _Line(job) for job in jobs}
        self._free_of = [mask.bit_count() for mask in ground.masks]
        self._table = stranded_nodes((line.job.nnodes for line in self._lines.values()), max(self._free_of, default=0))
        self._now_s = self._next_sample_s = start_s
        self._busy: NodeSet = 0
        self._up: NodeSet = ground.everything
        self._reserved: NodeSet = 0
        self._plans: dict[str, tuple[Reservation, float]] = {}
        self._runs: dict[str, _Run] = {}
        self._calendar: list[ReservationSpan] = []
        self._nallocated = self._nwaiting = self._nheld = 0
        self._nfree = sum(self._free_of)
        self._stranded = sum(self._table[free] for free in self._free_of)
        self._sums = [0.0] * 5
        self._lost = dict.fromkeys(Lost, 0.0)
        self._samples: list[tuple[float, int, int, int, int, float]] = []
        self._retention: dict[str, list[tuple[float, float]]] = {}

    def advance(self, at_s: float) -> None:
        """Let time go on to ``at_s`` with the levels as they are."""
        passed_s = at_s - self._now_s
        if passed_s <= 0:
            return
        if self._next_sample_s < at_s:
            self._sample(at_s)
        sums = self._sums
        sums[0] += self._nallocated * passed_s
        sums[1] += self._nfree * passed_s
        sums[4] += self._stranded * passed_s
        if self._nwaiting:
            sums[2] += self._nfree * passed_s
            sums[3] += self._nheld * passed_s
        self._now_s = at_s

    def _sample(self, at_s: float) -> None:
        retained = [(job_id, self._retained(plan)) for job_id, (plan, _) in self._plans.items()]
        level = (self._nallocated, self._up.bit_count(), self._nheld, self._nwaiting, self._stranded)
        while self._next_sample_s < at_s:
            self._samples.append((self._next_sample_s, *level))
            for job_id, share in retained:
                self._retention.setdefault(job_id, []).append((self._next_sample_s, share))
            self._next_sample_s += self._sample_s

    def _retained(self, plan: Reservation) -> float:
        return (plan.nodes & self._busy).bit_count() / max(1, plan.nodes.bit_count())

    def wants(self, job_id: str) -> None:
        """Note that a job is there and wants nodes; an announced one is measured against what it finds.

        A job that was stopped wants them already; one that was refused wants none.
        """
        line = self._lines[job_id]
        if line.waits_since_s is not None or line.was_refused:
            return
        line.wanted_s = line.waits_since_s = self._now_s
        self._nwaiting += 1
        if line.job.is_announced:
            line.short = max(0, line.job.nnodes - self._nfree) / line.job.nnodes
            if job_id in self._plans:
                line.retention = self._retained(self._plans[job_id][0])

    def start(self, job_id: str, order: tuple[int, ...]) -> None:
        """Note that a job starts; RuntimeError where one of its nodes is taken, down or given twice."""
        line, nodes = self._lines[job_id], node_set(order)
        if nodes & (self._busy | ~self._up) or nodes.bit_count() != len(order):
            clash = self._ground.members(nodes & (self._busy | ~self._up))
            raise RuntimeError(f"job {job_id} starts on nodes that it cannot have: {', '.join(clash) or 'some twice'}")
        minipods = tuple(self._ground.minipods[node] for node in order)
        self._busy |= nodes
        self._nallocated += len(minipods)
        self._move(minipods, -1)
        if line.waits_since_s is not None:
            line.waited_s += self._now_s - line.waits_since_s
            line.waits_since_s = None
            self._nwaiting -= 1
        if line.started_s is None:
            line.started_s = self._now_s
        line.spread = len(set(minipods))
        line.dp_spread, line.pp_spread = grid_spreads(line.job, minipods)
        self._runs[job_id] = _Run(nodes, minipods, self._now_s)

    def finish(self, job_id: str) -> None:
        """Note that a job has ended by itself."""
        self._release(job_id)
        self._lines[job_id].ended_s = self._now_s

    def stop(self, job_id: str, why: Lost, lost_s: float) -> None:
        """Note that a run was stopped, with the seconds of work to be done again; its job waits from now on."""
        line = self._lines[job_id]
        self._release(job_id)
        self._lost[why] += lost_s * line.job.nnodes
        line.waits_since_s = self._now_s
        self._nwaiting += 1
        if why is Lost.PREEMPTED:
            line.npreemptions += 1
        else:
            line.nfailures += 1

    def refuse(self, job_id: str) -> None:
        """Note that a job will never run."""
        line = self._lines[job_id]
        line.was_refused = True
        if line.waits_since_s is not None:
            line.waited_s += self._now_s - line.waits_since_s
            line.waits_since_s = None
            self._nwaiting -= 1

    def service(self, up: NodeSet) -> None:
        """Note which nodes are in service; nothing runs on those that left it."""
        left, came = self._up & ~up, up & ~self._up
        self._up = up
        self._move((self._ground.minipods[node] for node in indices(left)), -1)
        self._move((self._ground.minipods[node] for node in indices(came)), +1)

    def reserve(self, reservations: Mapping[str, Reservation]) -> None:
        """Note what is held for announced jobs from now on."""
        for job_id, (plan, since_s) in list(self._plans.items()):
            if job_id not in reservations or reservations[job_id].nodes != plan.nodes:
                self._note_span(job_id, plan.nodes, since_s, is_running=False)
                del self._plans[job_id]
        for job_id, plan in reservations.items():
            since_s = self._plans[job_id][1] if job_id in self._plans else self._now_s
            self._plans[job_id] = plan, since_s
        self._reserved = 0
        for plan, _ in self._plans.values():
            self._reserved |= plan.nodes

    def settle(self) -> None:
        """Take the levels that depend on several changes at once, after the last change of an event."""
        self._nheld = (self._reserved & self._up & ~self._busy).bit_count() if self._reserved else 0

    def close(self, at_s: float) -> ReplayOutcome:
        """Return what was noted up to ``at_s``."""
        self.advance(at_s)
        for job_id, (plan, since_s) in self._plans.items():
            self._note_span(job_id, plan.nodes, since_s, is_running=False)
        for job_id in list(self._runs):
            self._note_run(job_id)
        columns = list(zip(*self._samples, strict=True)) or [()] * 6
        return ReplayOutcome(
            nnodes=len(self._ground.names),
            ngpus_per_node=self._ngpus_per_node,
            jobs=tuple(line.outcome(at_s) for line in self._lines.values()),
            series=Series(
                times_s=columns[0],
                allocated=columns[1],
                up=columns[2],
                held=columns[3],
                waiting=columns[4],
                fragmented=columns[5],
                retention={job_id: tuple(points) for job_id, points in self._retention.items()},
            ),
            totals=self._totals(at_s),
            calendar=tuple(sorted(self._calendar, key=lambda span: (span.from_s, span.job_id, span.is_running))),
        )

    def _totals(self, at_s: float) -> Totals:
        allocated, free, idle, held, fragmented = self._sums
        return Totals(
            span_s=at_s - self._start_s,
            allocated=allocated,
            free=free,
            idle=idle,
            held=held,
            fragmented=fragmented,
            preempted=self._lost[Lost.PREEMPTED],
            failed=self._lost[Lost.FAILED],
            npreemptions=sum(line.npreemptions for line in self._lines.values()),
            nfailures=sum(line.nfailures for line in self._lines.values()),
        )

    def _release(self, job_id: str) -> None:
        self._note_run(job_id)
        run = self._runs.pop(job_id)
        self._busy ^= run.nodes
        self._nallocated -= len(run.minipods)
        self._move(run.minipods, +1)

    def _move(self, minipods: Iterable[int], step: int) -> None:
        """Add ``step`` free nodes to each minipod named, and keep what depends on free nodes."""
        free_of, table = self._free_of, self._table
        for minipod in minipods:
            free = free_of[minipod]
            free_of[minipod] = free + step
            self._stranded += table[free + step] - table[free]
            self._nfree += step

    def _note_run(self, job_id: str) -> None:
        if self._lines[job_id].job.is_announced:
            run = self._runs[job_id]
            self._note_span(job_id, run.nodes, run.since_s, is_running=True)

    def _note_span(self, job_id: str, nodes: NodeSet, from_s: float, *, is_running: bool) -> None:
        if from_s < self._now_s:
            self._calendar.append(
                ReservationSpan(job_id=job_id, nodes=nodes, from_s=from_s, to_s=self._now_s, is_running=is_running)
            )

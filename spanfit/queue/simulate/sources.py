"""Where the jobs of a replay come from: a trace, a synthetic one, or a mix; the drawn ones anew with each seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from spanfit.queue.simulate.workload import JobMix, scaled, steady_jobs
from spanfit.queue.traces.reading import TraceJob
from spanfit.queue.traces.synthetic import SyntheticShape, synthetic_trace


class Source(Protocol):
    """Gives the jobs of a replay."""

    def draw(self, nnodes: int, seed: int) -> tuple[float, Sequence[TraceJob]]:
        """Return the first possible submission, Unix time [s], and jobs for a cluster of so many nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Jobs drawn from a mix, evenly over a time.

    Attributes
    ----------
    mix : JobMix
    span_s : float
        Between the first and the last possible submission [s].
    load : float
        Node-seconds that they bring in a second, over the nodes of the cluster.
    """

    mix: JobMix
    span_s: float
    load: float

    def draw(self, nnodes: int, seed: int) -> tuple[float, Sequence[TraceJob]]:
        """Return jobs from time 0 on; sizes beyond the cluster's are not drawn."""
        mix = replace(self.mix, shares={size: share for size, share in self.mix.shares.items() if size <= nnodes})
        return 0.0, steady_jobs(mix, nnodes=nnodes, load=self.load, start_s=0.0, end_s=self.span_s, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """A synthetic trace of a published shape.

    Attributes
    ----------
    shape : SyntheticShape
    njobs : int
    days : float
    load : float or None
        As of Steady; None leaves submissions as they are drawn.
    """

    shape: SyntheticShape
    njobs: int
    days: float
    load: float | None = None

    def draw(self, nnodes: int, seed: int) -> tuple[float, Sequence[TraceJob]]:
        """Return the jobs of a trace drawn with this seed."""
        trace = synthetic_trace(self.shape, njobs=self.njobs, days=self.days, seed=seed)
        return _loaded(trace.jobs, nnodes, self.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The jobs of a trace, the same with every seed.

    Attributes
    ----------
    jobs : tuple of TraceJob
    load : float or None
        As of Steady; None leaves submissions as they were.
    """

    jobs: tuple[TraceJob, ...]
    load: float | None = None

    def draw(self, nnodes: int, seed: int) -> tuple[float, Sequence[TraceJob]]:
        """Return the jobs; the seed is not used."""
        return _loaded(self.jobs, nnodes, self.load)


def _loaded(jobs: Sequence[TraceJob], nnodes: int, load: float | None) -> tuple[float, Sequence[TraceJob]]:
    chosen = jobs if load is None else scaled(jobs, nnodes=nnodes, load=load)
    return min(job.submit_s for job in chosen), chosen

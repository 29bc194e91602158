"""What happened in Slurm since the queue last looked: the difference of what is seen and what is kept; pure.

Slurm is right about what is: which nodes are there, what runs on them, what has ended. The queue is right about what is
to be: a job that Slurm has not yet started, or not yet stopped, is no difference while the task for it is under way.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spanfit.queue.acting.seen import Seen, SeenJob
from spanfit.queue.acting.service import in_service
from spanfit.queue.acting.slurm_commands import reservation_name
from spanfit.queue.model.events import Arrived, Cancelled, Event, Finished, NodesDown, NodesUp, Submitted, Ticked
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.state import QueueState
from spanfit.queue.state.tasks import Outcome, Task, TaskKind
from spanfit.topology.reading import folded, shown

NO_LIMIT_S = 365 * 86400.0
"""What a job without a time limit and without a forecast is taken to run [s]."""

Deeds = Mapping[str, tuple[TaskKind, Outcome]]
"""For each job the last task that put it on nodes or took it off, and how far that has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the queue remembers of the world.

    Attributes
    ----------
    links : mapping of str to str
        What Slurm calls each job of the queue that it knows.
    deeds : mapping
        For each job the last task that put it on nodes or took it off.
    cancelled : frozenset of str
        Names in Slurm of jobs that were cancelled in the queue, which Slurm may not have been told yet.
    reserved : frozenset of str
        Jobs for which a reservation was ever made or told.
    """

    links: Mapping[str, str] = field(default_factory=dict)
    deeds: Deeds = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event, and the name that Slurm has for its job where that is new."""

    event: Event
    link: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is to be told to the queue, what is to be done about it, and what a person should know.

    Attributes
    ----------
    happenings : tuple of Happening
        In the order in which they are to be decided about; time that went on comes last.
    links : mapping of str to str
        Names that Slurm has for jobs that are in the queue already.
    tasks : tuple of Task
        What is to be done though nothing was decided: jobs to hold, or to let into their reservation.
    remarks : tuple of str
    """

    happenings: tuple[Happening, ...]
    links: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events alone."""
        return tuple(happening.event for happening in self.happenings)


def events_of(
    seen: Seen,
    state: QueueState,
    memory: Memory,
    now_s: float,
    predict: Callable[[QueueJob], Forecast] | None = None,
) -> Difference:
    """Return what happened.

    Parameters
    ----------
    seen : Seen
    state : QueueState
    memory : Memory
    now_s : float
        Unix time [s].
    predict : callable or None
        Forecasts jobs whose comment gives no runtime; None for their time limit.
    """
    links, deeds = memory.links, memory.deeds
    found = _identify([job for job in seen.jobs if job.slurm_id not in memory.cancelled], state, links)
    gone = links.keys() - found.keys()
    strays = {job_id: why for job_id, job in found.items() if (why := _stray(job_id, job, state, deeds))}
    back = [job_id for job_id, job in found.items() if _is_back(job_id, job, state, deeds)]
    service = in_service(seen, state, found, {*gone, *strays, *back})
    happenings = (
        *_goings(gone, (*strays, *back), service, state, now_s),
        *_comings(found, state, back, now_s, predict),
        Happening(event=Ticked(at_s=now_s)),
    )
    unlinked = {job_id: job.slurm_id for job_id, job in found.items() if job_id not in links}
    return Difference(
        happenings=happenings,
        links={job_id: slurm_id for job_id, slurm_id in unlinked.items() if _is_here(job_id, state)},
        tasks=(
            *_holds(found, state, back),
            *_admissions(seen, found, state),
            *_leftovers(seen, state, memory.reserved),
        ),
        remarks=(*seen.remarks, *_remarks(seen, state, found), *strays.values()),
    )


def _identify(jobs: Sequence[SeenJob], state: QueueState, links: Mapping[str, str]) -> dict[str, SeenJob]:
    """Return the jobs that are marked or linked by what the queue calls them.

    A job that the queue knows by a name, since it was announced, is the first of that name of the same owner.
    """
    known = {slurm_id: job_id for job_id, slurm_id in links.items()}
    found: dict[str, SeenJob] = {}
    for job in jobs:
        if job.slurm_id in known:
            found[known[job.slurm_id]] = job
    for job in jobs:
        if job.is_marked and job.slurm_id not in known:
            is_named = job.name not in links and job.name not in found and _is_owned(job, state)
            found[job.name if is_named else job.slurm_id] = job
    return found


def _is_owned(job: SeenJob, state: QueueState) -> bool:
    entry = state.waiting.get(job.name) or state.running.get(job.name)
    return entry is not None and entry.job.owner in ("", job.user)


def _stray(job_id: str, job: SeenJob, state: QueueState, deeds: Deeds) -> str:
    """Return why a job is the queue's no longer, or "": it runs where or when the queue did not say."""
    if job.is_pending or job.is_ending:
        return ""
    if job_id in state.waiting:
        kind, outcome = deeds.get(job_id, (TaskKind.START, Outcome.DONE))
        if kind is TaskKind.PREEMPT and outcome is not Outcome.DONE:
            return ""
        return f"job {shown(job_id)} was started on {folded(job.nodes)} by another hand; the queue lets go of it"
    if job_id in state.running:
        expected = set(state.ground.members(state.running[job_id].nodes))
        if job.nodes and set(job.nodes) != expected:
            there, here = folded(job.nodes), folded(sorted(expected))
            return f"job {shown(job_id)} runs on {there}, the queue gave it {here}; the queue lets go of it"
    return ""


def _is_back(job_id: str, job: SeenJob, state: QueueState, deeds: Deeds) -> bool:
    """Return whether a job that was started waits in Slurm again, held: it was requeued by another hand."""
    has_started = deeds.get(job_id) == (TaskKind.START, Outcome.DONE)
    return job_id in state.running and job.is_pending and job.is_held and has_started


def _is_here(job_id: str, state: QueueState) -> bool:
    return job_id in state.running or (job_id in state.waiting and state.waiting[job_id].is_here)


def _goings(
    gone: Collection[str], let_go: Collection[str], service: NodeSet, state: QueueState, now_s: float
) -> Iterator[Happening]:
    """Yield nodes that leave, jobs that end, and nodes that return: no job is to start on what has just left."""
    down, up = state.up & ~service, service & ~state.up
    if down:
        yield Happening(event=NodesDown(at_s=now_s, nodes=down))
    for job_id in sorted((*gone, *let_go)):
        if _is_known(job_id, state):
            yield Happening(event=_ending(job_id, state, gone, down, now_s))
    if up:
        yield Happening(event=NodesUp(at_s=now_s, nodes=up))


def _ending(job_id: str, state: QueueState, gone: Collection[str], down: NodeSet, now_s: float) -> Event:
    """Return how a job leaves: finished, unless it did not run or the loss of its nodes has just thrown it back."""
    run = state.running.get(job_id)
    if job_id in gone and run is not None and not run.nodes & down:
        return Finished(at_s=now_s, job_id=job_id)
    return Cancelled(at_s=now_s, job_id=job_id)


def _comings(
    found: Mapping[str, SeenJob],
    state: QueueState,
    back: Collection[str],
    now_s: float,
    predict: Callable[[QueueJob], Forecast] | None,
) -> Iterator[Happening]:
    for job_id, job in found.items():
        link = (job_id, job.slurm_id)
        if job.is_pending and not job.is_dependent and _is_away(job_id, state):
            yield Happening(event=Arrived(at_s=now_s, job_id=job_id), link=link)
        elif job_id in back or _is_new(job_id, job, state):
            entered = queue_job(job_id, job)
            forecast = forecast_of(job) if predict is None or "mean_s" in job.wishes else predict(entered)
            event = Submitted(at_s=now_s, job=entered, forecast=forecast)
            yield Happening(event=event, link=link)


def _is_known(job_id: str, state: QueueState) -> bool:
    return job_id in state.waiting or job_id in state.running


def _is_away(job_id: str, state: QueueState) -> bool:
    """Return whether a job is announced and not there yet."""
    return job_id in state.waiting and not state.waiting[job_id].is_here


def _is_new(job_id: str, job: SeenJob, state: QueueState) -> bool:
    """Return whether the queue takes up a job that it does not know: one that may start, and can."""
    fits = job.nnodes <= len(state.ground.names)
    return job.is_pending and not job.is_dependent and fits and not _is_known(job_id, state)


def queue_job(job_id: str, job: SeenJob) -> QueueJob:
    """Return a job of Slurm as the queue knows it."""
    wishes = {name: value for name, value in job.wishes.items() if name not in ("mean_s", "upper_s")}
    return QueueJob(
        job_id=job_id,
        nnodes=job.nnodes,
        submitted_s=job.submitted_s,
        time_limit_s=job.time_limit_s,
        owner=job.user,
        department=job.account,
        ncpus=job.ncpus,
        ngpus=job.ngpus,
        **wishes,
    )


def forecast_of(job: SeenJob) -> Forecast:
    """Return the forecast that a job's comment gives, or its time limit where it gives none."""
    limit_s = NO_LIMIT_S if job.time_limit_s is None else job.time_limit_s
    mean_s = min(job.wishes.get("mean_s", limit_s), limit_s)
    upper_s = job.wishes.get("upper_s", limit_s if job.time_limit_s is not None else mean_s)
    return Forecast(mean_s=mean_s, upper_s=max(mean_s, min(upper_s, limit_s)))


def _holds(found: Mapping[str, SeenJob], state: QueueState, back: Collection[str]) -> Iterator[Task]:
    """Yield the jobs that wait in Slurm for something else than the queue."""
    for job_id, job in found.items():
        is_to_wait = job_id in state.waiting or job_id in back or _is_new(job_id, job, state)
        if job.is_pending and not job.is_held and is_to_wait:
            reason = "Slurm might start it before the queue does"
            yield Task(kind=TaskKind.HOLD, job_id=job_id, owner=job.user, reason=reason, outside_id=job.slurm_id)


def _admissions(seen: Seen, found: Mapping[str, SeenJob], state: QueueState) -> Iterator[Task]:
    """Yield the jobs that are to start and are shut out by their own reservation.

    They were released before it was made, or ran before it was and were requeued.
    """
    for job_id, job in found.items():
        name = reservation_name(job_id)
        is_shut_out = job.is_pending and not job.is_held and name in seen.reservations and job.reservation != name
        if job_id in state.running and is_shut_out:
            reason = "it was released outside its reservation"
            yield Task(kind=TaskKind.ADMIT, job_id=job_id, owner=job.user, reason=reason, outside_id=job.slurm_id)


def _leftovers(seen: Seen, state: QueueState, reserved: Collection[str]) -> Iterator[Task]:
    """Yield the reservations that an administrator made when their job had gone already."""
    for job_id in reserved:
        if reservation_name(job_id) in seen.reservations and not _is_known(job_id, state):
            yield Task(kind=TaskKind.RELEASE, job_id=job_id, reason="its job is not in the queue")


def _remarks(seen: Seen, state: QueueState, found: Mapping[str, SeenJob]) -> Iterator[str]:
    absent = [name for name in state.ground.names if name not in seen.nodes]
    if absent:
        yield f"Slurm does not know {folded(absent)}; they are out of service"
    for job_id, job in found.items():
        asked = state.waiting[job_id].job.nnodes if job_id in state.waiting else job.nnodes
        if asked != job.nnodes:
            yield f"job {shown(job_id)} was announced with {asked} nodes and asks Slurm for {job.nnodes}; correct one"
        if job.is_pending and job.is_dependent and not _is_here(job_id, state):
            is_safe = job.is_held or _is_known(job_id, state)
            held = "" if is_safe else f"; hold it until then: scontrol uhold {job.slurm_id}"
            yield f"job {shown(job_id)} depends on other jobs; the queue takes it up when they have ended{held}"
        if _is_known(job_id, state):
            continue
        yield from job.remarks
        if not job.is_pending and not job.is_ending:
            yield f"job {shown(job_id)} ran before the queue saw it; its nodes are not the queue's while it runs"
        elif job.nnodes > len(state.ground.names):
            yield f"job {shown(job_id)} asks for {job.nnodes} nodes, the queue has {len(state.ground.names)}; left out"

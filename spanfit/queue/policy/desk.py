"""The working copy of a decision: what a state becomes while an event is dealt with, and what is decided so far."""

from bisect import bisect_left, insort
from dataclasses import replace

from spanfit.queue.model.events import Decision, DecisionKind
from spanfit.queue.model.jobs import Chooser, Forecast, QueueJob, Reservation, Running, Waiting
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState, Standing
from spanfit.queue.policy.occupancy import expected_end_s, queue_key, standing_of


class Desk:
    """A state that may be changed, and the decisions so far.

    Parameters
    ----------
    state : QueueState
        It stays as it is.
    at_s : float
        The time of the event; the desk's is never before the state's [s].
    rules : QueueRules
    choose : Chooser
    """

    def __init__(self, state: QueueState, at_s: float, rules: QueueRules, choose: Chooser) -> None:
        standing = standing_of(state, rules)
        self.ground, self.rules, self.choose = state.ground, rules, choose
        self.now_s = max(state.now_s, at_s)
        self.up = state.up
        self.waiting, self.running = dict(state.waiting), dict(state.running)
        self.reservations = dict(state.reservations)
        self.taken = standing.taken
        self.queue, self.ages = list(standing.queue), list(standing.ages)
        self.announced = set(standing.announced)
        self.fresh: list[str] = []
        self.decisions: list[Decision] = []
        self.ends = list(standing.ends)
        self._expect_anew()

    def _expect_anew(self) -> None:
        """Expect later ends of jobs that should have ended by now."""
        while self.ends and self.ends[0][0] <= self.now_s:
            job_id = self.ends.pop(0)[1]
            insort(self.ends, (expected_end_s(self.running[job_id], self.now_s, self.rules), job_id))

    def result(self) -> tuple[QueueState, tuple[Decision, ...]]:
        """Return the state that the desk holds now, and what was decided."""
        standing = Standing(
            rules=self.rules,
            taken=self.taken,
            queue=tuple(self.queue),
            ages=tuple(self.ages),
            ends=tuple(self.ends),
            announced=frozenset(self.announced),
        )
        state = QueueState(
            ground=self.ground,
            now_s=self.now_s,
            up=self.up,
            waiting=self.waiting,
            running=self.running,
            reservations=self.reservations,
            standing=standing,
        )
        return state, tuple(self.decisions)

    @property
    def free(self) -> NodeSet:
        """The nodes in service that nothing runs on."""
        return self.up & ~self.taken

    def enter(self, each: Waiting) -> None:
        """Let a job wait."""
        job = each.job
        self.waiting[job.job_id] = each
        if not each.reason:
            self.fresh.append(job.job_id)
        if job.is_announced:
            self.announced.add(job.job_id)
        if each.is_here:
            self._line_up(each)

    def arrive(self, job_id: str) -> None:
        """Let an announced job be there."""
        here = replace(self.waiting[job_id], is_here=True, since_s=self.now_s)
        self.waiting[job_id] = here
        self._line_up(here)

    def _line_up(self, each: Waiting) -> None:
        key = queue_key(each, self.rules)
        insort(self.queue, key)
        insort(self.ages, (each.since_s, key))

    def leave(self, job_id: str) -> Waiting:
        """Let a job wait no longer."""
        each = self.waiting.pop(job_id)
        self.announced.discard(job_id)
        if each.is_here:
            key = queue_key(each, self.rules)
            del self.queue[bisect_left(self.queue, key)]
            del self.ages[bisect_left(self.ages, (each.since_s, key))]
        return each

    def end(self, job_id: str) -> Running:
        """Take a job off its nodes."""
        run = self.running.pop(job_id)
        self.taken &= ~run.nodes
        del self.ends[bisect_left(self.ends, (expected_end_s(run, self.now_s, self.rules), job_id))]
        return run

    def start(self, job_id: str, order: tuple[int, ...], reason: str) -> None:
        """Start a waiting job on nodes; its reservation, if any, has done its work."""
        each = self.leave(job_id)
        self.reservations.pop(job_id, None)
        nodes = node_set(order)
        run = self.running[job_id] = Running(
            job=each.job,
            forecast=each.forecast,
            nodes=nodes,
            order=order,
            started_s=self.now_s,
            npreemptions=each.npreemptions,
        )
        self.taken |= nodes
        insort(self.ends, (expected_end_s(run, self.now_s, self.rules), job_id))
        self.say(DecisionKind.START, job_id, reason, order=order)

    def stop(self, job_id: str, reason: str, forecast: Forecast | None = None) -> None:
        """Stop a running job; it waits again, with another forecast where one is given."""
        run = self.end(job_id)
        self.enter(
            Waiting(
                job=run.job,
                forecast=forecast or run.forecast,
                since_s=self.now_s,
                reason=reason,
                npreemptions=run.npreemptions + 1,
            )
        )
        self.say(DecisionKind.PREEMPT, job_id, reason, order=run.order)

    def reserve(self, reservation: Reservation, reason: str) -> None:
        """Hold nodes for an announced job, instead of those that it may have had."""
        self.reservations[reservation.job_id] = reservation
        self.explain(reservation.job_id, reason, reservation.start_s)
        self.say(DecisionKind.RESERVE, reservation.job_id, reason, order=reservation.order, until_s=reservation.end_s)

    def release(self, job_id: str, reason: str) -> None:
        """Give up a reservation."""
        held = self.reservations.pop(job_id)
        if job_id in self.waiting:
            self.explain(job_id, reason, None)
        self.say(DecisionKind.RELEASE, job_id, reason, order=held.order)

    def wait(self, job_id: str, reason: str, until_s: float | None = None) -> None:
        """Tell why a job waits."""
        self.explain(job_id, reason, until_s)
        self.say(DecisionKind.WAIT, job_id, reason, until_s=until_s)

    def refuse(self, job: QueueJob, reason: str) -> None:
        """Turn a job away."""
        self.say(DecisionKind.REFUSE, job.job_id, reason)

    def explain(self, job_id: str, reason: str, until_s: float | None) -> None:
        """Note why a job waits."""
        self.waiting[job_id] = replace(self.waiting[job_id], reason=reason, until_s=until_s)

    def say(
        self,
        kind: DecisionKind,
        job_id: str,
        reason: str,
        order: tuple[int, ...] = (),
        until_s: float | None = None,
    ) -> None:
        """Add a decision."""
        self.decisions.append(
            Decision(kind=kind, job_id=job_id, at_s=self.now_s, reason=reason, order=order, until_s=until_s)
        )


def node_set(order: tuple[int, ...]) -> NodeSet:
    """Return the set of the nodes of an order."""
    nodes = 0
    for node in order:
        nodes |= 1 << node
    return nodes

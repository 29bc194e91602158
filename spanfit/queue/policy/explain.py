"""Why a job waits and until when, in words and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from spanfit.queue.model.jobs import Waiting
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.admission import Zone
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.occupancy import counted_s, expected_end_s, suitable
from spanfit.queue.policy.packing import pack
from spanfit.queue.policy.passes import RESERVING, Shadows, depth_of, in_order, zones_of
from spanfit.queue.policy.words import clock, nodes_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a job is where it is.

    Attributes
    ----------
    reason : str
    until_s : float or None
        When that is expected to end, Unix time [s]; None where it cannot be told.
    """

    reason: str
    until_s: float | None


def explain_fresh(desk: Desk, zones: list[Zone]) -> None:
    """Tell of each job that began to wait, why."""
    for job_id in desk.fresh:
        each = desk.waiting.get(job_id)
        if each is not None and not each.reason:
            desk.wait(job_id, reason(desk, each, zones), None if each.is_here else each.job.expected_start_s)


def reason(desk: Desk, each: Waiting, zones: list[Zone]) -> str:
    """Return why a job cannot start now.

    Parameters
    ----------
    desk : Desk
    each : Waiting
    zones : list of Zone
        Of reservations and of jobs before it; the latter do not count where too few nodes are free anyway.
    """
    if not each.is_here:
        return _still_to_come(desk, each)
    free = desk.free & suitable(each.job, desk.ground)
    if free.bit_count() < each.job.nnodes:
        zones = [zone for zone in zones if zone.is_open]
    outside = free
    for zone in zones:
        outside &= ~zone.nodes
    needs = f"needs {nodes_in_words(each.job.nnodes)}: {outside.bit_count()} free"
    inside = [(zone, (zone.nodes & free).bit_count()) for zone in zones if zone.nodes & free]
    if not inside:
        return needs
    names = " and ".join(zone.job_id for zone, _ in inside)
    parts = ", ".join(f"{count} more inside until {clock(max(zone.start_s, desk.now_s))}" for zone, count in inside)
    end_s = desk.now_s + counted_s(each.job, each.forecast, desk.rules)
    return f"{needs} outside the zone of {names}; {parts}, predicted end {clock(end_s)}"


def _still_to_come(desk: Desk, each: Waiting) -> str:
    expected_s = each.job.expected_start_s
    assert expected_s is not None
    words = f"is expected at {clock(expected_s)}"
    if desk.rules.policy not in RESERVING:
        return f"{words}; the policy {desk.rules.policy} reserves nothing and queues it when it comes"
    return f"{words}; its nodes are chosen at {clock(expected_s - desk.rules.reserve_ahead_s)}"


def why(state: QueueState, job_id: str, rules: QueueRules) -> Why:
    """Return why a job waits now and until when, or on what it runs and until when.

    Raises
    ------
    KeyError
        If the job neither waits nor runs.
    """
    if (run := state.running.get(job_id)) is not None:
        since = f"runs on {nodes_in_words(len(run.order))} since {clock(run.started_s)}"
        return Why(reason=since, until_s=expected_end_s(run, state.now_s, rules))
    each = state.waiting[job_id]
    if (held := state.reservations.get(job_id)) is not None:
        return Why(reason=each.reason, until_s=held.start_s)
    if each.job.is_announced and (rules.policy in RESERVING or not each.is_here):
        return Why(reason=each.reason, until_s=each.until_s)
    desk = Desk(state, state.now_s, rules, pack)
    zones, ahead = _ahead(desk, job_id)
    found = reason(desk, each, zones)
    if ahead >= depth_of(desk):
        found = f"{found}; {ahead} jobs go before it, and {rules.depth} are looked at at a time"
    elif ahead:
        found = f"{found}; {ahead} go before it" if ahead > 1 else f"{found}; 1 goes before it"
    return Why(reason=found, until_s=predicted_starts(state, rules).get(job_id))


def _ahead(desk: Desk, job_id: str) -> tuple[list[Zone], int]:
    """Return the zones that count for a job now, and how many jobs go before it."""
    ids = [key[2] for key in in_order(desk, len(desk.queue))[1]]
    return zones_of(desk), ids.index(job_id)


def predicted_starts(state: QueueState, rules: QueueRules) -> Mapping[str, float]:
    """Return when each waiting job is expected to start, as far as running and waiting jobs last as predicted.

    Jobs are planned one after the other in the order of the policy, each as early as those before it allow. Jobs with
    reservations start with them; jobs for which no time can be told are left out, as are those beyond the depth of the
    rules.
    """
    desk = Desk(state, state.now_s, rules, pack)
    starts = {job_id: held.start_s for job_id, held in state.reservations.items()}
    shadows = Shadows(desk)
    for _, _, job_id, *_ in in_order(desk, depth_of(desk))[1]:
        if (shadow := shadows.of(desk.waiting[job_id])) is not None:
            starts[job_id] = shadow.start_s
    return starts

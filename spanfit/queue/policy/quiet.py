"""Until when time alone changes nothing, so that a queue need not be looked at again before."""

import math
from bisect import bisect_right
from operator import itemgetter

from spanfit.queue.model.events import DecisionKind
from spanfit.queue.model.jobs import Waiting
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.occupancy import counted_s
from spanfit.queue.policy.passes import RESERVING
from spanfit.queue.policy.reserve import overdue_s


def is_quiet(state: QueueState, now_s: float, rules: QueueRules) -> bool:
    """Return whether nothing can change by a time unless something else happens."""
    kept = state.standing
    return kept is not None and now_s < kept.quiet_until_s and (kept.rules is rules or kept.rules == rules)


def quiet_until_s(desk: Desk, *, is_guarded: bool) -> float:
    """Return the time until which looking again would change nothing, Unix time [s].

    That is the next time at which a job becomes aged, an announced job's reservation is due to be made, used or given
    up, or, where nodes are kept for someone, a job is expected to end and may not. Where something was done while nodes
    were kept or more jobs waited than are looked at, another look may do more: it is now.
    """
    nwaited = len(desk.queue) + sum(decision.kind is DecisionKind.START for decision in desk.decisions)
    is_done = any(decision.order for decision in desk.decisions)
    if is_done and (is_guarded or desk.announced or nwaited > desk.rules.depth):
        return -math.inf
    if desk.rules.policy is PolicyName.PAPER and desk.queue:
        return -math.inf
    times = [_next_aged_s(desk)]
    if desk.ends and (is_guarded or desk.announced):
        times.append(desk.ends[0][0])
    if desk.rules.policy in RESERVING:
        times += [_next_step_s(desk, desk.waiting[job_id]) for job_id in desk.announced]
    return min(times)


def _next_aged_s(desk: Desk) -> float:
    if desk.rules.policy is not PolicyName.SPANFIT:
        return math.inf
    aged = bisect_right(desk.ages, desk.now_s - desk.rules.ageing_s, key=itemgetter(0))
    return desk.ages[aged][0] + desk.rules.ageing_s if aged < len(desk.ages) else math.inf


def _next_step_s(desk: Desk, each: Waiting) -> float:
    """Return when an announced job's reservation is to be made, used or given up next, or others come in its way."""
    expected_s = each.job.expected_start_s
    assert expected_s is not None
    held = desk.reservations.get(each.job.job_id)
    steps = [expected_s - desk.rules.reserve_ahead_s, expected_s, overdue_s(desk, each)]
    lasts_s = counted_s(each.job, each.forecast, desk.rules)
    steps += [other.start_s - lasts_s for other in desk.reservations.values()]
    if held is not None:
        steps += [held.start_s, held.end_s]
    return min((step for step in steps if step > desk.now_s), default=math.inf)

"""Who is where until when, as far as a policy counts on it."""

import math

from spanfit.queue.model.jobs import Forecast, QueueJob, Running, Waiting
from spanfit.queue.model.nodes import Ground, NodeSet
from spanfit.queue.model.rules import PolicyName, QueueRules
from spanfit.queue.model.state import QueueKey, QueueState, Standing


def counted_s(job: QueueJob, forecast: Forecast, rules: QueueRules) -> float:
    """Return how long the policy counts on a job to run [s].

    The mean forecast for the paper's rule, the time limit where there is one for the backfills, else the upper
    quantile; never more than the time limit.
    """
    limit = math.inf if job.time_limit_s is None else job.time_limit_s
    if rules.policy is PolicyName.PAPER:
        return min(forecast.mean_s, limit)
    if rules.policy in (PolicyName.EASY, PolicyName.CONSERVATIVE) and job.time_limit_s is not None:
        return limit
    return min(forecast.upper_s, limit)


def predicted_end_s(run: Running, rules: QueueRules) -> float:
    """Return when a job was predicted to end when it started, one interval later at the earliest."""
    return run.started_s + max(counted_s(run.job, run.forecast, rules), rules.interval_s)


def has_outrun(run: Running, now_s: float, rules: QueueRules) -> bool:
    """Return whether a job still runs although it should have ended by now."""
    return now_s >= predicted_end_s(run, rules)


def expected_end_s(run: Running, now_s: float, rules: QueueRules) -> float:
    """Return when a running job is expected to end, later than now.

    As predicted; once that has passed, one interval of the rules later, then two, four and so on, but at its time limit
    at the latest as long as that is still to come.
    """
    end_s = predicted_end_s(run, rules)
    if end_s > now_s:
        return end_s
    more_s = rules.interval_s
    while end_s + more_s <= now_s:
        more_s *= 2
    limit_s = math.inf if run.job.time_limit_s is None else run.started_s + run.job.time_limit_s
    return min(end_s + more_s, limit_s) if limit_s > now_s else end_s + more_s


def queue_key(each: Waiting, rules: QueueRules) -> QueueKey:
    """Return what orders waiting jobs, the higher priority, the earlier submission, the id; and what it asks for."""
    job = each.job
    lasts_s = counted_s(job, each.forecast, rules)
    return -job.priority, job.submitted_s, job.job_id, job.nnodes, lasts_s, job.is_preemptable


def suitable(job: QueueJob, ground: Ground) -> NodeSet:
    """Return the nodes that a job may use by their GPU model."""
    return ground.everything if job.gpu_model is None else ground.of_model(job.gpu_model)


def standing_of(state: QueueState, rules: QueueRules) -> Standing:
    """Return what follows from a state and the rules, worked out anew unless it is kept beside it."""
    kept = state.standing
    if kept is not None and (kept.rules is rules or kept.rules == rules):
        return kept
    here = [each for each in state.waiting.values() if each.is_here]
    taken = 0
    for run in state.running.values():
        taken |= run.nodes
    return Standing(
        rules=rules,
        taken=taken,
        queue=tuple(sorted(queue_key(each, rules) for each in here)),
        ages=tuple(sorted((each.since_s, queue_key(each, rules)) for each in here)),
        ends=tuple(sorted((expected_end_s(run, state.now_s, rules), job_id) for job_id, run in state.running.items())),
        announced=frozenset(each.job.job_id for each in state.waiting.values() if each.job.is_announced),
    )

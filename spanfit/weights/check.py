"""Whether weights still hold: their time, the kind of fabric, what moves the bytes, and what was measured.

Gains and rates are compared as runs are (``profiler.compare``): launches are the units, differences have Welch's t, a
family of tests is corrected by Holm, and a change counts if it is both told from none and large enough to matter.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
import pandas as pd

from spanfit.bench.arms import DP_ALIGNED, PP_ALIGNED
from spanfit.bench.case import ALL_GPUS, CaseKind, RankOrder
from spanfit.profiler import gains
from spanfit.profiler.cases import CaseKey, CaseTimes, case_times
from spanfit.profiler.compare import SMALLEST_EFFECT, CaseComparison, compare_runs
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.profiler.steps import step_times
from spanfit.results.schema import RunInfo
from spanfit.weights import stale
from spanfit.weights.fabric import fabric_of, other_kind, rate_case
from spanfit.weights.fit import launch_times, run_jobs
from spanfit.weights.model import LaunchTimes, Source, WeightEntry, WeightSet
from spanfit.weights.volumes import volumes_of
from spanfit.workload.job import Job, node_grid


class Aspect(StrEnum):
    """What of weights may have changed."""

    VALIDITY = "validity"
    FABRIC = "fabric"
    LIBRARY = "library"
    GAIN = "gain"
    RATE = "rate"


class State(StrEnum):
    """What is known of it."""

    HOLDS = "holds"
    DRIFTED = "drifted"
    CANNOT_TELL = "cannot tell"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    aspect : Aspect
    subject : str
        The job of a gain, the collective of a rate; else what was compared.
    state : State
    sentence : str
        What was found, for people; the interval of a change of a time or of a gain.
    """

    aspect: Aspect
    subject: str
    state: State
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToMeasure:
    """What to measure again: jobs by name and mode of compute, and collectives."""

    jobs: frozenset[tuple[str, str]]
    operations: frozenset[str]


def to_measure_again(weights: WeightSet, findings: Iterable[Finding]) -> ToMeasure:
    """Return what has drifted or was not measured again; all of it where time, fabric or library have gone by."""
    wanted = [finding for finding in findings if finding.state in (State.DRIFTED, State.NOT_MEASURED)]
    is_over = any(finding.aspect in (Aspect.VALIDITY, Aspect.FABRIC, Aspect.LIBRARY) for finding in wanted)
    names = {aspect: {each.subject for each in wanted if each.aspect is aspect} for aspect in Aspect}
    rates = weights.fabric.tier_rates if weights.fabric else ()
    return ToMeasure(
        jobs=frozenset(
            (entry.job, entry.compute)
            for entry in weights.entries
            if entry.source is Source.MEASURED and (is_over or entry.job in names[Aspect.GAIN])
        ),
        operations=frozenset(rate.operation for rate in rates if is_over or rate.operation in names[Aspect.RATE]),
    )


def check_against_run(weights: WeightSet, info: RunInfo, frame: pd.DataFrame, *, now: datetime) -> tuple[Finding, ...]:
    """Return whether weights hold by what a later run measured.

    Parameters
    ----------
    info : RunInfo
    frame : pandas.DataFrame
        The run's measurements, as ``Store.read`` returns them.

    Notes
    -----
    A gain is compared as the time of its arm over that of the base, in each launch, and has drifted if that is told to
    be 1% off or more; the rate of a collective is compared as its time, and 3% count. Each is a family of its own.
    """
    return (
        *_validity(stale.reasons(weights, now=now)),
        *_fabric(weights, info, frame),
        *_gains(weights, info, frame),
        *_rates(weights, info, frame),
    )


def check_against_nodes(weights: WeightSet, gpu_models: Collection[str], *, now: datetime) -> tuple[Finding, ...]:
    """Return whether weights hold for nodes of which no more is known than the models of their GPUs, if that."""
    time, fabric = (stale.reasons(weights, now=now, gpu_models=each) for each in ((), gpu_models))
    return (
        *_validity(time),
        _gpus(weights, gpu_models, [reason for reason in fabric if reason not in time]),
        Finding(
            aspect=Aspect.GAIN,
            subject="all jobs",
            state=State.CANNOT_TELL,
            sentence="the file of a cluster tells no adapters, library or times; check against a run on it",
        ),
    )


def _validity(reasons: Iterable[str]) -> Iterator[Finding]:
    found = list(reasons)
    yield Finding(
        aspect=Aspect.VALIDITY,
        subject="time",
        state=State.DRIFTED if found else State.HOLDS,
        sentence="; ".join(found) or "still valid",
    )


def _gpus(weights: WeightSet, gpu_models: Collection[str], reasons: list[str]) -> Finding:
    if weights.fabric is None or not gpu_models:
        state, sentence = (
            State.CANNOT_TELL,
            f"the {'nodes' if weights.fabric else 'weights'} do not tell their GPU model",
        )
    elif reasons:
        state, sentence = State.DRIFTED, "; ".join(reasons)
    else:
        state, sentence = State.HOLDS, f"{weights.fabric.gpu_model} on both"
    return Finding(aspect=Aspect.FABRIC, subject="GPU model", state=state, sentence=sentence)


def _fabric(weights: WeightSet, info: RunInfo, frame: pd.DataFrame) -> Iterator[Finding]:
    if weights.fabric is None:
        yield Finding(
            aspect=Aspect.FABRIC,
            subject="kind",
            state=State.CANNOT_TELL,
            sentence="the weights name no kind of fabric; add fabric to the file",
        )
        return
    then, now = weights.fabric, fabric_of(info, frame)
    others = other_kind(then, now)
    for other in others:
        yield Finding(
            aspect=Aspect.FABRIC, subject=other.what, state=State.DRIFTED, sentence=f"was {other.a}, is {other.b}"
        )
    if not others:
        yield Finding(aspect=Aspect.FABRIC, subject="kind", state=State.HOLDS, sentence="of the same kind")
    yield _library(then.library, now.library)


def _library(then: str, now: str) -> Finding:
    sentence = f"still {now}" if then == now else f"was {then}, is {now}"
    if not (then.partition(" ")[2] and now.partition(" ")[2]):
        state, sentence = State.CANNOT_TELL, f"{sentence}; a version is not told of both"
    else:
        state = State.HOLDS if then == now else State.DRIFTED
    return Finding(aspect=Aspect.LIBRARY, subject="version", state=state, sentence=sentence)


def _gains(weights: WeightSet, info: RunInfo, frame: pd.DataFrame) -> Iterator[Finding]:
    measured = {(steps.job, steps.compute): launch_times(steps) for steps in step_times(frame)}
    jobs = run_jobs(info)
    then: dict[CaseKey, CaseTimes] = {}
    now: dict[CaseKey, CaseTimes] = {}
    for entry in weights.entries:
        times = measured.get((entry.job, entry.compute), ())
        why = _why_not_comparable(entry, times, jobs.get((entry.job, entry.compute)), info)
        if why:
            yield Finding(aspect=Aspect.GAIN, subject=entry.job, state=State.NOT_MEASURED, sentence=why)
        else:
            then |= _as_cases(entry, entry.times)
            now |= _as_cases(entry, times)
    for compared in compare_runs(then, now, gains.SMALLEST_EFFECT).cases:
        yield _finding(Aspect.GAIN, compared.case.operation, f"time of {compared.case.arm} over the base", compared)


def _why_not_comparable(entry: WeightEntry, times: Sequence[LaunchTimes], job: Job | None, info: RunInfo) -> str:
    """Return why a run does not tell of an entry's gains, "" where it does."""
    if not entry.times:
        return "the weights hold no measured times"
    if not times or job is None:
        return f"run {info.run_id} did not measure both aligned arms beside a base"
    try:
        shape = (*node_grid(job, info.ngpus_per_node), volumes_of(job, info.ngpus_per_node))
    except ValueError as error:
        return f"run {info.run_id}: {error}"
    if shape != (entry.dp, entry.pp, entry.volumes):
        return f"run {info.run_id} measured another job of this name: its grid or volumes differ"
    return ""


def _as_cases(entry: WeightEntry, times: Sequence[LaunchTimes]) -> dict[CaseKey, CaseTimes]:
    """Return the times of both arms over the base as cases that runs are compared by."""
    launches = tuple(each.launch for each in times)
    arms = {
        DP_ALIGNED: [math.log(each.dp_aligned_s / each.base_s) for each in times],
        PP_ALIGNED: [math.log(each.pp_aligned_s / each.base_s) for each in times],
    }
    return {_gain_case(entry, arm): _units(np.array(logs), launches) for arm, logs in arms.items()}


def _gain_case(entry: WeightEntry, arm: str) -> CaseKey:
    return CaseKey(
        kind=CaseKind.STEP,
        operation=entry.job,
        arm=arm,
        compute=entry.compute,
        dtype="",
        redop="",
        in_place=False,
        nranks=0,
        nnodes=entry.dp * entry.pp,
        tier="minipod",
        span=0,
        rank_order=RankOrder.JOB,
        concurrency="",
        rail=ALL_GPUS,
        size_bytes=0,
    )


def _units(logs: FloatArray, launches: tuple[int, ...]) -> CaseTimes:
    return CaseTimes(unit_logs=logs, launches=launches, nfailed=0, reason="", resolution=0.0)


def _rates(weights: WeightSet, info: RunInfo, frame: pd.DataFrame) -> Iterator[Finding]:
    rates = weights.fabric.tier_rates if weights.fabric else ()
    then = {
        rate_case(rate): _units(np.log(np.array(rate.launch_times_s)), tuple(range(len(rate.launch_times_s))))
        for rate in rates
    }
    now: Mapping[CaseKey, CaseTimes] = case_times(frame[frame["kind"] == CaseKind.COLLECTIVE])
    compared = compare_runs(then, {case: now[case] for case in then if case in now}, SMALLEST_EFFECT)
    for each in compared.cases:
        yield _finding(Aspect.RATE, each.case.operation, each.case.label(), each)
    for case in compared.only_a:
        yield Finding(
            aspect=Aspect.RATE,
            subject=case.operation,
            state=State.NOT_MEASURED,
            sentence=f"{case.label()}: run {info.run_id} did not measure it",
        )


_STATES = {Verdict.SLOWER: State.DRIFTED, Verdict.FASTER: State.DRIFTED, Verdict.SAME: State.HOLDS}


def _finding(aspect: Aspect, subject: str, what: str, compared: CaseComparison) -> Finding:
    is_failing = compared.is_newly_failing
    return Finding(
        aspect=aspect,
        subject=subject,
        state=State.DRIFTED if is_failing else _STATES.get(compared.verdict, State.CANNOT_TELL),
        sentence=f"{what}: {compared.sentence}",
    )

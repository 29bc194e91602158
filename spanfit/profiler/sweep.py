"""The jobs of one run or more as points of a sweep: what each was set to, what differs, and contrasts between them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from spanfit.bench.variants import parse_variant
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray
from spanfit.profiler.steps import StepTimes, step_times
from spanfit.results.schema import Estimate, RunInfo

Setting = str | float
Run = tuple[RunInfo, pd.DataFrame]

_LABELS = {"name", "model.name", "model.source", "model.parameters", "noise.name"}
"""What names a job or follows from the rest of it."""
MODEL = "model"
NOISE = "noise"
_USED = f"{NOISE}.used"
_ASKED = ("utilisation", "drawn")
"""Of noise, what was asked for, and which nodes that gave: what it ``used`` is told instead."""
_EXPERTS = "layout.ep"
_NONE = "none"
"""The value of a setting that a job does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptJob:
    """A job of a run: a point of a sweep.

    Attributes
    ----------
    settings : mapping of str to str or float
        What the job and its run were set to, by dotted name.
    names : mapping of str to str
        Of what has settings of its own, its name: its model (``MODEL``) and the noise beside it (``NOISE``).
    steps : StepTimes
    """

    run_id: str
    settings: Mapping[str, Setting]
    names: Mapping[str, str]
    steps: StepTimes

    @property
    def name(self) -> str:
        """The job's name, with its run."""
        return f"{self.steps.job} of {self.run_id}"


def swept_jobs(runs: Sequence[Run]) -> tuple[SweptJob, ...]:
    """Return every job that the runs measured, in their order.

    Parameters
    ----------
    runs : sequence of (RunInfo, pandas.DataFrame)
        Each run once.

    Raises
    ------
    FitError
        If there are none, or a run does not describe a job.
    """
    jobs = tuple(job for run in runs for job in _jobs(*run))
    if not jobs:
        names = ", ".join(info.run_id for info, _ in runs)
        raise FitError(f"runs {names}: found no training steps, expected some; add jobs to the campaign")
    return jobs


def _jobs(info: RunInfo, frame: pd.DataFrame) -> Iterator[SweptJob]:
    entries = info.spec.get("jobs", ())
    assert isinstance(entries, list | tuple)
    by_name = {(entry["name"], entry["compute"]): entry for entry in entries}
    for steps in step_times(frame):
        entry = by_name.get((steps.job, steps.compute))
        if entry is None:
            raise FitError(
                f"run {info.run_id}: steps of {steps.job} with compute {steps.compute!r} were measured, but spec.jobs "
                "does not describe them; run the campaign again"
            )
        noise = parse_variant(steps.job).noise
        yield SweptJob(
            run_id=info.run_id,
            settings=dict(_job_settings(entry)) | dict(_noise_settings(info, noise)) | dict(_run_settings(info)),
            names={MODEL: entry["model"]["name"] if MODEL in entry else _NONE, NOISE: noise or _NONE},
            steps=steps,
        )


def _job_settings(entry: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
    has_experts = MODEL in entry and entry[MODEL]["experts"] is not None
    yield from ((name, value) for name, value in _flat("", entry) if has_experts or name != _EXPERTS)
    if cta := parse_variant(entry["name"]).cta:
        yield "cta", float(cta)


def _flat(prefix: str, value: object) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of nested tables by their dotted names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif prefix not in _LABELS:
        yield prefix, _setting(value)


def _run_settings(info: RunInfo) -> Iterator[tuple[str, Setting]]:
    """Yield what all jobs of a run share and another run may have otherwise."""
    yield "minipods", float(len(set(info.minipods)))
    yield "ranks_per_node", float(info.ngpus_per_node)
    yield "backend", info.backend
    yield "gpu_model", info.gpu_model
    for link, rate in info.truth.items():
        yield f"rate.{link}", rate
    for name, value in info.environment.items():
        yield name, _setting(value)


def _noise_settings(info: RunInfo, name: str) -> Iterator[tuple[str, Setting]]:
    """Yield what the noise beside a job was drawn by, and the share of free nodes that it used; 0 without noise."""
    tables = info.spec.get(NOISE, ())
    assert isinstance(tables, list | tuple)
    by_name = {table["name"]: table for table in tables} | {"": {"used": 0.0}}
    if name not in by_name:
        raise FitError(
            f"run {info.run_id}: steps beside noise {name} were measured, but spec.noise does not describe it"
        )
    told = {key: value for key, value in by_name[name].items() if key not in _ASKED}
    yield from _flat(NOISE, told)


def _setting(value: object) -> Setting:
    """Return a number where it is one, or the only one of a list, else text; a variable's number is text until then."""
    if isinstance(value, list | tuple) and len(value) == 1:
        return _setting(value[0])
    if isinstance(value, bool) or value is None:
        return str(value)
    try:
        return float(str(value))
    except ValueError:
        return str(value)


def differing(jobs: Sequence[SweptJob]) -> dict[str, tuple[Setting, ...]]:
    """Return what is not the same of all jobs, with the value of each; "none" where a job has no such setting.

    Models that differ in more than one thing are one thing, by their names; and so is noise. A job that has none beside
    it differs from others by the share of nodes used alone, which is 0; and one that has no experts has no degree of
    them.
    """
    names = dict.fromkeys(name for job in jobs for name in job.settings)
    found = {name: tuple(job.settings.get(name, _NONE) for job in jobs) for name in names}
    found = {name: values for name, values in found.items() if len(_values(name, values)) > 1}
    for kind in (MODEL, NOISE):
        own = [name for name in found if name.startswith(f"{kind}.")]
        if len(own) > 1:
            found = {name: values for name, values in found.items() if name not in own}
            found[kind] = tuple(job.names[kind] for job in jobs)
    return found


def _values(name: str, values: Sequence[Setting]) -> set[Setting]:
    """Return the distinct values of a setting, among jobs that can have it."""
    can_lack = name == _EXPERTS or (name.startswith(f"{NOISE}.") and name != _USED)
    return set(values) - ({_NONE} if can_lack else set())


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A sum of what independent runs found; ``error`` is None where one of them is a single launch."""

    value: float
    error: float | None
    freedom: float

    def estimate(self) -> Estimate:
        """Return the sum with its 95% interval."""
        if self.error is None:
            return Estimate(value=self.value, ci_low=None, ci_high=None)
        half = float(stats.t.ppf((1 + statistics.CONFIDENCE) / 2, self.freedom)) * self.error
        return Estimate(value=self.value, ci_low=self.value - half, ci_high=self.value + half)

    @property
    def p_value(self) -> float:
        """The two-sided p-value of 0."""
        if self.error is None or not self.value:
            return 1.0
        return 2 * float(stats.t.sf(abs(self.value) / self.error, self.freedom)) if self.error else 0.0


def contrast(jobs: Sequence[SweptJob], logs: Sequence[pd.Series], weights: npt.ArrayLike) -> Contrast | None:
    """Return the weighted sum of the jobs' mean logs.

    Parameters
    ----------
    logs : sequence of pandas.Series
        Of each job a value for each launch.
    weights : array_like of float

    Returns
    -------
    Contrast or None
        None where a run has no launch that holds all its jobs.

    Notes
    -----
    Jobs of one run are paired by launch, so what a launch adds to all of them cancels; runs are independent, and their
    errors add with Satterthwaite's degrees of freedom.
    """
    parts = _by_run(jobs, logs, np.asarray(weights, dtype=float))
    if not all(map(len, parts)):
        return None
    value = sum(float(part.mean()) for part in parts)
    if min(map(len, parts)) < 2:
        return Contrast(value=value, error=None, freedom=0.0)
    variances = [float(part.var(ddof=1)) / len(part) for part in parts]
    total = sum(variances)
    squares = sum(variance**2 / (len(part) - 1) for variance, part in zip(variances, parts, strict=True))
    freedom = total**2 / squares if squares else float(min(map(len, parts)) - 1)
    return Contrast(value=value, error=math.sqrt(total), freedom=freedom)


def _by_run(jobs: Sequence[SweptJob], logs: Sequence[pd.Series], weights: FloatArray) -> list[FloatArray]:
    """Return the weighted sum of each launch of each run that holds all the run's jobs."""
    parts = []
    for run_id in dict.fromkeys(job.run_id for job in jobs):
        own = [index for index, job in enumerate(jobs) if job.run_id == run_id]
        table = pd.concat([logs[index] for index in own], axis="columns", join="inner").dropna()
        parts.append(table.to_numpy(dtype=float) @ weights[own])
    return parts

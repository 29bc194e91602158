"""How the gains of a job's arms move along the one thing that differs between jobs or runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spanfit import units
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray
from spanfit.profiler.sweep import Contrast, Setting, SweptJob, contrast, differing
from spanfit.results.schema import Estimate, format_estimate

_PER = {"doubling": "for each doubling", "range": "from the least to the largest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityPoint:
    """The gain of an arm at one value of what is swept; a share of one."""

    run_id: str
    job: str
    value: Setting
    gain: Estimate
    nunits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSensitivity:
    """How the gain of an arm moves.

    Attributes
    ----------
    points : tuple of SensitivityPoint
        By rising value.
    slope : Estimate or None
        By how much the throughput over that of the base grows with each doubling, or over the whole range where a value
        is not above 0; a share of one. None where values are no numbers.
    misfit : float or None
        How far a point is off the straight line at most, as a share of the throughput.
    sentence : str
        What the slope says; claims are corrected over all arms (Holm).
    """

    arm: str
    points: tuple[SensitivityPoint, ...]
    slope: Estimate | None
    misfit: float | None
    is_provisional: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The gains of all arms along what is swept.

    Attributes
    ----------
    thing : str
        What differs, such as ``activation_bytes``, ``model.layers``, ``rate.minipod`` or ``NCCL_MAX_CTAS``.
    per : str
        What the slopes are for: ``doubling``; ``range``, from the least value to the largest; or "" where values are no
        numbers.
    arms : tuple of ArmSensitivity
    """

    thing: str
    per: str
    arms: tuple[ArmSensitivity, ...]


def fit_sensitivity(jobs: Sequence[SweptJob]) -> Sensitivity:
    """Return how each arm's gain moves along the one thing that differs.

    Parameters
    ----------
    jobs : sequence of SweptJob
        Of one run, or of several.

    Raises
    ------
    FitError
        If nothing or more than one thing differs, a job has no misaligned arms, or no arm is in all jobs.

    Notes
    -----
    The slope is that of least squares over the jobs' mean log gains. Its interval holds how launches scatter, not that
    the truth may bend: ``misfit`` tells that.
    """
    thing, found = _one_thing(jobs)
    if without := [job.name for job in jobs if not job.steps.base_arms]:
        raise FitError(f"{', '.join(without)}: found no misaligned arms that launches hold, so there are no gains")
    order = sorted(range(len(jobs)), key=lambda index: _rank(found[index]))
    jobs, values = [jobs[index] for index in order], [found[index] for index in order]
    arms = [arm for arm in jobs[0].steps.arms if all(_has(job, arm) for job in jobs)]
    if not arms:
        raise FitError(f"{', '.join(job.name for job in jobs)}: found no arm in all of them, expected at least one")
    per, places = value_places(values)
    logs = [[job.steps.log_gains(arm) for job in jobs] for arm in arms]
    slopes = [_slope(jobs, own, places) for own in logs]
    claims = statistics.holm([slope.p_value if slope else 1.0 for slope in slopes])
    return Sensitivity(
        thing=thing,
        per=per,
        arms=tuple(
            _arm(arm, jobs, values, own, slope, p_value, places, per)
            for arm, own, slope, p_value in zip(arms, logs, slopes, claims, strict=True)
        ),
    )


def _one_thing(jobs: Sequence[SweptJob]) -> tuple[str, tuple[Setting, ...]]:
    found = differing(jobs)
    names = ", ".join(job.name for job in jobs)
    if not found:
        raise FitError(f"{names}: found nothing that differs; expected jobs or runs that differ in one thing")
    if len(found) > 1:
        lines = [f"  {name}: {', '.join(format_setting(name, value) for value in found[name])}" for name in found]
        raise FitError(
            f"{names}: found {len(found)} things that differ, expected one; choose jobs (--job) and runs that differ "
            "in one of these only:\n" + "\n".join(lines)
        )
    return next(iter(found.items()))


def format_setting(name: str, value: Setting) -> str:
    """Return a setting for people, by what its name says of its unit."""
    if isinstance(value, str):
        return value
    if name.endswith(("_bytes", ".activation", ".gradient")):
        return units.format_size(round(value))
    if name.endswith(("_s", ".forward", ".backward")):
        return units.format_time(value)
    return units.format_link_rate(value) if name.startswith("rate.") else f"{value:g}"


def _rank(value: Setting) -> tuple[bool, float, str]:
    return isinstance(value, str), value if isinstance(value, float) else 0.0, str(value)


def _has(job: SweptJob, arm: str) -> bool:
    return arm in job.steps.arms and len(job.steps.log_gains(arm)) > 0


def value_places(values: Sequence[Setting]) -> tuple[str, FloatArray | None]:
    """Return what a slope is for (see :class:`Sensitivity`), and the place of each of unlike values along it.

    A value at 0 has no logarithm, and what a unit is worth says nothing where values are thousands or thousandths.
    """
    numbers = np.asarray([value for value in values if isinstance(value, float)])
    if len(numbers) < len(values):
        return "", None
    if numbers.min() > 0:
        return "doubling", np.log2(numbers)
    return "range", (numbers - numbers.min()) / np.ptp(numbers)


def _slope(jobs: Sequence[SweptJob], logs: Sequence[pd.Series], places: FloatArray | None) -> Contrast | None:
    if places is None:
        return None
    centred = places - places.mean()
    return contrast(jobs, logs, centred / float(np.sum(centred**2)))


def _arm(
    arm: str,
    jobs: Sequence[SweptJob],
    values: Sequence[Setting],
    logs: Sequence[pd.Series],
    slope: Contrast | None,
    p_value: float,
    places: FloatArray | None,
    per: str,
) -> ArmSensitivity:
    nunits = [len(own) for own in logs]
    estimate = statistics.mapped(slope.estimate(), math.expm1) if slope else None
    return ArmSensitivity(
        arm=arm,
        points=tuple(
            SensitivityPoint(
                run_id=job.run_id,
                job=job.steps.job,
                value=value,
                gain=statistics.mapped(statistics.interval(own), math.expm1),
                nunits=len(own),
            )
            for job, value, own in zip(jobs, values, logs, strict=True)
        ),
        slope=estimate,
        misfit=_misfit(logs, places, slope.value) if slope and places is not None else None,
        is_provisional=statistics.is_provisional(min(nunits)),
        sentence=_sentence(estimate, p_value, per),
    )


def _misfit(logs: Sequence[pd.Series], places: FloatArray, slope: float) -> float:
    means = np.array([float(own.mean()) for own in logs])
    line = means.mean() + slope * (places - places.mean())
    return float(np.expm1(np.abs(means - line).max()))


def _sentence(slope: Estimate | None, p_value: float, per: str) -> str:
    if not per:
        return "no numbers, so no slope"
    if slope is None:
        return "no launch holds all jobs of its run, so no slope"
    text = f"{format_estimate(slope, units.format_percent)} {_PER[per]}"
    if slope.ci_low is None:
        return f"cannot tell: {text}; more launches would give an interval"
    if p_value >= statistics.SIGNIFICANCE:
        return f"not told from level: {text}"
    return f"{'rises' if slope.value > 0 else 'falls'}: {text}"

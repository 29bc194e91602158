"""What paired log gains say, in a verdict and a sentence: told where the interval allows it, else what that costs."""

import math
from collections.abc import Sequence

from spanfit import units
from spanfit.profiler import statistics
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.results.schema import Estimate, format_estimate

_MINUTE_S, _HOUR_S = 60.0, 3600.0


def verdicts(family: Sequence[FloatArray], effect: float) -> list[Verdict]:
    """Return the verdict on each member of a family of paired log gains, with Holm's correction over it.

    Parameters
    ----------
    effect : float
        The smallest gain that matters, a share of one: ``same`` is what lies within it.
    """
    low, high = math.log1p(-effect), math.log1p(effect)
    p_other = [min(statistics.p_above(values, 0.0), statistics.p_below(values, 0.0)) for values in family]
    p_same = [max(statistics.p_above(values, low), statistics.p_below(values, high)) for values in family]
    adjusted = zip(family, statistics.holm(p_other), statistics.holm(p_same), strict=True)
    return [_verdict(float(values.mean()), other, same) for values, other, same in adjusted]


def _verdict(mean: float, p_other: float, p_same: float) -> Verdict:
    if p_same < statistics.SIGNIFICANCE:
        return Verdict.SAME
    if p_other < statistics.SIGNIFICANCE:
        return Verdict.FASTER if mean > 0 else Verdict.SLOWER
    return Verdict.CANNOT_TELL


def estimate(log_gains: FloatArray) -> Estimate:
    """Return the gain of paired log gains with its interval, a share of one."""
    return statistics.mapped(statistics.interval(log_gains), math.expm1)


def sentence(verdict: Verdict, log_gains: FloatArray, effect: float, launch_s: float) -> str:
    """Return a verdict for people, with its interval, or with what more launches would tell and take.

    Parameters
    ----------
    log_gains : numpy.ndarray
        One of each launch.
    effect : float
        The smallest gain that matters, a share of one.
    launch_s : float
        Seconds that another launch would take.
    """
    gain = estimate(log_gains)
    half = statistics.half_width(gain)
    if half is None:
        more = statistics.MIN_UNITS - 1
        text = format_estimate(gain, units.format_percent)
        return f"cannot tell: {text}; {about(more * launch_s)} ({more} launches) would give an interval"
    size = f"± {units.format_percent(half)}"
    if verdict in (Verdict.FASTER, Verdict.SLOWER):
        return f"{verdict} by {units.format_percent(abs(gain.value))} {size}"
    if verdict is Verdict.SAME:
        return f"the same within {_percent(effect)}: {units.format_percent(gain.value)} {size}"
    return f"not told apart: {units.format_percent(gain.value)} {size}; {_cost(log_gains, effect, launch_s)}"


def _cost(log_gains: FloatArray, effect: float, launch_s: float) -> str:
    """Return what would tell an effect: an interval of ± half of it excludes 0 or the effect, wherever it lies."""
    cost = statistics.cost_of_telling(log_gains, effect / 2)
    assert cost is not None
    target, more = cost
    return f"{about(more * launch_s)} ({statistics.count_launches(more)}) would tell {_percent(2 * target)}"


def about(time_s: float) -> str:
    """Return what more measuring takes in round words.

    Examples
    --------
    >>> about(840.0)
    'about 14 more minutes'
    """
    for unit_s, name in ((_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if time_s >= 1.5 * unit_s:
            return f"about {time_s / unit_s:.0f} more {name}s"
    count = max(1, round(time_s))
    return f"about {count} more second{'s' * (count > 1)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"

"""Latency-bandwidth fits with the knee found: one line or two that meet, chosen by the data, with intervals.

Times are fitted with relative weights, so that a percent counts alike at 1 KiB and at 1 GiB. The broken line must earn
its two further parameters by the Bayesian information criterion over the unit-level values, once what shifts a whole
unit is taken out, and by a misfit of the plain line that matters. Intervals are delete-one jackknives over units
(Tukey 1958) with Student's t, the shape held fixed: they need no derivative where sizes pass a knee.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit import units
from spanfit.profiler import statistics
from spanfit.profiler.curves_file import LatencyFit, Segment, Shape
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate, format_estimate

MIN_SIZES = 5
"""Fewer sizes cannot tell a broken line, which has four parameters, from a straight one."""
MIN_UNITS = 2
"""A single unit cannot tell a bend from its noise."""
STRONG_BIC = 6.0
"""A difference of the criterion that counts as strong evidence (Kass and Raftery 1995)."""
SMALLEST_MISFIT = 0.03
"""A plain line that is nowhere further off than this share needs no knee."""

_STEPS = 24
_SMALLEST_VARIANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """``intercept + slope * size`` up to the knee, then ``slope + bend``; a line has no bend and an endless knee."""

    intercept: float
    slope: float
    bend: float
    knee: float

    def times_s(self, sizes: FloatArray) -> FloatArray:
        return self.intercept + self.slope * sizes + self.bend * np.maximum(sizes - self.knee, 0.0)

    @property
    def last_slope(self) -> float:
        return self.slope + self.bend

    @property
    def last_intercept(self) -> float:
        return self.intercept - (self.bend * self.knee if self.bend else 0.0)

    def reaches(self, share: float, low: float, high: float) -> float:
        """Return the size from which busbw stays at ``share`` of its limit or more, kept within ``low`` and ``high``.

        busbw(s) / limit = last_slope s / time(s), which rises over a segment of positive intercept and falls else.
        """
        reached = high
        for start, end, intercept, slope in reversed(self._pieces(low, high)):
            rest = self.last_slope - share * slope
            at_end = rest * end >= share * intercept
            at_start = rest * start >= share * intercept
            if not at_end:
                break
            if not at_start:
                return min(max(share * intercept / rest, start), end)
            reached = start
        return reached

    def _pieces(self, low: float, high: float) -> list[tuple[float, float, float, float]]:
        if not self.bend:
            return [(low, high, self.intercept, self.slope)]
        return [
            (low, self.knee, self.intercept, self.slope),
            (self.knee, high, self.last_intercept, self.last_slope),
        ]


def fit_latency(
    sizes_bytes: Sequence[int], unit_logs: npt.ArrayLike, busbw_factor: float, *, nleft_out: int = 0
) -> LatencyFit:
    """Return the fit of time against size.

    Parameters
    ----------
    sizes_bytes : sequence of int
        At least two, rising.
    unit_logs : array_like of float
        Log of the time in seconds, units of replication × sizes.
    busbw_factor : float
        busbw / algbw of the operation.
    nleft_out : int
        Units that were left out of ``unit_logs`` because they lack a size; told in the result.

    Raises
    ------
    ValueError
        If there are fewer than two sizes, they do not rise, or the logs are not units × sizes.
    """
    sizes = np.asarray(sizes_bytes, dtype=float)
    logs = np.asarray(unit_logs, dtype=float)
    if len(sizes) < 2 or np.any(np.diff(sizes) <= 0):
        raise ValueError(f"sizes are {list(sizes_bytes)}; expected at least two, rising")
    if logs.ndim != 2 or logs.shape[1] != len(sizes) or not len(logs):
        raise ValueError(f"logs have shape {logs.shape}; expected (units, {len(sizes)})")
    times = np.exp(logs.mean(axis=0))
    line, broken = _fit_line(sizes, times), None
    gain = 0.0
    if len(sizes) >= MIN_SIZES and len(logs) >= MIN_UNITS:
        broken = _fit_broken(sizes, times)
        gain = _bic(line, sizes, logs, 2) - _bic(broken, sizes, logs, 4)
    is_broken = broken is not None and gain >= STRONG_BIC and _misfit(line, sizes, times) > SMALLEST_MISFIT
    fit = _fit_broken if is_broken else _fit_line
    models = [
        fit(sizes, np.exp(np.delete(logs, unit, axis=0).mean(axis=0))) for unit in range(len(logs) > 1 and len(logs))
    ]
    chosen = broken if is_broken and broken is not None else line
    return _described(chosen, models, sizes, times, busbw_factor, gain, nleft_out, nunits=len(logs))


def _weighted(columns: Sequence[FloatArray], times: FloatArray) -> tuple[FloatArray, float]:
    """Return the coefficients of least relative squares and their sum of squares."""
    matrix = np.stack(columns, axis=-1) / times[:, None]
    scale = np.abs(matrix).max(axis=0)
    found = np.linalg.lstsq(matrix / scale, np.ones(len(times)), rcond=None)[0]
    return found / scale, float(np.sum((matrix / scale @ found - 1) ** 2))


def _fit_line(sizes: FloatArray, times: FloatArray) -> _Model:
    (intercept, slope), _ = _weighted([np.ones_like(sizes), sizes], times)
    if slope < 0:
        (intercept,), _ = _weighted([np.ones_like(sizes)], times)
        slope = 0.0
    return _Model(intercept=float(intercept), slope=float(slope), bend=0.0, knee=math.inf)


def _fit_broken(sizes: FloatArray, times: FloatArray) -> _Model:
    """Return the best two lines that meet where two sizes or more lie on either side; neither falls."""
    low, high = math.log(sizes[1]), math.log(sizes[-2])
    knees = np.exp(np.linspace(low, high, _STEPS * (len(sizes) - 3) + 1))
    best = knees[int(np.argmin(_sums_of_squares(sizes, times, knees)))]
    step = (high - low) / (len(knees) - 1)
    near = np.exp(np.clip(math.log(best) + step * np.linspace(-1, 1, 2 * _STEPS + 1), low, high))
    return _bent(sizes, times, float(near[int(np.argmin(_sums_of_squares(sizes, times, near)))]))


def _bent(sizes: FloatArray, times: FloatArray, knee: float) -> _Model:
    over = np.maximum(sizes - knee, 0.0)
    (intercept, slope, bend), _ = _weighted([np.ones_like(sizes), sizes, over], times)
    if slope < 0:
        (intercept, bend), _ = _weighted([np.ones_like(sizes), over], times)
        slope = 0.0
    return _Model(intercept=float(intercept), slope=float(slope), bend=float(bend), knee=knee)


def _sums_of_squares(sizes: FloatArray, times: FloatArray, knees: FloatArray) -> FloatArray:
    """Return the relative sum of squares at each knee, infinite where the last line would not rise."""
    over = np.maximum(sizes - knees[:, None], 0.0)
    ones = np.broadcast_to(np.ones_like(sizes), over.shape)
    free, free_sums = _projected([ones, np.broadcast_to(sizes, over.shape), over], times)
    flat, flat_sums = _projected([ones, over], times)
    is_free = (free[:, 1] >= 0) & (free[:, 1] + free[:, 2] > 0)
    is_flat = (free[:, 1] < 0) & (flat[:, 1] > 0)
    return np.where(is_free, free_sums, np.where(is_flat, flat_sums, math.inf))


def _projected(columns: Sequence[FloatArray], times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (knees × columns) and relative sums of squares (knees) of many fits at once."""
    matrix = np.stack(columns, axis=-1) / times[:, None]
    scale = np.abs(matrix).max(axis=1, keepdims=True)
    orthogonal, triangle = np.linalg.qr(matrix / scale)
    along = orthogonal.sum(axis=1)
    found = np.linalg.solve(triangle, along[..., None])[..., 0]
    return found / scale[:, 0, :], np.maximum(len(times) - np.sum(along**2, axis=1), 0.0)


def _bic(model: _Model, sizes: FloatArray, logs: FloatArray, nparameters: int) -> float:
    mean = logs.mean(axis=0)
    within = logs - mean - (logs.mean(axis=1, keepdims=True) - mean.mean())
    residuals = model.times_s(sizes) / np.exp(mean) - 1
    variance = (float(np.sum(within**2)) + len(logs) * float(np.sum(residuals**2))) / logs.size
    return logs.size * math.log(max(variance, _SMALLEST_VARIANCE)) + nparameters * math.log(logs.size)


def _misfit(model: _Model, sizes: FloatArray, times: FloatArray) -> float:
    return float(np.max(np.abs(model.times_s(sizes) / times - 1)))


def _jackknifed(value: float, others: Sequence[float]) -> Estimate:
    """Return a value with the interval of its delete-one values."""
    n = len(others)
    if n < 2:
        return Estimate(value=value, ci_low=None, ci_high=None)
    spread = np.asarray(others) - np.mean(others)
    half = statistics.t_quantile(n) * math.sqrt((n - 1) / n * float(np.sum(spread**2)))
    return Estimate(value=value, ci_low=value - half, ci_high=value + half)


def _described(
    model: _Model,
    models: Sequence[_Model],
    sizes: FloatArray,
    times: FloatArray,
    busbw_factor: float,
    bic_gain: float,
    nleft_out: int,
    *,
    nunits: int,
) -> LatencyFit:
    def plainly(of: Callable[[_Model], float]) -> Estimate:
        return _jackknifed(of(model), [of(other) for other in models])

    def positive(of: Callable[[_Model], float]) -> Estimate | None:
        if not all(0 < of(each) < math.inf for each in (model, *models)):
            return None
        logs = _jackknifed(math.log(of(model)), [math.log(of(other)) for other in models])
        return statistics.mapped(logs, math.exp)

    low, high = float(sizes[0]), float(sizes[-1])

    def reached(share: float) -> Estimate | None:
        found = model.reaches(share, low, high)
        return positive(lambda each: each.reaches(share, low, high)) if low < found < high else None

    knee = positive(lambda each: each.knee) if model.bend else None
    last = positive(lambda each: each.last_slope)
    final = Segment(
        from_bytes=model.knee if model.bend else low,
        to_bytes=high,
        alpha_s=plainly(lambda each: each.last_intercept),
        beta_s_per_byte=last or plainly(lambda each: each.last_slope),
    )
    first = Segment(
        from_bytes=low,
        to_bytes=min(model.knee, high),
        alpha_s=plainly(lambda each: each.intercept),
        beta_s_per_byte=plainly(lambda each: each.slope),
    )
    half, ninety = (reached(share) if last else None for share in (0.5, 0.9))
    is_above = bool(last) and model.reaches(0.9, low, high) == low
    return LatencyFit(
        shape=Shape.BROKEN_LINE if model.bend else Shape.LINE,
        segments=(first, final) if model.bend else (final,),
        knee_bytes=knee,
        busbw_bytes_per_s=statistics.mapped(last, lambda slope: busbw_factor / slope) if last else None,
        half_bytes=half,
        ninety_bytes=ninety,
        misfit=_misfit(model, sizes, times),
        bic_gain=bic_gain,
        nunits=nunits,
        nleft_out=nleft_out,
        is_provisional=statistics.is_provisional(nunits),
        sentence=_sentence(
            knee, half, ninety, final if last else None, _assumed(len(sizes), nunits), is_above=is_above
        ),
    )


def _sentence(
    knee: Estimate | None,
    half: Estimate | None,
    ninety: Estimate | None,
    final: Segment | None,
    assumed: str,
    *,
    is_above: bool,
) -> str:
    if final is None:
        return "no knee within the sizes measured: the time does not grow with the size, so larger sizes are needed"
    parts = []
    none_within = "" if knee or assumed else "no knee within the sizes measured: "
    if knee:
        parts.append(f"two lines meet at {_size(knee)}")
    elif assumed:
        parts.append(assumed)
    if half:
        parts.append(f"half of the lasting busbw at {_size(half)}")
    if ninety:
        parts.append(f"90% at {_size(ninety)}")
    elif is_above:
        parts.append(f"{none_within}at least 90% at every size")
    else:
        parts.append(f"{none_within}under 90% at the largest size, so the lasting busbw is extrapolated")
    if final.alpha_s.ci_high is not None and final.alpha_s.ci_high < 0:
        parts.append("the intercept is negative: bursts beat the lasting rate")
    return "; ".join(parts)


def _assumed(nsizes: int, nunits: int) -> str:
    """Return why a broken line was not tried, "" where it was."""
    if nsizes < MIN_SIZES:
        return f"{nsizes} sizes cannot tell a knee, {MIN_SIZES} or more could"
    return f"{nunits} unit cannot tell a knee, {MIN_UNITS} or more could" if nunits < MIN_UNITS else ""


def _size(estimate: Estimate) -> str:
    return format_estimate(estimate, lambda value: units.format_size(round(value)))

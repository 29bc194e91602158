"""When running jobs will end, drawn from their forecasts, given how long they have run already."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from spanfit.queue.model.jobs import Forecast, Running

_NORMAL = NormalDist()
_OUTRUN, _EDGE = 1 - 1e-9, 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLaw:
    """A log-normal runtime.

    Attributes
    ----------
    median_s : float
        [s]
    log_sd : float
        Standard deviation of its natural logarithm; 0 where the forecast knows the runtime.
    """

    median_s: float
    log_sd: float

    def draw_s(self, at: float) -> float:
        """Return the quantile ``at`` of the runtime [s]."""
        if not self.log_sd:
            return self.median_s
        return self.median_s * math.exp(self.log_sd * _NORMAL.inv_cdf(min(max(at, _EDGE), 1 - _EDGE)))

    def left_s(self, ran_s: float, at: float) -> float:
        """Return the quantile ``at`` of what is left of a job that has run for ``ran_s`` [s].

        A job that has outrun all that its law allows is counted on to run as long again, as the queue does.
        """
        below = self._share_under(ran_s)
        if below > _OUTRUN:
            return ran_s
        return self.draw_s(below + at * (1 - below)) - ran_s

    def _share_under(self, runtime_s: float) -> float:
        if not self.log_sd:
            return float(runtime_s >= self.median_s)
        return _NORMAL.cdf(math.log(runtime_s / self.median_s) / self.log_sd) if runtime_s > 0 else 0.0


def law_of(forecast: Forecast, quantile: float) -> RuntimeLaw:
    """Return the log-normal runtime whose mean and upper quantile a forecast gives.

    With z the normal quantile, ln(upper / mean) = z s - s^2 / 2; of the two s the smaller is taken, and the largest
    ratio that a log-normal can have, z^2 / 2, where the forecast's is beyond. An upper forecast not above the mean
    says that the runtime is known.

    Parameters
    ----------
    forecast : Forecast
    quantile : float
        Of the upper forecast.
    """
    z = _NORMAL.inv_cdf(quantile)
    ratio = math.log(forecast.upper_s / forecast.mean_s)
    log_sd = z - math.sqrt(max(0.0, z * z - 2 * ratio)) if ratio > 0 else 0.0
    return RuntimeLaw(median_s=forecast.mean_s * math.exp(-log_sd * log_sd / 2), log_sd=log_sd)


def drawn_end_s(run: Running, now_s: float, quantile: float, at: float) -> float:
    """Return the quantile ``at`` of the time at which a running job ends, never past its time limit [Unix time, s]."""
    ran_s = max(0.0, now_s - run.started_s)
    end_s = now_s + law_of(run.forecast, quantile).left_s(ran_s, at)
    limit_s = run.job.time_limit_s
    return end_s if limit_s is None else max(now_s, min(end_s, run.started_s + limit_s))

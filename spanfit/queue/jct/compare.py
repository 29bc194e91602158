"""How well runtimes are predicted out of time: gradient boosting, a neural net, and the owner's past alone.

A moment divides the trace. Everything that ended before it trains; the jobs submitted after it are forecast, each from
what had ended when it was submitted, with the upper quantile calibrated on the jobs that ended last by then. Trees and
net are not fitted again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spanfit.errors import FitError
from spanfit.queue.jct import features
from spanfit.queue.jct.metrics import DAY_S, Division, Forecasts, Score, calibrated, divide, ratio, score
from spanfit.queue.jct.model import Floats, Model
from spanfit.queue.jct.net import NET
from spanfit.queue.jct.search import Chosen, Raw, fitted_mean, rolling_splits, search
from spanfit.queue.jct.train import Study, study, trained
from spanfit.queue.traces.reading import Trace, TraceJob, usable
from spanfit.results.schema import Estimate

LEAST_DAYS = 3
"""Fewer days after the division give no interval."""
PAST = "the owner's past alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Predictors on one trace, split by time.

    Attributes
    ----------
    origin, kind : str
    ntrain, ntest, nleft_out : int
        Jobs that taught, that were forecast, and those of both whose end was not their own.
    cut_s : float
        The moment that divides, Unix time [s].
    quantile : float
        Of the upper quantile.
    scores : tuple of Score
        Gradient boosting, net, the past alone.
    rmse_ratio : Estimate
        RMSE of gradient boosting over that of the net, on the same resampled days.
    """

    origin: str
    kind: str
    ntrain: int
    ntest: int
    nleft_out: int
    cut_s: float
    quantile: float
    scores: tuple[Score, ...]
    rmse_ratio: Estimate


def compare(
    trace: Trace, *, ndraws: int, seed: int, clock: Callable[[], float], test_share: float = 0.1, quantile: float = 0.9
) -> Comparison:
    """Return how gradient boosting, the net and the past alone forecast the last jobs of a trace.

    Parameters
    ----------
    trace : Trace
    ndraws : int
        Parameters drawn for gradient boosting and as many for the net.
    seed : int
    clock : callable
        Gives seconds, to tell what fitting takes.
    test_share : float
        Share of jobs that are forecast.
    quantile : float
        Of the upper quantile.

    Raises
    ------
    FitError
        If the jobs before or after are too few.
    """
    division = divide(trace.jobs, test_share)
    tested = _tested(division, trace.origin)
    known = study(division.before)
    started = clock()
    model = trained(known, trace, ndraws=ndraws, seed=seed)
    boosted = clock()
    chosen, net = _net(known, ndraws=ndraws, seed=seed)
    finished = clock()
    rolled = _rolled(model, net, known, division, tested, quantile)
    names = (("gradient boosting", model.info.target.value), ("neural net", chosen.target.value), (PAST, "log"))
    walls = (boosted - started, finished - boosted, 0.0)
    scores = tuple(
        score(name, target, wall_s, forecasts, quantile, seed)
        for (name, target), wall_s, forecasts in zip(names, walls, rolled, strict=True)
    )
    return Comparison(
        origin=trace.origin,
        kind=trace.kind,
        ntrain=len(known.jobs),
        ntest=len(tested),
        nleft_out=known.nleft_out + len(division.after) - len(tested),
        cut_s=division.cut_s,
        quantile=quantile,
        scores=scores,
        rmse_ratio=ratio(rolled[0], rolled[1], seed),
    )


def _tested(division: Division, origin: str) -> tuple[TraceJob, ...]:
    """Return the usable jobs after a division; FitError where they give no interval."""
    tested = usable(division.after)
    ndays = len({int(job.submit_s // DAY_S) for job in tested})
    if ndays < LEAST_DAYS:
        raise FitError(
            f"{origin}: found {len(tested)} usable jobs on {ndays} days after the division; expected at least "
            f"{LEAST_DAYS} days: give a longer trace or a larger share to test"
        )
    return tested


def _net(known: Study, *, ndraws: int, seed: int) -> tuple[Chosen, Raw]:
    chosen = search(NET, rolling_splits(known.fitted), ndraws=ndraws, seed=seed)
    mean = fitted_mean(NET, chosen.target, chosen.parameters, known.fitted, known.calibration, seed)
    return chosen, mean


def _rolled(
    model: Model, net: Raw, known: Study, division: Division, tested: Sequence[TraceJob], quantile: float
) -> tuple[Forecasts, ...]:
    """Return the forecasts of the tested jobs by each predictor, calibrated as time goes on."""
    late = [*usable(division.between), *tested]
    calibrating = list(known.jobs[len(known.fitted) :])
    jobs = [*calibrating, *late]
    requests = [features.request_of(job) for job in jobs]
    numbers = features.numeric_table([*known.jobs, *late], requests, {})
    table = np.hstack([features.code_table(requests, known.codes), numbers])
    level = model.level_for(quantile)
    logs = model.quantiles[level].predict(table)
    past = _past_alone(numbers, float(np.median(known.fitted.runtime_s)))
    net_s = net(table)
    means = (model.means_s(table), net_s, np.expm1(past))
    bases = (logs, np.log1p(net_s), past)
    return tuple(
        calibrated(jobs, len(jobs) - len(tested), base=base, mean_s=mean_s, quantile=quantile)
        for mean_s, base in zip(means, bases, strict=True)
    )


def _past_alone(numbers: Floats, median_s: float) -> Floats:
    """Return the fading mean logarithm of the runs of the same owner and name, else of the owner, else of all."""
    columns = [features.NUMERIC.index(name) for name in ("user_name_average", "user_gpus_average", "user_average")]
    found = np.full(len(numbers), np.log1p(median_s))
    for column in reversed(columns):
        found = np.where(np.isnan(numbers[:, column]), found, numbers[:, column])
    return found

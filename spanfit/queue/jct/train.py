"""Train a runtime predictor on the past: the trees on what ended first, their calibration on what ended after."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spanfit.errors import FitError
from spanfit.queue.jct import features
from spanfit.queue.jct.gbm import GBM, LIBRARY, draw_parameters, fit_mean, fit_quantile
from spanfit.queue.jct.losses import pinball
from spanfit.queue.jct.model import (
    SCHEMA_VERSION,
    WINDOW,
    Model,
    ModelInfo,
    limits_s,
    past_of,
    runtimes_s,
    withheld,
)
from spanfit.queue.jct.search import Chosen, Parameters, Sample, Split, rolling_splits, search
from spanfit.queue.jct.targets import smear_of
from spanfit.queue.traces.reading import Trace, TraceJob, usable

LEAST_JOBS = 200
"""Fewer ended jobs than this teach nothing that holds out of time."""
LEVELS = (0.5, 0.75, 0.9, 0.95)
"""Quantiles that get trees; any other is calibrated from the nearest."""
CALIBRATION_SHARE = 0.15
DRAWS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Jobs by their end, as predictors see them: some to fit to, later ones to calibrate.

    Attributes
    ----------
    fitted, calibration : Sample
    codes : mapping
        The code of each value of each category, of the jobs fitted to.
    jobs : tuple of TraceJob
        All of them, by their end.
    nleft_out : int
        Jobs whose end was not their own.
    withheld : tuple of str
        Texts that predictors do not look at.
    """

    fitted: Sample
    calibration: Sample
    codes: features.Codes
    jobs: tuple[TraceJob, ...]
    nleft_out: int
    withheld: tuple[str, ...]


def study(jobs: Sequence[TraceJob], withhold: Sequence[str] = ()) -> Study:
    """Return ended jobs split by their end, with features from what had ended when each was submitted.

    By the end and not by the submission: of the jobs submitted last only the short ones have ended, so that they would
    calibrate for short jobs; those that ended last are long and short as all are.

    Raises
    ------
    FitError
        If too few jobs ended by themselves.
    """
    kept = sorted(usable(jobs), key=lambda job: (job.end_s, job.job_id))
    if len(kept) < LEAST_JOBS:
        raise FitError(
            f"found {len(kept)} jobs that ended by themselves, of {len(jobs)}; expected at least {LEAST_JOBS}: give a "
            "longer trace"
        )
    told = withheld(kept, withhold)
    requests = [features.request_of(job) for job in told]
    ncalibration = min(round(CALIBRATION_SHARE * len(kept)), WINDOW)
    nfitted = len(kept) - ncalibration
    codes = features.codes_of(requests[:nfitted])
    table = np.hstack([features.code_table(requests, codes), features.numeric_table(told, requests, {})])
    whole = Sample(table=table, runtime_s=runtimes_s(kept), limits_s=limits_s(requests))
    return Study(
        fitted=whole.rows(0, nfitted),
        calibration=whole.rows(nfitted, len(kept)),
        codes=codes,
        jobs=tuple(kept),
        nleft_out=len(jobs) - len(kept),
        withheld=tuple(withhold),
    )


def train(trace: Trace, *, ndraws: int = DRAWS, seed: int = 0, withhold: Sequence[str] = ()) -> Model:
    """Return a model of a trace's jobs; the same arguments give the same model.

    Parameters
    ----------
    trace : Trace
    ndraws : int
        Of the random searches for the parameters of the mean and of the quantiles.
    seed : int
    withhold : sequence of str
        Texts of jobs that forecasts will not know, such as ``name``.

    Raises
    ------
    FitError
        If too few jobs ended by themselves.
    """
    return trained(study(trace.jobs, withhold), trace, ndraws=ndraws, seed=seed)


def trained(known: Study, trace: Trace, *, ndraws: int, seed: int) -> Model:
    """Return a model from a study of the jobs of a trace."""
    splits = rolling_splits(known.fitted)
    chosen = search(GBM, splits, ndraws=ndraws, seed=seed)
    mean = fit_mean(chosen.target, chosen.parameters, known.fitted, seed)
    tails = _search_tails(splits, ndraws=ndraws, seed=seed)
    quantiles = tuple(fit_quantile(level, tails, known.fitted, seed) for level in LEVELS)
    smear = smear_of(chosen.target, mean.predict(known.calibration.table), known.calibration.runtime_s)
    logs = np.stack([forest.predict(known.calibration.table) for forest in quantiles], axis=1)
    return Model(
        info=_info(known, trace, chosen, tails, smear),
        mean=mean,
        quantiles=quantiles,
        history=past_of(known.jobs, known.withheld),
        scores=np.log1p(known.calibration.runtime_s)[:, None] - logs,
    )


def _search_tails(splits: Sequence[Split], *, ndraws: int, seed: int) -> Parameters:
    """Return the draw with the smallest pinball loss of the 90% quantile on the logarithm."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for _ in range(max(1, ndraws // 3)):
        parameters = draw_parameters(rng)
        found.append((sum(_tail_loss(parameters, split, seed) for split in splits), parameters))
    return min(found, key=lambda pair: pair[0])[1]


def _tail_loss(parameters: Parameters, split: Split, seed: int) -> float:
    bound = fit_quantile(0.9, parameters, split.fitted, seed).predict(split.choosing.table)
    return pinball(bound, np.log1p(split.choosing.runtime_s), 0.9)


def _info(known: Study, trace: Trace, chosen: Chosen, tails: Parameters, smear: float) -> ModelInfo:
    return ModelInfo(
        schema_version=SCHEMA_VERSION,
        library=LIBRARY,
        origin=trace.origin,
        kind=trace.kind,
        njobs=len(known.fitted),
        ncalibration=len(known.calibration),
        nleft_out=known.nleft_out,
        fitted_until_s=known.jobs[len(known.fitted) - 1].end_s,
        first_submit_s=min(job.submit_s for job in known.jobs),
        last_end_s=known.jobs[-1].end_s,
        features=(*features.CATEGORICAL, *features.NUMERIC),
        codes={category: dict(codes) for category, codes in known.codes.items()},
        withheld=known.withheld,
        target=chosen.target,
        smear=smear,
        levels=LEVELS,
        parameters={"mean": chosen.parameters, "quantiles": tails},
        validation_deviance=chosen.deviance,
    )

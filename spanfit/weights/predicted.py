"""Weights from predicted steps: what the step-time predictor, fitted to micro-patterns alone, says of the same arms."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median

import spanfit
from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, PP_ALIGNED
from spanfit.errors import FitError
from spanfit.profiler import statistics
from spanfit.profiler.predict.parameters import ParametersFile
from spanfit.results.schema import Estimate
from spanfit.weights.crossings import Grid, removed_crossings
from spanfit.weights.model import SCHEMA_VERSION, FabricKind, Source, WeightEntry, WeightSet
from spanfit.weights.shares import Pair, fit_share
from spanfit.weights.stale import VALID_DAYS, valid_until
from spanfit.weights.volumes import lack_of_volumes, volumes_of
from spanfit.workload.job import Job, node_grid

_NORMAL_95 = 1.96


def predict_entry(
    job: Job, *, gpu_model: str, ngpus_per_node: int, times: Mapping[str, Estimate], grids: Mapping[str, Grid]
) -> WeightEntry:
    """Return the weights of a job by the predicted times of its arms.

    Parameters
    ----------
    job : Job
    gpu_model : str
    ngpus_per_node : int
    times : mapping of str to Estimate
        Step time [s] of each arm with the 95% interval of its error; arms are called as they are where steps are
        measured, and those that gains do not look at count nowhere.
    grids : mapping of str to Grid
        The minipod of each cell of the job's grid in each arm.

    Raises
    ------
    FitError
        If an aligned arm or all misaligned ones are missing, or the job moves bytes of one kind only.

    Notes
    -----
    The base is the median of the misaligned arms, as it is of measured steps. Errors of arms count as independent and
    the base's as that of one arm: how far they are common to all, which would leave gains as they are, is not known.
    """
    base_arms = tuple(name for name in times if name.startswith(MISALIGNED))
    if not base_arms or not {DP_ALIGNED, PP_ALIGNED} <= set(times):
        raise FitError(
            f"job {job.name}: found arms {', '.join(times) or 'none'}, expected {DP_ALIGNED}, {PP_ALIGNED} and at "
            f"least one {MISALIGNED} one; choose degrees and two minipods that allow them"
        )
    if lacking := lack_of_volumes(job):
        raise FitError(f"job {job.name}: {lacking}; leave it out of the campaign")
    base = median(math.log(times[name].value) for name in base_arms)
    base_sd = mean(_log_sd(times[name]) for name in base_arms)
    gains = {name: _gain(base, base_sd, times[name]) for name in (DP_ALIGNED, PP_ALIGNED)}
    share = fit_share(_pair(gains, base_sd), _NORMAL_95)
    nrows, ncolumns = node_grid(job, ngpus_per_node)
    return WeightEntry(
        job=job.name,
        gpu_model=gpu_model,
        dp=nrows,
        pp=ncolumns,
        alpha=share.estimate,
        beta=statistics.mapped(share.estimate, lambda alpha: 1 - alpha),
        source=Source.PREDICTED,
        gain_dp=gains[DP_ALIGNED],
        gain_pp=gains[PP_ALIGNED],
        volumes=volumes_of(job, ngpus_per_node),
        base_time_s=_estimate(base, base_sd, math.exp),
        base_arms=base_arms,
        compute=job.compute.value,
        is_flat=share.is_flat,
        removed=removed_crossings(grids),
    )


def _log_sd(time_s: Estimate) -> float:
    """Return the standard deviation of the log of a predicted time, 0 where it has no interval."""
    if time_s.ci_low is None or time_s.ci_high is None:
        return 0.0
    return math.log(time_s.ci_high / time_s.ci_low) / (2 * _NORMAL_95)


def _gain(base: float, base_sd: float, time_s: Estimate) -> Estimate:
    return _estimate(base - math.log(time_s.value), math.hypot(base_sd, _log_sd(time_s)), math.expm1)


def _estimate(middle: float, sd: float, function: Callable[[float], float]) -> Estimate:
    half = _NORMAL_95 * sd
    return Estimate(value=function(middle), ci_low=function(middle - half), ci_high=function(middle + half))


def _pair(gains: Mapping[str, Estimate], base_sd: float) -> Pair:
    """Return both gains with the errors of their logs, of which they share the base's."""
    dp, pp = gains[DP_ALIGNED], gains[PP_ALIGNED]
    dp_sd, pp_sd = (_gain_sd(gain) for gain in (dp, pp))
    return Pair(
        first=dp.value,
        second=pp.value,
        first_variance=dp_sd**2,
        second_variance=pp_sd**2,
        covariance=(1 + dp.value) * (1 + pp.value) * base_sd**2,
    )


def _gain_sd(gain: Estimate) -> float:
    assert gain.ci_low is not None and gain.ci_high is not None
    return (1 + gain.value) * math.log((1 + gain.ci_high) / (1 + gain.ci_low)) / (2 * _NORMAL_95)


def predicted_set(entries: Sequence[WeightEntry], fabric: ParametersFile, *, created_at: str) -> WeightSet:
    """Return the content of a weights file of predicted entries; it holds as long as measured ones do.

    Parameters
    ----------
    entries : sequence of WeightEntry
    fabric : ParametersFile
        What the steps were predicted with. It knows no versions, so the kind of fabric names the library alone.
    created_at : str
        ISO 8601, UTC.
    """
    library = fabric.library.value
    kind = FabricKind(
        gpu_model=", ".join(sorted({entry.gpu_model for entry in entries})),
        backend=library.partition("-")[0],
        library=library,
        transport="",
    )
    return WeightSet(
        schema_version=SCHEMA_VERSION,
        entries=tuple(entries),
        run_ids=fabric.run_ids,
        cluster=fabric.cluster,
        fabric=kind,
        created_at=created_at,
        valid_until=valid_until(created_at, VALID_DAYS),
        spanfit_version=spanfit.__version__,
    )

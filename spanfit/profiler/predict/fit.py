"""Fitting the parameters of a fabric to its micro-patterns, never to steps.

Least squares on the logarithms of times and of parameters. Parameters come in two stages, each over the patterns that
show them: what groups alone show (rates of nodes' links, bursts, latencies, reduction), and what shared links show
(rates of uplinks, both ways, unfair shares). Draws are the same in every trial, so that the fit is deterministic.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from spanfit import files
from spanfit.collectives import Collective
from spanfit.errors import FitError
from spanfit.profiler.curves_file import CurvesFile
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import HOST
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, RATE, Parameters, ParametersFile, Residual
from spanfit.profiler.predict.patterns import Pattern, patterns, simulate_pattern
from spanfit.topology.model import Cluster

FIT_DRAWS = 5
_KNOWN_SHARE, _KNOWN_S = 0.01, 5e-4
"""A median time is known to within 1% and 0.5 ms: processes are not under way at one instant."""
_NUDGE = 0.1
_MAX_ROUNDS = 8
_DAMPINGS = (0.0, 0.3, 3.0, 30.0)
_WORTH = 0.01
"""A round that lowers the sum of squares by a smaller share is the last."""
_PRIOR = 0.5
"""How far the logarithm of a parameter may lie from where the search began, as a standard deviation."""
_UNDECIDED = 0.9
"""A parameter that keeps such a share of its prior deviation was not decided by any pattern."""
_LEAST_BURST = 8e3
_MAX_EFFICIENCY = 1.0
_ASSUMED = "assumed"
_HARDLY_SHOWN = "a guess that micro-patterns hardly corrected"
_SEEN = "the most that micro-patterns were seen to carry, so it may be more"
_FROM_FLOWS = "from flows alone at their two largest sizes"

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Parameters that are fitted together, and the patterns that they are fitted to."""

    names: tuple[str, ...]
    patterns: tuple[Pattern, ...]


def fit_parameters(curves: Sequence[CurvesFile], cluster: Cluster, library: Library) -> ParametersFile:
    """Return the parameters that give the micro-patterns of some runs best, with their error.

    Parameters
    ----------
    curves : sequence of CurvesFile
        Of one or more runs on the cluster: at best ``send`` on 2 nodes and rings on 4, alone and all at once, within
        and across minipods, at three sizes or more.
    cluster : Cluster
    library : Library

    Raises
    ------
    FitError
        If the curves were measured on another cluster, or hold no flow alone or no more patterns than parameters.
    """
    if strangers := sorted({each.cluster for each in curves if each.cluster_hash != files.digest(cluster)}):
        raise FitError(
            f"curves of cluster {', '.join(strangers)}: found another cluster than {cluster.name} as it is described "
            "now, expected the same; give the cluster file that was measured"
        )
    found = tuple(pattern for each in curves for pattern in patterns(each, cluster))
    parameters = _first_guess(found)
    stages = _stages(found)
    if not stages:
        raise FitError(
            f"curves: found {len(found)} patterns, too few of groups alone and of shared links to fit either; "
            "measure the campaigns of examples/micro-patterns"
        )
    decided: list[str] = []
    for stage in stages:
        parameters, known = _search(parameters, stage, library)
        decided += known
    names = tuple(name for stage in stages for name in stage.names)
    residuals = _left_out(parameters, names, found, library)
    return ParametersFile(
        schema_version=PARAMETERS_VERSION,
        run_ids=tuple(each.run_id for each in curves),
        curves_hashes=tuple(files.digest(each) for each in curves),
        cluster=cluster.name,
        cluster_hash=files.digest(cluster),
        library=library,
        parameters=parameters,
        error=_error(residuals, _uncertainties(found)),
        residuals=residuals,
        not_fitted=_sources(parameters, names, decided),
    )


def _sources(parameters: Parameters, searched: Sequence[str], decided: Sequence[str]) -> dict[str, str]:
    """Return where the values come from of the parameters that no pattern decided."""
    host, rates = f"{RATE}{HOST}", [f"{RATE}{kind}" for kind in sorted(parameters.rates_bytes_per_s)]
    others = [each.name for each in fields(parameters) if each.name != "rates_bytes_per_s"]
    sources = dict.fromkeys(others, _ASSUMED) | dict.fromkeys(rates, _SEEN)
    sources |= {host: _FROM_FLOWS, "burst_bytes": _FROM_FLOWS} | dict.fromkeys(searched, _HARDLY_SHOWN)
    return {name: source for name, source in sources.items() if name not in decided}


def _first_guess(found: Sequence[Pattern]) -> Parameters:
    """Return parameters to start from: a node's link is as fast as a flow alone, an uplink as it was seen to be."""
    alone = [each for each in found if each.collective is Collective.SEND and not each.shares_links]
    if not alone or len(found) < 12:
        raise FitError(
            f"curves: found {len(found)} patterns, {len(alone)} of them flows alone, expected at least 12 with send "
            "on 2 nodes among them; measure the campaigns of examples/micro-patterns"
        )
    rate, burst_bytes = _line(alone)
    rates: dict[str, float] = {HOST: rate}
    for pattern in found:
        for link, carried_bytes in pattern.carried_bytes().items():
            kind = pattern.network.links[link].link_class
            if kind != HOST:
                rates[kind] = max(rates.get(kind, 0.0), carried_bytes / pattern.time_s)
    return Parameters(
        rates_bytes_per_s=rates,
        burst_bytes=burst_bytes,
        latency_s=3e-4,
        both_ways_efficiency=0.97,
        spread=0.3,
        reduction_s_per_byte=2e-10,
        call_s=1e-4,
        start_s=3e-4,
    )


def _line(alone: Sequence[Pattern]) -> tuple[float, float]:
    """Return the rate and the burst that flows alone show between their two largest sizes."""
    curves: dict[str, list[Pattern]] = {}
    for pattern in sorted(alone, key=lambda each: each.size_bytes):
        curves.setdefault(pattern.name, []).append(pattern)
    ends = [curve[-2:] for curve in curves.values() if len(curve) > 1 and curve[-1].time_s > curve[-2].time_s]
    if not ends:
        raise FitError("curves: found no flow alone that takes longer at a larger size, expected one; add larger sizes")
    rate = median((large.size_bytes - small.size_bytes) / (large.time_s - small.time_s) for small, large in ends)
    burst_bytes = median(large.size_bytes - rate * large.time_s for _, large in ends)
    return rate, max(burst_bytes, _LEAST_BURST)


def _stages(found: Sequence[Pattern]) -> tuple[_Stage, ...]:
    shared = tuple(each for each in found if each.shares_links)
    # A node that sends and receives at once starts slower than one that only sends: that is no burst.
    one_way = tuple(each for each in found if each.collective is not Collective.SEND_RECV)
    apart = tuple(each for each in one_way if not each.shares_links)
    kinds = {pattern.network.links[link].link_class for pattern in shared for link in pattern.carried_bytes()}
    uplinks = tuple(f"{RATE}{kind}" for kind in sorted(kinds - {HOST}))
    alone = (f"{RATE}{HOST}", "burst_bytes", "start_s", "latency_s", "reduction_s_per_byte", "call_s")
    stages = (
        _Stage(names=alone, patterns=apart),
        _Stage(names=(*uplinks, "both_ways_efficiency", "spread"), patterns=shared),
    )
    return tuple(stage for stage in stages if len(stage.patterns) > len(stage.names))


def _search(start: Parameters, stage: _Stage, library: Library) -> tuple[Parameters, tuple[str, ...]]:
    """Return the parameters of a stage at which the sum of squares is least, and which of them its patterns decided.

    The way is Levenberg's and Marquardt's.
    """
    scale = _uncertainties(stage.patterns)
    shifts = np.zeros(len(stage.names))

    def misfits(logs: FloatArray) -> FloatArray:
        found = _misfits(_shifted(start, stage.names, logs), stage.patterns, library) / scale
        return np.concatenate([found, logs / _PRIOR])

    now = misfits(shifts)
    for _ in range(_MAX_ROUNDS):
        nudges = np.eye(len(shifts)) * _NUDGE
        slopes = np.stack([(misfits(shifts + n) - misfits(shifts - n)) / (2 * _NUDGE) for n in nudges], axis=1)
        curvature = slopes.T @ slopes
        for damping in _DAMPINGS:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -slopes.T @ now)
            after = misfits(shifts + step)
            if (after**2).sum() < (1 - _WORTH) * (now**2).sum():
                shifts, now = shifts + step, after
                break
        else:
            break
    return _shifted(start, stage.names, shifts), _decided(stage.names, curvature)


def _decided(names: Sequence[str], curvature: FloatArray) -> tuple[str, ...]:
    """Return the parameters that are known better than before the search; ``curvature`` holds what was known then."""
    deviations = np.sqrt(np.diag(np.linalg.inv(curvature)))
    return tuple(name for name, deviation in zip(names, deviations, strict=True) if deviation < _UNDECIDED * _PRIOR)


def _shifted(parameters: Parameters, names: Sequence[str], logs: FloatArray) -> Parameters:
    for name, log in zip(names, logs.tolist(), strict=True):
        parameters = scaled(parameters, name, math.exp(log))
    return parameters


def scaled(parameters: Parameters, name: str, factor: float) -> Parameters:
    """Return parameters with one of them multiplied; ``rate of CLASS`` names the rate of a class of links."""
    if name.startswith(RATE):
        kind = name.removeprefix(RATE)
        rates = parameters.rates_bytes_per_s
        return replace(parameters, rates_bytes_per_s=rates | {kind: rates[kind] * factor})
    value = getattr(parameters, name) * factor
    return replace(parameters, **{name: min(value, _MAX_EFFICIENCY) if name == "both_ways_efficiency" else value})


def _uncertainties(found: Sequence[Pattern]) -> FloatArray:
    """Return how well the logarithm of each time is known."""
    times_s = np.array([each.time_s for each in found])
    return np.hypot(_KNOWN_SHARE, _KNOWN_S / times_s)


def _misfits(parameters: Parameters, found: Iterable[Pattern], library: Library) -> FloatArray:
    """Return log(simulated / measured) of each pattern."""
    return np.array([math.log(simulate_pattern(each, parameters, library, FIT_DRAWS) / each.time_s) for each in found])


def _left_out(
    parameters: Parameters, names: Sequence[str], found: Sequence[Pattern], library: Library
) -> tuple[Residual, ...]:
    """Return each pattern with what a fit without its curve would have given.

    Notes
    -----
    For least squares that are linear near their minimum, the misfits of a block that is left out follow from those of
    the whole fit: (1 - H)^-1 r, where H is the block of the hat matrix. No fit is repeated. A weak prior keeps what few
    patterns show from making H one.
    """
    scale = _uncertainties(found)
    misfits = _misfits(parameters, found, library) / scale
    slopes = np.stack([_slope(parameters, name, found, library) / scale for name in names], axis=1)
    hat = slopes @ np.linalg.solve(slopes.T @ slopes + np.eye(len(names)) / _PRIOR**2, slopes.T)
    left_out = misfits.copy()
    curve = np.array([each.name for each in found])
    for name in dict.fromkeys(curve.tolist()):
        block = np.flatnonzero(curve == name)
        left_out[block] = np.linalg.solve(np.eye(len(block)) - hat[np.ix_(block, block)], misfits[block])
    logs = zip((misfits * scale).tolist(), (left_out * scale).tolist(), strict=True)
    return tuple(
        Residual(
            pattern=each.name,
            size_bytes=each.size_bytes,
            measured_s=each.time_s,
            fitted_s=each.time_s * math.exp(misfit),
            left_out_s=each.time_s * math.exp(without),
        )
        for each, (misfit, without) in zip(found, logs, strict=True)
    )


def _slope(parameters: Parameters, name: str, found: Sequence[Pattern], library: Library) -> FloatArray:
    """Return how the misfits change with the logarithm of a parameter."""
    low, high = (_misfits(scaled(parameters, name, math.exp(nudge)), found, library) for nudge in (-_NUDGE, _NUDGE))
    slope: FloatArray = (high - low) / (2 * _NUDGE)
    return slope


def _error(residuals: Sequence[Residual], uncertainties: FloatArray) -> float:
    """Return the root of the mean square of the misfits of left-out curves, those that are well known first."""
    logs = np.array([math.log(each.left_out_s / each.measured_s) for each in residuals])
    return float(np.sqrt(np.average(logs**2, weights=uncertainties**-2.0)))

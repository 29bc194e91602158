"""A trained runtime predictor: read from a file, asked for forecasts, kept up to date. numpy, no scikit-learn.

A file is an ``npz`` archive without pickles: arrays of trees, of the past and of calibration scores, and a JSON header
with a schema version. Files from others are checked, never executed.
"""

import heapq
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanfit import files
from spanfit.errors import ConfigError, FitError
from spanfit.queue.jct import features
from spanfit.queue.jct.features import History, Past, Request
from spanfit.queue.jct.targets import Target, bounded, decoded, upper_offset, within_limits
from spanfit.queue.jct.trees import Forest, forest_from
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.traces.reading import TraceJob, usable

SCHEMA_VERSION = 1
_REST = ("end_s", "average", "variance", "failed")
WINDOW = 1000
"""The upper quantile is calibrated on so many jobs that ended last."""
LEAST_CALIBRATION = 30
"""Fewer jobs than this calibrate no 90% quantile."""
MAX_PASTS = 20_000
"""A model keeps the past of so many groups; names that no job has again would fill its file."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a model comes from; the header of its file.

    Attributes
    ----------
    schema_version : int
    library : str
        What fitted the trees, with its version.
    origin, kind : str
        Of the trace.
    njobs, ncalibration : int
        Jobs that the trees were fitted to, and that came after and calibrate them.
    nleft_out : int
        Jobs that users, preemption or failing nodes ended, which taught nothing.
    fitted_until_s : float
        When the last job that the trees were fitted to ended, Unix time [s].
    first_submit_s, last_end_s : float
        Of the jobs of the past, Unix time [s].
    features : tuple of str
        Columns of the table, the categories first.
    codes : dict
        The code of each value of each category.
    withheld : tuple of str
        Texts of jobs that the model does not look at.
    target : Target
        What the mean is fitted to; chosen on jobs after those fitted to.
    smear : float
        Factor that brings logarithms back to the mean.
    levels : tuple of float
        The quantiles that have trees, ascending.
    parameters : dict
        Of the trees of the mean and of the quantiles, as chosen.
    validation_deviance : float
        Of the chosen mean, in ten-minute intervals, on the jobs that chose it.
    """

    __pydantic_config__ = files.CONFIG

    schema_version: int
    library: str
    origin: str
    kind: str
    njobs: int
    ncalibration: int
    nleft_out: int
    fitted_until_s: float
    first_submit_s: float
    last_end_s: float
    features: tuple[str, ...]
    codes: dict[str, dict[str, int]]
    withheld: tuple[str, ...]
    target: Target
    smear: float
    levels: tuple[float, ...]
    parameters: dict[str, dict[str, float]]
    validation_deviance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The header of a file: what the model comes from, and the keys of its past."""

    __pydantic_config__ = files.CONFIG

    info: ModelInfo
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A runtime predictor.

    Attributes
    ----------
    info : ModelInfo
    mean : Forest
    quantiles : tuple of Forest
        One for each level.
    history : mapping of str to Past
        How jobs ran before, by group.
    scores : array of float, shape (n, nlevels)
        True minus predicted logarithms of the jobs that ended last, the latest last; none was fitted to.
    """

    info: ModelInfo
    mean: Forest
    quantiles: tuple[Forest, ...]
    history: History
    scores: Floats

    def forecast(self, jobs: Sequence[QueueJob], quantile: float) -> tuple[Forecast, ...]:
        """Return the mean and the calibrated upper quantile of the runtime of each job, as if submitted now.

        Parameters
        ----------
        jobs : sequence of QueueJob
            Neither forecast goes beyond a job's time limit by more than a minute.
        quantile : float
            Share of jobs that shall end within ``upper_s``, between 0 and 1; the bound is never below the mean.
        """
        return self.forecast_requests([features.request_of(job) for job in jobs], quantile)

    def forecast_requests(self, requests: Sequence[Request], quantile: float) -> tuple[Forecast, ...]:
        """Return forecasts of jobs that are described by a request each; see ``forecast``."""
        if not 0 < quantile < 1:
            raise ValueError(f"quantile is {quantile}; expected a share between 0 and 1")
        if not requests:
            return ()
        table, limits = self.table((), requests, self.history), limits_s(requests)
        level = self.level_for(quantile)
        means = within_limits(self.means_s(table), limits)
        bound = np.expm1(self.quantiles[level].predict(table) + upper_offset(self.scores[:, level], quantile))
        upper = bounded(bound, means, limits)
        return tuple(
            Forecast(mean_s=mean_s, upper_s=upper_s)
            for mean_s, upper_s in zip(means.tolist(), upper.tolist(), strict=True)
        )

    def level_for(self, quantile: float) -> int:
        """Return the index of the level whose trees are calibrated for a quantile: the nearest."""
        return min(range(len(self.info.levels)), key=lambda index: abs(self.info.levels[index] - quantile))

    def table(self, ended: Sequence[TraceJob], requests: Sequence[Request], past: History) -> Floats:
        """Return the features of each request: codes, then numbers, from a past and those of ``ended`` by then."""
        told = [features.without(request, self.info.withheld) for request in requests]
        numbers = features.numeric_table(withheld(ended, self.info.withheld), told, past)
        return np.hstack([features.code_table(told, self.info.codes), numbers])

    def means_s(self, table: Floats) -> Floats:
        """Return the mean runtime for each row of a table [s]."""
        return decoded(self.info.target, self.mean.predict(table), self.info.smear)

    def logs(self, table: Floats) -> Floats:
        """Return the logarithm of the runtime at each level, not calibrated, for each row of a table."""
        return np.stack([forest.predict(table) for forest in self.quantiles], axis=1)

    def recalibrated(self, jobs: Sequence[TraceJob]) -> "Model":
        """Return the model with the past and the calibration of a newer trace; its trees stay.

        Parameters
        ----------
        jobs : sequence of TraceJob
            All that ended, from as far back as forecasts shall remember. Those that ended after the ones that the trees
            were fitted to calibrate, each forecast from what had ended when it was submitted.

        Raises
        ------
        FitError
            If too few jobs ended since by themselves.
        """
        kept = sorted(usable(jobs), key=lambda job: (job.end_s, job.job_id))
        late = [job for job in kept if job.end_s > self.info.fitted_until_s]
        if len(late) < LEAST_CALIBRATION:
            raise FitError(
                f"found {len(late)} jobs that ended by themselves after those that the trees were fitted to; expected "
                f"at least {LEAST_CALIBRATION}: give a trace that begins earlier and ends later"
            )
        window = late[-WINDOW:]
        table = self.table(kept, [features.request_of(job) for job in window], {})
        return replace(
            self,
            info=replace(
                self.info,
                ncalibration=len(window),
                first_submit_s=min(job.submit_s for job in kept),
                last_end_s=kept[-1].end_s,
            ),
            history=past_of(kept, self.info.withheld),
            scores=np.log1p(runtimes_s(window))[:, None] - self.logs(table),
        )


def past_of(jobs: Sequence[TraceJob], withhold: Sequence[str], most: int = MAX_PASTS) -> History:
    """Return the past of groups of jobs, without the texts that a model does not look at.

    Where there are more groups than ``most``, those that ran once go first, then those that ran longest ago.
    """
    history = features.history_of(withheld(jobs, withhold), {})
    if len(history) <= most:
        return history
    return dict(heapq.nlargest(most, history.items(), key=lambda item: (item[1].count > 1, item[1].end_s, item[0])))


def runtimes_s(jobs: Sequence[TraceJob]) -> Floats:
    """Return the runtime of each job [s]."""
    return np.array([job.runtime_s for job in jobs], dtype=np.float64)


def limits_s(requests: Sequence[Request]) -> Floats:
    """Return the time limit of each request [s], NaN where it has none."""
    return np.array([np.nan if row.time_limit_s is None else row.time_limit_s for row in requests], dtype=np.float64)


def withheld(jobs: Sequence[TraceJob], names: Sequence[str]) -> Sequence[TraceJob]:
    """Return jobs without the texts that a model does not look at."""
    changes: dict[str, Any] = dict.fromkeys(names, "")
    return [replace(job, **changes) for job in jobs] if names else jobs


def write_model(path: Path, model: Model) -> None:
    """Write a model whole or not at all, as an ``npz`` archive without pickles."""
    keys = tuple(model.history)
    pasts = [model.history[key] for key in keys]
    logs = np.full((len(keys), features.DEPTH), np.nan)
    for row, past in zip(logs, pasts, strict=True):
        row[: len(past.logs)] = past.logs
    header = files.render_json(_Header(info=model.info, keys=keys)).encode()
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "header": np.frombuffer(header, dtype=np.uint8),
        "history.logs": logs,
        "history.count": np.array([past.count for past in pasts], dtype=np.int64),
        "history.rest": np.array([_rest(past) for past in pasts], dtype=np.float64).reshape(len(keys), len(_REST)),
        "scores": model.scores,
        **model.mean.arrays("mean"),
    }
    for index, forest in enumerate(model.quantiles):
        arrays |= forest.arrays(f"quantile{index}")
    with files.replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def read_model(path: Path) -> Model:
    """Return a model from its file; ConfigError where it is none, is broken, or has another version."""
    arrays = _arrays(path)
    header = _header(path, arrays)
    width = len(header.info.features)
    try:
        return Model(
            info=header.info,
            mean=forest_from(arrays, "mean", width),
            quantiles=tuple(forest_from(arrays, f"quantile{index}", width) for index in range(len(header.info.levels))),
            history=_history(header.keys, arrays),
            scores=_scores(arrays, len(header.info.levels)),
        )
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; write the file again with: spanfit jct train") from None


def _arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    except (ValueError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error):
        # numpy's own text offers to load pickles, which is no cure.
        raise ConfigError(f"{path}: found no npz archive; expected a file that spanfit jct train wrote") from None


def _header(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> _Header:
    try:
        document = json.loads(arrays["header"].tobytes().decode())
    except (KeyError, ValueError):
        raise ConfigError(f"{path}: found no header; expected a file that spanfit jct train wrote") from None
    info = document.get("info") if isinstance(document, dict) else None
    version = info.get("schema_version") if isinstance(info, dict) else None
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: schema_version: found {version!r}, expected {SCHEMA_VERSION}; train the model again with this "
            "version of spanfit, or install the one that wrote it"
        )
    header = files.parse(_Header, document, str(path))
    expected = (*features.CATEGORICAL, *features.NUMERIC)
    if header.info.features != expected or set(header.info.codes) != set(features.CATEGORICAL):
        raise ConfigError(f"{path}: features: found others than this version computes; train the model again")
    if not header.info.levels:
        raise ConfigError(f"{path}: levels: found none, expected at least one quantile; train the model again")
    return header


def _history(keys: Sequence[str], arrays: Mapping[str, npt.NDArray[np.generic]]) -> History:
    logs, counts, rest = (arrays.get(f"history.{name}", np.empty(0)) for name in ("logs", "count", "rest"))
    if (
        logs.shape != (len(keys), features.DEPTH)
        or counts.shape != (len(keys),)
        or rest.shape != (len(keys), len(_REST))
    ):
        raise ValueError(f"history: found arrays of other shapes than its {len(keys)} keys need")
    rows = zip(keys, logs.tolist(), counts.tolist(), rest.tolist(), strict=True)
    return {
        key: Past(logs=tuple(log for log in row if log == log), count=count, **dict(zip(_REST, others, strict=True)))
        for key, row, count, others in rows
    }


def _rest(past: Past) -> list[float]:
    return [getattr(past, name) for name in _REST]


def _scores(arrays: Mapping[str, npt.NDArray[np.generic]], nlevels: int) -> Floats:
    scores = np.asarray(arrays.get("scores", ()))
    if scores.dtype != np.float64 or scores.ndim != 2 or scores.shape[1] != nlevels or not np.isfinite(scores).all():
        raise ValueError(f"scores: found no table of numbers with {nlevels} columns")
    return scores.astype(np.float64)

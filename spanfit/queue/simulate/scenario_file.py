"""A scenario file read: TOML in, a Scenario out, every mistake at once."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.queue.jct.model import read_model
from spanfit.queue.model.nodes import Ground
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.rules_file import parse_rules
from spanfit.queue.simulate.faults import FaultRates
from spanfit.queue.simulate.replay import ReplayRules
from spanfit.queue.simulate.scenario import Forecaster, Scenario, even_ground
from spanfit.queue.simulate.sources import Recorded, Source, Steady, Synthetic
from spanfit.queue.simulate.tables import FaultsTable, JobsTable, ReplayTable, ScenarioFile
from spanfit.queue.simulate.workload import JobMix, Telling
from spanfit.queue.traces.kinds import PARSERS
from spanfit.units import format_time, parse_duration

GroundReader = Callable[[Path], Ground]
"""Gives the ground of a cluster file."""


def read_scenario(path: Path, read_ground: GroundReader) -> Scenario:
    """Return the scenario of a file; paths in it count from its folder.

    Raises
    ------
    ConfigError
        With every mistake of the file.
    """
    file, rules = _read(path)
    folder, cluster = path.parent, file.cluster
    if cluster.file is not None:
        ground = read_ground(folder / cluster.file)
    else:
        assert cluster.minipods is not None and cluster.nodes is not None
        ground = even_ground(cluster.minipods, cluster.nodes)
    try:
        source = _source(file.jobs, folder)
        return Scenario(
            name=file.name,
            ground=ground,
            source=source,
            announced=tuple(each.value() for each in file.announced),
            telling=Telling(told=file.forecast.told, log_sd=file.forecast.log_sd, quantile=rules.quantile),
            forecaster=_forecaster(folder / file.forecast.model, source) if file.forecast.model else None,
            preemptable_share=file.jobs.preemptable_share,
            fault_rates=_fault_rates(file.faults),
            rules=rules,
            replay=_replay_rules(file.replay, cluster.ngpus_per_node),
        )
    except ValueError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def _read(path: Path) -> tuple[ScenarioFile, QueueRules]:
    """Return what a file holds; ConfigError has the mistakes of its rules and of the rest."""
    try:
        document = tomllib.loads(files.read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    rules = document.pop("rules", {})
    try:
        file = files.parse(ScenarioFile, document, str(path))
    except ConfigError as error:
        raise ConfigError("\n".join([str(error), *_rules_faults(rules, path)])) from None
    return file, parse_rules(rules, f"{path}: rules")


def _rules_faults(rules: Mapping[str, Any], path: Path) -> Iterator[str]:
    try:
        parse_rules(rules, f"{path}: rules")
    except ConfigError as error:
        yield str(error)


def _source(jobs: JobsTable, folder: Path) -> Source:
    if jobs.steady:
        table = jobs.steady
        mix = JobMix(
            shares=table.shares,
            median_s=parse_duration(table.median),
            log_sd=table.log_sd,
            limit_factors=table.limit_factors,
        )
        return Steady(mix=mix, span_s=parse_duration(table.span), load=table.load)
    if jobs.synthetic:
        drawn = jobs.synthetic
        return Synthetic(shape=drawn.shape, njobs=drawn.njobs, days=drawn.days, load=drawn.load)
    assert jobs.trace is not None
    path = folder / jobs.trace.file
    trace = PARSERS[jobs.trace.kind](files.read_text(path), str(path))
    return Recorded(jobs=trace.jobs, load=jobs.trace.load)


def _forecaster(path: Path, source: Source) -> Forecaster:
    """Return what a trained predictor forecasts; ValueError where it knows the end of what it would be asked."""
    model = read_model(path)
    if isinstance(source, Recorded):
        first_s = min(job.submit_s for job in source.jobs)
        if model.info.last_end_s > first_s:
            late_s = model.info.last_end_s - first_s
            raise ValueError(
                f"forecast.model: found one that learnt from jobs up to {format_time(late_s)} after the trace begins, "
                "expected one trained on what had ended before; train it on an earlier part of the trace"
            )
    return model.forecast


def _fault_rates(table: FaultsTable | None) -> FaultRates | None:
    if table is None:
        return None
    return FaultRates(between_s=parse_duration(table.between), repair_s=parse_duration(table.repair))


def _replay_rules(table: ReplayTable, ngpus_per_node: int) -> ReplayRules:
    return ReplayRules(
        ngpus_per_node=ngpus_per_node,
        checkpoint_s=parse_duration(table.checkpoint) if table.checkpoint else float("inf"),
        sample_s=parse_duration(table.sample),
        until_s=parse_duration(table.until) if table.until else float("inf"),
    )

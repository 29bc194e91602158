"""``spanfit simulate``: the queue's policies replayed over a cluster, once in detail or many times over seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.clusters import load_cluster
from spanfit.cli.output import json_option, print_json, print_table, talk

if TYPE_CHECKING:
    from spanfit.queue.model.nodes import Ground
    from spanfit.queue.simulate.metrics import Figures
    from spanfit.queue.simulate.outcome import ReplayOutcome
    from spanfit.queue.simulate.scenario import Scenario, Way
    from spanfit.queue.simulate.summaries import Summary
    from spanfit.queue.simulate.sweep import CaseFigures
    from spanfit.report.queue_figures import Moments
    from spanfit.results.schema import Estimate

RUN_VERSION = 1
SWEEP_VERSION = 1

_HOUR_S = 3600.0
_MAIN = (
    "allocation",
    "fragmentation",
    "delay_mean_s",
    "delay_p95_s",
    "idle_gpu_h",
    "held_gpu_h",
    "preempted_gpu_h",
    "failed_gpu_h",
    "mean_spread",
)
"""The figures of a sweep that fit a table; --json has all."""
_OF_ANNOUNCED = ("start_delay_s", "retention", "short", "dp_spread", "pp_spread")
_SHARES = ("allocation", "fragmentation", "whole_share", "retention", "short")

_way_option = click.option(
    "--way",
    "ways",
    multiple=True,
    metavar="POLICY[/TOLD]",
    help="Replay under this policy, told runtimes as the scenario says or as TOLD does (perfect, lognormal, limit, "
    "model); may be given again.",
)
_figures_option = click.option(
    "--figures",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the figures (SVG) into this folder.",
)


@click.group(epilog="Example: spanfit simulate run examples/simulate/evening.toml")
def simulate() -> None:
    """Replay jobs over a cluster with minipods under the queue's policies."""


@simulate.command(
    "run", epilog="Example: spanfit simulate run examples/simulate/evening.toml --way spanfit --way paper --figures out"
)
@click.argument("scenario_file", metavar="SCENARIO.toml", type=click.Path(path_type=Path))
@_way_option
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same jobs and failures.")
@_figures_option
@json_option
def run(scenario_file: Path, ways: tuple[str, ...], seed: int, folder: Path | None, as_json: bool) -> None:
    """Replay a scenario once under each way, and print what each made of the same jobs."""
    from dataclasses import asdict

    from spanfit.queue.simulate.metrics import figures_of
    from spanfit.queue.simulate.scenario import largest_minipod, run_scenario, with_way

    scenario = _read(scenario_file)
    parsed = _parsed(ways or (scenario.rules.policy.value,), [scenario])
    outcomes = {way.label: run_scenario(with_way(scenario, way), seed) for way in parsed}
    largest = largest_minipod(scenario.ground)
    figures = {label: figures_of(outcome, largest) for label, outcome in outcomes.items()}
    if folder is not None:
        _write_figures(folder, scenario, outcomes, figures)
    if as_json:
        plain = {label: asdict(each) for label, each in figures.items()}
        print_json({"schema_version": RUN_VERSION, "scenario": scenario.name, "seed": seed, "ways": plain})
        return
    _print_run(scenario.name, figures)


def _read(path: Path) -> Scenario:
    from spanfit.queue.simulate.scenario_file import read_scenario

    return read_scenario(path, _read_ground)


def _read_ground(path: Path) -> Ground:
    from spanfit.queue.grounds import ground_of

    return ground_of(load_cluster(path))


def _parsed(texts: Sequence[str], scenarios: Sequence[Scenario]) -> list[Way]:
    """Return the ways that were asked for, each once; UsageError where one is none or no scenario can be told so."""
    from spanfit.queue.simulate.scenario import parse_way, with_way

    try:
        ways = [parse_way(text) for text in dict.fromkeys(texts)]
        for scenario in scenarios:
            for way in ways:
                with_way(scenario, way)
    except ValueError as error:
        raise click.UsageError(f"--way: {error}") from error
    return ways


def _print_run(name: str, figures: Mapping[str, Figures]) -> None:
    from spanfit.queue.simulate.metrics import flat_figures

    flat = {label: flat_figures(each) for label, each in figures.items()}
    names = dict.fromkeys(key for each in flat.values() for key in each)
    rows = [(key, *(_shown(key, each.get(key)) for each in flat.values())) for key in names]
    print_table(f"Replay of {name}", ("figure", *(f">{label}" for label in flat)), rows)


def _shown(name: str, value: float | None) -> str:
    """Return a figure with the unit that its name says."""
    if value is None:
        return "-"
    bare = name.partition(":")[0]
    if bare.endswith("_s"):
        return f"{value:.0f} s" if abs(value) < 90 else units.format_time(value).replace("-", "−")
    if bare in _SHARES:
        return units.format_percent(value)
    return f"{value:.0f}" if bare.endswith("_gpu_h") or value == int(value) else f"{value:.3g}"


def _write_figures(
    folder: Path, scenario: Scenario, outcomes: Mapping[str, ReplayOutcome], figures: Mapping[str, Figures]
) -> None:
    """Write what a replay has figures of: levels around each announced job, delays, the calendar of each way."""
    from spanfit.report import queue_figures
    from spanfit.results.schema import Estimate

    delays = {
        label: {
            size: Estimate(value=each.mean_s, ci_low=each.p50_s, ci_high=each.p95_s)
            for size, each in own.delays_by_size.items()
        }
        for label, own in figures.items()
    }
    what = "mean [median, 95% quantile] over the jobs of one replay"
    texts = {"delays": queue_figures.delays_figure(delays, what)}
    for job in scenario.announced:
        moments = _moments(job.job_id, outcomes)
        texts[f"levels-{job.job_id}"] = queue_figures.levels_figure(
            outcomes, moments, before_s=2 * _HOUR_S, after_s=2 * _HOUR_S
        )
    for label, outcome in outcomes.items():
        if outcome.calendar:
            first = min(span.from_s for span in outcome.calendar)
            texts[f"calendar-{label.replace('/', '-')}"] = queue_figures.calendar_figure(
                outcome.calendar, scenario.ground, zero_s=first, counted_from="the first reservation"
            )
    _write(folder, texts)


def _moments(job_id: str, outcomes: Mapping[str, ReplayOutcome]) -> Moments:
    from spanfit.report.queue_figures import Moments

    jobs = next(iter(outcomes.values())).jobs
    job = next(each for each in jobs if each.job_id == job_id)
    return Moments(job_id=job_id, announced_s=job.submitted_s, arrives_s=job.wanted_s)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    from spanfit import files

    for name, text in texts.items():
        files.write_text(folder / f"{name}.svg", text)
    talk(f"{folder}: wrote {', '.join(f'{name}.svg' for name in texts)}")


@simulate.command(
    "sweep",
    epilog="Example: spanfit simulate sweep examples/simulate/evening.toml --way spanfit --way paper --seeds 6",
)
@click.argument("scenario_files", metavar="SCENARIO.toml...", nargs=-1, required=True, type=click.Path(path_type=Path))
@_way_option
@click.option("--seeds", type=click.IntRange(1), default=6, show_default=True, help="How many seeds.")
@click.option("--seed", type=int, default=1, show_default=True, help="The first of them.")
@_figures_option
@json_option
def sweep(
    scenario_files: tuple[Path, ...], ways: tuple[str, ...], seeds: int, seed: int, folder: Path | None, as_json: bool
) -> None:
    """Replay scenarios under each way and seed, and print means with intervals and paired differences.

    Under mpirun, started as python -m mpi4py.futures -m spanfit simulate sweep ..., the replays are spread over all
    processes but the first, on any hosts.
    """
    from dataclasses import asdict

    from spanfit.queue.simulate.sweep import plan_cases, run_cases

    scenarios = [_read(path) for path in scenario_files]
    parsed = _parsed(ways or ("spanfit", "paper"), scenarios)
    cases = plan_cases(scenarios, parsed, range(seed, seed + seeds))
    finished = run_cases(cases, os.environ)
    # Loads SciPy and pandas, while other processes replay.
    from spanfit.queue.simulate.summaries import summarize

    results: list[CaseFigures] = []
    for result in finished:
        results.append(result)
        talk(f"{len(results)} of {len(cases)}: {result.scenario}, {result.way}, seed {result.seed}")
    labels = [way.label for way in parsed]
    summaries = summarize(results, labels)
    if folder is not None:
        _write(folder, _delay_figures(summaries))
    if as_json:
        print_json({"schema_version": SWEEP_VERSION, "seeds": seeds, "figures": [asdict(each) for each in summaries]})
        return
    for scenario in scenarios:
        own = [each for each in summaries if each.scenario == scenario.name]
        _print_summaries(scenario, own, labels, seeds)


def _print_summaries(scenario: Scenario, summaries: Sequence[Summary], labels: Sequence[str], seeds: int) -> None:
    names = [*_MAIN, *(f"{name}:{job.job_id}" for job in scenario.announced for name in _OF_ANNOUNCED)]
    title = f"{scenario.name}: means over {seeds} seeds with 95% intervals"
    _print_estimates(title, summaries, labels, names, seeds, lambda each: (each.estimate, each.nseeds))
    if len(labels) > 1:
        title = f"{scenario.name}: differences to {labels[0]}, seed by seed"
        _print_estimates(title, summaries, labels[1:], names, seeds, lambda each: (each.difference, each.npairs))


def _print_estimates(
    title: str,
    summaries: Sequence[Summary],
    labels: Sequence[str],
    names: Sequence[str],
    seeds: int,
    chosen: Callable[[Summary], tuple[Estimate | None, int]],
) -> None:
    known = {(each.way, each.name): each for each in summaries}
    rows = []
    for name in names:
        own = [known.get((label, name)) for label in labels]
        rows.append((name, *(_cell(each, seeds, chosen) for each in own)))
    print_table(title, ("figure", *labels), rows)


def _cell(summary: Summary | None, seeds: int, chosen: Callable[[Summary], tuple[Estimate | None, int]]) -> str:
    """Return an estimate, and of how many seeds where some have none, such as those in which a job never started."""
    if summary is None:
        return "-"
    estimate, nknown = chosen(summary)
    told = _interval(summary.name, estimate)
    return told if nknown == seeds or estimate is None else f"{told} ({nknown} of {seeds} seeds)"


def _interval(name: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.ci_low is None or estimate.ci_high is None:
        return _shown(name, estimate.value)
    return f"{_shown(name, estimate.value)} [{_shown(name, estimate.ci_low)}, {_shown(name, estimate.ci_high)}]"


def _delay_figures(summaries: Sequence[Summary]) -> dict[str, str]:
    """Return a figure of delays for each scenario."""
    from spanfit.report.queue_figures import delays_figure

    texts = {}
    for scenario in dict.fromkeys(each.scenario for each in summaries):
        delays: dict[str, dict[str, Estimate]] = {}
        for each in summaries:
            if each.scenario == scenario and each.name.startswith("delay_mean_s:"):
                size = each.name.removeprefix("delay_mean_s:")
                delays.setdefault(each.way, {})[size] = each.estimate
        nseeds = max(each.nseeds for each in summaries if each.scenario == scenario)
        texts[f"delays-{scenario}"] = delays_figure(delays, f"{scenario}: mean over {nseeds} seeds, 95% intervals")
    return texts

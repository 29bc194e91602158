"""``spanfit results``: list, show and export what the store holds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.output import json_option, print_json, print_table, talk

if TYPE_CHECKING:
    import pandas as pd

    from spanfit.results.schema import RunInfo

store_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds the runs.",
)
run_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument("run", default="latest")
"""A run's id, a prefix of it that no other run has, or ``latest``."""


@click.group(epilog="Example: spanfit results list --store runs")
def results() -> None:
    """List, show and export what the store holds."""


@results.command("list", epilog="Example: spanfit results list --store runs")
@store_option
@json_option
def list_runs(store: Path, as_json: bool) -> None:
    """List the finished and the unfinished runs of the store, oldest first."""
    from spanfit.results.store import Store

    runs, unfinished = Store(store).runs(), Store(store).unfinished()
    if as_json:
        print_json({"runs": [asdict(run) for run in runs], "unfinished": list(unfinished)})
        return
    rows = [
        (run.run_id, "finished", run.campaign, run.cluster, run.backend, run.started_at, str(run.launches))
        for run in runs
    ]
    rows += [(run_id, "unfinished", "", "", "", "", "") for run_id in unfinished]
    if not rows:
        talk(f"{store}: holds no run; measure one with: spanfit campaign run")
        return
    print_table("Runs", ("run", "state", "campaign", "cluster", "backend", "started (UTC)", ">launches"), rows)


@results.command("show", epilog="Example: spanfit results show latest --store runs")
@run_argument
@store_option
@json_option
def show_run(run: str, store: Path, as_json: bool) -> None:
    """Show what was true of a run and how its cases ended."""
    from spanfit.results.store import Store

    info, frame = Store(store).read(Store(store).resolve(run))
    if as_json:
        print_json({"run": asdict(info), **_counts(frame)})
        return
    print_table(f"Run {info.run_id}", ("field", "value"), _described(info))
    counts = _counts(frame)
    rows = [(status, str(count)) for status, count in counts["rows_by_status"].items()]
    print_table(f"Rows: {len(frame)}, cases: {counts['cases']}", ("how they ended", ">rows"), rows)
    if counts["reasons"]:
        print_table("Why rows failed", ("reason", ">rows"), [(why, str(n)) for why, n in counts["reasons"].items()])


def _counts(frame: pd.DataFrame) -> dict[str, Any]:
    failed = frame[frame["status"] != "ok"]
    return {
        "cases": int(frame["case_id"].nunique()),
        "rows_by_status": {str(key): int(count) for key, count in frame["status"].value_counts().items()},
        "reasons": {str(key): int(count) for key, count in failed["reason"].value_counts().items()},
    }


def _described(info: RunInfo) -> list[tuple[str, str]]:
    from spanfit import units

    minipods = dict.fromkeys(info.minipods)
    sizes = ", ".join(f"{name} ({info.minipods.count(name)})" for name in minipods)
    rows = [
        ("campaign", info.campaign),
        ("cluster", f"{info.cluster} ({info.cluster_hash[:12]})"),
        ("started, ended (UTC)", f"{info.started_at}, {info.ended_at}"),
        ("backend, transport", f"{info.backend}, {info.transport}"),
        ("nodes", f"{len(info.node_names)} ({info.gpu_model}), ranks on each: {info.ngpus_per_node}"),
        ("minipods (nodes)", sizes),
        ("launches", str(info.launches)),
        ("git commit", info.git_commit),
    ]
    rows += [(f"truth: {name}", units.format_link_rate(rate)) for name, rate in sorted(info.truth.items())]
    rows += [(f"version: {name}", version) for name, version in sorted(info.versions.items())]
    return rows + [(f"environment: {name}", value) for name, value in sorted(info.environment.items())]


@results.command("export", epilog="Example: spanfit results export latest --format csv -o measurements.csv")
@run_argument
@store_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "parquet"]),
    default="csv",
    show_default=True,
    help="File format.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="Write here."
)
def export(run: str, store: Path, form: str, output: Path) -> None:
    """Write a run's measurements to a file; JSON and Parquet keep what was true of the run."""
    from spanfit import files
    from spanfit.results.store import Store

    run_id = Store(store).resolve(run)
    info, frame = Store(store).read(run_id)
    with files.replacing(output) as temporary:
        if form == "parquet":
            shutil.copyfile(store / f"{run_id}.parquet", temporary)
        elif form == "csv":
            frame.to_csv(temporary, index=False)
        else:
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            temporary.write_text(files.render_json({"run": asdict(info), "measurements": rows}), encoding="utf-8")
    talk(f"{output}: {len(frame)} rows of run {run_id}")

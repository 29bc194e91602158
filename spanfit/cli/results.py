"""``spanfit results``: list, show, compare and export what the store holds, and import logs into it."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.options import run_argument, store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.cli.results_compare import compare
from spanfit.cli.results_import import import_logs

if TYPE_CHECKING:
    import pandas as pd

    from spanfit.results.schema import RunInfo


@click.group(epilog="Example: spanfit results list --store runs")
def results() -> None:
    """List, show, compare and export what the store holds, and import logs into it."""


results.add_command(compare)
results.add_command(import_logs)


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
        (
            run.run_id,
            _state(run),
            run.campaign,
            run.cluster,
            _engine(run),
            run.backend,
            run.started_at,
            str(run.launches),
        )
        for run in runs
    ]
    rows += [(run_id, "unfinished", "", "", "", "", "", "") for run_id in unfinished]
    if not rows:
        talk(f"{store}: holds no run; measure one with: spanfit campaign run")
        return
    columns = ("run", "state", "campaign", "cluster", "engine", "backend", "started (UTC)", ">launches")
    print_table("Runs", columns, rows)


def _state(info: RunInfo) -> str:
    return "imported" if info.origin else "finished"


def _engine(info: RunInfo) -> str:
    return info.engine or "unknown"


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
        ("engine", _engine(info)),
        ("backend, transport", f"{info.backend}, {info.transport}"),
        ("nodes", f"{len(info.node_names)} ({info.gpu_model}), ranks on each: {info.ngpus_per_node}"),
        ("minipods (nodes)", sizes),
        ("launches", str(info.launches)),
        ("git commit", info.git_commit),
    ]
    rows += [(f"imported from {name}", f"SHA-256 {digest}") for name, digest in sorted(info.origin.items())]
    rows += [(f"truth: {name}", units.format_link_rate(rate)) for name, rate in sorted(info.truth.items())]
    rows += [(f"version: {name}", version) for name, version in sorted(info.versions.items())]
    return rows + [(f"environment: {name}", value) for name, value in sorted(info.environment.items())]


@results.command(
    "export", epilog="Example: spanfit results export latest --prometheus -o /var/lib/node_exporter/span.prom"
)
@run_argument
@store_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "parquet", "prometheus"]),
    default="csv",
    show_default=True,
    help="File format; prometheus holds a sample for each case, the others a row for each measurement.",
)
@click.option("--prometheus", "form", flag_value="prometheus", help="Short for --format prometheus.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write here, whole or not at all; stdout unless said.",
)
def export(run: str, store: Path, form: str, output: Path | None) -> None:
    """Write a run's measurements; JSON and Parquet keep what was true of the run."""
    from spanfit import files
    from spanfit.errors import ConfigError
    from spanfit.results.store import Store

    run_id = Store(store).resolve(run)
    info, frame = Store(store).read(run_id)
    if output is None:
        if form == "parquet":
            raise ConfigError("--output: missing; Parquet is no text, so name a file with -o")
        click.echo(_exported(form, info, frame), nl=False)
        return
    if form == "parquet":
        with files.replacing(output) as temporary:
            shutil.copyfile(store / f"{run_id}.parquet", temporary)
    else:
        files.write_text(output, _exported(form, info, frame))
    talk(f"{output}: {len(frame)} rows of run {run_id}")


def _exported(form: str, info: RunInfo, frame: pd.DataFrame) -> str:
    from spanfit import files
    from spanfit.profiler.cases import case_times
    from spanfit.report.prometheus import render_prometheus

    if form == "prometheus":
        return render_prometheus(info, case_times(frame))
    if form == "csv":
        return str(frame.to_csv(index=False))
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return files.render_json({"run": asdict(info), "measurements": rows})

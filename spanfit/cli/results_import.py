"""``spanfit results import``: logs of other measuring programs become a run of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spanfit.cli.clusters import load_cluster
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanfit.results.importers.imported import Imported
    from spanfit.results.importers.sources import Source

IMPORT_VERSION = 1
_SHOWN = 3
_KNOWN = "nccl-tests or rccl-tests (text, -J, -Z json), PARAM comms.py, OSU micro-benchmarks, NCCL Inspector"


@click.command("import", epilog="Example: spanfit results import logs/*.log --cluster cluster.toml --campaign nightly")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE...")
@click.option(
    "--cluster",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CLUSTER",
    help="The cluster file whose nodes the hosts of the logs are.",
)
@click.option(
    "--nodes",
    default="",
    metavar="HOSTLIST",
    help="Hosts in rank order, for logs that print none: one for each rank, or each once (not OSU).",
)
@click.option(
    "--operation", default="", metavar="NAME", help="What logs measured that do not name their program (all_reduce)."
)
@store_option
@click.option("--campaign", default="import", show_default=True, metavar="NAME", help="What the run is called.")
@click.option("--pool-unlike", is_flag=True, help="Pool runs whose versions, settings or hardware differ.")
@json_option
def import_logs(
    paths: tuple[Path, ...],
    cluster: Path,
    nodes: str,
    operation: str,
    store: Path,
    campaign: str,
    pool_unlike: bool,
    as_json: bool,
) -> None:
    """Read logs of other programs into one run of the store; each run in them is a launch.

    Ends with 1 if a run in them failed, gave wrong results or was cut off: it is imported as that.
    """
    from spanfit.results.importers.pooling import ImportRequest, pool
    from spanfit.results.importers.sources import read_sources
    from spanfit.results.store import Store
    from spanfit.topology.hostlist import expand_hostlist

    tree = load_cluster(cluster)
    try:
        hosts = expand_hostlist(nodes)
    except ValueError as error:
        raise ConfigError(f"--nodes: {error}") from None
    contents = {str(path): _content(path) for path in paths}
    texts = {name: content.decode("utf-8-sig", errors="replace") for name, content in contents.items()}
    sources = read_sources(texts, operation=operation)
    _refuse_others(sources)
    times = [datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds") for path in paths]
    request = ImportRequest(
        campaign=campaign,
        origin={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        started_at=min(times),
        ended_at=max(times),
        nodes=hosts,
        pool_unlike=pool_unlike,
    )
    written = Store(store).write(*pool(sources, tree, request))
    if as_json:
        document = {"schema_version": IMPORT_VERSION, "run_id": request.run_id, "file": str(written)}
        print_json(document | {"runs": [_plain(source, run) for source in sources for run in source.runs]})
    else:
        _print_sources(sources)
        talk(f"{written}: see it with: spanfit profile curves {request.run_id} --store {store}")
    if any(run.error for source in sources for run in source.runs):
        click.get_current_context().exit(ExitCode.FINDING)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check the path") from error


def _refuse_others(sources: Sequence[Source]) -> None:
    """Refuse files in which nothing is understood."""
    faults = [f"{source.name}: found no run, expected a log of {_KNOWN}" for source in sources if not source.runs]
    if faults:
        raise ConfigError("\n".join(faults))


def _plain(source: Source, run: Imported) -> dict[str, Any]:
    return {
        "source": source.name,
        "engine": run.engine,
        "program": run.program,
        "version": run.version,
        "nranks": run.nranks,
        "rows": len(run.timings),
        "status": run.status,
        "error": run.error,
        "warnings": run.warnings,
        "not_understood": run.foreign,
    }


def _print_sources(sources: Sequence[Source]) -> None:
    columns = ("file", "program", "version", ">ranks", ">rows", "status", "error")
    print_table("Imported", columns, [_row(source, run) for source in sources for run in source.runs])
    for source in sources:
        for run in source.runs:
            for note in _notes(run):
                talk(f"{source.name}: {note}")


def _row(source: Source, run: Imported) -> tuple[str, ...]:
    nranks = "" if run.nranks is None else str(run.nranks)
    return source.name, run.program, run.version, nranks, str(len(run.timings)), run.status, run.error


def _notes(run: Imported) -> Iterator[str]:
    """Yield what does not fit and what was not understood, the first few of each."""
    for kind, lines in (("warnings", run.warnings), ("lines that were not understood", run.foreign)):
        if lines:
            more = f", and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
            yield f"{len(lines)} {kind}: {' | '.join(lines[:_SHOWN])}{more}"

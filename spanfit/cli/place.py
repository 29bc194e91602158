"""``spanfit place``: a job on the free nodes of a cluster."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.output import console, json_option, print_json, talk

if TYPE_CHECKING:
    from rich.text import Text

    from spanfit.placer.model import JobSpec, Placement

MAX_LINES = 40
"""Runs of equal rows drawn one by one; the rest share a line."""
MAX_CELLS = 32
"""Columns drawn one by one; wider rows are drawn as runs."""
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow")


@click.command(epilog="Example: spanfit place job.toml --cluster cluster.toml --weights weights.json -o placement.json")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--cluster", type=click.Path(path_type=Path), required=True, help="TOML cluster file or topology.conf.")
@click.option("--weights", type=click.Path(path_type=Path), help="Take alpha and beta from this weights.json.")
@click.option("--alpha", type=click.FloatRange(0, 1), help="Weight of DP groups by hand; beta is 1 - alpha.")
@click.option("--entry", help="Entry of the weights to use, by its job's name.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="Seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same placement.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the placement as JSON.")
@click.option(
    "--emit",
    "launch_file",
    type=click.Choice(["hostfile", "rankfile", "torchrun", "slurm"]),
    help="Print this launch file on stdout; the drawing goes to stderr.",
)
@json_option
def place(
    job: Path,
    cluster: Path,
    weights: Path | None,
    alpha: float | None,
    entry: str | None,
    time_limit: float,
    seed: int,
    output: Path | None,
    launch_file: str | None,
    as_json: bool,
) -> None:
    """Place JOB (a TOML job file) on the free nodes of a cluster, and say how good the placement is."""
    if (weights is None) == (alpha is None):
        raise click.UsageError("give one of --weights FILE and --alpha SHARE")
    if entry is not None and weights is None:
        raise click.UsageError("--entry chooses from --weights FILE")
    if as_json and launch_file:
        raise click.UsageError("--json and --emit both print on stdout; give one, and -o FILE for the placement")
    from spanfit import files
    from spanfit.placer.emit import emit
    from spanfit.placer.jobfile import read_job
    from spanfit.placer.place import place as place_job
    from spanfit.topology.readers.cluster_file import read_cluster

    spec = read_job(job)
    alpha_share, beta_share, weights_hash = _weigh(spec, weights, entry) if weights else (alpha or 0.0, None, "")
    placement = place_job(
        spec,
        read_cluster(cluster),
        alpha=alpha_share,
        beta=1 - alpha_share if beta_share is None else beta_share,
        weights_hash=weights_hash,
        time_limit_s=time_limit,
        seed=seed,
    )
    text = emit(placement, launch_file) if launch_file else None
    if output:
        files.write_json(output, placement)
        talk(f"{output}: placement of job {spec.name} on {len(placement.cells)} nodes")
    if as_json:
        print_json(placement)
    else:
        _show(placement, on_stderr=text is not None)
    if text is not None:
        click.echo(text, nl=False)


def _weigh(job: "JobSpec", path: Path, entry: str | None) -> tuple[float, float, str]:
    """Return alpha, beta and the hash of the weights, and say what limits them."""
    from spanfit import files
    from spanfit.placer.place import choose_weights
    from spanfit.weights.io import read_weights
    from spanfit.weights.model import remarks

    weights = read_weights(path)
    chosen = choose_weights(weights, job, entry)
    for remark in remarks(chosen):
        talk(f"warning: weights of {chosen.job}: {remark}")
    grid = job.layout.grid(job.ngpus_per_node)
    if (chosen.dp, chosen.pp) != grid:
        talk(
            f"warning: weights of {chosen.job} were measured on a grid of {chosen.dp} x {chosen.pp} nodes and job "
            f"{job.name} has {grid[0]} x {grid[1]}; alpha belongs to a shape, so measure this one if it matters"
        )
    if job.gpu_model and chosen.gpu_model != job.gpu_model:
        talk(f"warning: weights of {chosen.job} are for {chosen.gpu_model}, job {job.name} asks for {job.gpu_model}")
    return chosen.alpha.value, chosen.beta.value, files.digest(weights)


def _show(placement: "Placement", *, on_stderr: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    target = Console(stderr=True, highlight=False, width=None) if on_stderr else console()
    letters = {name: _letters(index) for index, name in enumerate(_minipods(placement))}
    for line in (*_drawing(placement, letters), Text(), *map(Text, _figures(placement))):
        target.print(line, soft_wrap=True)


def _minipods(placement: "Placement") -> list[str]:
    """Return the minipods in the order in which the grid first shows them, row by row."""
    return list(dict.fromkeys(name for _, name in sorted(zip(placement.cells, placement.minipods, strict=True))))


def _letters(index: int) -> str:
    """Return A, B, ... Z, AA, AB, ... for 0, 1, ..."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _rows(placement: "Placement") -> list[tuple[str, ...]]:
    nrows, ncolumns = len(placement.pp_spreads), len(placement.dp_spreads)
    grid = [[""] * ncolumns for _ in range(nrows)]
    for (row, column), name in zip(placement.cells, placement.minipods, strict=True):
        grid[row][column] = name
    return [tuple(row) for row in grid]


def _drawing(placement: "Placement", letters: dict[str, str]) -> Iterator["Text"]:
    """Yield which minipod each cell sits in, a line for each run of equal rows, then what the letters mean."""
    from rich.text import Text

    rows = _rows(placement)
    yield Text(f"Job {placement.job.name} on cluster {placement.cluster}: {len(placement.cells)} nodes")
    yield Text(f"{len(rows)} rows (PP groups) x {len(rows[0])} columns (DP groups); letters are minipods")
    runs = [(row, len(list(found))) for row, found in groupby(rows)]
    shown = runs if len(runs) <= MAX_LINES else runs[: MAX_LINES - 1]
    start, width = 0, len(str(len(rows) - 1))
    for row, count in shown:
        end = start + count - 1
        span = f"row  {start:>{2 * width + 1}}" if count == 1 else f"rows {start:>{width}}-{end:>{width}}"
        line = Text.assemble(f"  {span}  ", *_cells(row, letters))
        line.rstrip()
        yield line
        start = end + 1
    if len(shown) < len(runs):
        yield Text(f"  rows {start}-{len(rows) - 1}  ({len(runs) - len(shown)} more runs)")
    nodes = Counter(placement.minipods)
    for name, letter in letters.items():
        yield Text.assemble("  ", (letter, _colour(letter)), f"  {name}, {_number(nodes[name], 'node')}")


def _cells(row: Sequence[str], letters: dict[str, str]) -> Iterator[tuple[str, str]]:
    width = max(map(len, letters.values()))
    if len(row) <= MAX_CELLS:
        for name in row:
            yield f"{letters[name]:<{width}} ", _colour(letters[name])
        return
    for name, run in groupby(row):
        yield f"{letters[name]} x {len(list(run))}  ", _colour(letters[name])


def _colour(letter: str) -> str:
    return _COLOURS[sum(map(ord, letter)) % len(_COLOURS)]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _figures(placement: "Placement") -> Iterator[str]:
    from spanfit import units

    kinds = (
        ("DP groups", placement.dp_spreads, placement.best_fit_dp_spread),
        ("PP groups", placement.pp_spreads, placement.best_fit_pp_spread),
    )
    for kind, spreads, best_fit in kinds:
        mean = sum(spreads) / len(spreads)
        yield f"{kind}: spread {max(spreads)} (mean {mean:.2f}) over {len(spreads)} groups; best-fit {best_fit}"
    a, b = max(placement.dp_spreads), max(placement.pp_spreads)
    terms = f"{placement.alpha:.4g} x {a} + {placement.beta:.4g} x {b}"
    value, bound, peer = (f"{x:.4g}" for x in (placement.objective, placement.bound, placement.best_fit_objective))
    yield f"objective {value} = {terms}; bound {bound}; best-fit {peer}"
    yield f"{placement.status}: {placement.certificate}"
    yield f"solved in {units.format_time(placement.solve_s)} by {placement.solver}"

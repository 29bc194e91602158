"""What ``spanfit place`` shows to people: the grid of minipods, figures, how it came, and what was moved."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from spanfit.cli.output import console, print_table

if TYPE_CHECKING:
    from rich.text import Text

    from spanfit.placer.explain import MinipodUse
    from spanfit.placer.model import Placement
    from spanfit.placer.repair import Repair

MAX_LINES = 40
"""Runs of equal rows drawn one by one; the rest share a line."""
MAX_CELLS = 32
"""Columns drawn one by one; wider rows are drawn as runs."""
MAX_MINIPODS = 40
"""Minipods and moves listed one by one; the rest are counted."""
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow")


def show(placement: "Placement", *, on_stderr: bool) -> None:
    """Draw a placement on stdout, or on stderr where stdout is taken, with its figures below."""
    from rich.console import Console
    from rich.text import Text

    target = Console(stderr=True, highlight=False) if on_stderr else console()
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
        ("DP groups", placement.dp_spreads, f"; best-fit {placement.best_fit_dp_spread}"),
        ("PP groups", placement.pp_spreads, f"; best-fit {placement.best_fit_pp_spread}"),
        ("EP groups", placement.ep_spreads, ""),
    )
    for kind, spreads, best_fit in kinds:
        if spreads:
            mean = sum(spreads) / len(spreads)
            yield f"{kind}: spread {max(spreads)} (mean {mean:.2f}) over {len(spreads)} groups{best_fit}"
    value, bound, peer = (f"{x:.4g}" for x in (placement.objective, placement.bound, placement.best_fit_objective))
    yield f"objective {value} = {' + '.join(_terms(placement))}; bound {bound}; best-fit {peer}"
    yield f"{placement.status}: {placement.certificate}"
    if placement.crossing is not None:
        yield from _crossing(placement)
    if placement.choice:
        yield f"chosen: {placement.choice}"
    if placement.spares:
        yield f"spares: {', '.join(placement.spares)}"
    if placement.step_s is not None:
        yield f"predicted step {units.format_time(placement.step_s)}, the shortest of the placements that were tried"
    yield f"solved in {units.format_time(placement.solve_s)} by {placement.solver}"


def _terms(placement: "Placement") -> Iterator[str]:
    count = placement.reading.of
    yield f"{placement.alpha:.4g} x {count(max(placement.dp_spreads))}"
    yield f"{placement.beta:.4g} x {count(max(placement.pp_spreads))}"
    if placement.ep_weight:
        yield f"{placement.ep_weight:.4g} x {count(max(placement.ep_spreads, default=1))}"


def _crossing(placement: "Placement") -> Iterator[str]:
    from spanfit import units

    found = placement.crossing
    assert found is not None
    ranked = "" if found.ranked_rings == found.rings else f" ({found.ranked_rings} in rank order)"
    yield f"between minipods: {_number(found.rings, 'ring edge')}{ranked} and {_number(found.chains, 'chain edge')}"
    if found.total_bytes is not None and found.busiest_bytes is not None:
        total, busiest = (units.format_size(round(each)) for each in (found.total_bytes, found.busiest_bytes))
        uplink = f"; most over the uplink of {found.busiest}, {busiest}" if found.busiest else ""
        yield f"traffic between minipods in a step: {total}{uplink}"


def show_uses(placement: "Placement", uses: Sequence["MinipodUse"]) -> None:
    """Print the spreads of groups, the objective by literal D, and how each minipod is used, on stdout."""
    from spanfit.placer.model import Reading

    for kind, spreads in (("DP", placement.dp_spreads), ("PP", placement.pp_spreads), ("EP", placement.ep_spreads)):
        counts = sorted(Counter(spreads).items(), reverse=True)
        if counts:
            console().print(f"{kind} groups by spread: {', '.join(f'{spread}: {n}' for spread, n in counts)}")
    a, b = Reading.LITERAL.of(max(placement.dp_spreads)), Reading.LITERAL.of(max(placement.pp_spreads))
    value = placement.alpha * a + placement.beta * b
    console().print(f"by D as the paper prints it, 0 for a group in one minipod: {value:.4g} for DP and PP groups")
    columns = ("minipod", ">free", ">taken", ">DP groups", ">PP groups", ">of them widest", ">one more buys")
    rows = [
        (
            use.minipod,
            str(use.free),
            str(use.taken),
            str(use.dp_groups),
            str(use.pp_groups),
            str(use.widest),
            "not tried" if use.gain is None else f"{use.gain:.4g}",
        )
        for use in uses[:MAX_MINIPODS]
    ]
    print_table("Minipods, those that limit the objective first", columns, rows)
    if len(uses) > MAX_MINIPODS:
        console().print(f"{len(uses) - MAX_MINIPODS} more minipods")


def show_repair(found: "Repair", *, on_stderr: bool) -> None:
    """Print what a repair moves and what else could be done."""
    from rich.console import Console

    target = Console(stderr=True, highlight=False) if on_stderr else console()
    for move in found.moves[:MAX_MINIPODS]:
        target.print(f"node rank {move.node_rank}: {move.old} -> {move.new} in {move.minipod}", soft_wrap=True)
    if len(found.moves) > MAX_MINIPODS:
        target.print(f"{len(found.moves) - MAX_MINIPODS} more moves")
    for number, option in enumerate(found.options):
        proof = ", proven fewest" if option.is_fewest else ""
        target.print(
            f"{'chosen' if number == 0 else 'or'}: {_number(option.nmoves, 'move')}{proof}; DP spread "
            f"{option.dp_spread}, PP spread {option.pp_spread}, objective {option.objective:.4g}",
            soft_wrap=True,
        )
    target.print(f"placing the job again reaches objective {found.again_objective:.4g}, where any node may move")

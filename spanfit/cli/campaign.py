"""``spanfit campaign``: plan, run and follow a measuring campaign."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit.cli.campaign_submit import submit
from spanfit.cli.clusters import tell_findings
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, print_table, talk
from spanfit.units import format_percent, format_size, format_time

if TYPE_CHECKING:
    from spanfit.bench.case import BenchCase
    from spanfit.profiler.campaign import Campaign
    from spanfit.profiler.following import Progress
    from spanfit.profiler.stopping import CaseState

_FILE = click.argument("campaign_file", metavar="CAMPAIGN.toml", type=click.Path(path_type=Path))


@click.group()
def campaign() -> None:
    """Plan, run, submit and follow a measuring campaign."""


campaign.add_command(submit)


@campaign.command(epilog="Example: spanfit campaign plan examples/demo/campaign.toml")
@_FILE
@store_option
@json_option
def plan(campaign_file: Path, store: Path, as_json: bool) -> None:
    """Show the cases that a campaign would measure, and on which nodes; starts nothing."""
    from spanfit import files
    from spanfit.bench.plan import job_variants
    from spanfit.profiler.campaign import Campaign

    planned = Campaign(campaign_file, store)
    tell_findings(planned.findings)
    if as_json:
        print_json(
            {"run_id": planned.run_id, "nodes": planned.node_names, "cases": [files.plain(c) for c in planned.cases]}
        )
        return
    per_launch = len(planned.cases) * planned.file.blocks
    nnodes = len(planned.node_names)
    talk(f"run {planned.run_id}: {_launches(planned)} of {per_launch} cases on {nnodes} nodes")
    print_table(
        "Groups", ["span", "order", "concurrency", "draw", "nodes of each group", "measured"], _collective_rows(planned)
    )
    if planned.file.pairs is not None:
        columns = ["under one", "concurrency", ">cases", ">pairs", ">partners of a node", "error at 10% spread"]
        print_table(f"Pairs: {planned.file.pairs.operation}", columns, _pair_rows(planned))
    for job in planned.file.jobs:
        nrows = next(len(case.groups[0]) for case in planned.cases if case.operation == job.name) // job.pp
        cells = [f"row {row}" for row in range(nrows)]
        names = ", ".join(variant.name(job.name) for variant in job_variants(job, planned.file))
        title = f"Arms of {names}: minipod of each node; a row is a PP group, a column a DP group"
        print_table(title, ["arm", *cells], _arm_rows(planned, job.name, job.pp))
    if planned.file.noise:
        columns = ["steps", "job beside them", "its nodes", "its minipods", "of them in arms"]
        print_table("Noise: jobs beside the steps", columns, _noise_rows(planned))


def _launches(planned: "Campaign") -> str:
    """Return how many launches a campaign makes and what ends it, in words."""
    rule, limit_s = planned.agenda.rule, planned.file.time_limit
    count = str(rule.least) if rule.precision is None else f"{rule.least} to {rule.most}"
    asked = "" if rule.precision is None else f" (until times are known within ± {format_percent(rule.precision)})"
    return f"{count} launches{asked}" + (f", {format_time(limit_s)} at most," if limit_s else "")


def _collective_rows(planned: "Campaign") -> Iterator[list[str]]:
    from spanfit.bench.case import on_rail

    shapes: dict[tuple[str, ...], list[BenchCase]] = {}
    for case in planned.cases:
        if case.kind == "collective":
            groups = "; ".join(" ".join(planned.node_names[node] for node in group) for group in case.groups)
            together = f"{case.concurrency}{on_rail(case.rail)}"
            shape = (str(case.span), str(case.rank_order), together, str(case.draw), groups)
            shapes.setdefault(shape, []).append(case)
    for key, cases in shapes.items():
        operations = ", ".join(dict.fromkeys(case.operation for case in cases))
        sizes = ", ".join(dict.fromkeys(format_size(case.size_bytes) for case in cases))
        yield [*key, f"{operations} at {sizes}"]


def _pair_rows(planned: "Campaign") -> Iterator[list[str]]:
    from spanfit.bench.case import on_rail
    from spanfit.bench.tournament import standard_error

    shapes: dict[tuple[str, str], list[BenchCase]] = {}
    for case in planned.cases:
        if case.kind == "pairs":
            shapes.setdefault((case.tier, f"{case.concurrency}{on_rail(case.rail)}"), []).append(case)
    for key, cases in shapes.items():
        pairs = {frozenset(pair) for case in cases for pair in case.groups}
        npartners = 2 * len(pairs) / len({node for pair in pairs for node in pair})
        error = format_percent(standard_error(0.1, npartners))
        yield [*key, str(len(cases)), str(len(pairs)), f"{npartners:.3g}", error]


def _arm_rows(planned: "Campaign", job: str, ncolumns: int) -> Iterator[list[str]]:
    for case in planned.cases:
        if case.operation == job and case.kind == "step":
            labels = [planned.minipods[node] for node in case.groups[0]]
            rows = [labels[start : start + ncolumns] for start in range(0, len(labels), ncolumns)]
            yield [case.arm, *(" ".join(row) for row in rows)]


def _noise_rows(planned: "Campaign") -> Iterator[list[str]]:
    beside: dict[str, list[BenchCase]] = {}
    for case in planned.cases:
        if case.noise:
            beside.setdefault(case.operation, []).append(case)
    for steps, cases in beside.items():
        in_arms = {planned.minipods[node] for case in cases for node in case.groups[0]}
        for job, nodes in zip(cases[0].noise, cases[0].groups[1:], strict=True):
            names = " ".join(planned.node_names[node] for node in nodes)
            minipods = dict.fromkeys(planned.minipods[node] for node in nodes)
            shared = [minipod for minipod in minipods if minipod in in_arms]
            yield [steps, job.name, names, " ".join(minipods), " ".join(shared) or "none"]


@campaign.command(epilog="Example: spanfit campaign run examples/demo/campaign.toml --store runs")
@_FILE
@store_option
@click.option("--again", is_flag=True, help="Measure anew though the store holds a finished run of this campaign.")
@click.option("--dry-run", is_flag=True, help="Print what each host would run, and start nothing.")
def run(campaign_file: Path, store: Path, again: bool, dry_run: bool) -> None:
    """Measure what is missing of a campaign; the same command goes on where it stopped."""
    from spanfit.profiler.campaign import Campaign

    planned = Campaign(campaign_file, store, again=again)
    tell_findings(planned.findings)
    if dry_run:
        click.echo(planned.describe())
        return
    click.echo(run_campaign(planned))


def run_campaign(planned: "Campaign") -> str:
    """Run a campaign with its progress shown, unless it is finished; return its run id."""
    if planned.is_finished:
        talk(f"run {planned.run_id} is finished already; measure it anew with --again")
        return planned.run_id
    talk(f"run {planned.run_id}")
    try:
        with following() as follow:
            path = planned.run(follow)
    except KeyboardInterrupt:
        talk(f"interrupted; finished cases are kept in {planned.folder}, run the same command to go on")
        raise
    talk(f"wrote {path}")
    for reason, nvisits in _failures(planned).items():
        talk(f"{nvisits} {'visit' if nvisits == 1 else 'visits'} gave no time: {reason}")
    if (asked := planned.file.precision) is not None:
        wide = sum(not _is_known(state, asked) for state in planned.states())
        if wide:
            count = f"{wide} of {len(planned.cases)} cases"
            talk(f"{count} are not known within ± {format_percent(asked)}; see spanfit campaign status {planned.path}")
    return planned.run_id


def _failures(planned: "Campaign") -> dict[str, int]:
    """Return why visits of a finished run have no time, and how many visits that was."""
    _, frame = planned.store.read(planned.run_id)
    failed = frame[frame["status"] != "ok"].drop_duplicates(["launch", "comm_id", "position", "case_id"])
    return {str(reason): int(count) for reason, count in failed["reason"].value_counts().items()}


@contextmanager
def following() -> "Iterator[Callable[[Progress], None]]":
    """Give a function that shows progress: a bar with the time left on a terminal, one line a launch elsewhere."""
    if not sys.stderr.isatty():
        yield _LineProgress().follow
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("launch {task.fields[launch]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", launch="")

        def follow(progress: "Progress") -> None:
            launch = f"{progress.launch + 1}/{progress.launches}, {progress.open_cases} open"
            bars.update(
                task,
                completed=progress.done,
                total=progress.total,
                description=progress.case,
                launch=launch,
                refresh=False,
            )

        yield follow


class _LineProgress:
    """One line on stderr when a launch begins, with the time that the cases left will take at this pace."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.first: int | None = None
        self.launch = -1

    def follow(self, progress: "Progress") -> None:
        self.first = progress.done if self.first is None else self.first
        if progress.launch == self.launch:
            return
        self.launch = progress.launch
        measured = progress.done - self.first
        pace_s = (time.monotonic() - self.started_s) / measured if measured else None
        place = f"launch {progress.launch + 1} of {progress.launches}, {progress.open_cases} cases"
        talk(f"{place}: {progress.done} of {progress.total} done{_left(progress, pace_s)}")


def _left(progress: "Progress", pace_s: float | None) -> str:
    """Return the time left in words, "" where nothing is known: that of the cases left or of the limit, if shorter."""
    ends_s = [pace_s * (progress.total - progress.done)] if pace_s else []
    ends_s += [] if progress.left_s is None else [progress.left_s]
    return f", about {format_time(min(ends_s))} left" if ends_s else ""


@campaign.command(epilog="Example: spanfit campaign status examples/demo/campaign.toml")
@_FILE
@store_option
@json_option
def status(campaign_file: Path, store: Path, as_json: bool) -> None:
    """Show how far a campaign is: cases of each launch, and which are still too uncertain."""
    from spanfit.profiler.campaign import Campaign

    planned = Campaign(campaign_file, store)
    launches = _finished_launches(planned) if planned.is_finished else _unfinished_launches(planned)
    cases = [state for state in planned.states() if state.nlaunches]
    if as_json:
        document = {"run_id": planned.run_id, "is_finished": planned.is_finished, "launches": launches}
        print_json(document | {"cases": [_plain_state(state) for state in cases]})
        return
    state = "finished" if planned.is_finished else "unfinished"
    keys = ["launch", "done", "missing", "failed"]
    rows = [[str(row[key]) for key in keys] for row in launches]
    print_table(f"Run {planned.run_id}: {state}", [f">{key}" for key in keys], rows)
    if planned.file.precision is not None and cases:
        title = f"Cases; the time of each is wanted within ± {format_percent(planned.file.precision)}"
        states = [_state_row(case, planned.file.precision) for case in cases]
        print_table(title, ("case", ">launches", ">within", "state"), states)


def _finished_launches(planned: "Campaign") -> list[dict[str, int]]:
    """Return how each launch of a finished run ended, as the store has it."""
    _, frame = planned.store.read(planned.run_id)
    rows = []
    for launch, own in frame.groupby("launch"):
        visits = own.groupby(["case_id", "comm_id"])["status"].first()
        failed = int((visits != "ok").sum())
        done = int((visits == "ok").sum())
        rows.append({"launch": int(str(launch)), "done": done, "missing": 0, "failed": failed})
    return rows


def _unfinished_launches(planned: "Campaign") -> list[dict[str, int]]:
    """Return how far each launch is that is decided by now."""
    rows = []
    for launch, (visits, shard) in enumerate(zip(planned.visits, planned.shards(), strict=True)):
        missing = len(planned.missing(launch))
        failed = sum(line["status"] != "ok" for line in shard.cases)
        rows.append({"launch": launch, "done": len(visits) - missing, "missing": missing, "failed": failed})
    return rows


def _plain_state(state: "CaseState") -> dict[str, object]:
    return {
        "case_id": state.case.case_id,
        "case": state.case.label(),
        "launches": state.nlaunches,
        "half_width": state.half_width,
        "is_open": state.is_open,
    }


def _state_row(state: "CaseState", asked: float) -> tuple[str, str, str, str]:
    within = "unknown" if state.half_width is None else f"± {format_percent(state.half_width)}"
    closed = "done" if _is_known(state, asked) else "ended wider than asked"
    return state.case.label(), str(state.nlaunches), within, "open" if state.is_open else closed


def _is_known(state: "CaseState", asked: float) -> bool:
    return state.half_width is not None and state.half_width <= asked

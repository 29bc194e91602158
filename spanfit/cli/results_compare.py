"""``spanfit results compare``: what one run changed against another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spanfit import units
from spanfit.cli.options import store_option
from spanfit.cli.output import json_option, print_json, print_table, talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanfit.profiler.cases import CaseKey
    from spanfit.profiler.compare import CaseComparison, Comparison
    from spanfit.profiler.fingerprint import Contrast
    from spanfit.results.schema import Estimate

COMPARISON_VERSION = 1


class _Percent(click.ParamType[float]):
    name = "PERCENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share that a text such as ``3%`` means."""
        try:
            share = float(str(value).removesuffix("%")) / 100
        except ValueError:
            share = 0.0
        if not (str(value).endswith("%") and 0 < share < 1):
            self.fail(f"found {str(value)!r}, expected a percentage above 0% and under 100%, such as 3%", param, ctx)
        return share


@click.command("compare", epilog="Example: spanfit results compare 20260102-before latest --store runs")
@click.argument("a")
@click.argument("b")
@store_option
@click.option(
    "--threshold",
    type=_Percent(),
    default="3%",
    show_default=True,
    metavar="PERCENT",
    help="The smallest change of a time that matters.",
)
@json_option
def compare(a: str, b: str, store: Path, threshold: float, as_json: bool) -> None:
    """Say which cases of run B are slower than in run A, or fail, and which cannot be told; exit code 1 if any is."""
    from spanfit.errors import ConfigError, ExitCode, FitError
    from spanfit.profiler.cases import case_times
    from spanfit.profiler.compare import compare_runs
    from spanfit.profiler.fingerprint import contrasts
    from spanfit.results.store import Store

    runs = [Store(store).read(Store(store).resolve(run)) for run in (a, b)]
    (info_a, frame_a), (info_b, frame_b) = runs
    if info_a.run_id == info_b.run_id:
        raise ConfigError(f"A, B: found run {info_a.run_id} twice, expected two runs; see: spanfit results list")
    compared = compare_runs(case_times(frame_a), case_times(frame_b), threshold)
    if not compared.cases:
        raise FitError(
            f"runs {info_a.run_id} and {info_b.run_id}: found no case that both measured, expected at least one; "
            f"A: {_first(compared.only_a)}; B: {_first(compared.only_b)}"
        )
    differing = contrasts(info_a, info_b)
    if as_json:
        print_json(_document(info_a.run_id, info_b.run_id, differing, compared))
    else:
        _print(info_a.run_id, info_b.run_id, differing, compared)
    if compared.has_findings:
        click.get_current_context().exit(ExitCode.FINDING)


def _first(cases: Sequence[CaseKey]) -> str:
    return f"{cases[0].label()} and {len(cases) - 1} more" if cases else "none"


def _document(a: str, b: str, differing: Sequence[Contrast], compared: Comparison) -> dict[str, object]:
    return {
        "schema_version": COMPARISON_VERSION,
        "run_a": a,
        "run_b": b,
        "differing": [asdict(contrast) for contrast in differing],
        "summary": compared.summary(),
        "has_findings": compared.has_findings,
        **asdict(compared),
    }


def _print(a: str, b: str, differing: Sequence[Contrast], compared: Comparison) -> None:
    talk(
        "95% intervals over launches, * marks provisional ones (under 6); a case is slower or faster if that is told "
        f"over all cases together (Holm) and is {units.format_percent(compared.threshold)} or more"
    )
    rows = [(contrast.what, contrast.a, contrast.b) for contrast in differing]
    if rows:
        print_table("What differs besides, and may be the reason", ("", f"A: {a}", f"B: {b}"), rows)
    columns = ("case", ">size", "groups", ">time in A", ">in B", "change of time", ">launches")
    print_table(f"B: {b} against A: {a}", columns, [_row(case) for case in compared.cases])
    for name, cases in (("A", compared.only_a), ("B", compared.only_b)):
        if cases:
            print_table(f"Cases that only {name} has", ("case", ">size", "groups"), [_named(case) for case in cases])
    counts = ", ".join(f"{count} {verdict}" for verdict, count in compared.summary().items() if count)
    click.echo(f"{len(compared.cases)} cases compared: {counts}")


def _row(case: CaseComparison) -> tuple[str, ...]:
    star = "*" if case.is_provisional else ""
    launches = f"{case.nlaunches_a}, {case.nlaunches_b}{star}"
    return (*_named(case.case), _time(case.time_a_s), _time(case.time_b_s), case.sentence, launches)


def _named(case: CaseKey) -> tuple[str, str, str]:
    return case.what(), units.format_size(case.size_bytes), case.where()


def _time(time_s: Estimate | None) -> str:
    return units.format_time(time_s.value) if time_s else "none"

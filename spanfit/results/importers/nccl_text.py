"""Text logs of nccl-tests, from 1.0 to 2.20, and of rccl-tests: text in, runs out."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from spanfit.results.importers.log import LogRun
from spanfit.results.importers.report import Report
from spanfit.results.importers.unlabel import lines
from spanfit.results.importers.worlds import World, worlds

_DEALT = "several worlds print through each other without labels: which rows are whose is a guess"
_LABELLED = "several worlds print through each other: told apart by their labels"


def read_text(text: str) -> tuple[LogRun, ...]:
    """Return the runs of a text log in the order in which they begin; none where nothing in it looks like one."""
    with _uncollected():
        reports = map(_read, worlds(lines(text)))
        return tuple(report.finished() for report in reports if report.is_one)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking through all rows again and again; nothing here makes cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(world: World) -> Report:
    report = Report(is_interleaved=world.is_interleaved)
    if world.is_interleaved:
        report.warnings.append(_DEALT if world.is_dealt else _LABELLED)
    for line in world.lines:
        report.take(line)
    return report

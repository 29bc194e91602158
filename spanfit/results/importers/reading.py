"""Logs of nccl-tests and rccl-tests of every kind: whether a file is a JSON report or text, its content tells."""

from spanfit.results.importers.log import LogRun
from spanfit.results.importers.nccl_json import read_json
from spanfit.results.importers.nccl_text import read_text


def read_log(text: str) -> tuple[LogRun, ...]:
    """Return the runs of a log; none where it is neither a report nor a log of these programs.

    Text that holds no run may be what a launcher printed around a report.
    """
    return read_json(text) if is_json(text) else read_text(text) or read_json(text)


def is_json(text: str) -> bool:
    """Return whether a file is a JSON report: the first thing in it opens an object or a list of objects.

    Labels of launchers begin with a bracket too, but no object follows it.
    """
    start = text.removeprefix("\ufeff").lstrip()[:80]
    return start.startswith("{") or (start.startswith("[") and start[1:].lstrip().startswith("{"))

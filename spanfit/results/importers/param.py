"""Tables of PARAM's ``comms.py`` (train/comms/pt).

Rank 0 prints `` PARAM COMM environment: {...}`` and `` backend: NAME nw-stack: ...``, for each collective a line
``[Rank   0] allSizes: ... num_pg N, groupSize N``, a header that begins with ``COMMS-RES`` and for each size a line
``COMMS-RES-COLLECTIVE-DTYPE-TAG`` with as many cells. A rank's time is its mean over the iterations; p50, p75, p95, Min
and Max are over the ranks. The size is the whole buffer, as in nccl-tests. Hosts and a version are not printed, and the
word before ``(us):p50`` was Latency before February 2026 and is Time since.
"""

import re
from collections.abc import Iterator, Sequence

from spanfit.results.importers.imported import (
    Imported,
    Timing,
    spelt_dtype,
    spelt_operation,
    spelt_redop,
    with_failure,
)
from spanfit.results.importers.judging import failure_of
from spanfit.results.importers.log import LogStatus, Printed

ENGINE = "param"
_ROW = re.compile(r"COMMS-RES-(?P<operation>[a-z0-9_]+)-(?P<dtype>[a-z0-9_]+)(?P<tag>-\S+)?\s+(?P<cells>\S.*)")
_HEADER = re.compile(r"COMMS-RES\s+(?P<names>total-size \(B\).*)")
_WORLD = re.compile(r"num_pg (?P<ngroups>\d+), groupSize (?P<nranks>\d+)")
_BACKEND = re.compile(r"\bbackend: (?P<backend>\S+) nw-stack:")
_SIZE, _MIN, _MAX = "total-size (B)", "Min", "Max"
_SEVERAL = "several process groups at once, of which PARAM prints one mixed line: run it without --multi-comms"


def is_param(text: str) -> bool:
    """Return whether a text holds what PARAM prints."""
    return "COMMS-RES" in text or "PARAM COMM environment" in text


def read_param(text: str) -> tuple[Imported, ...]:
    """Return the run of a text of PARAM, with the time of the slowest and of the fastest rank for each size.

    Tables of pairs and of quantised collectives are not read; their lines are among the foreign ones.
    """
    world, backend = _WORLD.search(text), _BACKEND.search(text)
    timings, foreign = _timings(text)
    has_several = world is not None and int(world["ngroups"]) > 1
    failure = _SEVERAL if has_several else _failure(text)
    error = failure or ("" if timings else "the table has no row")
    status = LogStatus.FAILED if failure else LogStatus.TRUNCATED if error else LogStatus.OK
    run = Imported(
        engine=ENGINE,
        program="comms.py",
        version="",
        backend=backend["backend"] if backend else "",
        nranks=int(world["nranks"]) if world else None,
        hosts=None,
        timings=() if has_several else timings,
        status=status,
        error=error,
        foreign=foreign,
    )
    return (with_failure(run),)


def _failure(text: str) -> str:
    """Return the first line that tells of a failure, such as a launcher's, "" where none does."""
    found = filter(None, map(failure_of, text.splitlines()))
    return next((failure.text for failure in found if failure.error_class is not None), "")


def _timings(text: str) -> tuple[tuple[Timing, ...], tuple[str, ...]]:
    timings: list[Timing] = []
    foreign: list[str] = []
    names: tuple[str, ...] = ()
    for line in text.splitlines():
        if header := _HEADER.search(line):
            names = tuple(re.split(r"\s{2,}", header["names"].strip()))
        elif row := _ROW.search(line):
            found = tuple(_timing(row, names))
            timings += found
            foreign += [] if found else [line.strip()]
    return tuple(timings), tuple(foreign)


def _timing(row: re.Match[str], names: Sequence[str]) -> Iterator[Timing]:
    """Yield the time of a row, none where its cells are not those of the header."""
    cells = dict(zip(names, row["cells"].split(), strict=False))
    operation = spelt_operation(row["operation"])
    try:
        slowest, fastest = (Printed(value=float(cells[name]), text=cells[name]) for name in (_MAX, _MIN))
        yield Timing(
            operation=operation,
            size_bytes=int(cells[_SIZE]),
            dtype=spelt_dtype(row["dtype"]),
            redop=spelt_redop(operation, "sum"),
            time_s=slowest.value * 1e-6,
            resolution_s=slowest.resolution * 1e-6,
            time_min_s=fastest.value * 1e-6,
        )
    except (KeyError, ValueError):
        return

"""Whether the numbers of a report fit together: bandwidths, times and the average, within what was printed."""

import math
import re
from collections.abc import Iterator, Sequence

from spanfit.collectives import Collective, busbw_factor
from spanfit.results.importers.log import Half, LogRun, Row, resolution

_PROGRAM = re.compile(r"([a-z_]+?)_perf(?:_mpi)?$")
_COLLECTIVES = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
    "alltoallv": Collective.ALL_TO_ALL_V,
    "broadcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
    "gather": Collective.GATHER,
    "scatter": Collective.SCATTER,
    "sendrecv": Collective.SEND_RECV,
    "hypercube": Collective.HYPERCUBE,
}
_COUNTS_SHARES = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.HYPERCUBE)
"""Whose algbw was S (n-1)/n over the time in 2.0 until June 2020; hypercube's is S (n-1)/n still."""
_SLACK = 1e-9
_SIX_DIGITS = 5e-6
"""Half of the last digit of ``%g``, at most, as a share of the number."""


def collective_of(program: str) -> Collective | None:
    """Return what a program of nccl-tests measures, None where it is not known."""
    found = _PROGRAM.search(program)
    return _COLLECTIVES.get(found[1]) if found else None


def mismatches(run: LogRun) -> tuple[str, ...]:
    """Return a sentence for each relation that does not hold: algbw = size / time, busbw = algbw x factor, the mean.

    Notes
    -----
    The second needs the program's name and the ranks, which older versions do not print or a log may lack.
    """
    return (*time_mismatches(run), *_busbw_mismatches(run), *_mean_mismatch(run))


def time_mismatches(run: LogRun) -> tuple[str, ...]:
    """Return a sentence where algbw is not size / time, so that one of them cannot be right."""
    factor = _factor(run)
    shares = (factor, 1.0) if collective_of(run.program) in _COUNTS_SHARES and factor else (1.0,)
    wrong = [
        f"size {row.size_bytes} {place} ({half.algbw_text} GB/s in {half.time_text} us)"
        for row, place, half in _halves(run)
        if not half.is_cpu_time and not _is_algbw(row.size_bytes, half, shares)
    ]
    return _told("algbw is not size / time", wrong)


def _busbw_mismatches(run: LogRun) -> tuple[str, ...]:
    factor = _factor(run)
    if factor is None:
        return ()
    shares = (factor, 1.0) if collective_of(run.program) in _COUNTS_SHARES and factor else (1.0,)
    factors = [factor / share for share in shares]
    wrong = [
        f"size {row.size_bytes} {place} (busbw {half.busbw_text}, algbw {half.algbw_text} GB/s)"
        for row, place, half in _halves(run)
        if not _is_busbw(half, factors)
    ]
    return _told(f"busbw is not algbw x {factor:.6g}", wrong)


def _factor(run: LogRun) -> float | None:
    collective = collective_of(run.program)
    nranks = run.ranks_per_group or run.nranks
    return busbw_factor(collective, nranks) if collective and nranks else None


def _told(what: str, where: Sequence[str]) -> tuple[str, ...]:
    return (f"{what} in {len(where)} halves, first: {where[0]}",) if where else ()


def _halves(run: LogRun) -> Iterator[tuple[Row, str, Half]]:
    for row in run.rows:
        if row.oop:
            yield row, "out-of-place", row.oop
        if row.ip:
            yield row, "in-place", row.ip


def _is_algbw(size_bytes: int, half: Half, shares: Sequence[float]) -> bool:
    """Return whether algbw is one of the shares of size / time."""
    time, printed = float(half.time_text), float(half.algbw_text)
    around = resolution(half.algbw_text) + _SLACK * abs(printed)
    if time > 0 and abs(size_bytes / 1e3 / time - printed) <= around:
        return True
    low, high = time - resolution(half.time_text), time + resolution(half.time_text)
    for size in (size_bytes * share / 1e3 for share in shares):
        most = size / low if low > 0 else math.inf
        least = size / high if high > 0 else math.inf
        if not (printed - around > most or printed + around < least):
            return True
    return False


def _is_busbw(half: Half, factors: Sequence[float]) -> bool:
    """Return whether busbw is algbw times one of the factors."""
    algbw, busbw = float(half.algbw_text), float(half.busbw_text)
    around = resolution(half.busbw_text) + _SLACK * abs(busbw)
    for factor in factors:
        gap = abs(busbw - algbw * factor)
        if not gap > around or not gap > around + factor * resolution(half.algbw_text):
            return True
    return False


def _mean_mismatch(run: LogRun) -> list[str]:
    values = [half.busbw_text for row in run.rows for half in (row.oop, row.ip) if half]
    if run.avg_busbw is None or run.partial_rows or not values:
        return []
    mean = sum(map(float, values)) / len(values)
    gap = abs(mean - run.avg_busbw) - _SIX_DIGITS * abs(run.avg_busbw)
    if not gap > 0 or not gap > _SLACK + sum(map(resolution, values)) / len(values):
        return []
    return [f"the printed average busbw {run.avg_busbw:g} is not the mean of the rows, {mean:.6g} GB/s"]

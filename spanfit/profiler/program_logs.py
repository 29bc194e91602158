"""What a run of a program of nccl-tests says of the case that it was started for: pure, from its log and exit code.

An exit code of 0 is no proof of a result, and neither is a footer: the program must have been one world on the hosts
that were named, and have printed a whole row of the size that was asked for.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from spanfit.bench.case import BenchCase
from spanfit.bench.nccl_tests import exit_meaning
from spanfit.results.importers.checks import time_mismatches
from spanfit.results.importers.imported import NO_REDOP, spelt_dtype, spelt_redop
from spanfit.results.importers.log import ErrorClass, LogRun, LogStatus, Row
from spanfit.results.schema import Status

_SECONDS = 1e-6
"""A microsecond [s], the unit that the programs print."""

_SHELLS = 126
"""The first exit code that means the same of a launcher as of a program."""

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"driver version is insufficient", "the node has no driver of its GPUs, or one older than the program's CUDA"),
    (r"no CUDA-capable device", "the node has no GPU that the program may see; check it and CUDA_VISIBLE_DEVICES"),
    (r"invalid device ordinal", "lower launch.ranks_per_node, or use nodes with more GPUs"),
    (r"error while loading shared libraries", "make that library findable on every node, such as by LD_LIBRARY_PATH"),
    (r"No such file or directory|execvp|could not execute", "put the program at the same path on every node"),
)
"""What no case of a campaign would fare better with, and what to do."""
_ADVICE_OF_CLASS = {
    ErrorClass.NOT_ENOUGH_GPUS: "lower launch.ranks_per_node, or use nodes with more GPUs",
    ErrorClass.CUDA_NOT_INITIALISED: "start the fabric manager of the node's NVSwitches (nvidia-fabricmanager)",
    ErrorClass.USAGE: "check nccl_tests.arguments",
    ErrorClass.NOT_ONE_WORLD: "build nccl-tests with MPI=1, with the MPI whose launcher starts it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended for its case.

    Attributes
    ----------
    time_s : float
        NaN unless status is ok.
    resolution_s : float
        Half of the last digit that was printed of the time.
    advice : str
        What to do where the set-up is at fault, so that no other case would fare better; else "".
    """

    status: Status
    reason: str = ""
    time_s: float = math.nan
    resolution_s: float = 0.0
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What was started.

    Attributes
    ----------
    hosts : tuple of str
        The host of each rank.
    nranks_per_group : int
        Fewer than there are ranks where the world was to be split.
    """

    case: BenchCase
    hosts: tuple[str, ...]
    nranks_per_group: int


def judge(expected: Expected, runs: Sequence[LogRun], report: LogRun | None, code: int, said: str) -> Outcome:
    """Return how a run ended.

    Parameters
    ----------
    expected : Expected
    runs : sequence of LogRun
        What its text says.
    report : LogRun or None
        What its JSON says, whose times have more digits; None where there is none.
    code : int
        Exit code; negative: ended by that signal.
    said : str
        The line of its output that says most, where the programs' own words do not tell what went wrong.
    """
    # Ranks may fail, and say so, before rank 0 prints what it runs.
    worlds = [run for run in runs if run.parameters or run.devices or run.rows]
    if len(worlds) > 1 or any(run.is_interleaved for run in runs):
        return _not_one_world(f"printed several worlds where one of {len(expected.hosts)} ranks was started")
    run = min(runs, key=lambda run: list(LogStatus).index(run.status), default=LogRun(status=LogStatus.TRUNCATED))
    if run.status is LogStatus.WRONG_RESULTS:
        return Outcome(status=Status.WRONG_RESULT, reason=run.error or "wrong results")
    if run.status is not LogStatus.OK or code:
        return _ended_badly(run, code, said)
    return _misplaced(expected, run) or _measured(expected.case, run, report)


def _ended_badly(run: LogRun, code: int, said: str) -> Outcome:
    error = run.error or said
    is_launchers = run.error_class is ErrorClass.LAUNCHER and 0 < code < _SHELLS
    meaning = f"exit code {code} of the launcher" if is_launchers else exit_meaning(code)
    how = meaning if code else "exit code 0, but no whole result"
    advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, error)), "")
    if not advice and run.error_class is not None:
        advice = _ADVICE_OF_CLASS.get(run.error_class, "")
    status = Status.TIMED_OUT if run.error_class is ErrorClass.TIMEOUT else Status.FAILED
    return Outcome(status=status, reason=f"{error} ({how})" if error else how, advice=advice)


def _failed(reason: str) -> Outcome:
    return Outcome(status=Status.FAILED, reason=reason)


def _not_one_world(reason: str) -> Outcome:
    return Outcome(status=Status.FAILED, reason=reason, advice=_ADVICE_OF_CLASS[ErrorClass.NOT_ONE_WORLD])


def _misplaced(expected: Expected, run: LogRun) -> Outcome | None:
    """Return what is wrong with the world that measured, None where it is the one that was started."""
    nranks = len(expected.hosts)
    if run.nranks is not None and run.nranks != nranks:
        return _not_one_world(f"ran as a world of {run.nranks} ranks; expected {nranks}")
    for device in run.devices:
        host = expected.hosts[device.rank] if device.rank < nranks else "none"
        if device.host.partition(".")[0] != host.partition(".")[0]:
            advice = "check that the launcher follows its hosts file and that nodes are called as in the cluster file"
            reason = f"rank {device.rank} ran on {device.host}, expected {host}"
            return Outcome(status=Status.FAILED, reason=reason, advice=advice)
    if nranks > expected.nranks_per_group and run.ranks_per_group != expected.nranks_per_group:
        return _failed(
            f"did not make groups of {expected.nranks_per_group} ranks; NCCL_TESTS_SPLIT_MASK needs nccl-tests 2.13.4, "
            "NCCL_TESTS_SPLIT 2.14.0, both a build with MPI"
        )
    return None


def _measured(case: BenchCase, run: LogRun, report: LogRun | None) -> Outcome:
    source = report if report and _row(case, report.rows) else run
    row = _row(case, source.rows)
    if row is None:
        rows = (*run.rows, *run.partial_rows)
        printed = ", ".join(f"{row.size_bytes} B {row.dtype} {row.redop or ''}".strip() for row in rows) or "none"
        return _failed(f"printed no row of {case.size_bytes} B {case.dtype} {case.redop}; rows printed: {printed}")
    half = row.ip if case.in_place else row.oop
    if half is None:
        place = "in-place" if case.in_place else "out-of-place"
        return _failed(f"printed the row of {case.size_bytes} B without its {place} half")
    if half.wrong:
        return Outcome(status=Status.WRONG_RESULT, reason=f"{half.wrong:g} wrong elements")
    if not 0 < half.time_us.value < math.inf:
        return _failed(f"printed a time of {half.time_us.text} us")
    if faults := time_mismatches(source):
        return _failed(f"printed numbers that contradict one another: {'; '.join(faults)}")
    return Outcome(
        status=Status.OK,
        time_s=half.time_us.value * _SECONDS,
        resolution_s=half.time_us.resolution * _SECONDS,
    )


def _row(case: BenchCase, rows: Sequence[Row]) -> Row | None:
    """Return the row of what was asked for: a build that does not know a type or an operation takes float or sum."""
    is_asked = (row for row in rows if row.size_bytes == case.size_bytes and spelt_dtype(row.dtype) == case.dtype)
    return next((row for row in is_asked if spelt_redop(case.operation, row.redop) in ("", NO_REDOP, case.redop)), None)

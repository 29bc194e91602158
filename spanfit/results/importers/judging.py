"""How a run ended: what failure lines mean, and the status, error and warnings that follow from all of a report."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanfit.results.importers.checks import mismatches
from spanfit.results.importers.log import ErrorClass, LogRun, LogStatus


@dataclass(frozen=True, slots=True)
class Failure:
    """A line that tells of a failure; ``error_class`` is None for one that only follows from another."""

    text: str
    error_class: ErrorClass | None


_DETAILS = (
    ("illegal memory access", ErrorClass.CUDA_ILLEGAL_ADDRESS),
    ("system not yet initialized", ErrorClass.CUDA_NOT_INITIALISED),
    ("out of memory", ErrorClass.CUDA_OUT_OF_MEMORY),
    ("unhandled system error", ErrorClass.NCCL_SYSTEM_ERROR),
    ("remote process exited", ErrorClass.NCCL_REMOTE),
)
_SIGNS: tuple[tuple[str, ErrorClass | None], ...] = (
    ("Test NCCL failure", ErrorClass.NCCL),
    ("Test CUDA failure", ErrorClass.CUDA),
    ("Test HIP failure", ErrorClass.CUDA),
    ("Test timeout (", ErrorClass.TIMEOUT),
    (": Test failure ", None),
    ("Invalid number of GPUs", ErrorClass.NOT_ENOUGH_GPUS),
    ("The number of requested GPUs", ErrorClass.NOT_ENOUGH_GPUS),
    ("invalid size specified for", ErrorClass.USAGE),
    ("invalid sizes for", ErrorClass.USAGE),
    ("invalid option ", ErrorClass.USAGE),
    ("unrecognized option ", ErrorClass.USAGE),
    ("is not supported by this test", ErrorClass.UNSUPPORTED),
    ("This test requires ", ErrorClass.UNSUPPORTED),
    ("Incompatible NCCL versions", ErrorClass.UNSUPPORTED),
    ("requires NCCL >= ", ErrorClass.UNSUPPORTED),
    ("device implementation (-D > 0) requires", ErrorClass.UNSUPPORTED),
    ("or later is needed for", ErrorClass.UNSUPPORTED),
    ("Segmentation fault", ErrorClass.CRASH),
    ("exited on signal", ErrorClass.CRASH),
    ("Caught signal", ErrorClass.CRASH),
    ("core dumped", ErrorClass.CRASH),
    ("Bus error", ErrorClass.CRASH),
    ("DUE TO TIME LIMIT", ErrorClass.TIMEOUT),
    (" CANCELLED ", ErrorClass.LAUNCHER),
    ("launch failed on", ErrorClass.LAUNCHER),
    ("start failed on", ErrorClass.LAUNCHER),
    ("requested more processes than the ppr for", ErrorClass.LAUNCHER),
    ("There are not enough slots available", ErrorClass.LAUNCHER),
    ("was unable to launch the specified application", ErrorClass.LAUNCHER),
    ("was unable to find the specified executable", ErrorClass.LAUNCHER),
    ("error while loading shared libraries", ErrorClass.LAUNCHER),
    ("exited with non-zero status", None),
    ("a non-zero exit code", None),
    ("Exited with exit code", None),
    ("MPI_ABORT was invoked", None),
    ("srun: error: ", ErrorClass.LAUNCHER),
)
_EXIT_CODE = re.compile(r"exit code:?\s+(\d{1,9})")
_LIBRARY = re.compile(" NCCL (?:INFO|WARN|TRACE) ")
_AFTERMATH = (None, ErrorClass.WRONG_RESULTS, ErrorClass.LOW_BANDWIDTH)


def failure_of(text: str) -> Failure | None:
    """Return what failure a line of a program or of its launcher tells of, None where it tells of none.

    Lines of NCCL itself are no failures: it warns of much that it survives.
    """
    if _LIBRARY.search(text):
        return None
    for sign, error_class in _SIGNS:
        if sign in text:
            known = error_class in (ErrorClass.CUDA, ErrorClass.NCCL)
            detail = next((kind for words, kind in _DETAILS if known and words in text), error_class)
            return Failure(text.strip(), detail)
    return None


def exit_code_of(text: str) -> int | None:
    """Return the exit code that a line of a launcher names."""
    lowered = text.lower()
    found = _EXIT_CODE.search(lowered) if "exit code" in lowered else None
    return int(found[1]) if found else None


def judge(run: LogRun, failures: Sequence[Failure] = (), *, ended: LogStatus) -> LogRun:
    """Return the run with its status, first decisive error and the warnings of the cross-checks.

    Parameters
    ----------
    run : LogRun
        All that the report says; its status and error are set here, its warnings are kept.
    failures : sequence of Failure
        In the order of the log, those of the footer among them.
    ended : LogStatus
        What the form of the report tells: OK where its summary is there, TRUNCATED where it stops before, FAILED where
        it was closed without one. It holds where no failure says otherwise.
    """
    decisive = _decisive(failures)
    nwrong = sum(1 for row in run.rows for half in (row.oop, row.ip) if half and half.wrong)
    warnings = [*run.warnings, *mismatches(run)]
    if decisive is None:
        status, error_class = ended, None
        if nwrong and ended is not LogStatus.FAILED:
            status, error_class = LogStatus.WRONG_RESULTS, ErrorClass.WRONG_RESULTS
            warnings.append(f"{nwrong} halves of rows have wrong elements, but no footer says so")
    else:
        error_class = decisive.error_class
        status = LogStatus.WRONG_RESULTS if error_class is ErrorClass.WRONG_RESULTS else LogStatus.FAILED
    if ended is LogStatus.OK and run.partial_rows:
        warnings.append(f"{len(run.partial_rows)} rows are incomplete, though the summary is there")
    return replace(
        run,
        status=status,
        error=decisive.text if decisive else None,
        error_class=error_class,
        warnings=tuple(warnings),
    )


def _decisive(failures: Sequence[Failure]) -> Failure | None:
    """Return the first failure of the gravest kind: what ended the run, wrong results, low bandwidth, what follows."""
    gravest = [failure for failure in failures if failure.error_class not in _AFTERMATH]
    for error_class in (ErrorClass.WRONG_RESULTS, ErrorClass.LOW_BANDWIDTH, None):
        gravest = gravest or [failure for failure in failures if failure.error_class is error_class]
    return gravest[0] if gravest else None

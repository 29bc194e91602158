"""What a log of nccl-tests or rccl-tests says, whichever version printed it and whether as text or as JSON.

A log has very many rows, halves and devices: these are named tuples, which are made several times as fast as frozen
dataclasses, and a half keeps its numbers as text, since most are asked for once or never.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class LogStatus(StrEnum):
    """How a run ended, by its log; the earlier the worse."""

    FAILED = "failed"
    WRONG_RESULTS = "wrong_results"
    TRUNCATED = "truncated"
    OK = "ok"


class ErrorClass(StrEnum):
    """What kind of thing the first decisive error is."""

    CUDA = "cuda"
    CUDA_ILLEGAL_ADDRESS = "cuda_illegal_address"
    CUDA_NOT_INITIALISED = "cuda_not_initialised"
    CUDA_OUT_OF_MEMORY = "cuda_out_of_memory"
    NCCL = "nccl"
    NCCL_SYSTEM_ERROR = "nccl_system_error"
    NCCL_REMOTE = "nccl_remote"
    NOT_ENOUGH_GPUS = "not_enough_gpus"
    TIMEOUT = "timeout"
    USAGE = "usage"
    UNSUPPORTED = "unsupported"
    LAUNCHER = "launcher"
    CRASH = "crash"
    LOW_BANDWIDTH = "low_bandwidth"
    WRONG_RESULTS = "wrong_results"
    NOT_ONE_WORLD = "not_one_world"


class Printed(NamedTuple):
    """A number as a program printed it.

    Attributes
    ----------
    value : float
    text : str
        The characters of the log, where ``1.6e+07`` is not exact; of 1.0's milliseconds, with the point moved.
    """

    value: float
    text: str

    @property
    def resolution(self) -> float:
        """Half of the last digit that was printed, in the unit of the value; 0 for inf and nan."""
        return resolution(self.text)


def resolution(text: str) -> float:
    """Return half of the last digit of a number as it is printed, in its unit; 0 for inf and nan."""
    if text[-3:-2] == ".":  # nearly always
        return 0.005
    if "n" in text:
        return 0.0
    mantissa, _, exponent = text.partition("e") if "e" in text else (text, "", "0")
    point = mantissa.find(".")
    decimals = len(mantissa) - point - 1 if point >= 0 else 0
    return float(f"5e{int(exponent) - decimals - 1}")


class PerIteration(NamedTuple):
    """Spread over the iterations of a half, with ``-I 1``, [us] and [%]."""

    min_us: float
    max_us: float
    p99_us: float
    cv_pct: float
    times_us: tuple[float, ...] = ()


class Half(NamedTuple):
    """The out-of-place or the in-place half of a row.

    Attributes
    ----------
    time_text, algbw_text, busbw_text : str
        The time [us] and the bandwidths [GB/s] as they were printed; 1.0's milliseconds are converted.
    wrong : float or None
        Wrong elements; None where they were not counted (``N/A``, or a layout without the column).
    max_error : float or None
        Largest relative difference, of layouts that print one instead of a count.
    is_cpu_time : bool
        The time is CPU time (``-C 1``), so that size / time is not algbw.
    """

    time_text: str
    algbw_text: str
    busbw_text: str
    wrong: float | None = None
    max_error: float | None = None
    is_cpu_time: bool = False
    per_iteration: PerIteration | None = None

    @property
    def time_us(self) -> Printed:
        """The mean over iterations [us], of the slowest rank or as the version averages."""
        return Printed(float(self.time_text), self.time_text)


class Row(NamedTuple):
    """One line of a table; a half is None where it was not printed, or not wholly.

    Attributes
    ----------
    nelements : int or None
        The column that is called count.
    redop, root : str or None, int or None
        None where the layout has no such column or it is blank; ``none`` and -1 are kept where they are printed.
    timestamp : str
        "" unless ``-S 1``.
    cycle : int
        Which repeat of the sweep (``-N``), from 0.
    """

    size_bytes: int
    nelements: int | None
    dtype: str
    redop: str | None
    root: int | None
    oop: Half | None
    ip: Half | None
    timestamp: str = ""
    cycle: int = 0


class Device(NamedTuple):
    """One rank's device; ``group`` is None before 2.13.4, ``pid`` in 1.0, and ``name`` where it is not printed."""

    rank: int
    group: int | None
    pid: int | None
    host: str
    device: int
    bus_id: str
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """One run of one program.

    Attributes
    ----------
    status : LogStatus
    error : str or None
        The first decisive failure line as it was printed, without prefixes.
    program : str
        Such as ``all_reduce_perf``; "" where the log does not name it.
    version : str
        As printed, else what the layout tells, such as ``2.13.4-2.14.0 layout``; "" where nothing does.
    nccl_library : int or None
        NCCL version code of the version line (22807 is 2.28.7).
    nranks : int or None
        Ranks of the world; None where the log does not tell.
    ranks_per_group : int or None
        Where NCCL_TESTS_SPLIT made groups of them, the size of one; else None.
    rows, partial_rows : tuple of Row
        Whole rows, and those that lack a half that their table has.
    avg_busbw : float or None
        The printed average [GB/s].
    out_of_bounds : int or None
        Failing checks, as printed.
    validation : int or None
        Whether results were checked, from the parameter line.
    wrong_column : str
        ``#wrong``, ``error`` or ``res``; "" where no table header was seen.
    parameters : dict
        The parameter line, such as ``{"nThread": "1", "iters": "20"}``, and settings that have lines of their own.
    memory_usage : dict
        With ``-M 1`` the printed amounts by name; else empty.
    prefix : str
        The label that a launcher put in front of rank 0's lines.
    is_interleaved : bool
        Several worlds print through each other; nothing of them is read as one.
    foreign : tuple of str
        Lines that are no part of a report, without repeats: output of NCCL, of launchers, of other programs, and
        failure lines other than ``error``. None is dropped in silence.
    warnings : tuple of str
        What does not fit, such as an algbw that is not size / time.
    environment : dict
        Allow-listed variables of a JSON report.
    """

    status: LogStatus
    error: str | None = None
    error_class: ErrorClass | None = None
    exit_code: int | None = None
    program: str = ""
    version: str = ""
    nccl_library: int | None = None
    nranks: int | None = None
    ranks_per_group: int | None = None
    devices: tuple[Device, ...] = ()
    rows: tuple[Row, ...] = ()
    partial_rows: tuple[Row, ...] = ()
    avg_busbw: float | None = None
    out_of_bounds: int | None = None
    validation: int | None = None
    wrong_column: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    memory_usage: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    is_interleaved: bool = False
    foreign: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def worst(runs: tuple[LogRun, ...]) -> LogStatus:
    """Return the status of a file of several runs; one without any run is truncated."""
    order = list(LogStatus)
    return min((run.status for run in runs), key=order.index, default=LogStatus.TRUNCATED)

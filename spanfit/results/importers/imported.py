"""What a run of any measuring program says, in the words of spanfit: one type for every source that is imported."""

import math
from dataclasses import dataclass, field, replace

from spanfit.collectives import REDUCES, Collective
from spanfit.results.importers.log import LogStatus
from spanfit.results.schema import Status

NO_REDOP = "none"
WORLD = ""
"""The communicator of a run whose launch is its own."""

_OPERATIONS = {
    "allgather": Collective.ALL_GATHER,
    "allgatherbase": Collective.ALL_GATHER,
    "allreduce": Collective.ALL_REDUCE,
    "all2all": Collective.ALL_TO_ALL,
    "alltoall": Collective.ALL_TO_ALL,
    "alltoallpersonalizedexchange": Collective.ALL_TO_ALL,
    "alltoallsingle": Collective.ALL_TO_ALL,
    "alltoallv": Collective.ALL_TO_ALL_V,
    "barrier": Collective.BARRIER,
    "bcast": Collective.BROADCAST,
    "broadcast": Collective.BROADCAST,
    "gather": Collective.GATHER,
    "hypercube": Collective.HYPERCUBE,
    "reduce": Collective.REDUCE,
    "reducescatter": Collective.REDUCE_SCATTER,
    "reducescatterbase": Collective.REDUCE_SCATTER,
    "scatter": Collective.SCATTER,
    "sendrecv": Collective.SEND_RECV,
}
_DTYPES = {
    "bf16": "bfloat16",
    "char": "int8",
    "double": "float64",
    "f8e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2",
    "float": "float32",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
    "half": "float16",
    "int": "int32",
    "mpi_char": "int8",
    "mpi_float": "float32",
    "mpi_int": "int32",
}
_REDOPS = {"prod": "product"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One time that a program printed, or why it printed none.

    Attributes
    ----------
    operation, dtype, redop : str
        As spanfit spells them; kept as printed where spanfit has no word, "" where nothing is printed.
    size_bytes : int
        S of nccl-tests; 0 where a run ended before it said.
    is_share : bool
        ``size_bytes`` is what one rank gives or gets, and S this times the ranks.
    in_place : bool
    time_s : float
        Of the slowest rank, or the mean where the program prints only that [s]; NaN unless status is ok.
    resolution_s : float
        Half of the last digit of ``time_s`` that was printed [s].
    time_min_s : float
        Of the fastest rank [s]; NaN where it is not printed.
    """

    operation: str
    size_bytes: int
    is_share: bool = False
    dtype: str = ""
    redop: str = NO_REDOP
    in_place: bool = False
    time_s: float = math.nan
    resolution_s: float = 0.0
    time_min_s: float = math.nan
    status: Status = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One run of one program.

    Attributes
    ----------
    engine : str
        ``nccl-tests``, ``rccl-tests``, ``param``, ``osu`` or ``nccl-inspector``; "" where all that is printed is that a
        launch failed, which any of them may have been.
    program, version : str
        "" where they are not printed.
    backend : str
        nccl, rccl, mpi or gloo; "" where it is not printed.
    nranks : int or None
        Ranks of the world.
    hosts : tuple of str or None
        The host of each rank, in rank order; None where the program does not print all of them.
    groups : tuple of tuple of int
        The ranks of each communicator where several ran at once; else empty.
    timings : tuple of Timing
        In the order of the run; at least one.
    error : str
        Why the status is not ok.
    settings : dict
        What must agree for runs to be pooled, by what people call it; what is not printed is left out.
    environment : dict or None
        Allow-listed variables; None where they are not printed.
    communicator : str
        Names it where one launch made several, each its own run here; else ``WORLD``.
    is_cpu_time : bool
        Whether a host's clock was read that does not wait for the GPU.
    foreign, warnings : tuple of str
        Lines that were not understood, and what does not fit.
    """

    engine: str
    program: str
    version: str
    backend: str
    nranks: int | None
    hosts: tuple[str, ...] | None
    timings: tuple[Timing, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    status: LogStatus = LogStatus.OK
    error: str = ""
    gpu_model: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] | None = None
    communicator: str = WORLD
    is_cpu_time: bool = False
    foreign: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def with_failure(run: Imported) -> Imported:
    """Return the run with a row that says why it measured less than it should, where it did or gave no row at all.

    A time that is none, such as one printed as 0.00, is a row that failed too.
    """
    run = replace(run, timings=tuple(map(_checked, run.timings)))
    if run.timings and run.status not in (LogStatus.FAILED, LogStatus.TRUNCATED):
        return run
    operation = run.timings[-1].operation if run.timings else spelt_operation(run.program)
    failure = Timing(operation=operation, size_bytes=0, redop="", status=Status.FAILED, reason=run.error or "no row")
    return replace(run, timings=(*run.timings, failure))


def _checked(timing: Timing) -> Timing:
    if timing.status is not Status.OK:
        return timing
    if 0 < timing.time_s < math.inf:
        return replace(timing, time_min_s=timing.time_min_s if timing.time_min_s > 0 else math.nan)
    reason = f"the time is printed as {timing.time_s:g}"
    none = math.nan
    return replace(timing, status=Status.FAILED, reason=reason, time_s=none, resolution_s=0.0, time_min_s=none)


def spelt_operation(text: str) -> str:
    """Return spanfit's word for an operation such as ``alltoall_perf`` or ``AllReduce``, else the text itself.

    Examples
    --------
    >>> spelt_operation("reduce_scatter_perf")
    'reduce_scatter'
    """
    key = "".join(character for character in text.lower().removesuffix("_perf") if character.isalnum())
    return str(_OPERATIONS.get(key, text))


def spelt_dtype(text: str) -> str:
    """Return spanfit's word for an element type, else the text itself."""
    return _DTYPES.get(text.lower(), text)


def spelt_redop(operation: str, text: str | None) -> str:
    """Return spanfit's word for a reduction; ``none`` for an operation that combines nothing, whatever is printed."""
    if operation in set(Collective) - REDUCES:
        return NO_REDOP
    return _REDOPS.get(text, text) if text else ""

"""The command lines of the programs of nccl-tests, and what their options and exit codes mean: pure.

A visit of a campaign is one run of one program at one size. The programs can sweep sizes in a run, which saves starts,
but then the sizes of a case follow one another in one fixed order and drift shows as the shape of a curve, a program
that dies takes the sizes after it along, and a campaign that stops by itself cannot leave out the sizes that it knows.
So each run has a communicator of its own, and its start is the price.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from spanfit.bench.case import BenchCase
from spanfit.collectives import Collective

PROGRAMS: Mapping[Collective, str] = MappingProxyType(
    {
        Collective.ALL_REDUCE: "all_reduce_perf",
        Collective.ALL_GATHER: "all_gather_perf",
        Collective.REDUCE_SCATTER: "reduce_scatter_perf",
        Collective.ALL_TO_ALL: "alltoall_perf",
        Collective.BROADCAST: "broadcast_perf",
        Collective.REDUCE: "reduce_perf",
        Collective.GATHER: "gather_perf",
        Collective.SCATTER: "scatter_perf",
        Collective.SEND_RECV: "sendrecv_perf",
        Collective.HYPERCUBE: "hypercube_perf",
    }
)
"""What measures each collective. alltoallv_perf sends other shares than all_to_all_v and is none of them."""

OURS: Mapping[str, str] = MappingProxyType(
    {
        "t": "nthreads",
        "g": "ngpus",
        "b": "minbytes",
        "e": "maxbytes",
        "i": "stepbytes",
        "f": "stepfactor",
        "n": "iters",
        "w": "warmup_iters",
        "N": "run_cycles",
        "c": "check",
        "o": "op",
        "d": "datatype",
        "r": "root",
        "G": "cudagraph",
        "a": "average",
        "J": "output_file",
    }
)
"""The options that say what is measured and how it is reported, short and long; a campaign sets them by itself."""

_DTYPES = {"float32": "float", "float64": "double", "float16": "half"}
_REDOPS = {"product": "prod"}
_SLOWEST = "3"
"""Of ``-a``: the time of the slowest rank, where the mean over ranks is the default."""

_EXITS = {
    1: "wrong results, or a bandwidth under NCCL_TESTS_MIN_BW (up to 2.17.2)",
    2: "a CUDA call failed",
    3: "an NCCL call failed",
    4: "timed out (from 2.13.4; before it, the random numbers could not be made)",
    5: "too few GPUs, or not implemented",
    6: "invalid usage (from 2.17.7), or wrong results or a low bandwidth (2.17.3 to 2.17.6)",
    7: "wrong results, or a bandwidth under NCCL_TESTS_MIN_BW (from 2.17.7)",
    126: "the program may not be run",
    127: "the program or one of its libraries was not found",
    255: "a size that it does not understand",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A program as it was found.

    Attributes
    ----------
    path : str
    options : frozenset of str
        The letters of the options that it understands.
    """

    path: str
    options: frozenset[str]


def parse_help(text: str) -> frozenset[str]:
    """Return the letters of the options that a program's answer to ``--help`` lists; none where it is no such answer.

    No version before 2.17.4 prints which it is, and an option that is not known ends a run with exit code 0.
    """
    return frozenset(re.findall(r"\[-(\w),--\w+", text))


def command(build: Build, case: BenchCase, *, ngpus: int, check: bool, report: str) -> list[str]:
    """Return the command line that measures a case once.

    Parameters
    ----------
    build : Build
    case : BenchCase
        Its repetitions are the iterations that the one printed time is the mean of.
    ngpus : int
        GPUs of each process.
    check : bool
        Whether results are compared with what they should be.
    report : str
        Where a build that writes JSON writes it.
    """
    size = str(case.size_bytes)
    words = [build.path, "-g", str(ngpus), "-b", size, "-e", size, "-n", str(case.repetitions), "-w", str(case.warmup)]
    words += ["-c", str(int(check)), "-d", _DTYPES.get(case.dtype, case.dtype)]
    if case.redop != "none" and case.operation != Collective.SEND_RECV:
        words += ["-o", _REDOPS.get(case.redop, case.redop)]
    if case.graph:
        words += ["-G", "1"]
    if "a" in build.options:
        words += ["-a", _SLOWEST]
    if "J" in build.options:
        words += ["-J", report]
    return words


def misfit(build: Build, case: BenchCase) -> str:
    """Return why a build cannot measure a case, "" where it can."""
    if case.graph and "G" not in build.options:
        return f"{build.path} has no option -G for CUDA graphs; expected nccl-tests 2.10 or newer, or graph = false"
    return ""


def split_environment(ngroups: int, nranks: int) -> dict[str, str]:
    """Return the variables that make a communicator of every ``nranks`` ranks in a row of a world.

    A mask is understood from 2.13.4, a division from 2.14.0; a mask can tell apart only groups of 2, 4, 8, ... ranks.
    A build that is older takes no notice, which its log tells.
    """
    if ngroups == 1:
        return {}
    if nranks & (nranks - 1):
        return {"NCCL_TESTS_SPLIT": f"DIV {nranks}"}
    return {"NCCL_TESTS_SPLIT_MASK": f"{0xFFFFFFFF & -nranks:x}"}


def exit_meaning(code: int) -> str:
    """Return what an exit code of a program means, in words.

    Examples
    --------
    >>> exit_meaning(2)
    'exit code 2: a CUDA call failed'
    """
    if code < 0:
        return f"ended by signal {-code}"
    if 128 < code < 128 + 65:
        return f"exit code {code}: ended by signal {code - 128}"
    return f"exit code {code}" + (f": {_EXITS[code]}" if code in _EXITS else "")


def taken(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return which of a person's arguments are options that a campaign sets by itself."""
    long = {f"--{name}" for name in OURS.values()}
    return tuple(
        word
        for word in arguments
        if word.partition("=")[0] in long or (word[:1] == "-" and word[1:2] != "-" and word[1:2] in OURS)
    )

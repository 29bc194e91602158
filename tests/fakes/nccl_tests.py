"""A stand-in for the programs of nccl-tests, and for the mpirun that starts them.

A test writes it into a folder under the name of the program that it is to be, with ``behaviour.json`` beside it: the
version whose words it prints, what is wrong at which size, and whether it was built with MPI.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OPTIONS = {
    "nthreads": "t",
    "ngpus": "g",
    "minbytes": "b",
    "maxbytes": "e",
    "iters": "n",
    "warmup_iters": "w",
    "check": "c",
    "op": "o",
    "datatype": "d",
    "root": "r",
}
SINCE = {"cudagraph": ("G", (2, 10)), "average": ("a", (2, 10)), "output_file": ("J", (2, 17, 3))}
ITEMSIZE = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1}
GPU = "NVIDIA Fake 80GB"


def main() -> None:
    """Be the program whose name this file has."""
    behaviour = json.loads((HERE / "behaviour.json").read_text())
    if Path(__file__).name == "mpirun":
        sys.exit(mpirun(sys.argv[1:]))
    version = tuple(map(int, behaviour["version"].split(".")))
    if sys.argv[1:] == ["--help"]:
        options = OPTIONS | {name: letter for name, (letter, since) in SINCE.items() if version >= since}
        print("USAGE: all_reduce_perf \n\t" + "\n\t".join(f"[-{o},--{name} <x>] " for name, o in options.items()))
        return
    sys.exit(perform(behaviour, version, parse(sys.argv[1:])))


def parse(argv: list[str]) -> Namespace:
    """Return the options of a run."""
    parser = ArgumentParser(add_help=False)
    for name, letter in OPTIONS.items():
        parser.add_argument(f"-{letter}", dest=name, default="1")
    for name, (letter, _) in SINCE.items():
        parser.add_argument(f"-{letter}", dest=name)
    return parser.parse_args(argv)


def perform(behaviour: dict[str, Any], version: tuple[int, ...], asked: Namespace) -> int:
    """Print a run as the version would, up to the point where it goes wrong; return the exit code."""
    with (HERE / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    size, ngpus = int(asked.minbytes), int(asked.ngpus)
    fault = behaviour["faults"].get(asked.minbytes, "")
    if fault == "float" and asked.datatype != "float":
        print(f"invalid type {asked.datatype}, defaulting to float .. ")
        asked.datatype = "float"
    rank, hosts = int(os.environ.get("FAKE_RANK", "0")), os.environ.get("FAKE_HOSTS", os.uname().nodename).split(",")
    if not behaviour.get("mpi", True):
        rank, hosts = 0, hosts[rank : rank + 1]
    seats = [(index * ngpus + gpu, host, gpu) for index, host in enumerate(hosts) for gpu in range(ngpus)]
    if rank == 0:
        print("\n".join(header(version, asked, seats, fault)), flush=True)
    if fault == "driver":
        print("n1: Test CUDA failure util.cu:674 'CUDA driver version is insufficient for CUDA runtime version'")
        print(" .. n1 pid 7: Test failure common.cu:1454", flush=True)
        return 2
    if fault == "hang":
        if rank == 0 and asked.output_file:
            Path(asked.output_file).write_text(json.dumps(report(asked, size, 1.0, 1.0, 0))[:-20])
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
        with (HERE / "pids").open("a") as file:
            file.write(f"{child.pid}\n")
        time.sleep(100)
    if rank == 0:
        return table(version, asked, size, len(seats), fault)
    return 0


def header(version: tuple[int, ...], asked: Namespace, seats: list[tuple[int, str, int]], fault: str) -> Iterator[str]:
    """Yield the lines before the table's header."""
    if version >= (2, 17, 4):
        yield f"# nccl-tests version {'.'.join(map(str, version))} nccl-headers=22807 nccl-library=22807"
    if version >= (2, 16, 7):
        yield "# Collective test starting: all_reduce_perf"
    tail = " agg iters: 1 validation: 1 graph: 0" if version >= (2, 13) else " validation: 1 "
    yield (
        f"# nThread 1 nGpus {asked.ngpus} minBytes {asked.minbytes} maxBytes {asked.maxbytes} step: 1048576(bytes) "
        f"warmup iters: {asked.warmup_iters} iters: {asked.iters}{tail}"
    )
    yield "#"
    yield "# Using devices"
    per_group = split(len(seats)) if version >= (2, 13, 4) else len(seats)
    for rank, host, gpu in seats if fault != "driver" else ():
        group = f" Group {rank // per_group:2}" if version >= (2, 13, 4) else ""
        lead = "#  Rank" if group else "#   Rank"
        yield f"{lead} {rank:2}{group} Pid {100 + rank:6} on {host:>10} device {gpu:2} [0000:0{gpu}:00] {GPU}"


def split(nranks: int) -> int:
    """Return how many ranks a group has."""
    if mask := os.environ.get("NCCL_TESTS_SPLIT_MASK"):
        return sum(rank & int(mask, 16) == 0 for rank in range(nranks))
    return int(os.environ.get("NCCL_TESTS_SPLIT", f"DIV {nranks}").split()[1])


def table(version: tuple[int, ...], asked: Namespace, size: int, nranks: int, fault: str) -> int:
    """Print the table and the footer; return the exit code."""
    check, root = ("#wrong", True) if version >= (2, 13) else ("error", False)
    width = 8 if version >= (2, 10) else 6
    # Cells end where the header's names end; the count of wrong elements became a digit wider in 2.17.3.
    checked = 6 if version >= (2, 17, 3) else 5
    edges = [10, 14, width + 2, 8, *([8] if root else []), *[9, 8, 8, checked + 2] * 2]
    names = ["size", "count", "type", "redop", *(["root"] if root else []), *["time", "algbw", "busbw", check] * 2]
    units = ["(B)", "(elements)", *[""] * (len(edges) - 10), *["(us)", "(GB/s)", "(GB/s)", ""] * 2]
    print("#\n#" + " " * 60 + "out-of-place                       in-place          ")
    for row in (names, units):
        print("# " + "".join(f"{cell:>{edge}}" for cell, edge in zip(row, edges, strict=True)), flush=True)
    time_us = 10 + size / 1000 * 1.23456
    algbw = size / time_us / 1e3 * (2 if fault == "contradicts" else 1)
    leading = f"{size:12}  {size // ITEMSIZE[asked.datatype]:12}  {asked.datatype:>{width}}  {asked.op:>6}"
    sys.stdout.write(leading + ("      -1" if root else ""))
    wrong = 3 if fault == "lies" else 0
    busbw = algbw * 2 * (nranks - 1) / nranks
    bad = f"{wrong:{checked}}" if root else f"{wrong:5.0e}"
    half = f"  {time_us:7.2f}  {algbw:6.2f}  {busbw:6.2f}  {bad}"
    sys.stdout.write(half)
    sys.stdout.flush()
    if fault == "dies":
        print("n1: Test NCCL failure common.cu:501 'unhandled system error'\n .. n1 pid 7: Test failure common.cu:600")
        return 3
    print(half)
    print(f"# Out of bounds values : {wrong and 2} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {busbw:g} \n#")
    if version >= (2, 16, 7):
        print("# Collective test concluded: all_reduce_perf\n#")
    if asked.output_file:
        Path(asked.output_file).write_text(json.dumps(report(asked, size, time_us, busbw, wrong)))
    return (7 if version >= (2, 17, 7) else 1) if wrong else 0


def report(asked: Namespace, size: int, time_us: float, busbw: float, wrong: int) -> dict[str, Any]:
    """Return what ``-J`` writes."""
    half = {"time": round(time_us, 6), "alg_bw": size / time_us / 1e3, "bus_bw": busbw, "nwrong": float(wrong)}
    row = {"size": size, "count": size // ITEMSIZE[asked.datatype], "type": asked.datatype, "redop": asked.op}
    row |= {"root": "    -1", "out_of_place": half, "in_place": half, "actual_iterations": 1, "experiment_name": ""}
    return {
        "version": 1,
        "start_time": "2026-01-01 00:00:00",
        "args": sys.argv,
        "env": [f"{name}={value}" for name, value in os.environ.items()],
        "nccl_version": 22807,
        "config": {"nthreads": 1, "ngpus": int(asked.ngpus), "validation": 1, "devices": []},
        "results": [row],
        "out_of_bounds": {"count": wrong, "okay": str(not wrong).lower()},
        "average_bus_bandwidth": {"bandwidth": busbw, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-01-01 00:00:01",
    }


def mpirun(argv: list[str]) -> int:
    """Start as many copies of a command as Open MPI's would, all here; return the worst exit code."""
    if argv == ["--version"]:
        print("mpirun (Open MPI) 4.1.4")
        return 0
    hosts = Path(argv[argv.index("--hostfile") + 1]).read_text().split()
    command = argv[argv.index("env") :]
    ranks = []
    for rank in range(len(hosts)):
        environment = os.environ | {"FAKE_RANK": str(rank), "FAKE_HOSTS": ",".join(hosts)}
        ranks.append(subprocess.Popen(command, env=environment, process_group=0))
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    main()

"""How long 10 MB of nccl-tests logs take to read, and how much memory.

The text is drawn: sweeps as six generations of the programs print them (2.0 without and 2.9 with a root, 2.11, 2.13,
2.17.8, 2.19.6 with its spread over iterations), plain and behind the labels of Open MPI, srun, Hydra and kubectl, with
lines of NCCL_DEBUG=INFO between the rows and within them. Each size is read in a process of its own: the seconds are of
reading, the memory is the growth of the process from before it holds the text. What was read is compared with what was
drawn, row by row.

Example: benchmarks/nccl_text.py --quick
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from spanfit.results.importers.nccl_text import read_text

MB = 1_000_000
FULL_MB = 10
NRANKS = 16
LABELS = ("", "[1,0]<stdout>:", "0: ", "[0] ", "[pod/launcher-x7k2p/main] 2026-01-28T01:05:00.000000000Z ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How one range of versions prints: widths of the type and of the last column, and which columns there are."""

    banner: str
    type_width: int
    has_root: bool
    wrong: str
    wrong_width: int
    has_groups: bool
    has_spread: bool = False


GENERATIONS = (
    Generation(banner="", type_width=6, has_root=False, wrong="error", wrong_width=5, has_groups=False),
    Generation(banner="", type_width=6, has_root=True, wrong="error", wrong_width=5, has_groups=False),
    Generation(banner="", type_width=8, has_root=False, wrong="error", wrong_width=5, has_groups=False),
    Generation(banner="", type_width=8, has_root=True, wrong="#wrong", wrong_width=5, has_groups=True),
    Generation(banner="2.17.8", type_width=8, has_root=True, wrong="#wrong", wrong_width=6, has_groups=True),
    Generation(
        banner="2.19.6", type_width=8, has_root=True, wrong="#wrong", wrong_width=6, has_groups=True, has_spread=True
    ),
)


def float_text(value: float, width: int) -> str:
    """Return a number with as many decimals, two at most, as its width has room for."""
    return next(text for places in (2, 1, 0) if len(text := f"{value:.{places}f}") <= width or not places)


def head(generation: Generation) -> Iterator[str]:
    """Give the lines before the rows."""
    if generation.banner:
        yield f"# nccl-tests version {generation.banner} nccl-headers=22907 nccl-library=22907"
        yield "# Collective test starting: all_reduce_perf"
    aggregated = "agg iters: 1 validation: 1 graph: 0" if generation.wrong == "#wrong" else "validation: 1 "
    sizes = "minBytes 8 maxBytes 17179869184 step: 2(factor)"
    yield f"# nThread 1 nGpus 1 {sizes} warmup iters: 5 iters: 20 {aggregated}"
    yield "#"
    yield "# Using devices"
    for rank in range(NRANKS):
        group = " Rank %2d Group  0" if generation.has_groups else "  Rank %2d"
        place = f"Pid {4242 + rank:6d} on node-{rank // 8:05d} device {rank % 8:2d} [0000:{rank:02x}:00]"
        yield f"# {group % rank} {place} NVIDIA H100 80GB HBM3"
    yield "#"
    spread = [f"{name:>7}" for name in ("i_min", "i_max", "i_p99", "i_cv%")] if generation.has_spread else []
    half = ["   time", " algbw", " busbw", f"{generation.wrong:>{generation.wrong_width}}", *spread]
    root = ["  root"] if generation.has_root else []
    names = ["      size", "       count", f"{'type':>{generation.type_width}}", " redop", *root, *half, *half]
    yield "#                                 out-of-place                       in-place"
    yield "# " + "  ".join(names).replace("  #wrong", " #wrong" if generation.wrong_width == 5 else "  #wrong")
    yield "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"


def half_text(generation: Generation, size: int, time_us: float) -> tuple[str, float]:
    """Return a half of a row and its busbw as printed."""
    algbw = size / time_us / 1e3
    busbw = f"{algbw * 2 * (NRANKS - 1) / NRANKS:.2f}"
    text = f"  {float_text(time_us, 7):>7}  {algbw:6.2f}  {busbw:>6}  "
    text += f"{0:{generation.wrong_width}g}" if generation.wrong == "#wrong" else "0e+00"
    spread = (time_us * 0.97, time_us * 1.2, time_us * 1.2, 3.07) if generation.has_spread else ()
    return text + "".join(f"  {float_text(value, 7):>7}" for value in spread), float(busbw)


def debug_line(rng: random.Random) -> str:
    """Return a line as NCCL prints it with NCCL_DEBUG=INFO."""
    rank, channel = rng.randrange(NRANKS), rng.randrange(32)
    where = f"node-{rank // 8:05d}:{4242 + rank}:{9000 + rng.randrange(500)} [{rank % 8}] NCCL INFO"
    return f"{where} Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {(rank + 1) % NRANKS}[0] via P2P/CUMEM/read"


def run_text(rng: random.Random) -> tuple[str, int]:
    """Return one run and its rows."""
    generation, label = rng.choice(GENERATIONS), rng.choice(LABELS)
    again = label if label == "[0] " else ""
    lines = list(head(generation))
    values: list[float] = []
    nrows = 0
    for _ in range(rng.randrange(1, 5)):
        for size in (1 << power for power in range(3, 35)):
            root = "      -1" if generation.has_root else ""
            lead = f"{size:12d}  {size // 4:12d}  {'float':>{generation.type_width}}     sum{root}"
            out, busbw = half_text(generation, size, 20 + size / rng.uniform(5e4, 4e5))
            again_out, again_busbw = half_text(generation, size, 20 + size / rng.uniform(5e4, 4e5))
            noise = f"{debug_line(rng)}\n{label}" if rng.random() < 0.1 else again
            lines.append(f"{lead}{noise}{out}{again}{again_out}")
            lines += [debug_line(rng) for _ in range(rng.randrange(2))]
            values += [busbw, again_busbw]
            nrows += 1
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(values) / len(values):g} ", "#"]
    if generation.banner:
        lines.append("# Collective test concluded: all_reduce_perf")
    return "".join(f"{label}{line}\n" for line in lines), nrows


def draw(nbytes: int, seed: int) -> tuple[str, int, int]:
    """Return a text of at least so many bytes, its runs and its rows."""
    rng = random.Random(seed)
    texts: list[str] = []
    size = nrows = 0
    while size < nbytes:
        text, rows = run_text(rng)
        texts.append(text)
        size += len(text)
        nrows += rows
    return "".join(texts), len(texts), nrows


def read_file(path: Path) -> dict[str, float]:
    """Read a log in this process; return its cost and what was found."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = path.read_text(encoding="utf-8")
    started = perf_counter()
    runs = read_text(text)
    seconds = perf_counter() - started
    peak_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / MB
    good = sum(run.status == "ok" and not run.warnings and not run.partial_rows for run in runs)
    rows = sum(len(run.rows) for run in runs)
    return {"seconds": seconds, "peak_mb": peak_mb, "runs": len(runs), "good": good, "rows": rows}


def measure(megabytes: float, seed: int) -> dict[str, float]:
    """Draw a text of so many MB and read it in a fresh process."""
    text, nruns, nrows = draw(round(megabytes * MB), seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nccl.log"
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, __file__, "--read", str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(found)
    if (figures["runs"], figures["good"], figures["rows"]) != (nruns, nruns, nrows):
        raise SystemExit(f"error: {nruns} good runs of {nrows} rows were drawn, {figures} were read")
    return {"megabytes": len(text) / MB, **figures}


def main() -> None:
    """Measure, print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one reading instead of five")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        print(json.dumps(read_file(args.read)))
        return
    readings = [measure(FULL_MB, args.seed + i) for i in range(1 if args.quick else 5)]
    table = Table("MB", "runs", "rows", "seconds", "peak growth [MB]", title="reading text logs of nccl-tests")
    for reading in readings:
        table.add_row(
            f"{reading['megabytes']:.1f}",
            f"{reading['runs']:.0f}",
            f"{reading['rows']:.0f}",
            f"{reading['seconds']:.2f}",
            f"{reading['peak_mb']:.0f}",
        )
    Console().print(table)
    slowest = max(reading["seconds"] / reading["megabytes"] * FULL_MB for reading in readings)
    peak_mb = max(reading["peak_mb"] for reading in readings)
    print(json.dumps({"benchmark": "nccl_text", "seconds_10mb": round(slowest, 3), "peak_mb": round(peak_mb, 1)}))


if __name__ == "__main__":
    main()

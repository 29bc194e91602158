"""One check of one GPU in under five minutes: ``python -m spanfit.bench.gpu_check``; edge, starts processes.

It needs Python, torch and this package's own light modules, nothing else, and takes the worker's own path: a world of
one on nccl, where bus bandwidth is 0 and time is what counts. Without a GPU it says so, and checks the same path on
gloo. The last line is one JSON object; the exit code is 1 where something is wrong. Clocks are read, never set.
"""

import json
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from spanfit.bench.case import BenchCase, CaseKind, Concurrency, LaunchPlan, RankOrder, Visit, dump_launch
from spanfit.bench.device import read_device
from spanfit.bench.timing import BATCH_S, time_on_cpu, time_on_gpu
from spanfit.collectives import Collective, misfit

_LIMIT_S = 80.0
_SIZES = (1024, 1 << 20, 64 << 20)
_REPETITIONS = 7
_SELF_SENDERS = {Collective.SEND_RECV}
"""What one rank does by sending to itself, which nccl can and gloo cannot."""
_DTYPES = ("float64", "float32", "float16", "bfloat16")
_CLOCK_SLACK = 0.1

_START = """
import json, os, sys, time
start = time.perf_counter()
import torch, torch.distributed as dist
marks = [time.perf_counter()]
backend, device = sys.argv[1:]
buffer = torch.ones(1024, device=device)
finish = torch.cuda.synchronize if device == "cuda" else (lambda: None)
finish(); marks.append(time.perf_counter())
dist.init_process_group(backend)
marks.append(time.perf_counter())
dist.all_reduce(buffer)
finish(); marks.append(time.perf_counter())
dist.destroy_process_group()
names = ("import_torch", "device_context", "process_group", "first_operation")
print(json.dumps(dict(zip(names, (b - a for a, b in zip([start, *marks], marks))))))
"""
"""What a fresh process does from its start to its first result, and the seconds of each part."""


def plan_cases(backend: str) -> tuple[BenchCase, ...]:
    """Return the cases that a world of one can measure: all collectives that fit one rank, and the starting of one."""
    chosen = [c for c in Collective if not misfit(c, 1) and (backend == "nccl" or c not in _SELF_SENDERS)]
    sizes = _SIZES if backend == "nccl" else _SIZES[:2]
    cases = [_case(CaseKind.COLLECTIVE, c, size) for c in chosen for size in (sizes if c != "barrier" else sizes[:1])]
    if backend == "nccl":
        cases.append(_case(CaseKind.COLLECTIVE, Collective.ALL_REDUCE, _SIZES[0], graph=True))
        cases.append(_case(CaseKind.OVERLAP, Collective.ALL_REDUCE, _SIZES[-1], matrix=4096, products=10))
    return (*cases, _case(CaseKind.STARTUP, Collective.ALL_REDUCE, _SIZES[1]))


def _case(
    kind: CaseKind, operation: Collective, size_bytes: int, *, graph: bool = False, matrix: int = 0, products: int = 0
) -> BenchCase:
    return BenchCase(
        kind=kind,
        operation=operation,
        size_bytes=size_bytes,
        dtype="float32",
        redop="sum",
        in_place=False,
        groups=((0,),),
        tier="minipod",
        span=1,
        rank_order=RankOrder.SORTED,
        concurrency=Concurrency.ALONE,
        draw=0,
        arm="",
        warmup=20,
        repetitions=_REPETITIONS,
        graph=graph,
        matrix=matrix,
        products=products,
    )


def measure_world(backend: str, folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a world of one that the worker measured; the last is a failure if it did not end well."""
    shard = folder / "shard.jsonl"
    visits = enumerate(plan_cases(backend))
    plan = LaunchPlan(
        run_id="gpu-check",
        launch=0,
        attempt=0,
        backend=backend,
        node_names=(socket.gethostname(),),
        ngpus_per_node=1,
        timeout_s=_LIMIT_S,
        shard=str(shard),
        visits=tuple(Visit(position=position, block=0, case=case) for position, case in visits),
    )
    (folder / "plan.json").write_text(dump_launch(plan), encoding="utf-8")
    fault = _run([sys.executable, "-m", "spanfit.bench.worker", str(folder / "plan.json")])[1]
    lines = [json.loads(line) for line in shard.read_text().splitlines()] if shard.exists() else []
    cases = [line for line in lines if line["type"] == "case"]
    left = plan.visits[len(cases) :]
    if fault or left:
        label = left[0].case.label() if left else "the end"
        cases.append({"case": {"operation": label, "size_bytes": 0}, "status": "failed", "reason": fault or "no line"})
    return cases


def _run(argv: Sequence[str]) -> tuple[str, str]:
    """Return what a rank of a world of one prints, and why it failed, "" where it did not."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rendezvous = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    environment = os.environ | rendezvous | {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return "", f"did not end within {_LIMIT_S:.0f} s"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return done.stdout, lines[-1] if done.returncode else ""


def measure_start(backend: str) -> tuple[dict[str, float], str]:
    """Return the seconds of each part of a rank's start in a fresh process, and why it failed, "" where it did not."""
    output, fault = _run([sys.executable, "-c", _START, backend, "cuda" if backend == "nccl" else "cpu"])
    return (json.loads(output.splitlines()[-1]), "") if not fault else ({}, fault)


def matrix_rates(device: torch.device) -> dict[str, float]:
    """Return the floating point operations per second of a square matrix product by dtype: what compute can reach."""
    size, dtypes = (8192, _DTYPES) if device.type == "cuda" else (256, _DTYPES[:2])
    rates = {}
    for name in dtypes:
        left, right = (torch.ones(size, size, dtype=getattr(torch, name), device=device) for _ in range(2))
        times_s = _times(lambda left=left, right=right: torch.mm(left, right), device)
        rates[name] = 2 * size**3 / median(times_s)
    return rates


def _times(run: Any, device: torch.device) -> list[float]:
    for _ in range(3):
        run()
    time = time_on_gpu if device.type == "cuda" else time_on_cpu
    return time([run], lambda: None, _REPETITIONS)


def clock_ratio(device: torch.device) -> float:
    """Return the time of a batch of products by events over that by the monotonic clock; near 1 where events hold."""
    left = torch.ones(4096, 4096, device=device)
    batch = 50
    by_events = median(time_on_gpu([lambda: torch.mm(left, left)], lambda: None, 3, batch))
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(batch):
        torch.mm(left, left)
    torch.cuda.synchronize()
    return by_events / ((perf_counter() - start) / batch)


def run_nccl_tests() -> tuple[str, str]:
    """Return ``absent``, ``ok`` or ``failed`` of nccl-tests' all_reduce on one GPU, and the end of what it printed."""
    program = shutil.which("all_reduce_perf")
    if program is None:
        return "absent", ""
    try:
        done = subprocess.run(
            [program, "-b", "1K", "-e", "64M", "-f", "8", "-g", "1"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return "failed", f"did not end within {_LIMIT_S:.0f} s"
    # It ends with 0 after an unknown option, so its verdict is asked for as well.
    good = done.returncode == 0 and "Out of bounds values : 0 OK" in done.stdout
    return ("ok" if good else "failed"), "\n".join((done.stdout + done.stderr).splitlines()[-20:])


def read_versions(device: torch.device) -> dict[str, str]:
    """Return what this is run with."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "kernel": platform.release()}
    if device.type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        smi = shutil.which("nvidia-smi")
        if smi is not None:
            argv = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
            answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
            found["driver"] = (answer.stdout.splitlines() or ["unknown"])[0]
    return found


def render_table(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text in columns below a title."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([title, *(f"  {line}" for line in lines), ""])


def render_cases(lines: Iterable[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return a row for each part of each case: what, size, median time and how it went."""
    rows = [("operation", "bytes", "median us", "status")]
    for line in lines:
        case = line["case"]
        graph = " (CUDA graph)" if case.get("graph") else ""
        parts = line.get("parts") or {case["operation"]: line.get("times_s", [])}
        status = line["status"] + (f": {line['reason']}" if line["reason"] else "")
        batch = f", {line['batch']} at once" if line.get("batch", 1) > 1 else ""
        for name, times_s in parts.items():
            time_s = median(times_s[0][0]) if times_s and times_s[0][0] else math.nan
            rows.append((name + graph, str(case["size_bytes"]), f"{time_s * 1e6:.1f}", status + batch))
    return rows


def version_faults(python: tuple[int, int], torch_version: str) -> list[str]:
    """Return what is too old or too new."""
    major, minor = (int(part) for part in torch_version.split(".")[:2])
    faults = [] if (3, 11) <= python <= (3, 13) else [f"Python {python[0]}.{python[1]}; expected 3.11 to 3.13"]
    return faults + ([] if (major, minor) >= (2, 6) else [f"torch {torch_version}; expected 2.6 or newer"])


def unbatched(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Return the quick operations on a GPU that were timed one at a time, though events are too coarse for that."""
    return [
        f"{line['case']['operation']} of {line['case']['size_bytes']} B was timed alone"
        for line in lines
        if "batch" in line and line["batch"] == 1 and median(line["times_s"][0][0]) < BATCH_S / 2
    ]


def main() -> int:
    """Check, print tables and a JSON line, and return the exit code."""
    began = perf_counter()
    has_gpu = torch.cuda.is_available()
    device, backend = (torch.device("cuda", 0), "nccl") if has_gpu else (torch.device("cpu"), "gloo")
    if not has_gpu:
        print("No GPU here, so nothing of one is checked: this is the same path on gloo and the CPU.\n")
    versions = read_versions(device)
    reading = {name: str(value) for name, value in read_device(device).items()}
    print(render_table("Versions and device", (versions | reading).items()))
    faults = version_faults(sys.version_info[:2], versions["torch"])
    start_s, fault = measure_start(backend)
    faults += [f"start: {fault}"] if fault else []
    print(render_table("Start of a rank", [("part", "s"), *((name, f"{s:.3f}") for name, s in start_s.items())]))
    with tempfile.TemporaryDirectory(prefix="spanfit-gpu-check-") as folder:
        lines = measure_world(backend, Path(folder))
    print(render_table(f"A world of one on {backend} (busbw is 0; time counts)", render_cases(lines)))
    faults += [f"{line['case']['operation']}: {line['reason']}" for line in lines if line["status"] != "ok"]
    rates = matrix_rates(device)
    rows = [(name, f"{rate / 1e12:.3f}") for name, rate in rates.items()]
    print(render_table("Matrix products", [("dtype", "TFLOP/s"), *rows]))
    ratio = None
    if has_gpu:
        faults += unbatched(lines)
        ratio = clock_ratio(device)
        print(f"Events over the monotonic clock: {ratio:.3f}\n")
        faults += [f"events disagree with the clock by {ratio:.3f}"] if abs(ratio - 1) > _CLOCK_SLACK else []
    nccl_tests, output = run_nccl_tests() if has_gpu else ("absent", "")
    print(f"nccl-tests: {nccl_tests}\n{output}")
    faults += ["nccl-tests failed"] if nccl_tests == "failed" else []
    figures = {
        "gpu": versions.get("gpu"),
        "versions": versions,
        "start_s": start_s,
        "cases": len(lines),
        "matrix_flop_per_s": rates,
        "event_ratio": ratio,
        "nccl_tests": nccl_tests,
        "faults": faults,
        "seconds": perf_counter() - began,
    }
    print(json.dumps(figures))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

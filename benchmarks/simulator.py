"""How long a replay of 100,000 jobs on 2,000 nodes takes on one core, and what MPI workers cost.

``seconds_100k``: drawn jobs of 1 to 64 nodes at a load of 0.95 on 23 minipods, with node failures, runtimes told with
errors, one announced job of 800 nodes a day, policy spanfit, all metrics taken; the wall clock of one process from the
draw of the jobs to the figures. ``cpu_100k`` is its processor time, which is what a busy machine leaves of it.
``seconds_100k_<policy>`` are other policies, over as many jobs.

``mpi_efficiency``: the same replays by two MPI workers (three ranks, the first hands out) and by two independent
processes, each with half of them, side by side: in turns, the first of a round changing. The clock runs from the start
of the processes to the end of the last, so that starting Python and MPI counts on both sides. It is the ratio of
throughputs, geometric mean over rounds. ``--quick`` has short replays, of which starting is a larger part, and a
cluster that jobs have hardly filled when they end: its figures show that all runs, not how fast.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from spanfit.errors import LaunchError
from spanfit.launch.mpi import find_mpirun
from spanfit.launch.render.mpi import Mpi
from spanfit.queue.model.rules import PolicyName
from spanfit.queue.simulate.faults import FaultRates
from spanfit.queue.simulate.replay import ReplayRules
from spanfit.queue.simulate.scenario import Announcement, Scenario, Way, even_ground
from spanfit.queue.simulate.sources import Steady
from spanfit.queue.simulate.sweep import Case, run_case
from spanfit.queue.simulate.workload import JobMix

NNODES, NMINIPODS, LOAD, DAY_S = 2000, 23, 0.95, 86400.0
MIX = JobMix(shares={1: 0.55, 2: 0.12, 4: 0.13, 8: 0.10, 16: 0.06, 32: 0.03, 64: 0.01}, median_s=50 * 60.0, log_sd=1.2)
POLICIES = (PolicyName.SPANFIT, PolicyName.PAPER, PolicyName.EASY, PolicyName.PACKING)
SWEEP = """
name = "sweep"
[cluster]
minipods = 23
nodes = 2000
[jobs.steady]
shares = {{ 1 = 0.55, 2 = 0.15, 4 = 0.15, 8 = 0.1, 16 = 0.05 }}
median = "50m"
log_sd = 1.0
span = "{hours}h"
load = 0.9
"""


def scenario(njobs: int) -> Scenario:
    """Return what brings so many jobs in the mean."""
    span_s = njobs * MIX.mean_node_s / (LOAD * NNODES)
    days = range(1, int(span_s / DAY_S))
    return Scenario(
        name="speed",
        ground=even_ground(NMINIPODS, NNODES),
        source=Steady(mix=MIX, span_s=span_s, load=LOAD),
        announced=tuple(
            Announcement(
                job_id=f"lpj-{day}",
                nnodes=800,
                announced_s=day * DAY_S,
                expected_s=day * DAY_S + 4 * 3600,
                arrives_s=day * DAY_S + 4 * 3600,
                runtime_s=3600.0,
                nrows=100,
                ncolumns=8,
            )
            for day in days
        ),
        fault_rates=FaultRates(between_s=5000 * 3600.0, repair_s=4 * 3600.0),
        replay=ReplayRules(checkpoint_s=3600.0, sample_s=300.0),
    )


def speed(policy: PolicyName, njobs: int, seed: int) -> dict[str, float]:
    """Return seconds for 100,000 jobs, scaled from as many as were drawn, by the wall clock and of the processor."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    figures = run_case(Case(scenario=scenario(njobs), way=Way(policy=policy), seed=seed)).figures
    found = figures["delay_njobs"]
    assert found
    scale = 100_000 / found
    return {
        "njobs": found,
        "wall_s": (time.perf_counter() - wall_s) * scale,
        "cpu_s": (time.process_time() - cpu_s) * scale,
        "allocation": figures["allocation"] or 0.0,
    }


def mpi_command(mpirun: str, mpi: Mpi, arguments: list[str]) -> list[str]:
    """Return what runs a sweep over three ranks of this machine."""
    options = {
        Mpi.OPEN_MPI_4: ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
        Mpi.OPEN_MPI_5: ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
        Mpi.MPICH: ["-bind-to", "none"],
    }[mpi]
    as_root = ["--allow-run-as-root"] if mpi is not Mpi.MPICH and os.geteuid() == 0 else []
    return [mpirun, *as_root, *options, "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "spanfit", *arguments]


def timed(commands: list[list[str]]) -> float:
    """Return the seconds until commands that start together have all ended."""
    started_s = time.perf_counter()
    running = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for each in commands]
    for command, process in zip(commands, running, strict=True):
        _, said = process.communicate()
        if process.returncode:
            raise LaunchError(f"{' '.join(command)}: ended with {process.returncode}: {said.decode()[-2000:]}")
    return time.perf_counter() - started_s


def efficiency(hours: int, seeds: int, rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of both ways in each round: two MPI workers, two processes."""
    mpirun, mpi = find_mpirun()
    found = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.toml"
        path.write_text(SWEEP.format(hours=hours))
        base = ["simulate", "sweep", str(path), "--way", "spanfit", "--json"]
        half = seeds // 2
        alone = [
            [sys.executable, "-m", "spanfit", *base, "--seeds", str(half), "--seed", str(first)]
            for first in (1, 1 + half)
        ]
        together = mpi_command(mpirun, mpi, [*base, "--seeds", str(2 * half), "--seed", "1"])
        for index in range(rounds):
            ways = [[together], alone] if index % 2 == 0 else [alone, [together]]
            first_s, second_s = (timed(way) for way in ways)
            found.append((first_s, second_s) if index % 2 == 0 else (second_s, first_s))
    return found


def main() -> None:
    """Print the tables, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 jobs scaled up, one short round: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(width=120)
    njobs = 10_000 if arguments.quick else 100_000
    speeds = {
        policy: speed(policy, njobs, arguments.seed) for policy in (POLICIES[:1] if arguments.quick else POLICIES)
    }
    table = Table("policy", "jobs", "allocation", "wall s for 100,000", "processor s for 100,000", title="One core")
    for policy, each in speeds.items():
        cells = (f"{each['njobs']:.0f}", f"{each['allocation']:.3f}", f"{each['wall_s']:.1f}", f"{each['cpu_s']:.1f}")
        table.add_row(policy, *cells)
    console.print(table)
    hours, seeds, rounds = (20, 8, 1) if arguments.quick else (60, 48, 2)
    pairs = efficiency(hours, seeds, rounds)
    table = Table("round", "2 MPI workers [s]", "2 processes [s]", "ratio of throughputs", title=f"{seeds} replays")
    for index, (together_s, alone_s) in enumerate(pairs):
        table.add_row(str(index), f"{together_s:.1f}", f"{alone_s:.1f}", f"{alone_s / together_s:.3f}")
    console.print(table)
    ratio = math.exp(sum(math.log(alone_s / together_s) for together_s, alone_s in pairs) / len(pairs))
    first = speeds[PolicyName.SPANFIT]
    figures = {f"seconds_100k_{policy}": round(each["wall_s"], 1) for policy, each in speeds.items()}
    figures |= {"seconds_100k": round(first["wall_s"], 1), "cpu_100k": round(first["cpu_s"], 1)}
    print(json.dumps({"benchmark": "simulator", **figures, "mpi_efficiency": round(ratio, 3)}))


if __name__ == "__main__":
    main()

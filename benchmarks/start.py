"""Time spanfit's commands from the start of the process to its end, files written, and what memory they take.

``spanfit --help``, and ``spanfit place`` of a job of 1,200 nodes on a cluster of 2,400 and of one of 12,500 on 25,000,
a third of the nodes taken at random, each with a placement.json and a Slurm script. Every command runs once to warm the
caches of files, then is timed; the median counts, and the peak resident set of any run.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.readers.cluster_toml import render_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of dp x pp nodes, on a cluster of twice as many nodes in some minipods."""

    dp: int
    pp: int
    nminipods: int

    @property
    def nnodes(self) -> int:
        """Nodes that the job needs."""
        return self.dp * self.pp


JOBS = {"place_1200_s": Job(dp=150, pp=8, nminipods=20), "place_12500_s": Job(dp=1250, pp=10, nminipods=128)}


def write_inputs(folder: Path, job: Job, seed: int) -> tuple[Path, Path]:
    """Write the job and its cluster and return their files."""
    source = random.Random(seed)
    per_minipod = -(-2 * job.nnodes // job.nminipods)
    nodes = [
        Node(
            name=f"n{minipod:03d}-{index:04d}",
            fabric=(f"leaf{minipod}-{index // 16}", f"pod{minipod}", "core"),
            ngpus=8,
            gpu_model="H100",
            state=NodeState.ALLOCATED if source.random() < 1 / 3 else NodeState.IDLE,
        )
        for minipod in range(job.nminipods)
        for index in range(per_minipod)
    ]
    cluster = Cluster(name="large", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))
    cluster_file, job_file = folder / "cluster.toml", folder / "job.toml"
    cluster_file.write_text(render_cluster(cluster))
    job_file.write_text(f'name = "job"\ndp = {job.dp}\npp = {job.pp}\ntp = 8\ncommand = ["train.py"]\n')
    return job_file, cluster_file


def run(arguments: Sequence[str], folder: Path) -> tuple[float, float]:
    """Return the seconds of a command and its peak resident set in MB; it must end well."""
    start = time.perf_counter()
    with (folder / "out").open("wb") as out:
        child = subprocess.Popen([sys.executable, "-m", "spanfit", *arguments], stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    took_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(
            f"spanfit {' '.join(arguments)} ended with {child.returncode}:\n{(folder / 'out').read_text()}"
        )
    return took_s, usage.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Run the benchmark; its last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three runs of each command instead of nine")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    nruns = 3 if options.quick else 9
    table = Table("command", "median [s]", "min [s]", "max [s]", "peak [MB]")
    figures: dict[str, float] = {}
    peak_mb = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {"help_s": ["--help"]}
        for key, job in JOBS.items():
            (folder / key).mkdir()
            job_file, cluster_file = write_inputs(folder / key, job, options.seed)
            output = ["-o", str(folder / key / "placement.json"), "--emit", "slurm"]
            commands[key] = ["place", str(job_file), "--cluster", str(cluster_file), "--alpha", "0.5", *output]
        for key, arguments in commands.items():
            runs = [run(arguments, folder) for _ in range(nruns + 1)][1:]
            times_s, peaks_mb = [took_s for took_s, _ in runs], [mb for _, mb in runs]
            figures[key] = round(statistics.median(times_s), 3)
            peak_mb = max(peak_mb, *peaks_mb) if key != "help_s" else peak_mb
            cells = (statistics.median(times_s), min(times_s), max(times_s))
            table.add_row(f"{arguments[0]} ({key})", *(f"{each:.3f}" for each in cells), f"{max(peaks_mb):.0f}")
    Console().print(table)
    print(json.dumps({"benchmark": "start", **figures, "place_peak_mb": round(peak_mb, 1), "runs": nruns}))


if __name__ == "__main__":
    main()

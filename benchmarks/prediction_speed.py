"""How fast steps are predicted: 200 placements of a job of 8 nodes, 100 of one of 32 nodes, and 5 of one of 1,200.

Nodes have 8 GPUs and one tier of leaves under minipods; NCCL's rings, fair shares. Placements are drawn without any
order, the worst case: hardly two ranks are alike. "From cold" is a new job on a new cluster: planning its programs,
reading the wiring, one step. Placements that differ in names only are answered from memory; few do here. Times
are those of the processor, not of the clock, so that other work on the machine counts less.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import median

from rich.console import Console
from rich.table import Table

from spanfit.bench.job_file import read_models
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile
from spanfit.profiler.predict.step import StepPredictor
from spanfit.topology.model import Cluster, Node, RankMap
from spanfit.workload.job import TrainingJob
from spanfit.workload.layout import ParallelLayout
from spanfit.workload.program import ComputeMode

NGPUS = 8
NODE_BYTES_PER_S = 4e11
"""What eight NICs of 400 Gbit/s carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A job and its cluster: switches of minipods, leaves of each, nodes of each leaf."""

    name: str
    model: str
    dp: int
    pp: int
    tp: int
    microbatches: int
    switches: tuple[int, int, int]
    placements: int

    def job(self) -> TrainingJob:
        """Return the job."""
        return TrainingJob(
            name=self.name,
            model=read_models()[self.model],
            layout=ParallelLayout(dp=self.dp, pp=self.pp, tp=self.tp),
            global_batch=self.microbatches * self.dp,
            compute=ComputeMode.WAIT,
            flops_per_s=4e14,
            buckets=4,
        )

    def cluster(self) -> Cluster:
        """Return the cluster."""
        nodes = (
            Node(name=f"m{minipod}l{leaf}n{node}", fabric=(f"m{minipod}l{leaf}", f"m{minipod}", "core"))
            for minipod, leaf, node in product(*map(range, self.switches))
        )
        return Cluster(name=self.name, tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))

    def fabric(self) -> ParametersFile:
        """Return a fabric whose minipods have half of the uplinks that would never hold up their nodes."""
        _, leaves, nodes = self.switches
        minipod = NODE_BYTES_PER_S * leaves * nodes / 2
        rates = {"host": NODE_BYTES_PER_S, "leaf": NODE_BYTES_PER_S * nodes, "minipod": minipod}
        return ParametersFile(
            schema_version=PARAMETERS_VERSION,
            run_ids=(),
            curves_hashes=(),
            cluster=self.name,
            cluster_hash="",
            library=Library.NCCL,
            parameters=Parameters(rates_bytes_per_s=rates, peak_bytes_per_s=4e11, latency_s=5e-6, call_s=1e-5),
            error=0.0,
            residuals=(),
            not_fitted={},
        )


SIZES = (
    Size(name="n8", model="llama-3-8b", dp=16, pp=2, tp=2, microbatches=8, switches=(4, 2, 4), placements=200),
    Size(name="n32", model="llama-3-70b", dp=4, pp=8, tp=8, microbatches=8, switches=(4, 2, 4), placements=100),
    Size(name="n1200", model="llama-3-70b", dp=150, pp=8, tp=8, microbatches=16, switches=(6, 10, 20), placements=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What predicting took: a new job and its first step, and each further placement [s]."""

    cold_s: float
    each_s: tuple[float, ...]


def timed(size: Size, placements: int, seed: int) -> Timed:
    """Return how long predictions of a job take."""
    job, cluster, fabric = size.job(), size.cluster(), size.fabric()
    spent_s: list[float] = []
    start_s = time.process_time()
    predictor = StepPredictor(job, cluster, fabric, ngpus_per_node=NGPUS)
    for rank_map in drawn(cluster, job.layout.nranks // NGPUS, placements + 1, seed):
        predictor.step_time_s(rank_map)
        spent_s.append(time.process_time() - start_s)
        start_s = time.process_time()
    return Timed(cold_s=spent_s[0], each_s=tuple(spent_s[1:]))


def drawn(cluster: Cluster, nnodes: int, count: int, seed: int) -> Iterator[RankMap]:
    """Yield placements without order."""
    rng = random.Random(seed)
    names = [node.name for node in cluster.nodes]
    for _ in range(count):
        yield RankMap(node_names=tuple(rng.sample(names, nnodes)), ngpus_per_node=NGPUS)


def main() -> None:
    """Predict, and print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the placements, 2 at least")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = Table(title="Predicting steps", title_justify="left")
    for column in ("job", "ranks", "from cold s", "placement ms", "placements a minute"):
        table.add_column(column, justify="left" if column == "job" else "right")
    figures: dict[str, object] = {"benchmark": "prediction_speed"}
    for size in SIZES:
        found = timed(size, max(2, size.placements // (10 if arguments.quick else 1)), arguments.seed)
        each_s = median(found.each_s)
        nranks = size.dp * size.pp * size.tp
        table.add_row(size.name, str(nranks), f"{found.cold_s:.2f}", f"{each_s * 1e3:.1f}", f"{60 / each_s:.0f}")
        figures[f"cold_{size.name}_s"] = round(found.cold_s, 3)
        figures[f"per_minute_{size.name}"] = round(60 / each_s)
    Console(width=120).print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

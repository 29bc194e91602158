"""Small clusters and fabrics whose step times follow by arithmetic."""

from collections.abc import Sequence
from dataclasses import replace

from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import Network, build_network
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile
from spanfit.topology.model import Cluster, Node, RankMap
from spanfit.workload.job import StepJob
from spanfit.workload.schedules import Schedule

RATE = 1e6
PLAIN = Parameters(rates_bytes_per_s={"host": RATE, "minipod": RATE}, peak_bytes_per_s=1e12)
"""Every link carries 1 MB/s; no bursts, no latencies, fair shares."""


def cluster(minipods: int = 2, hosts: int = 4) -> Cluster:
    nodes = tuple(
        Node(name=f"m{pod}h{host}", fabric=(f"m{pod}l0", f"m{pod}", "core"))
        for pod in range(minipods)
        for host in range(hosts)
    )
    return Cluster(name="small", tiers=("leaf", "minipod", "core"), nodes=nodes)


def rank_map(found: Cluster, order: Sequence[int] | None = None) -> RankMap:
    chosen = range(len(found.nodes)) if order is None else order
    return RankMap(node_names=tuple(found.nodes[node].name for node in chosen), ngpus_per_node=1)


def network(found: Cluster, order: Sequence[int] | None = None) -> Network:
    return build_network(found, rank_map(found, order))


def fabric(parameters: Parameters = PLAIN, library: Library = Library.NCCL) -> ParametersFile:
    return ParametersFile(
        schema_version=PARAMETERS_VERSION,
        run_ids=("flows", "rings"),
        curves_hashes=("a", "b"),
        cluster="small",
        cluster_hash="c",
        library=library,
        parameters=parameters,
        error=0.02,
        residuals=(),
        not_fitted={},
    )


JOB = StepJob(
    name="job",
    dp=1,
    pp=2,
    nmicrobatches=2,
    activation_bytes=40_000,
    gradient_bytes=80_000,
    forward_s=0.01,
    backward_s=0.02,
    schedule=Schedule.GPIPE,
)


def job(dp: int, pp: int) -> StepJob:
    return replace(JOB, dp=dp, pp=pp)

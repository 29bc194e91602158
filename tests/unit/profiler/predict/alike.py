"""Jobs of every strategy placed on leaves and minipods, and what the programs of all ranks say of them, one by one."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from spanfit.profiler.predict.network import Network, build_network
from spanfit.topology.model import Cluster, Node, RankMap
from spanfit.workload.job import TrainingJob
from spanfit.workload.program import Collect, ComputeMode, Operation, Receive, Send
from spanfit.workload.script import Script, write_script
from tests.unit.profiler.predict.factory import PLAIN
from tests.unit.workload.factory import JOBS, program_of

LEAVES = tuple(Node(name=f"n{i}", fabric=(f"l{i // 2}", f"m{i // 4}", "core")) for i in range(96))
CLUSTER = Cluster(name="leaves", tiers=("leaf", "minipod", "core"), nodes=LEAVES)
PARAMETERS = replace(
    PLAIN,
    rates_bytes_per_s={"host": 1e6, "leaf": 1.5e6, "minipod": 1e6},
    peak_bytes_per_s=2e7,
    latency_s=1e-5,
    call_s=1e-4,
)


def placed(job: TrainingJob, ngpus: int, seed: int | None) -> tuple[Script, Network]:
    """Return a job's programs and its links, in the order of nodes or in a drawn one; ranks that are odd sit alone."""
    ngpus = ngpus if job.layout.nranks % ngpus == 0 else 1
    script = write_script(replace(job, compute=ComputeMode.WAIT, flops_per_s=1e10))
    names = [node.name for node in LEAVES[: script.nranks // ngpus]]
    if seed is not None:
        Random(seed).shuffle(names)
    return script, build_network(CLUSTER, RankMap(node_names=tuple(names), ngpus_per_node=ngpus))


def stripped(operation: Operation) -> Hashable:
    if isinstance(operation, Send | Receive):
        return type(operation), operation.timer, operation.count
    if isinstance(operation, Collect):
        return operation.axis, operation.collective, operation.timer, operation.count, operation.handle
    return operation


def numbered(keys: list[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def told_apart(script: Script, network: Network, places: list[int]) -> list[int]:
    """Return the class of each rank from the programs of all ranks."""
    programs = [program_of(script, rank) for rank in range(script.nranks)]

    def met(rank: int, other: int) -> int:
        return network.joined(network.node(rank), network.node(other))

    def partner(rank: int, each: Operation, labels: list[int]) -> Hashable:
        if isinstance(each, Send | Receive):
            return labels[each.peer], met(rank, each.peer)
        if isinstance(each, Collect):
            hops = Counter(met(member, each.group[place - 1]) for place, member in enumerate(each.group))
            return frozenset(Counter(labels[member] for member in each.group).items()), frozenset(hops.items())
        return None

    def beside(rank: int, labels: list[int]) -> Hashable:
        first = rank - rank % network.ngpus_per_node
        return tuple(sorted(labels[first : first + network.ngpus_per_node]))

    labels = numbered([(tuple(map(stripped, program)), places[rank]) for rank, program in enumerate(programs)])
    while True:
        finer = numbered(
            [
                (labels[rank], beside(rank, labels), *(partner(rank, each, labels) for each in programs[rank]))
                for rank in range(len(labels))
            ]
        )
        if max(finer) == max(labels):
            return labels
        labels = finer


PLACED = st.builds(placed, JOBS, st.sampled_from([1, 2, 4]), st.one_of(st.none(), st.integers(0, 5)))

"""On which nodes of the cluster the ranks of an imported run sat."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spanfit.errors import ConfigError
from spanfit.results.importers.imported import Imported
from spanfit.results.importers.sources import Source
from spanfit.results.schema import Status
from spanfit.topology.model import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A run with its place.

    Attributes
    ----------
    source : int
        Which of the sources it is from.
    label : str
        What messages call it: the file, and which of its runs.
    nodes : tuple of str
        The node of each rank, by the cluster's names; empty for a run that timed nothing and names no host.
    """

    source: int
    label: str
    run: Imported
    nodes: tuple[str, ...]

    @property
    def ranks_per_node(self) -> str:
        """Return how many ranks each node has, ascending where that differs; "" where nodes are unknown."""
        return ", ".join(map(str, sorted(set(Counter(self.nodes).values()))))


def seat_runs(sources: Sequence[Source], cluster: Cluster, given: Sequence[str] = ()) -> tuple[Seated, ...]:
    """Return every run with the node of each rank.

    Parameters
    ----------
    given : sequence of str
        For runs that print no hosts: the host of each rank, or each host once where its ranks follow each other.

    Raises
    ------
    ConfigError
        For every run whose hosts are unknown to the cluster, were not printed and not given, or do not fit its ranks.
    """
    seated, faults = [], []
    for index, source in enumerate(sources):
        for number, run in enumerate(source.runs, start=1):
            label = source.name if len(source.runs) == 1 else f"{source.name}, run {number}"
            try:
                hosts = _hosts(run, given)
                nodes = _nodes(hosts, cluster)
            except ValueError as error:
                faults.append(f"{label}: {error}")
                continue
            seated.append(Seated(source=index, label=label, run=run, nodes=nodes))
    if faults:
        raise ConfigError("\n".join(faults))
    return tuple(seated)


def _hosts(run: Imported, given: Sequence[str]) -> tuple[str, ...]:
    if run.hosts is not None:
        return run.hosts
    if not given or not run.engine:
        if any(timing.status is Status.OK for timing in run.timings):
            raise ValueError("does not name the host of each rank; give them in rank order with --nodes")
        return ()
    nranks = run.nranks or len(given)
    each, rest = divmod(nranks, len(given))
    if rest:
        raise ValueError(
            f"has {nranks} ranks; expected --nodes with a host for each, or with hosts that share them evenly"
        )
    return tuple(host for host in given for _ in range(each))


def _nodes(hosts: Iterable[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the cluster's name of each host: the same, or the only one with the same first label."""
    hosts = tuple(hosts)
    names = {node.name for node in cluster.nodes}
    short: dict[str, list[str]] = {}
    for node in cluster.nodes:
        short.setdefault(node.name.partition(".")[0], []).append(node.name)
    matches = {host: [host] if host in names else short.get(host.partition(".")[0], []) for host in hosts}
    unknown = [host for host, found in matches.items() if len(found) != 1]
    if unknown:
        raise ValueError(
            f"hosts: found {', '.join(unknown)}, expected nodes of cluster {cluster.name}; "
            "add them to the cluster file, or say which nodes these are with --nodes if the run prints no hosts"
        )
    return tuple(matches[host][0] for host in hosts)

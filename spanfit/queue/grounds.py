"""A cluster as the ground of a queue; pure."""

from spanfit.queue.model.nodes import Ground, NodeSet
from spanfit.topology.model import Cluster, NodeState

_OUT = (NodeState.DOWN, NodeState.DRAINED)


def ground_of(cluster: Cluster) -> Ground:
    """Return the nodes of a cluster by minipod, both in the order of the cluster."""
    labels = cluster.switch_labels("minipod")
    index = {path: number for number, path in enumerate(labels)}
    models = tuple(node.gpu_model for node in cluster.nodes)
    return Ground(
        names=tuple(node.name for node in cluster.nodes),
        minipods=tuple(index[cluster.minipod(node)] for node in cluster.nodes),
        labels=tuple(labels.values()),
        gpu_models=models if any(models) else (),
    )


def out_of_service(cluster: Cluster) -> NodeSet:
    """Return the nodes of a cluster that are down or drained."""
    return sum(1 << number for number, node in enumerate(cluster.nodes) if node.state in _OUT)

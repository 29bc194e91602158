from spanfit.queue.grounds import ground_of, out_of_service
from spanfit.topology.model import Cluster, Node, NodeState


def node(name: str, fabric: tuple[str, ...], state: NodeState = NodeState.IDLE, model: str | None = None) -> Node:
    return Node(name=name, fabric=fabric, state=state, gpu_model=model)


def test_nodes_keep_their_order_and_minipods_are_told_by_their_whole_path() -> None:
    nodes = (
        node("x", ("leaf1", "pod", "east")),
        node("a", ("leaf1", "pod", "west"), model="H100"),
        node("b", ("leaf2", "pod", "east"), NodeState.DOWN),
    )
    cluster = Cluster(name="c", tiers=("leaf", "minipod", "core"), nodes=nodes)
    ground = ground_of(cluster)
    assert ground.names == ("x", "a", "b")
    assert ground.minipods == (0, 1, 0)
    assert ground.labels == ("east/pod", "west/pod")
    assert ground.gpu_models == (None, "H100", None)
    assert out_of_service(cluster) == 0b100


def test_a_node_in_use_or_reserved_stays_in_service() -> None:
    states = (NodeState.ALLOCATED, NodeState.RESERVED, NodeState.DRAINED)
    nodes = tuple(node(state, ("m",), state) for state in states)
    cluster = Cluster(name="c", tiers=("minipod",), nodes=nodes)
    assert out_of_service(cluster) == 0b100
    assert ground_of(cluster).gpu_models == ()

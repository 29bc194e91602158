import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.model import NodeState
from spanfit.topology.readers.documents import Place, load_yaml
from spanfit.topology.readers.kubernetes_labels import SCHEMES
from spanfit.topology.readers.kubernetes_nodes import parse_nodes
from spanfit.topology.readers.volcano import parse_hypernodes
from spanfit.topology.reading import NodeFacts, Reading


def make_node(name: str, labels: dict[str, str], gpus: str | None = "8", **more: Any) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"nvidia.com/gpu": gpus} if gpus else {},
    }
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": status} | more


def places(items: Iterable[dict[str, Any]]) -> list[Place]:
    return [Place("f", f"items[{index}]", item) for index, item in enumerate(items)]


def read(*nodes: dict[str, Any], levels: Iterable[dict[str, Any]] = (), pods: Iterable[dict[str, Any]] = ()) -> Reading:
    return parse_nodes(places(nodes), "f", places(levels), places(pods))


def paths(reading: Reading) -> dict[str, tuple[str, ...] | None]:
    return {node.name: node.fabric for node in reading.nodes}


def labels(reading: Reading) -> list[str]:
    return [finding.label for finding in reading.findings]


def one(reading: Reading) -> NodeFacts:
    (node,) = reading.nodes
    return node


@pytest.mark.parametrize(
    "keys",
    [
        "fabric.topograph.run/tier-0 fabric.topograph.run/tier-1 fabric.topograph.run/tier-2",
        "network.topology.nvidia.com/tier-0 network.topology.nvidia.com/tier-1 network.topology.nvidia.com/tier-2",
        "network.topology.nvidia.com/leaf network.topology.nvidia.com/spine network.topology.nvidia.com/core",
        "network.topology.nvidia.com/block network.topology.nvidia.com/spine network.topology.nvidia.com/datacenter",
        "network.topology.kubernetes.io/block network.topology.kubernetes.io/spine "
        "network.topology.kubernetes.io/datacenter",
        "topology.kubernetes.io/network-level-1 topology.kubernetes.io/network-level-2 "
        "topology.kubernetes.io/network-level-3",
        "topology.k8s.aws/network-node-layer-3 topology.k8s.aws/network-node-layer-2 "
        "topology.k8s.aws/network-node-layer-1",
        "cloud.google.com/gce-topology-subblock cloud.google.com/gce-topology-block",
        "oci.oraclecloud.com/rdma.local_block_id oci.oraclecloud.com/rdma.network_block_id "
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "topology.nebius.com/tier-1 topology.nebius.com/tier-2 topology.nebius.com/tier-3",
        "backend.coreweave.cloud/leafgroup backend.coreweave.cloud/superpod backend.coreweave.cloud/fabric",
    ],
)
def test_every_scheme_is_read_from_the_leaf_up(keys: str) -> None:
    values = {key: f"v{tier}" for tier, key in enumerate(keys.split())}
    reading = read(make_node("n1", dict(reversed(values.items())) | {"kubernetes.io/hostname": "n1"}))
    assert one(reading).fabric == tuple(values.values())
    assert reading.findings == ()


def test_tiers_are_ordered_as_numbers() -> None:
    labels = {f"fabric.topograph.run/tier-{tier}": f"v{tier}" for tier in range(12)}
    assert one(read(make_node("n1", labels))).fabric == tuple(f"v{tier}" for tier in range(12))


def test_the_newest_generation_counts_unless_few_carry_it() -> None:
    new, old = "fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf"
    both = [make_node(f"n{index}", {new: "a", old: "a"}) for index in range(2)]
    assert read(*both).scheme.startswith("fabric.topograph.run")
    assert read(*both).findings == ()
    many = [make_node(f"m{index}", {old: "b"}) for index in range(2)]
    reading = read(*both, *many)
    assert set(paths(reading).values()) == {("a",), ("b",)}
    assert reading.scheme.startswith(old[:-4])
    lone = read(*many, make_node("x", {new: "a"}))
    assert labels(lone) == ["node-without-topology:x"]
    assert f"carries no label of {lone.scheme}" in lone.findings[0].text


def test_a_path_needs_every_label_below_its_top() -> None:
    leaf, spine, core = (f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))
    reading = read(
        make_node("n1", {leaf: "l", spine: "s", core: "c"}),
        make_node("n2", {leaf: "l", spine: "s"}),
        make_node("n3", {leaf: "l", core: "c"}),
        make_node("n4", {spine: "s", core: "c"}),
        make_node("n5", {leaf: "l", spine: "s", core: ""}),
        make_node("n6", {}),
    )
    assert paths(reading) == {
        "n1": ("l", "s", "c"),
        "n2": ("l", "s"),
        "n3": None,
        "n4": None,
        "n5": None,
        "n6": None,
    }
    expected = ["empty-label:n3", "empty-label:n4", "empty-label:n5", "node-without-topology:n6"]
    assert labels(reading) == [*expected, "leaf-with-two-parents:l", "ragged-depth"]


def test_a_placeholder_forms_no_block() -> None:
    key = "oci.oraclecloud.com/rdma.local_block_id"
    reading = read(*(make_node(f"n{index}", {key: "no-imds-data"}) for index in range(3)), make_node("n9", {key: "b"}))
    assert [name for name, path in paths(reading).items() if path] == ["n9"]
    assert labels(reading) == ["placeholder-label:no-imds-data"]
    assert "n[0-2]" in reading.findings[0].text


@pytest.mark.parametrize(
    ("more", "domain"),
    [
        ({}, None),
        ({"accelerator.topograph.run/domain": "d1", "nvidia.com/gpu.clique": "u.3"}, "d1"),
        ({"nvidia.com/gpu.clique": "u.3"}, "u.3"),
        ({"topology.k8s.aws/ultraserver-id": "us-1"}, "us-1"),
        ({"oci.oraclecloud.com/host.gpu_memory_fabric_id": "no-imds-data"}, None),
        ({"cloud.google.com/gke-accelerator": "nvidia-gb200"}, "sub"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, None),
    ],
)
def test_nvlink_domains(more: dict[str, str], domain: str | None) -> None:
    gke = {"cloud.google.com/gce-topology-subblock": "sub", "cloud.google.com/gce-topology-block": "b"}
    assert one(read(make_node("n1", gke | more))).accelerator_domain == domain


def test_gpus_of_all_vendors_and_slices() -> None:
    leaf = {"fabric.topograph.run/tier-0": "l"}
    amd = make_node("amd", leaf | {"amd.com/gpu.product-name": "MI300X"}, None)
    amd["status"]["allocatable"] = {"amd.com/gpu": 8}
    mixed_mig = make_node("mig", leaf, "4")
    mixed_mig["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "28"
    single_mig = make_node("sliced", leaf | {"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}, "56")
    reading = read(amd, mixed_mig, single_mig, make_node("cpu", leaf, None), make_node("odd", leaf, "many"))
    assert [(node.name, node.ngpus, node.gpu_model) for node in reading.nodes] == [
        ("amd", 8, "MI300X"),
        ("mig", 4, None),
        ("sliced", 0, None),
        ("cpu", 0, None),
        ("odd", 0, None),
    ]
    assert labels(reading) == ["mixed-gpu-count", "mig-sliced:mig", "mig-sliced:sliced", "no-gpu:cpu", "no-gpu:odd"]


def test_states() -> None:
    leaf = {"fabric.topograph.run/tier-0": "l"}
    taint = {"key": "team", "effect": "NoSchedule"}
    own = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    pressed = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    down = make_node("down", leaf, spec={"unschedulable": True})
    down["status"]["conditions"][0] |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
    silent = make_node("silent", leaf)
    silent["status"]["conditions"] = []
    pod = {"spec": {"nodeName": "busy", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    done = {"spec": pod["spec"] | {"nodeName": "free"}, "status": {"phase": "Succeeded"}}
    other = {"spec": {"nodeName": "free", "containers": [{"resources": {"requests": {"cpu": "1"}}}, {}]}}
    reading = read(
        make_node("free", leaf, spec={"taints": [*own, {"key": "soft", "effect": "PreferNoSchedule"}]}),
        make_node("busy", leaf),
        make_node("tainted", leaf, spec={"taints": [taint]}),
        make_node("pressed", leaf, spec={"taints": [pressed]}),
        make_node("told", leaf, status=None),
        make_node("cordoned", leaf, spec={"unschedulable": "true"}),
        down,
        silent,
        pods=[pod, done, other],
    )
    assert [node.state for node in reading.nodes] == [
        NodeState.IDLE,
        NodeState.ALLOCATED,
        NodeState.RESERVED,
        NodeState.RESERVED,
        None,
        NodeState.DRAINED,
        NodeState.DOWN,
        NodeState.DOWN,
    ]
    assert labels(reading) == [
        "node-tainted:tainted",
        "node-tainted:pressed",
        "node-cordoned:cordoned",
        "node-not-ready:down",
        "node-cordoned:down",
        "node-not-ready:silent",
    ]


def test_a_kueue_topology_says_which_labels_count() -> None:
    levels = [{"nodeLabel": key} for key in ("example.com/hall", "example.com/row", "kubernetes.io/hostname")]
    topology = {"metadata": {"name": "own"}, "spec": {"levels": levels}}
    own = {
        "example.com/hall": "h",
        "example.com/row": "r",
        "fabric.topograph.run/tier-0": "l",
        "kubernetes.io/hostname": "n",
    }
    reading = read(make_node("n1", own), levels=[topology])
    assert (one(reading).fabric, reading.scheme) == (("r", "h"), "Topology own")
    assert reading.findings == ()
    other = topology | {"metadata": {"name": "other"}}
    assert labels(read(make_node("n1", own), levels=[topology, other])) == ["several-topologies:2"]
    flat = topology | {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}
    assert labels(read(make_node("n1", own | {"7": "x"}), levels=[flat])) == ["node-without-topology:n1"]


def test_schemes_have_names_of_their_own() -> None:
    assert len({scheme.name for scheme in SCHEMES}) == len(SCHEMES)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"metadata": {}}, "f: items[0].metadata.name: found nothing; expected a name"),
        ({"metadata": {"name": "n", "labels": ["a"]}}, "f: items[0].metadata.labels: found a list; expected a table"),
        ({"metadata": {"name": "n"}, "spec": {"taints": "x"}}, 'f: items[0].spec.taints: found "x"; expected a list'),
    ],
)
def test_objects_of_another_shape_say_where(node: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(node)
    assert str(caught.value) == said


def hypernode(name: str, tier: int, *members: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    listed = [{"type": kind, "selector": selector} for kind, selector in members]
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}}


def exact(name: str) -> dict[str, Any]:
    return {"exactMatch": {"name": name}}


def hyper(*items: dict[str, Any], nodes: dict[str, dict[str, str]] | None = None) -> Reading:
    return parse_hypernodes(places(items), "f", nodes or {})


def test_hypernodes_select_by_name_pattern_and_labels() -> None:
    reading = hyper(
        hypernode("a", 1, ("Node", {"regexMatch": {"pattern": "^n[12]$"}})),
        hypernode("b", 1, ("Node", {"labelMatch": {"matchLabels": {"rack": "7"}}})),
        hypernode("top", 5, ("HyperNode", {"regexMatch": {"pattern": "^[ab]$"}}), ("HyperNode", exact("b"))),
        nodes={"n1": {}, "n2": {}, "n3": {"rack": "7"}, "n4": {}, "n12": {}},
    )
    expected: dict[str, tuple[str, ...] | None] = {"n1": ("a", "top"), "n2": ("a", "top"), "n3": ("b", "top")}
    assert paths(reading) == expected | {"n4": None, "n12": None}
    assert labels(reading) == ["node-without-topology:n4", "node-without-topology:n12"]


def test_hypernodes_that_select_nothing_are_told() -> None:
    reading = hyper(
        hypernode("a", 1, ("Node", exact("n1"))), hypernode("b", 1, ("Node", {"regexMatch": {"pattern": "n2"}}))
    )
    assert labels(reading) == ["empty-leaf:b"]


def test_doubtful_hypernodes_are_told() -> None:
    reading = hyper(
        hypernode("a", 1, ("Node", exact("n1")), ("Node", exact("n2"))),
        hypernode("b", 1, ("Node", exact("n2")), ("Node", exact("n3"))),
        hypernode("c", 2, ("HyperNode", exact("a"))),
        hypernode("d", 2, ("HyperNode", exact("a"))),
    )
    assert paths(reading) == {"n1": ("a", "d"), "n2": None, "n3": ("b",)}
    assert labels(reading) == ["multi-leaf-node:n2", "leaf-with-two-parents:a", "ragged-depth"]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([hypernode("a", 1, ("HyperNode", exact("z")))], 'name: found "z"; expected a HyperNode of these files'),
        ([hypernode("a", 1), hypernode("b", 1, ("HyperNode", exact("a")))], "b of tier 1 holds a of tier 1"),
        ([hypernode("a", 2, ("HyperNode", exact("a")))], "a of tier 2 holds a of tier 2"),
        ([hypernode("a", 1), hypernode("a", 2)], "HyperNode a is there twice"),
        ([hypernode("a", 1, ("Node", {"regexMatch": {"pattern": "(a+)+$"}}))], "expected a pattern without repeated"),
        ([hypernode("a", 1, ("Node", {"regexMatch": {"pattern": "a*a*a*a*b"}}))], "at most 3 of * and +"),
        ([hypernode("a", 1, ("Node", {"regexMatch": {"pattern": "["}}))], "expected a regular expression"),
        (
            [hypernode("a", 1, ("Node", {"labelMatch": {"matchLabels": {"a": "b"}, "matchExpressions": [{}]}}))],
            "labelMatch.matchExpressions: found a list; expected matchLabels alone",
        ),
        ([hypernode("a", 1, ("Node", {}))], "expected exactMatch, regexMatch or labelMatch"),
        ([{"metadata": {"name": "a"}, "spec": {"tier": "low"}}], 'spec.tier: found "low"; expected a tier such as 1'),
    ],
)
def test_wrong_hypernodes_are_refused(items: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        hyper(*items)


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers() | st.none() | st.booleans(), max_size=4)
)
def test_no_labels_end_in_anything_but_facts(labels: dict[str, Any]) -> None:
    keys = [key for scheme in SCHEMES for key in scheme.listed]
    crossed = dict(zip(keys, labels.values(), strict=False)) | labels
    assert one(read(make_node("n1", crossed))).name == "n1"


def test_yaml_and_json_are_read_alike() -> None:
    text = (
        "metadata:\n  name: n1\n  labels: {fabric.topograph.run/tier-0: '07', fabric.topograph.run/tier-1: no}\n"
        "spec: {unschedulable: true}\nstatus:\n  allocatable: {nvidia.com/gpu: 8}\n"
        "  conditions: [{type: Ready, status: 'True'}]\n"
    )
    (document,) = load_yaml(text, "f")
    node = one(read(document))
    assert (node.fabric, node.ngpus, node.state) == (("07", "no"), 8, NodeState.DRAINED)

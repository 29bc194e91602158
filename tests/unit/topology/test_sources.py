"""Which reader a file is for, and hostile names: whatever they hold, they stay data."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.merge import merge
from spanfit.topology.readers.cloud_graphs import parse_instance_topology, parse_topograph_graph
from spanfit.topology.readers.cluster_toml import parse_cluster, render_cluster
from spanfit.topology.readers.documents import load_json, load_yaml
from spanfit.topology.readers.host_devices import parse_nccl_xml, parse_topo_matrix
from spanfit.topology.readers.sources import read_sources
from spanfit.topology.reading import Finding, printable, shown

NODE = {"kind": "Node", "metadata": {"name": "n1", "labels": {"fabric.topograph.run/tier-0": "l0"}}}
HYPERNODE = {
    "kind": "HyperNode",
    "metadata": {"name": "h0"},
    "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "n."}}}]},
}
TOPOLOGY = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "own"}]}}
MATRIX = "\tGPU0\tGPU1\tmlx5_0\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\t0\nGPU1\tNV4\t X \tSYS\t1\n\nLegend:\n"


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a", '# c\n\nname = "c"\n[[nodes]]\nnames = "n1"\nswitches = ["l"]\n', "cluster-toml"),
        ("a.conf", "SwitchName=l Nodes=n1", "slurm-topology-conf"),
        ("a", "  blockname=l Nodes=n1", "slurm-topology-conf"),
        ("a", "SwitchName=l Level=0 LinkSpeed=1 Nodes=n1", "scontrol-show-topology"),
        ("a", "BlockName=l BlockIndex=0 Nodes=n1 BlockSize=1", "scontrol-show-topology"),
        ("a", "NodeName=n1 State=IDLE ThreadsPerCore=1", "scontrol-show-nodes"),
        ("a", "ReservationName=r StartTime=x EndTime=y Nodes=n1", "scontrol-show-reservation"),
        ("a", "NODELIST   STATE\nn1 idle", "sinfo"),
        ("a", "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\np up 1 1 idle n1", "sinfo"),
        ("a", "- topology: t\n  tree: {switches: [{switch: l, nodes: n1}]}", "slurm-topology-yaml"),
        ("a.json", {"nodes": [{"name": "n1", "state": ["IDLE"]}]}, "slurm-nodes-json"),
        ("a.json", {"sinfo": []}, "sinfo-json"),
        ("a.json", {"reservations": []}, "scontrol-show-reservation"),
        ("a.json", NODE, "k8s-nodes"),
        ("a.json", {"kind": "List", "items": [NODE, {"kind": "Secret"}]}, "k8s-nodes"),
        ("a.json", {"kind": "NodeList", "items": [{"metadata": NODE["metadata"]}]}, "k8s-nodes"),
        ("a.json", [NODE], "k8s-nodes"),
        ("a.yml", "kind: Node\nmetadata: {name: n1}\n", "k8s-nodes"),
        ("a", "apiVersion: v1\nitems:\n- kind: Node\n  metadata: {name: n1}\nkind: List\n", "k8s-nodes"),
        ("a.json", HYPERNODE, "volcano-hypernode"),
        ("a.json", {"instances": [{"id": "n1", "network_layers": ["l"]}]}, "topograph-graph"),
        ("a.json", {"Instances": []}, "aws-instance-topology"),
        ("a.json", [{"system_name": "n1", "peer_node_name": "l", "description": "Computer IB Port"}], "ufm-ports"),
        ("a.json", {"lldp": {}}, "lldpctl-json"),
        ("a.json", {"n1": {"lldp": {}}}, "lldpctl-json"),
        ("a", 'Switch: 0x1 l:\n  1 1[  ] ==( 4X )==>  2 1[  ] "n1 mlx5_0" ( )\n', "iblinkinfo"),
        ("a", "CA 1 1 0xa 4x NDR - SW 2 1 0xb ( 'n1 mlx5_0' - 'l' )\n", "ibnetdiscover"),
        ("a", '\n<system version="1"/>', "nccl-topo-xml"),
        ("a", MATRIX, "nvidia-smi-topo"),
    ],
)
def test_the_content_tells_the_format(tmp_path: Path, name: str, content: object, kind: str) -> None:
    (reading,) = read_sources([write(tmp_path, name, content)], 0.0)
    assert reading.kind == kind


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "{}", "found no keys of a source that is known"),
        ("a.json", {"kind": "List", "items": [{"kind": "Secret"}]}, "found no keys of a source that is known"),
        ("a.json", TOPOLOGY, "found no Node; expected kubectl get nodes -o json beside"),
        ("a.json", '{"nodes": [{"name": "\\ud800", "state": []}]}', "half of a surrogate pair"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.yaml", "a:\n- [\n", "line 3: not valid YAML"),
        ("a.yaml", "a: !!python/object/apply:os.system [true]\n", "found no keys of a source"),
        ("a.yaml", "- topology: a\n  flat: true\n---\n- topology: b\n  flat: true\n", "found 2 YAML documents"),
        ("a", "<!DOCTYPE a [<!ENTITY b 'c'>]><system>&b;</system>", "found a document type"),
        ("a", "<other/>", "found <other>; expected a <system> element"),
        ("a", "<system>", "not valid XML"),
        ("a", "\tGPU0\tGPU1\nGPU0\t X \n", "found no full row for each GPU"),
    ],
)
def test_what_no_reader_takes_is_refused(tmp_path: Path, name: str, content: object, said: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(ConfigError) as caught:
        read_sources([path], 0.0)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_kubernetes_objects_of_several_files_are_one_source(tmp_path: Path) -> None:
    nodes = write(tmp_path, "nodes.json", NODE | {"metadata": {"name": "n1", "labels": {"own": "rack"}}})
    others = [write(tmp_path, "topology.json", TOPOLOGY), write(tmp_path, "hyper.json", HYPERNODE)]
    hyper, read = read_sources([nodes, *others], 0.0)
    assert [node.fabric for node in hyper.nodes] == [("h0",)]
    assert [node.fabric for node in read.nodes] == [("rack",)]
    assert set(read.origin.split(", ")) == {str(path) for path in (nodes, *others)}
    conf = write(tmp_path, "topology.conf", "SwitchName=l Nodes=n1")
    kinds = [[one.kind for one in read_sources(paths, 0.0)] for paths in ([conf, nodes], [nodes, conf, others[0]])]
    assert kinds == [["slurm-topology-conf", "k8s-nodes"], ["k8s-nodes", "slurm-topology-conf"]]


def test_a_list_that_is_cut_is_told(tmp_path: Path) -> None:
    item = {"metadata": {"name": "n1", "labels": {"topology.nebius.com/tier-1": "l"}}}
    cut = {"kind": "NodeList", "items": [item], "metadata": {"continue": "token", "remainingItemCount": 499}}
    paths = [write(tmp_path, "whole.json", cut | {"metadata": {}}), write(tmp_path, "cut.json", cut)]
    (reading,) = read_sources(paths, 0.0)
    assert reading.findings[0].code == "truncated"
    assert reading.findings[0].text.startswith(f"{paths[1]}: the list is cut, the API server has 499 more")
    (reading,) = read_sources(paths[:1], 0.0)
    assert "truncated" not in {finding.code for finding in reading.findings}


def test_lldp_of_several_files_is_one_source(tmp_path: Path) -> None:
    def heard(*switches: str) -> dict[str, Any]:
        return {"lldp": {"interface": [{"eth0": {"chassis": {switch: {}}}} for switch in switches]}}

    listed = {"n1": heard("l0", "l1"), "n2": heard("l0"), "n3": heard("l2")}
    (reading,) = read_sources([write(tmp_path, f"{name}.json", content) for name, content in listed.items()], 0.0)
    assert [(node.name, node.fabric) for node in reading.nodes] == [
        ("n1", ("l0+l1",)),
        ("n2", ("l0+l1",)),
        ("n3", ("l2",)),
    ]
    assert [finding.label for finding in reading.findings] == ["multi-homed:n1"]


def test_layers_of_clouds_have_their_own_order() -> None:
    aws = {"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["top", "mid", "leaf"]}, {"InstanceId": "i-2"}]}
    first, second = parse_instance_topology(aws, "f").nodes
    assert (first.fabric, second.fabric) == (("leaf", "mid", "top"), None)
    graph = {"instances": [{"id": "a", "network_layers": ["leaf", "top"], "labels": {"nvidia.com/gpu.clique": "u.1"}}]}
    (node,) = parse_topograph_graph(graph, "f").nodes
    assert (node.fabric, node.accelerator_domain) == (("leaf", "top"), "u.1")
    older = {"instances": [{"id": "a", "network_layers": ["leaf"], "attributes": {"nvlink": "nvl1"}}]}
    assert parse_topograph_graph(older, "f").nodes[0].accelerator_domain == "nvl1"
    assert [one.label for one in parse_topograph_graph({"instances": [{"id": "b"}]}, "f").findings] == [
        "node-without-topology:b"
    ]


def test_rails_of_a_host() -> None:
    host = parse_topo_matrix(MATRIX, "f").host
    assert host is not None
    assert host.closest_nics == (("GPU0", ("mlx5_0",)), ("GPU1", ("mlx5_0",)))
    assert (host.numa, host.is_nvlink_full) == ((("0", ("GPU0",)), ("1", ("GPU1",))), True)
    coloured = MATRIX.replace("\tGPU0\t", "\t\x1b[4mGPU0\t", 1).replace("Affinity", "Affinity\x1b[0m", 1)
    assert parse_topo_matrix(coloured, "f").host == host
    xml = (
        '<system><!-- c --><cpu numaid="1"><pci busid="a"><pci busid="b"><gpu dev="0"><nvlink target="x" count="4" '
        'tclass="0x030200"/></gpu></pci><pci busid="c"><nic><net name="near"/></nic></pci></pci>'
        '<pci busid="d"><gpu dev="1"/><nic><net name="far"/></nic></pci></cpu></system>'
    )
    host = parse_nccl_xml(xml, "f").host
    assert host is not None
    assert host.closest_nics == (("GPU0", ("near",)), ("GPU1", ("far",)))
    assert (host.numa, host.has_nvlink, host.is_nvlink_full) == ((("1", ("GPU0", "GPU1")),), True, False)


HOSTILE = [
    "$(touch /tmp/x)",
    "`id`",
    "'; rm -rf / #",
    '"; drop',
    "a\nb",
    "\x1b[2J\x07",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "[bold]x[/bold]",
    "../../etc/passwd",
    "é" * 40,
    "x" * 65_536,
    "\u202egnp.exe",
    "null",
    "- a: b",
]


def hostile_sources(folder: Path, name: str) -> list[Path]:
    labels = {"fabric.topograph.run/tier-0": name, "fabric.topograph.run/tier-1": "top"}
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    port = {"system_name": "n1", "peer_node_name": name, "description": "Computer IB Port"}
    return [
        write(
            folder, "k8s.json", {"kind": "List", "items": [node, NODE | {"metadata": {"name": name, "labels": labels}}]}
        ),
        write(folder, "graph.json", {"instances": [{"id": "n1", "network_layers": [name, "top"]}, {"id": name}]}),
        write(
            folder, "ufm.json", [port, {"system_name": "n2", "peer_node_name": "l", "description": "Computer IB Port"}]
        ),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_data(tmp_path: Path, name: str) -> None:
    for path in hostile_sources(tmp_path, name):
        found = merge(read_sources([path], 0.0), "c")
        (node,) = (node for node in found.cluster.nodes if node.name == "n1")
        assert node.fabric[0] == name
        text = render_cluster(found.cluster)
        assert tomllib.loads(text)["nodes"][0]["switches"][0] == name
        assert parse_cluster(text, "f") == found.cluster
        assert all(str(finding).isprintable() and len(str(finding)) < 1000 for finding in found.findings)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a", "SwitchName=\x1b[2J Nodes=n[1\n"),
        ("a", "SwitchName=l Nodes=n1 \x1b[2J=x\n"),
        ("a", "NodeName=\x1b[2J Arch=x\n"),
        ("a", "<a\u202e/>"),
        ("a.json", {"\x1b[2J": {"lldp": 3}}),
        ("a.json", {"kind": "HyperNode", "metadata": {"name": "\x1b[2J"}, "spec": {"tier": "\x1b[2J"}}),
        ("a.yaml", '- topology: "\\e[2J"\n  ring: {}\n'),
    ],
)
def test_messages_move_no_cursor(tmp_path: Path, name: str, content: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read_sources([write(tmp_path, name, content)], 0.0)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@given(st.text(max_size=200))
def test_whatever_is_shown_is_one_short_printable_line(text: str) -> None:
    assert printable(text).isprintable()
    assert shown(text).isprintable()
    assert len(shown(text)) <= 80
    assert str(Finding(code="c", text=text)).isprintable()


@given(st.text(max_size=60))
def test_no_text_ends_in_anything_but_documents_or_a_message(text: str) -> None:
    def load(reader: Any) -> None:
        try:
            reader(text, "f")
        except ConfigError as error:
            assert str(error).startswith("f: ")

    load(load_json)
    load(load_yaml)
    load(parse_topo_matrix)
    load(parse_nccl_xml)


@given(st.text(st.sampled_from("SwitchNameBlock=s0l1,[]- \n\\#\"'NodesLevel\t(){}:"), max_size=80))
def test_no_lines_end_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_text(text)
    try:
        assert read_sources([path], 0.0)
    except ConfigError as error:
        assert str(error).startswith(f"{path}: ")

"""How long a cluster of 12,500 nodes takes to read from each source that spanfit knows, and how much memory.

One fabric (leaves of 32 nodes, minipods of 16 leaves, one core; eight rails where a format shows them) is written in
every format, nodes of Kubernetes as long as a real API server gives them. Each file is read and made into a cluster in
a process of its own: the seconds are from the path to the cluster, the memory is the peak of the whole process. The
tree that was read is compared with the one that was written, whatever its switches are called.

Example: benchmarks/readers.py --quick
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time

from rich.console import Console
from rich.table import Table

from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.merge import crossing, merge
from spanfit.topology.model import Cluster, Node
from spanfit.topology.readers.cluster_toml import render_cluster
from spanfit.topology.readers.sources import read_sources

FULL_NODES = 12_500
QUICK_NODES = 1_250
NODES_PER_LEAF = 32
LEAVES_PER_MINIPOD = 16
RAILS = 8
TEXT_LIMIT_S = 2.0
JSON_LIMIT_S = 5.0
LIMIT_MB = 1_000


def make_cluster(nnodes: int) -> Cluster:
    """Return the cluster that all formats describe."""
    nodes = []
    for index in range(nnodes):
        leaf = index // NODES_PER_LEAF
        minipod = leaf // LEAVES_PER_MINIPOD
        fabric = (f"l{leaf}", f"m{minipod}", "core")
        nodes.append(Node(name=f"n{index:05}", fabric=fabric, ngpus=8, gpu_model="H100"))
    return Cluster(name="c", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def leaves(cluster: Cluster) -> dict[tuple[str, ...], list[str]]:
    """Return the names of the nodes below each leaf."""
    found: dict[tuple[str, ...], list[str]] = {}
    for node in cluster.nodes:
        found.setdefault(node.fabric, []).append(node.name)
    return found


def children(cluster: Cluster) -> dict[str, list[str]]:
    """Return the switches below each switch above the leaves."""
    found: dict[str, dict[str, None]] = {}
    for leaf, minipod, core in leaves(cluster):
        found.setdefault(minipod, {})[leaf] = None
        found.setdefault(core, {})[minipod] = None
    return {switch: list(below) for switch, below in found.items()}


def topology_conf(cluster: Cluster) -> Iterator[str]:
    """Give the lines of topology/tree."""
    for path, names in leaves(cluster).items():
        yield f"SwitchName={path[0]} Nodes={fold_hostlist(names)}"
    for switch, below in children(cluster).items():
        yield f"SwitchName={switch} Switches={fold_hostlist(below)}"


def block_conf(cluster: Cluster) -> Iterator[str]:
    """Give the lines of topology/block, blocks as leaves."""
    for path, names in leaves(cluster).items():
        yield f"BlockName={path[0]} Nodes={fold_hostlist(names)}"
    yield f"BlockSizes={NODES_PER_LEAF},{NODES_PER_LEAF * LEAVES_PER_MINIPOD}"


def topology_yaml(cluster: Cluster) -> Iterator[str]:
    """Give the lines of a topology.yaml."""
    yield from ("- topology: default", "  cluster_default: true", "  tree:", "    switches:")
    for path, names in leaves(cluster).items():
        yield from (f"      - switch: {path[0]}", f"        nodes: {fold_hostlist(names)}")
    for switch, below in children(cluster).items():
        yield from (f"      - switch: {switch}", f"        children: {fold_hostlist(below)}")


def show_topology(cluster: Cluster) -> Iterator[str]:
    """Give the lines of scontrol show topology."""
    for path, names in leaves(cluster).items():
        yield f"SwitchName={path[0]} Level=0 LinkSpeed=1 Nodes={fold_hostlist(names)}"
    for switch, below in children(cluster).items():
        nodes = fold_hostlist(node.name for node in cluster.nodes if switch in node.fabric)
        level = 2 if switch == "core" else 1
        yield f"SwitchName={switch} Level={level} LinkSpeed=1 Nodes={nodes} Switches={fold_hostlist(below)}"


def show_nodes(cluster: Cluster) -> Iterator[str]:
    """Give the lines of scontrol -o show nodes."""
    for node in cluster.nodes:
        yield (
            f"NodeName={node.name} Arch=x86_64 CoresPerSocket=56  CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.31 "
            "AvailableFeatures=h100,ib,nvme ActiveFeatures=h100,ib,nvme Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.1 "
            f"NodeHostName={node.name} Port=0 Version=24.05.4 OS=Linux 6.1.0-99-server #1 SMP PREEMPT_DYNAMIC @0  "
            "RealMemory=2000000 AllocMem=0 FreeMem=1800000 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=2 TmpDisk=0 "
            "Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug  BootTime=2026-11-30T02:17:16 "
            "SlurmdStartTime=2026-11-30T02:31:45 LastBusyTime=2026-11-30T02:41:40 CfgTRES=cpu=224,mem=2000000M,"
            "billing=224,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
            "ExtSensorsWatts=0 ExtSensorsTemp=n/s"
        )


def nodes_json(cluster: Cluster) -> Iterator[str]:
    """Give scontrol show nodes --json."""
    numbers = {f"some_number_{index}": {"set": True, "infinite": False, "number": 1_758_266_697} for index in range(8)}
    filler = {f"some_field_{index}": "a value of usual length" for index in range(40)}
    nodes = [
        numbers
        | filler
        | {
            "name": node.name,
            "hostname": node.name,
            "state": ["IDLE"],
            "gres": "gpu:h100:8(S:0-1)",
            "partitions": ["gpu", "debug"],
            "reason": "",
            "topology": f"default:{':'.join(reversed(node.fabric))}",
        }
        for node in cluster.nodes
    ]
    yield json.dumps({"nodes": nodes, "errors": [], "warnings": []}, indent=1)


def sinfo(cluster: Cluster) -> Iterator[str]:
    """Give the lines of sinfo -N with GRES, a node once in each of two partitions."""
    yield "NODELIST NODES PARTITION STATE GRES REASON"
    for node in cluster.nodes:
        for partition in ("gpu*", "debug"):
            yield f"{node.name} 1 {partition} idle gpu:h100:8(S:0-1) none"


def sinfo_json(cluster: Cluster) -> Iterator[str]:
    """Give sinfo --json, a row for each node and partition."""
    rows = [
        {
            "node": {"state": ["IDLE"]},
            "nodes": {"nodes": [node.name], "total": 1, "idle": 1, "allocated": 0, "other": 0},
            "partition": {"name": partition},
            "gres": {"total": "gpu:h100:8", "used": "gpu:h100:0(IDX:N/A)"},
            "reason": {"time": 0, "description": "", "user": ""},
        }
        for node in cluster.nodes
        for partition in ("gpu", "debug")
    ]
    yield json.dumps({"sinfo": rows})


def kubernetes_node(node: Node) -> dict[str, object]:
    """Return a Node object of about 9 kB, as nodes with many images and annotations have."""
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{index}": "true" for index in range(60)}
    tiers = dict(zip(("local_block_id", "network_block_id", "hpc_island_id"), node.fabric, strict=True))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": labels
            | {f"oci.oraclecloud.com/rdma.{key}": value for key, value in tiers.items()}
            | {"kubernetes.io/hostname": node.name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "annotations": {f"example.com/annotation-{index}": "v" * 60 for index in range(10)},
        },
        "spec": {"providerID": f"oci://{node.name}"},
        "status": {
            "allocatable": {"cpu": "190", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "reason": "Kubelet",
                    "message": "m" * 40,
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {"names": [f"registry.example.com/team/image-{index}@sha256:{'0' * 64}"], "sizeBytes": 10**9}
                for index in range(25)
            ],
        },
    }


def kubernetes_json(cluster: Cluster) -> Iterator[str]:
    """Give kubectl get nodes -o json."""
    items = [kubernetes_node(node) for node in cluster.nodes]
    yield json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def hypernodes(cluster: Cluster) -> Iterator[str]:
    """Give the lines of HyperNodes in YAML."""
    for path, names in leaves(cluster).items():
        yield from hypernode(path[0], 1, "Node", names)
    for switch, below in children(cluster).items():
        yield from hypernode(switch, 3 if switch == "core" else 2, "HyperNode", below)


def hypernode(name: str, tier: int, kind: str, members: list[str]) -> Iterator[str]:
    """Give the lines of one HyperNode."""
    yield from ("---", "apiVersion: topology.volcano.sh/v1alpha1", "kind: HyperNode", "metadata:", f"  name: {name}")
    yield from ("spec:", f"  tier: {tier}", "  members:")
    for member in members:
        yield from (f"  - type: {kind}", "    selector:", "      exactMatch:", f"        name: {member}")


def topograph(cluster: Cluster) -> Iterator[str]:
    """Give topograph's graph."""
    yield json.dumps({"instances": [{"id": node.name, "network_layers": node.fabric} for node in cluster.nodes]})


def aws(cluster: Cluster) -> Iterator[str]:
    """Give describe-instance-topology."""
    yield json.dumps(
        {"Instances": [{"InstanceId": node.name, "NetworkNodes": node.fabric[::-1]} for node in cluster.nodes]}
    )


def rail_leaf(node: Node, rail: int) -> str:
    """Return the leaf of a rail."""
    return f"{node.fabric[0]}-r{rail}"


def spines(cluster: Cluster) -> dict[str, list[str]]:
    """Return the rail leaves below each spine; a minipod has one spine a rail, joined by eight cores."""
    found: dict[str, list[str]] = {}
    for leaf, minipod, _ in leaves(cluster):
        for rail in range(RAILS):
            found.setdefault(f"{minipod}-s{rail}", []).append(f"{leaf}-r{rail}")
    return found


def rail_links(cluster: Cluster) -> dict[str, list[tuple[str, bool]]]:
    """Return what is plugged into each switch: devices (True) and switches."""
    links: dict[str, list[tuple[str, bool]]] = {}
    for node in cluster.nodes:
        for rail in range(RAILS):
            links.setdefault(rail_leaf(node, rail), []).append((f"{node.name} mlx5_{rail}", True))
    for spine, below in spines(cluster).items():
        core = f"core-{spine.rpartition('-s')[2]}"
        for one, two in [*((leaf, spine) for leaf in below), (spine, core)]:
            links.setdefault(one, []).append((two, False))
            links.setdefault(two, []).append((one, False))
    return links


def ibnetdiscover(cluster: Cluster) -> Iterator[str]:
    """Give the lines of ibnetdiscover, blocks of switches and of devices."""
    links = rail_links(cluster)
    guids = {name: f"{index:016x}" for index, name in enumerate(links, 1)}
    yield "# Topology file: generated on Mon Nov 30 02:44:07 2026"
    for switch, ports in links.items():
        guid = guids[switch]
        yield from ("", "vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid}", f"switchguid=0x{guid}({guid})")
        yield f'Switch\t65 "S-{guid}"\t\t# "MF0;{switch}:MQM9700/U1" enhanced port 0 lid 69 lmc 0'
        for port, (peer, is_device) in enumerate(ports, 1):
            peer_guid = guids.setdefault(peer, f"{len(guids) + 1:016x}")
            if is_device:
                yield f'[{port}]\t"H-{peer_guid}"[1]({peer_guid}) \t\t# "{peer}" lid 615 4xNDR'
            else:
                yield f'[{port}]\t"S-{peer_guid}"[27]\t\t# "MF0;{peer}:MQM9700/U1" lid 236 4xNDR'
    for switch, ports in links.items():
        for port, (peer, is_device) in enumerate(ports, 1):
            if is_device:
                guid = guids[peer]
                yield from ("", "vendid=0x2c9", "devid=0x1021", f"sysimgguid=0x{guid}", f"caguid=0x{guid}")
                yield f'Ca\t1 "H-{guid}"\t\t# "{peer}"'
                link = f'[1]({guid}) \t"S-{guids[switch]}"[{port}]\t\t# lid 1 lmc 0'
                yield f'{link} "MF0;{switch}:MQM9700/U1" lid 69 4xNDR'


def iblinkinfo(cluster: Cluster) -> Iterator[str]:
    """Give the lines of iblinkinfo, heads and links of devices and of switches."""
    up = "==( 4X        106.25 Gbps Active/  LinkUp)==>"
    for index, (switch, ports) in enumerate(rail_links(cluster).items()):
        for port, (peer, is_device) in enumerate(ports, 1):
            if is_device:
                yield f"CA: {peer}:"
                yield f'      0x{port:016x}      9    1[  ] {up}      69 {port:4}[  ] "MF0;{switch}:MQM9700/U1" ( )'
        yield f"Switch: 0x{index:016x} MF0;{switch}:MQM9700/U1:"
        for port, (peer, is_device) in enumerate(ports, 1):
            name = peer if is_device else f"MF0;{peer}:MQM9700/U1"
            yield f'          69 {port:4}[  ] {up}       9    1[  ] "{name}" ( )'


def ufm(cluster: Cluster) -> Iterator[str]:
    """Give UFM's ports."""
    rows = []
    for switch, ports in rail_links(cluster).items():
        for peer, is_device in ports:
            host = peer.partition(" ")[0]
            row = {"system_name": host, "peer_node_name": switch, "description": "Computer IB Port", "tier": 1}
            other = {"system_name": switch, "peer_node_name": peer, "description": "Switch IB Port", "tier": 2}
            rows.append(row if is_device else other)
    yield json.dumps(rows)


def lldp(cluster: Cluster) -> Iterator[str]:
    """Give lldpctl's JSON of all hosts; it shows no switch above the leaves."""
    hosts = {
        node.name: {
            "lldp": {
                "interface": [
                    {
                        f"eth{rail}": {
                            "chassis": {rail_leaf(node, rail): {"id": {"type": "mac"}}},
                            "port": {"ttl": "120"},
                        }
                    }
                    for rail in range(RAILS)
                ]
            }
        }
        for node in cluster.nodes
    }
    yield json.dumps(hosts)


def cluster_toml(cluster: Cluster) -> Iterator[str]:
    """Give spanfit's own file."""
    yield render_cluster(cluster)


FORMATS: dict[str, Callable[[Cluster], Iterator[str]]] = {
    "cluster.toml": cluster_toml,
    "topology.conf": topology_conf,
    "block.conf": block_conf,
    "topology.yaml": topology_yaml,
    "show_topology.txt": show_topology,
    "show_nodes.txt": show_nodes,
    "sinfo.txt": sinfo,
    "nodes.json": nodes_json,
    "sinfo.json": sinfo_json,
    "kubernetes.json": kubernetes_json,
    "hypernodes.yaml": hypernodes,
    "topograph.json": topograph,
    "aws.json": aws,
    "ibnetdiscover.txt": ibnetdiscover,
    "iblinkinfo.txt": iblinkinfo,
    "ufm.json": ufm,
    "lldp.json": lldp,
}
STATES_ONLY = ("show_nodes.txt", "sinfo.txt", "sinfo.json")
"""Sources that give no places: read beside topology.conf."""


def peak_bytes() -> int:
    """Return the largest size of this process; getrusage would give that of the parent before its start too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def read(path: Path, nnodes: int) -> dict[str, float | int]:
    """Return the seconds, the peak memory and how many nodes were read wrongly."""
    started, started_cpu = perf_counter(), process_time()
    beside = [path.with_name("topology.conf")] if path.name in STATES_ONLY else []
    cluster = merge(read_sources([path, *beside], 0.0), "c").cluster
    seconds, cpu_seconds = perf_counter() - started, process_time() - started_cpu
    peak_mb = peak_bytes() / 1e6
    truth = {node.name: node.fabric for node in make_cluster(nnodes).nodes}
    found = {node.name: node.fabric for node in cluster.nodes}
    missing = set(truth) ^ set(found)
    wrong = missing or crossing({name: truth[name] for name in found}, found)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peak_mb, "wrong": len(wrong)}


def main() -> None:
    """Write every format, read each in a process of its own, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_NODES} nodes instead of {FULL_NODES}")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help="without effect: nothing is drawn")
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read(Path(arguments.read[0]), int(arguments.read[1]))))
        return
    nnodes = QUICK_NODES if arguments.quick else FULL_NODES
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster = make_cluster(nnodes)
        for name, lines in FORMATS.items():
            (Path(folder) / name).write_text("\n".join(lines(cluster)) + "\n")
        for name in FORMATS:
            path = Path(folder) / name
            command = [sys.executable, __file__, "--read", str(path), str(nnodes)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows[name] = json.loads(done.stdout) | {"size_mb": path.stat().st_size / 1e6}
    report(rows, nnodes)


def report(rows: dict[str, dict[str, float]], nnodes: int) -> None:
    """Print the table, then the figures as one line of JSON."""
    table = Table(title=f"{nnodes} nodes", title_justify="left")
    for column in ("source", "MB", "seconds", "of processor", "limit", "peak MB", "wrong nodes"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for name, row in rows.items():
        limit_s = JSON_LIMIT_S if name.endswith(".json") else TEXT_LIMIT_S
        cells = (
            f"{row['size_mb']:.1f}",
            f"{row['seconds']:.2f}",
            f"{row['cpu_seconds']:.2f}",
            f"{limit_s:.0f}",
            f"{row['peak_mb']:.0f}",
        )
        table.add_row(name, *cells, str(row["wrong"]))
    Console(width=100).print(table)
    texts = [row["seconds"] for name, row in rows.items() if not name.endswith(".json")]
    documents = [row["seconds"] for name, row in rows.items() if name.endswith(".json")]
    figures = {
        "benchmark": "readers",
        "nodes": nnodes,
        "seconds_max": max(texts),
        "seconds_max_json": max(documents),
        "cpu_seconds_max": max(row["cpu_seconds"] for row in rows.values()),
        "peak_mb": max(row["peak_mb"] for row in rows.values()),
        "wrong_nodes": sum(row["wrong"] for row in rows.values()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Every sample of the shared corpus gives the tree, the states and the codes that it says."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from spanfit.errors import ConfigError
from spanfit.topology.merge import merge
from spanfit.topology.model import NodeState
from spanfit.topology.readers.documents import Place, load_yaml
from spanfit.topology.readers.slurm_blocks import Blocks
from spanfit.topology.readers.slurm_topology import parse_blocks
from spanfit.topology.readers.slurm_yaml import yaml_blocks
from spanfit.topology.readers.sources import read_sources
from spanfit.topology.reading import PLACEHOLDERS, HostDevices, NodeFacts, Reading

FOLDER = Path(os.environ.get("SPANFIT_SHARED", Path(__file__).parents[4] / "shared")) / "data/topology/dev"
SUFFIX = ".expected.json"
# hostlists are tested beside their reader
SAMPLES = sorted(
    path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}") if not path.name.startswith("nasty_hostlists")
)
BLOCK_KEYS = {"blocks", "block_sizes", "block_order", "aggregates"}
HANDLED = BLOCK_KEYS | {
    "file",
    "format",
    "origin",
    "note",
    "slurm",
    "shape",  # told by the reader that is chosen
    "plugin",
    "label_scheme",
    "tier_names",
    "nodes",
    "roots",
    "unplaced",
    "node_leaves",
    "leaf_groups",
    "leaf_groups_strict",
    "spine_groups",
    "minipods",
    "cores",
    "components",
    "unnamed_hcas",
    "ignored_cas",
    "topologies",
    "default",
    "other",
    "reservations",
    "gpus",
    "nics",
    "nic_ports",
    "nvlink",
    "nvlink_all_to_all",
    "closest_nic",
    "numa",
    "warnings",
    "error",
}


@pytest.mark.corpus
def test_the_corpus_is_whole() -> None:
    if not FOLDER.exists():
        pytest.skip(f"no folder {FOLDER}; set SPANFIT_SHARED to where the larger inputs are")
    assert len(SAMPLES) >= 29


@pytest.mark.corpus
@pytest.mark.parametrize("name", SAMPLES)
def test_corpus(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}{SUFFIX}").read_text())
    assert set(expected) <= HANDLED, "the corpus says something that no check below reads"
    if expected["error"]:
        with pytest.raises(ConfigError, match=expected["error"]):
            read_sources([FOLDER / name], 0.0)
        return
    (reading,) = read_sources([FOLDER / name], 0.0)
    assert reading.kind == expected["format"]
    assert sorted(finding.label for finding in reading.findings) == sorted(expected["warnings"])
    check_scheme(reading, expected)
    check_nodes({node.name: node for node in reading.nodes}, expected)
    check_groups(reading, expected)
    check_blocks(FOLDER / name, expected)
    check_reservations(reading, expected)
    check_host(reading.host, expected)
    check_merged(reading)


def check_scheme(reading: Reading, expected: dict[str, Any]) -> None:
    scheme = reading.scheme
    if "label_scheme" in expected:  # the corpus names the keys that are used, spanfit those that it knows
        assert scheme.startswith(expected["label_scheme"].rstrip("*").partition("}")[0])
    assert expected.get("plugin", scheme) == scheme
    assert expected.get("default", scheme) == scheme
    assert tuple(expected.get("topologies", reading.topologies)) == reading.topologies


def check_nodes(found: dict[str, NodeFacts], expected: dict[str, Any]) -> None:
    for name, wanted in expected.get("nodes", {}).items():
        node = found[name]
        told: dict[str, object] = {
            "tiers": list(node.fabric) if node.fabric else None,
            "leaves": list(node.leaves),
            "leaf_group": list(node.leaves),
            "gpus": node.ngpus,
            "gpu_types": dict(node.gpus or ()),
            "state": list(node.words),
            "schedulable": node.state is NodeState.IDLE,
            "reason": node.reason,
            "other": dict(node.other),
        }
        assert {key: told[key] for key in wanted} == wanted, name
    if "nodes" in expected and "blocks" not in expected:
        assert set(found) == set(expected["nodes"]) | set(expected.get("unplaced", ()))
    unplaced = [name for name, node in found.items() if node.fabric is None]
    if "unplaced" in expected:
        assert unplaced == expected["unplaced"]
    for name, leaves in expected.get("node_leaves", {}).items():
        assert list(found[name].leaves) == leaves


def groups(reading: Reading, tier: int) -> list[list[str]]:
    """Return the switches merged at a tier, sorted."""
    names = {node.fabric[tier] for node in reading.nodes if node.fabric}
    return sorted(name.split("+") for name in names)


def check_groups(reading: Reading, expected: dict[str, Any]) -> None:
    wanted = {"leaf_groups": 0, "spine_groups": 1, "cores": 2}
    for key, tier in wanted.items():
        if key in expected:
            assert groups(reading, tier) == sorted(expected[key])
    members: dict[tuple[str, ...], list[str]] = {}
    for node in reading.nodes:
        if node.fabric:
            members.setdefault(node.fabric[1:2], []).append(node.name)
    for minipod in expected.get("minipods", ()):
        assert members["+".join(minipod["spines"]),] == minipod["nodes"]
    if "roots" in expected:
        assert sorted({node.fabric[-1] for node in reading.nodes if node.fabric}) == expected["roots"]
    if "components" in expected:
        by_leaf: dict[tuple[str, ...] | None, list[str]] = {}
        for node in reading.nodes:
            by_leaf.setdefault(node.fabric, []).append(node.name)
        assert sorted(by_leaf.values()) == expected["components"]
    if "tier_names" in expected:
        assert {len(node.fabric) for node in reading.nodes if node.fabric} == {len(expected["tier_names"])}
    unnamed = " ".join(finding.text for finding in reading.findings if finding.code == "unnamed-hca")
    assert all(guid in unnamed for guid in expected.get("unnamed_hcas", ()))
    assert not any(name in {node.name for node in reading.nodes} for name in expected.get("ignored_cas", ()))
    if "leaf_groups_strict" in expected:  # the trap: what exact grouping would give
        assert sorted(expected["leaf_groups_strict"]) != groups(reading, 0)


def check_blocks(path: Path, expected: dict[str, Any]) -> None:
    if "blocks" in expected:
        compare_blocks(parse_blocks(path.read_text(), "f"), expected)
    for name, other in expected.get("other", {}).items():
        (document,) = load_yaml(path.read_text(), "f")
        item = next(item for item in document if item["topology"] == name)
        compare_blocks(yaml_blocks(Place("f", "", item["block"]), name), other)


def compare_blocks(found: Blocks, expected: dict[str, Any]) -> None:
    assert {block.name: list(block.nodes) for block in found.blocks} == expected["blocks"]
    assert list(found.sizes) == expected["block_sizes"]
    names = [block.name for block in found.blocks]
    assert expected.get("block_order", names) == names
    if "aggregates" in expected:
        rows = found.aggregates().items()
        assert {str(size): [[block.name for block in row] for row in row_list] for size, row_list in rows} == (
            expected["aggregates"]
        )


def check_reservations(reading: Reading, expected: dict[str, Any]) -> None:
    wanted = expected.get("reservations", {})
    found = {one.name: one for one in reading.reservations}
    assert set(found) == set(wanted)
    for name, keys in wanted.items():
        one = found[name]
        for key, value in keys.items():
            told = ("ACTIVE" if one.is_active else "INACTIVE") if key == "state" else getattr(one, key)
            assert (list(told) if isinstance(told, tuple) else told) == value


def check_host(host: HostDevices | None, expected: dict[str, Any]) -> None:
    if host is None:
        assert not {"gpus", "nics", "nvlink"} & set(expected)
        return
    told = {
        "gpus": len(host.gpus),
        "nics": len(host.nics),
        "nic_ports": len(host.nics),
        "nvlink": host.has_nvlink,
        "nvlink_all_to_all": host.is_nvlink_full,
        "closest_nic": {gpu: nics[0] for gpu, nics in host.closest_nics},
        "numa": {numa: [int(gpu.removeprefix("GPU")) for gpu in gpus] for numa, gpus in host.numa},
    }
    assert {key: told[key] for key in told if key in expected} == {
        key: expected[key] for key in told if key in expected
    }


def check_merged(reading: Reading) -> None:
    """Every sample that gives places makes a cluster of exactly those nodes, but for places that are none."""
    placed = [node.name for node in reading.nodes if node.fabric and node.fabric[0] not in PLACEHOLDERS]
    if placed:
        assert [node.name for node in merge([reading], "c").cluster.nodes] == placed
    else:
        with pytest.raises(ConfigError, match="gives no node a place"):
            merge([reading], "c")

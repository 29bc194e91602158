import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.topology import topology
from spanfit.errors import ConfigError
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.readers.cluster_file import render_cluster

DATA = Path(__file__).parents[2] / "data/topology"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(topology, [str(argument) for argument in arguments])


def show(path: Path) -> list[str]:
    result = run("show", path)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_draws_the_tree_with_counts() -> None:
    lines = show(DATA / "two_minipods.toml")
    assert lines[0] == "two-minipods  16 nodes: 12 idle, 1 allocated, 2 reserved, 1 drained"
    assert "16 nodes with 8 x H100" in lines[1]
    assert [line.lstrip("│├└─ ") for line in lines[2:6]] == [
        "core core  16 nodes: 12 idle, 1 allocated, 2 reserved, 1 drained",
        "minipod m0  8 nodes: 6 idle, 1 allocated, 1 drained",
        "leaf m0l0  4 nodes: 2 idle, 1 allocated, 1 drained  m0l0h[0-3]",
        "leaf m0l1  4 nodes: 4 idle  m0l1h[0-3]",
    ]
    assert len(lines) == 9


def make_large() -> Cluster:
    nodes = [
        Node(
            name=f"n{minipod:02}-{leaf:02}-{host}",
            fabric=(f"l{minipod:02}-{leaf:02}", f"[m{minipod:02}]", "core"),
            state=NodeState.DOWN if host == 0 else NodeState.IDLE,
        )
        for minipod in range(3)
        for leaf in range(50)
        for host in range(8)
    ]
    return Cluster(name="large", tiers=("leaf", "minipod", "core"), nodes=tuple(nodes))


def test_1200_nodes_fit_a_screen_and_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(render_cluster(make_large()))
    lines = [line.lstrip("│├└─ ") for line in show(path)]
    assert len(lines) == 2 + 3 * 17
    assert lines[2] == "minipod [m00]  400 nodes: 350 idle, 50 down"
    assert lines[3] == "leaf l00-00  8 nodes: 7 idle, 1 down  n00-00-[0-7]"
    assert lines[18] == "35 more: leaf l00-15 ... l00-49  280 nodes: 245 idle, 35 down"
    document = json.loads(run("show", path, "--json").stdout)
    leaves = [leaf for core in document["switches"] for minipod in core["switches"] for leaf in minipod["switches"]]
    assert len(leaves) == 150
    assert leaves[-1] == {
        "name": "l02-49",
        "tier": "leaf",
        "nnodes": 8,
        "states": {"idle": 7, "down": 1},
        "nodes": "n02-49-[0-7]",
        "switches": [],
    }


def test_check_says_that_nothing_is_odd() -> None:
    result = run("check", DATA / "two_minipods.toml")
    assert result.exit_code == 0
    assert result.stdout == ("two-minipods: 16 nodes: 12 idle, 1 allocated, 2 reserved, 1 drained; nothing odd found\n")
    document = json.loads(run("check", DATA / "two_minipods.conf", "--json").stdout)
    assert document == {
        "cluster": "two_minipods",
        "nnodes": 16,
        "tiers": ["leaf", "minipod", "core"],
        "findings": [],
    }


def test_findings_end_with_one(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2")
    result = run("check", path)
    assert result.exit_code == 1
    assert result.stdout.startswith("no common root: 2 islands under l[0-1]")
    result = run("check", path, "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["findings"]) == 1
    shown = run("show", path)
    assert shown.stderr.startswith("warning: no common root")
    assert "warning" not in shown.stdout


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_bad_file_ends_with_two(tmp_path: Path, command: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n1")
    error = run(command, path).exception
    assert isinstance(error, ConfigError)
    assert error.exit_code == 2
    assert "node n1 in two leaves, l0 (line 1) and l1 (line 2)" in str(error)
    missing = run(command, tmp_path / "none.toml").exception
    assert isinstance(missing, ConfigError)

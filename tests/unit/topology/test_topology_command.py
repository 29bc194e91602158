import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.topology import topology
from spanfit.errors import ConfigError
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.readers.cluster_toml import render_cluster

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
    assert result.stdout.startswith("islands: no common root: 2 islands under l[0-1]")
    result = run("check", path, "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["findings"]) == 1
    shown = run("show", path)
    assert shown.stderr.startswith("warning: islands: no common root")
    assert "warning" not in shown.stdout


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_bad_file_ends_with_two(tmp_path: Path, command: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=l0 Nodes=n1\nSwitchName=l0 Nodes=n2")
    error = run(command, path).exception
    assert isinstance(error, ConfigError)
    assert error.exit_code == 2
    assert "line 2: switch l0 is already defined in line 1" in str(error)
    missing = run(command, tmp_path / "none.toml").exception
    assert isinstance(missing, ConfigError)


CONF = "SwitchName=l0 Nodes=n[1-2]\nSwitchName=l1 Nodes=n[3-4]\nSwitchName=s Switches=l[0-1]\n"
NODES = {
    "nodes": [
        {"name": f"n{index}", "state": ["DOWN" if index == 4 else "IDLE"], "gres": "gpu:h100:8"}
        for index in range(1, 6)
    ]
}


def sources(folder: Path) -> list[Path]:
    (folder / "topology.conf").write_text(CONF)
    (folder / "nodes.json").write_text(json.dumps(NODES))
    return [folder / "topology.conf", folder / "nodes.json"]


def test_import_writes_one_cluster_file_of_two_sources(tmp_path: Path) -> None:
    out = tmp_path / "cluster.toml"
    result = run("import", *sources(tmp_path), "--out", out, "--name", "own")
    assert result.exit_code == 0
    assert [line.split("  ")[0].strip() for line in result.stderr.splitlines()] == [
        f"warning: node-without-topology: n5 of {tmp_path / 'nodes.json'}: not in the fabric, left out of the tree"
    ]
    assert result.stdout.splitlines()[0] == f"{out}: 4 nodes: 3 idle, 1 down"
    text = out.read_text()
    assert text.startswith('name = "own"\ntiers = ["minipod", "core"]\n')
    assert 'names = "n[1-2]"\nswitches = ["l0", "s"]\nngpus = 8\ngpu_model = "h100"\n' in text
    assert run("check", out).exit_code == 0


def test_import_prints_the_file_where_none_is_named(tmp_path: Path) -> None:
    result = run("import", *sources(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith('name = "topology"\n')
    document = json.loads(run("import", *sources(tmp_path), "--json").stdout)
    assert [(one["kind"], one["nnodes"], one["nplaced"], one["nstates"]) for one in document["sources"]] == [
        ("slurm-topology-conf", 4, 4, 0),
        ("slurm-nodes-json", 5, 0, 5),
    ]
    assert document["cluster"]["states"] == {"idle": 3, "down": 1}
    assert [one["code"] for one in document["findings"]] == ["node-without-topology"]


def test_import_reads_the_topology_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "- topology: a\n  tree: {switches: [{switch: l, nodes: n1}]}\n"
        "- topology: b\n  tree: {switches: [{switch: m, nodes: n1}]}\n"
    )
    assert 'switches = ["l"]' in run("import", path).stdout
    assert 'switches = ["m"]' in run("import", path, "--topology", "b").stdout


def test_findings_of_one_code_are_told_up_to_ten(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    placed = {"name": "n99", "state": ["IDLE"], "topology": "t:l"}
    path.write_text(json.dumps({"nodes": [placed, *({"name": f"n{index}", "state": ["IDLE"]} for index in range(25))]}))
    lines = run("check", path).stdout.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "node-without-topology: 15 more of these; --json has them all"
    assert len(json.loads(run("check", path, "--json").stdout)["findings"]) == 25


def test_diff_says_what_changed_and_ends_with_one(tmp_path: Path) -> None:
    before, after = tmp_path / "a.conf", tmp_path / "b.conf"
    before.write_text(CONF)
    after.write_text(CONF.replace("n[3-4]", "n[4-5]").replace("l0", "x0").replace("l[0-1]", "x0,l1"))
    same = run("diff", before, before)
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    result = run("diff", before, after)
    assert result.exit_code == 1
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert rows == [["added", "n5", "", ""], ["removed", "n3", "", ""], ["switches", "n[1-2]", "s/l0", "s/x0"]]
    assert result.stdout.splitlines()[-1] == "the groups are the same: only names or levels of switches differ"
    document = json.loads(run("diff", before, after, "--json").stdout)
    assert (document["added"], document["removed"], document["regrouped"]) == (["n5"], ["n3"], [])


def test_diff_compares_states_only_where_both_tell_them(tmp_path: Path) -> None:
    conf, nodes = sources(tmp_path)
    first, second = tmp_path / "1.toml", tmp_path / "2.toml"
    run("import", conf, nodes, "--out", first)
    run("import", conf, "--out", second)
    assert run("diff", first, conf).exit_code == 0
    result = run("diff", first, second, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["changes"] == [
        {"key": "state", "names": ["n4"], "before": "down", "after": "idle"}
    ]


def test_rails_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text("\tGPU0\tNIC0\tNUMA Affinity\nGPU0\t X \tPIX\t0\nNIC0\tPIX\t X \t\n\nLegend:\n  NIC0: mlx5_3\n")
    result = run("rails", path)
    assert result.stdout.splitlines()[0] == "1 GPU, 1 NIC port; no pairs of GPUs are joined by NVLink"
    assert json.loads(run("rails", path, "--json").stdout)["closest_nics"] == [["GPU0", ["mlx5_3"]]]
    error = run("rails", *sources(tmp_path)[:1]).exception
    assert isinstance(error, ConfigError)
    assert "says nothing of the inside of a host" in str(error)


def test_names_from_outside_move_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    layers = ["\x1b[2J[red]leaf\nfake", "x" * 65_536]
    path.write_text(json.dumps({"instances": [{"id": "n1", "network_layers": layers}, {"id": "\x1b[2Jn2"}]}))
    for command in ("show", "check", "import"):
        result = run(command, path)
        assert "\x1b" not in result.output
        assert "fake" not in [line.strip() for line in result.output.splitlines()]
    assert "[red]leaf" in run("show", path).stdout

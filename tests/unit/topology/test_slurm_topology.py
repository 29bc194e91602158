import json
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.model import Cluster
from spanfit.topology.readers.slurm_topology import parse_topology_conf

SHARED = Path(os.environ.get("SPANFIT_SHARED", Path(__file__).parents[4] / "shared"))


def fabric(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return {node.name: node.fabric for node in cluster.nodes}


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_topology_conf(text, "c", "f")
    return str(caught.value).splitlines()


def test_reads_syntax_as_slurm_does() -> None:
    text = (
        "switchname=l0 \\   \n   nodes=n[1-2],n3  # trailing SwitchName=zz\n"
        "# a comment ends no line with \\\n"
        'SWITCHNAME=l1 NODES = "n4, n5"\n'
        "SwitchName=s0 Switches=l[0-1] LinkSpeed=800"
    )
    cluster, warnings = parse_topology_conf(text, "c")
    assert fabric(cluster) == {
        "n1": ("l0", "s0"),
        "n2": ("l0", "s0"),
        "n3": ("l0", "s0"),
        "n4": ("l1", "s0"),
        "n5": ("l1", "s0"),
    }
    assert cluster.name == "c"
    assert cluster.tiers == ("minipod", "core")
    assert warnings == ()


def test_last_parent_wins_and_is_told() -> None:
    text = (
        "SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2\nSwitchName=s0 Switches=l[0-1]\nSwitchName=s1 Switches=l[0-1]"
    )
    cluster, warnings = parse_topology_conf(text, "c")
    assert fabric(cluster) == {"n1": ("l0", "s1"), "n2": ("l1", "s1")}
    assert len(warnings) == 1
    assert warnings[0].startswith("switches l[0-1] listed under s0, s1: Slurm keeps the last, s1")


def test_islands_are_told() -> None:
    cluster, warnings = parse_topology_conf("SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2", "c")
    assert cluster.tiers == ("minipod",)
    assert [warning.partition(";")[0] for warning in warnings] == ["no common root: 2 islands under l[0-1]"]


def test_a_shallow_leaf_stands_for_the_tiers_it_lacks() -> None:
    text = "SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2\nSwitchName=m0 Switches=l0\nSwitchName=root Switches=m0,l1\n"
    cluster, warnings = parse_topology_conf(text, "c")
    assert cluster.tiers == ("leaf", "minipod", "core")
    assert fabric(cluster) == {"n1": ("l0", "m0", "root"), "n2": ("l1", "l1", "root")}
    assert warnings == (
        "uneven depth: leaves l1 lie under fewer than 3 levels; each also stands for the tiers that it lacks",
    )


def test_five_levels_have_names() -> None:
    lines = ["SwitchName=s0 Nodes=n0"] + [f"SwitchName=s{level} Switches=s{level - 1}" for level in range(1, 5)]
    cluster, _ = parse_topology_conf("\n".join(lines), "c")
    assert cluster.tiers == ("leaf", "minipod", "core", "zone", "tier5")


def test_empty_leaf_and_repeated_node_are_told() -> None:
    text = "SwitchName=l0 Nodes=n1,n1\nSwitchName=l1\nSwitchName=s0 Switches=l[0-1]"
    cluster, warnings = parse_topology_conf(text, "c")
    assert fabric(cluster) == {"n1": ("l0", "s0")}
    assert warnings == (
        "line 1: switch l0 lists a node twice; it counts once",
        "line 2: switch l1 has neither Nodes nor Switches and is left out",
    )


def test_a_node_in_two_leaves_names_node_and_leaves() -> None:
    text = "SwitchName=l0 Nodes=n[1-4]\nSwitchName=l1 Nodes=n[4-8]\nSwitchName=s0 Switches=l[0-1]"
    assert faults(text) == [
        "f: line 2: node n4 in two leaves, l0 (line 1) and l1 (line 2); expected each node in one leaf; "
        "remove it from one of them"
    ]


def test_every_mistake_at_once_each_with_its_line() -> None:
    text = (
        "SwitchName=l0 Nodes=n[3-1]\n"
        "SwitchName=l1 Nodes=n1 Color=red\n"
        "\n"
        "SwitchName=l1 \\\n Nodes=n2\n"
        "SwitchName=s0 Nodes=n5 Switches=l[0-1]\n"
        "Nodes=n7\n"
        "SwitchName=s1 Switches=l[0-9]\n"
        "SwitchName=x y\n"
        "SwitchName=s[2-3] Nodes=n8 Nodes=n9\n"
    )
    assert [fault.removeprefix("f: ").partition(";")[0] for fault in faults(text)] == [
        "line 1: Nodes: found '3-1' in 'n[3-1]', which runs backwards",
        "line 2: found key Color",
        "line 4: switch l1 is already defined in line 2",
        "line 6: switch s0 has both Nodes and Switches",
        "line 7: no SwitchName",
        "line 8: switch s1 lists l[2-9]",
        "line 9: found 'y'",
        "line 10: Nodes is given twice",
        "line 10: SwitchName: found 's[2-3]'",
    ]


def test_a_ring_of_switches_is_no_tree() -> None:
    text = "SwitchName=l0 Nodes=n1\nSwitchName=a Switches=b,l0\nSwitchName=b Switches=a\nSwitchName=c Switches=c"
    assert [fault.partition(";")[0] for fault in faults(text)] == [
        "f: line 2: switches a, b lie above one another in a ring",
        "f: line 4: switches c lie above one another in a ring",
    ]


@pytest.mark.parametrize("text", ["", "# only\n\n  # comments\n", "SwitchName=s0\n"])
def test_no_nodes_is_an_error(text: str) -> None:
    assert faults(text) == ["f: line 1: found no nodes; expected lines such as SwitchName=leaf0 Nodes=node[0-7]"]


@pytest.mark.parametrize(
    ("text", "plugin"),
    [("\nBlockName=b Nodes=n1\nBlockSizes=4", "block"), ("\nRingName=r Nodes=n1", "ring"), ("\nTorusName=t", "torus")],
)
def test_other_plugins_are_refused(text: str, plugin: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(f"f: line 2: topology/{plugin} is unsupported so far")


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3), st.randoms())
def test_any_regular_tree_in_any_order_of_lines(shape: list[list[int]], random: Random) -> None:
    """Trees of three levels are known before their text is: leaves per minipod, nodes per leaf."""
    expected: dict[str, tuple[str, ...]] = {}
    lines = ["SwitchName=core Switches=" + ",".join(f"m{m}" for m in range(len(shape)))]
    for m, leaves in enumerate(shape):
        lines.append(f"SwitchName=m{m} Switches=m{m}l[0-{len(leaves) - 1}]")
        for leaf, nnodes in enumerate(leaves):
            lines.append(f"SwitchName=m{m}l{leaf} Nodes=m{m}l{leaf}n[1-{nnodes}]")
            expected |= {f"m{m}l{leaf}n{n + 1}": (f"m{m}l{leaf}", f"m{m}", "core") for n in range(nnodes)}
    random.shuffle(lines)
    cluster, warnings = parse_topology_conf("\n".join(lines), "c")
    assert fabric(cluster) == expected
    assert warnings == ()


CORPUS = SHARED / "data/topology/dev"
TREES = [
    "nasty_diamond",
    "nasty_empty",
    "nasty_missing_child",
    "nasty_node_in_two_leaves",
    "nasty_syntax",
    "slurm_tree_3level",
    "slurm_tree_unbalanced",
]


@pytest.mark.corpus
@pytest.mark.parametrize("stem", TREES)
def test_corpus_trees(stem: str) -> None:
    """Three things differ from the corpus on purpose.

    - Parallel spines s0+s1 are one there; here, as in Slurm, the last is the parent, and a warning names both.
    - A node in two leaves is an error here, where Slurm warns: its tier would be a guess.
    - Uneven depth is filled from below with the leaf; the corpus lists the levels that there are.
    """
    path = CORPUS / f"{stem}.topology.conf"
    if not path.exists():
        pytest.skip(f"no {path}")
    expected = json.loads(path.with_name(path.name + ".expected.json").read_text())
    if expected["error"] or stem == "nasty_node_in_two_leaves":
        said = " ".join(faults(path.read_text()))
        for word in {"nasty_empty": ["no nodes"], "nasty_missing_child": ["s0 lists l1"]}.get(
            stem, ["node004", "l0", "l1"]
        ):
            assert word in said
        return
    cluster, warnings = parse_topology_conf(path.read_text(), stem)
    assert list(fabric(cluster)) == list(expected["nodes"])
    depth = len(cluster.tiers)
    for name, found in fabric(cluster).items():
        tiers = expected["nodes"][name]["tiers"]
        padded = tiers[:1] * (depth - len(tiers)) + tiers
        assert all(one in other.split("+") for one, other in zip(found, padded, strict=True)), name
    codes = {code.partition(":")[0] for code in expected["warnings"]}
    assert len(warnings) == len(codes)
    words = {"ragged-depth": "uneven depth", "parallel-spines": "listed under s0, s1"}
    assert all(any(words[code] in warning for warning in warnings) for code in codes)


@pytest.mark.corpus
@pytest.mark.parametrize("stem", ["slurm_block", "nasty_node_in_two_blocks"])
def test_corpus_blocks_are_refused(stem: str) -> None:
    path = CORPUS / f"{stem}.topology.conf"
    if not path.exists():
        pytest.skip(f"no {path}")
    assert "topology/block is unsupported so far" in " ".join(faults(path.read_text()))

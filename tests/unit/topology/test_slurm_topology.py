from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.merge import merge
from spanfit.topology.model import Cluster
from spanfit.topology.readers.slurm_topology import parse_blocks, parse_topology_conf


def read(text: str) -> tuple[Cluster, list[str]]:
    """Return the cluster and the labels of what is odd."""
    merged = merge([parse_topology_conf(text, "f")], "c")
    return merged.cluster, [finding.label for finding in merged.findings]


def fabric(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    return {node.name: node.fabric for node in cluster.nodes}


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_topology_conf(text, "f")
    return str(caught.value).splitlines()


def test_reads_syntax_as_slurm_does() -> None:
    text = (
        "switchname=l0 \\   \n   nodes=n[1-2],n3  # trailing SwitchName=zz\n"
        "# a comment ends no line with \\\n"
        'SWITCHNAME=l1 NODES = "n4, n5"\n'
        "SwitchName=s0 Switches=l[0-1] LinkSpeed=800"
    )
    cluster, findings = read(text)
    assert fabric(cluster) == {
        "n1": ("l0", "s0"),
        "n2": ("l0", "s0"),
        "n3": ("l0", "s0"),
        "n4": ("l1", "s0"),
        "n5": ("l1", "s0"),
    }
    assert cluster.name == "c"
    assert cluster.tiers == ("minipod", "core")
    assert findings == []


def test_parallel_switches_become_one() -> None:
    text = (
        "SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2\nSwitchName=s0 Switches=l[0-1]\nSwitchName=s1 Switches=l[0-1]\n"
        "SwitchName=c0 Switches=s0\nSwitchName=c1 Switches=s1"
    )
    cluster, findings = read(text)
    assert fabric(cluster) == {"n1": ("l0", "s0+s1", "c0+c1"), "n2": ("l1", "s0+s1", "c0+c1")}
    assert findings == ["parallel-spines:s0,s1", "parallel-spines:c0,c1"]
    texts = [finding.text for finding in parse_topology_conf(text, "f").findings]
    assert all("list the same children" in each for each in texts)
    wider = text.replace("s1 Switches=l[0-1]", "s1 Switches=l[0-2]") + "\nSwitchName=l2 Nodes=n3"
    assert "s[0-1] list some of the same children" in parse_topology_conf(wider, "f").findings[0].text


def test_one_leaf_that_is_listed_twice_joins_no_minipods() -> None:
    leaves = "".join(f"SwitchName=l{index} Nodes=n{index}\n" for index in range(8))
    cluster, findings = read(f"{leaves}SwitchName=s0 Switches=l[0-4]\nSwitchName=s1 Switches=l[4-7]\n")
    assert fabric(cluster) == {f"n{index}": (f"l{index}", f"s{index // 4}") for index in range(8)}
    assert findings == ["unlike-parents:l4", "islands:2"]


def test_of_parents_on_several_levels_the_last_counts() -> None:
    text = "SwitchName=l0 Nodes=n1\nSwitchName=s0 Switches=l0\nSwitchName=top Switches=s0,l0"
    cluster, findings = read(text)
    assert fabric(cluster) == {"n1": ("l0", "top")}
    assert findings == ["unlike-parents:l0"]


def test_islands_are_told() -> None:
    cluster, findings = read("SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2")
    assert cluster.tiers == ("minipod",)
    assert findings == ["islands:2"]


def test_of_two_tiers_without_a_common_top_the_upper_is_the_minipod() -> None:
    lines = [f"SwitchName=l{i} Nodes=n{i}\nSwitchName=m{i} Switches=l{i}" for i in range(2)]
    assert read("\n".join(lines))[0].tiers == ("leaf", "minipod")


def test_a_shallow_leaf_stands_for_the_tiers_it_lacks() -> None:
    text = "SwitchName=l0 Nodes=n1\nSwitchName=l1 Nodes=n2\nSwitchName=m0 Switches=l0\nSwitchName=root Switches=m0,l1\n"
    cluster, findings = read(text)
    assert cluster.tiers == ("leaf", "minipod", "core")
    assert fabric(cluster) == {"n1": ("l0", "m0", "root"), "n2": ("l1", "l1", "root")}
    assert findings == ["ragged-depth"]


def test_five_levels_have_names() -> None:
    lines = ["SwitchName=s0 Nodes=n0"] + [f"SwitchName=s{level} Switches=s{level - 1}" for level in range(1, 5)]
    cluster, _ = read("\n".join(lines))
    assert cluster.tiers == ("leaf", "minipod", "core", "zone", "tier5")


def test_empty_leaf_and_repeated_node_are_told() -> None:
    text = "SwitchName=l0 Nodes=n1,n1\nSwitchName=l1\nSwitchName=s0 Switches=l[0-1]"
    cluster, findings = read(text)
    assert fabric(cluster) == {"n1": ("l0", "s0")}
    assert findings == ["repeated-node:l0", "empty-leaf:l1"]


def test_a_node_in_two_leaves_is_left_out_and_told() -> None:
    text = "SwitchName=l0 Nodes=n[1-2]\nSwitchName=l1 Nodes=n[2-3]\nSwitchName=s0 Switches=l[0-1]"
    cluster, findings = read(text)
    assert list(fabric(cluster)) == ["n1", "n3"]
    assert findings == ["multi-leaf-node:n2"]


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
        "line 8: unknown-child-switch:l[2-9]: switch s1 lists l[2-9]",
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
    assert faults(text) == [
        "f: line 1: empty-topology: found no nodes; expected lines such as SwitchName=leaf0 Nodes=node[0-7]"
    ]


@pytest.mark.parametrize(("text", "plugin"), [("\nRingName=r Nodes=n1", "ring"), ("\nTorusName=t", "torus")])
def test_other_plugins_are_refused(text: str, plugin: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(f"f: line 2: topology/{plugin} is unsupported")


def test_consecutive_blocks_form_the_tiers_above() -> None:
    lines = [f"BlockName=b{block} Nodes=n[{block}0-{block}1]" for block in range(1, 6)]
    cluster, findings = read("\n".join([*lines, "BlockSizes=2,4,8"]))
    assert cluster.tiers == ("leaf", "minipod", "core")
    assert fabric(cluster)["n30"] == ("b3", "b[3-4]", "b[1-4]")
    assert fabric(cluster)["n51"] == ("b5", "b5", "b5")
    assert findings == ["islands:2"]


def test_sizes_of_blocks_are_those_of_slurm_where_none_are_given() -> None:
    lines = [f"BlockName=b{block} Nodes=n[{block}0-{block}2]" for block in range(1, 5)]
    assert parse_blocks("\n".join(lines), "f").sizes == (3, 6, 12)


def test_mistakes_in_blocks_are_told_at_once() -> None:
    text = "BlockName=b1 Nodes=n[1\nBlockName=b1 Nodes=n2\nBlockSizes=4,six\nBlockName=b[2-3]"
    assert [fault.removeprefix("f: ").partition(";")[0] for fault in faults(text)] == [
        "line 1: Nodes: found '[1' at position 1",
        "line 2: block b1 is already defined in line 1",
        "line 3: BlockSizes: found 'six'",
        "line 4: BlockName: found 'b[2-3]'",
    ]
    (fault,) = faults("BlockName=b1 Nodes=n[1-4]\nBlockSizes=4,8,12")
    assert "BlockSizes: found 12; expected the smallest size times powers of 2" in fault
    (fault,) = faults("BlockName=b1 Nodes=n[1-4]\nBlockSizes=0,4")
    assert "BlockSizes: found 0; expected the smallest size" in fault


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
    cluster, findings = read("\n".join(lines))
    assert fabric(cluster) == expected
    assert findings == []

"""Slurm's other descriptions of a tree say the same as topology.conf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.readers.documents import load_yaml
from spanfit.topology.readers.slurm_show import parse_show_topology
from spanfit.topology.readers.slurm_topology import parse_topology_conf
from spanfit.topology.readers.slurm_yaml import parse_topology_yaml
from spanfit.topology.reading import Reading

Tree = dict[str, dict[str, int]]


def as_conf(tree: Tree) -> str:
    lines = ["SwitchName=core Switches=" + ",".join(tree)]
    for minipod, leaves in tree.items():
        lines.append(f"SwitchName={minipod} Switches={','.join(leaves)}")
        lines += [f"SwitchName={leaf} Nodes={leaf}-n[1-{count}]" for leaf, count in leaves.items()]
    return "\n".join(lines)


def as_yaml(tree: Tree) -> str:
    lines = ["- topology: t", "  tree:", "    switches:", "    - switch: core", f"      children: {','.join(tree)}"]
    for minipod, leaves in tree.items():
        lines += [f"    - switch: {minipod}", f"      children: {','.join(leaves)}"]
        for leaf, count in leaves.items():
            lines += [f"    - switch: {leaf}", f"      nodes: {leaf}-n[1-{count}]"]
    return "\n".join(lines)


def as_shown(tree: Tree) -> str:
    def nodes(leaves: dict[str, int]) -> str:
        return ",".join(f"{leaf}-n[1-{count}]" for leaf, count in leaves.items())

    everything = {leaf: count for leaves in tree.values() for leaf, count in leaves.items()}
    lines = [f"SwitchName=core Level=2 LinkSpeed=1 Nodes={nodes(everything)} Switches={','.join(tree)}"]
    for minipod, leaves in tree.items():
        switches = ",".join(leaves)
        lines.append(f"SwitchName={minipod} Level=1 LinkSpeed=400 Nodes={nodes(leaves)} Switches={switches}")
        lines += [f"SwitchName={leaf} Level=0 LinkSpeed=1 Nodes={nodes({leaf: n})}" for leaf, n in leaves.items()]
    return "\n".join(lines) + "\n"


def yaml_reading(text: str, topology: str | None = None) -> Reading:
    (document,) = load_yaml(text, "f")
    return parse_topology_yaml(document, "f", topology)


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3))
def test_three_formats_say_the_same_tree(shape: list[list[int]]) -> None:
    tree = {f"m{m}": {f"m{m}l{leaf}": count for leaf, count in enumerate(counts)} for m, counts in enumerate(shape)}
    conf = parse_topology_conf(as_conf(tree), "f")
    assert conf.findings == ()
    assert all(node.fabric and node.fabric[1:] == (node.fabric[0][:2], "core") for node in conf.nodes)
    assert yaml_reading(as_yaml(tree)).nodes == conf.nodes
    assert parse_show_topology(as_shown(tree), "f").nodes == conf.nodes


def test_names_that_yaml_would_change_stay_text() -> None:
    text = (
        "- topology: t\n  tree:\n    switches:\n    - {switch: no, nodes: '007'}\n    - {switch: 1e3, children: no}\n"
    )
    assert [(node.name, node.fabric) for node in yaml_reading(text).nodes] == [("007", ("no", "1e3"))]


SEVERAL = """
- topology: a
  tree: {switches: [{switch: l0, nodes: "n[1-2]"}]}
- topology: b
  cluster_default: true
  block: {block_sizes: [1, 2], blocks: [{block: b1, nodes: n1}, {block: b2, nodes: n2}]}
- topology: r
  ring: {rings: []}
"""


def test_the_default_topology_counts_unless_another_is_named() -> None:
    assert [node.fabric for node in yaml_reading(SEVERAL).nodes] == [("b1", "b[1-2]"), ("b2", "b[1-2]")]
    assert yaml_reading(SEVERAL).topologies == ("a", "b", "r")
    assert [node.fabric for node in yaml_reading(SEVERAL, "a").nodes] == [("l0",), ("l0",)]
    with pytest.raises(ConfigError, match="found no topology 'z'; expected one of a, b, r"):
        yaml_reading(SEVERAL, "z")
    with pytest.raises(ConfigError, match=r'f: \[3\].topology: found "a"; expected each topology once'):
        yaml_reading(SEVERAL + "- topology: a\n  flat: true\n")
    with pytest.raises(ConfigError, match="topology r: found ring; expected tree, block, flat"):
        yaml_reading(SEVERAL, "r")


def test_mistakes_in_yaml_are_told_at_once() -> None:
    text = (
        "- topology: t\n  tree:\n    switches:\n"
        "    - {switch: l0, nodes: 'n[1'}\n    - {switch: 's[1]', children: 'l0['}\n"
        "    - {switch: s, nodes: n2, children: l0}\n"
    )
    with pytest.raises(ConfigError) as caught:
        yaml_reading(text)
    assert [line.partition(";")[0] for line in str(caught.value).splitlines()] == [
        "f: t: switches[0]: nodes: found '[1' at position 1",
        "f: t: switches[1]: children: found '[' at position 2",
        "f: t: switches[1]: switch: found 's[1]'",
        "f: t: switches[2]: switch s has both nodes and children",
    ]
    with pytest.raises(ConfigError, match="line 2: not valid YAML"):
        yaml_reading("- topology: [\n}")


def test_shown_blocks_are_read_with_their_aggregates() -> None:
    text = (
        "BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2\n"
        "BlockName=b2 BlockIndex=2 Nodes= BlockSize=2\n"
        "AggregatedBlock=b[0-1] BlockIndex=3 Nodes=n[0-3] BlockSize=4\n"
    )
    reading = parse_show_topology(text, "f")
    assert [node.fabric for node in reading.nodes][1:3] == [("b0", "b[0-1]"), ("b1", "b[0-1]")]
    assert [finding.label for finding in reading.findings] == ["empty-block:b2"]


def test_blocks_beside_switches_are_refused() -> None:
    text = "SwitchName=l0 Level=0 Nodes=n1\nBlockName=b0 BlockIndex=0 Nodes=n2 BlockSize=1\n"
    with pytest.raises(ConfigError, match="f: line 2: found blocks beside switches"):
        parse_show_topology(text, "f")


def test_a_strange_line_of_scontrol_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_show_topology("SwitchName=l0 Level=0 Nodes=n1\nNothing=here Level=1\n", "f")
    assert str(caught.value).splitlines() == [
        "f: line 2: found key Nothing; expected the keys of scontrol show topology",
        "f: line 2: found neither SwitchName nor BlockName; expected a line of scontrol show topology",
    ]

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import is_plain_name
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.readers.cluster_file import read_cluster, read_cluster_with_findings
from spanfit.topology.readers.cluster_toml import parse_cluster, render_cluster

DATA = Path(__file__).parents[2] / "data/topology"


def table(names: str, switches: str, more: str = "") -> str:
    return f'[[nodes]]\nnames = "{names}"\nswitches = {switches}\n{more}\n'


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_cluster(text, "f")
    return str(caught.value).splitlines()


def test_reads_groups_and_states() -> None:
    cluster = read_cluster(DATA / "two_minipods.toml")
    assert cluster.tiers == ("leaf", "minipod", "core")
    assert [node.name for node in cluster.nodes][:5] == ["m0l0h0", "m0l0h1", "m0l0h2", "m0l0h3", "m0l1h0"]
    assert len(cluster.nodes) == 16
    assert cluster.nodes[0] == Node(name="m0l0h0", fabric=("m0l0", "m0", "core"), ngpus=8, gpu_model="H100")
    states = {node.name: node.state for node in cluster.nodes if node.state is not NodeState.IDLE}
    assert states == {"m0l0h1": "allocated", "m0l0h2": "drained", "m1l1h0": "reserved", "m1l1h1": "reserved"}


def test_slurm_file_tells_the_same_switches() -> None:
    toml, toml_findings = read_cluster_with_findings(DATA / "two_minipods.toml")
    slurm, slurm_findings = read_cluster_with_findings(DATA / "two_minipods.conf")
    assert {node.name: node.fabric for node in slurm.nodes} == {node.name: node.fabric for node in toml.nodes}
    assert slurm.tiers == toml.tiers
    assert toml_findings == slurm_findings == ()


@pytest.mark.parametrize(
    ("name", "text", "nnodes"),
    [
        ("c.toml", 'name = "c"\n' + table("n[1-3]", '["m"]'), 3),
        ("cluster", '# c\nname = "c"\n' + table("n[1-2]", '["m"]'), 2),
        ("topology.conf", "# c\n switchName=m Nodes=n1", 1),
    ],
)
def test_knows_the_format_by_suffix_or_content(tmp_path: Path, name: str, text: str, nnodes: int) -> None:
    (tmp_path / name).write_text(text)
    assert len(read_cluster(tmp_path / name).nodes) == nnodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("color: red\n", "found 'color: red'; expected a TOML cluster file with [[nodes]] tables, or what Slurm"),
        ("apiVersion: v1\nkind: Secret\n", "found no keys of a source that is known; expected a TOML cluster file"),
        ("", "line 1: empty-topology: found no nodes"),
        ("# only a comment\n", "line 1: empty-topology: found no nodes"),
        ("BlockSizes=4\n", "line 1: empty-topology: found no nodes; expected lines such as BlockName"),
    ],
)
def test_says_what_a_strange_file_is(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_cluster(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_tiers_follow_the_depth_unless_named() -> None:
    head = 'name = "c"\n'
    assert parse_cluster(head + table("n1", '["m", "c"]'), "f").tiers == ("minipod", "core")
    named = parse_cluster(head + 'tiers = ["minipod", "top"]\n' + table("n1", '["m", "c"]'), "f")
    assert named.tiers == ("minipod", "top")


def test_every_wrong_key_at_once() -> None:
    text = (
        "color = 1\n"
        + table("n[3-1]", '["m", ""]', "ngpus = -1")
        + table("", "[]", 'state = "broken"')
        + '[[states]]\nnames = "n[1"\nstate = "idle"\n'
    )
    said = faults(text)
    assert "f: name: missing; this key is required" in said
    assert "f: color: unknown key; remove it or correct its spelling" in said
    assert "f: nodes[0]: names: found '3-1' in 'n[3-1]', which runs backwards; expected low-high" in said
    assert 'f: nodes[0]: switches: found ["m", ""]; expected names, such as ["leaf0", "core"]' in said
    assert "f: nodes[0]: ngpus: found -1; expected at least 0" in said
    assert any(line.startswith("f: nodes[1].state: found \"broken\", expected 'idle', 'allocated'") for line in said)
    assert "f: states[0]: names: found '[1' at position 1; expected names such as node[01-03,7]" in said


def test_every_clash_between_tables_at_once() -> None:
    text = (
        'name = "c"\ntiers = ["leaf", "pod"]\n'
        + table("n[1-3]", '["l0", "m0"]')
        + table("n[2-4]", '["l1", "m0"]')
        + table("n5,n5", '["l2"]')
        + '[[states]]\nnames = "n[1,8-9]"\nstate = "down"\n'
        + '[[states]]\nnames = "n1"\nstate = "idle"\n'
    )
    assert faults(text) == [
        "f: tiers: found leaf, pod; expected different names, one of them minipod",
        "f: nodes[2].switches: found 1 (l2); expected 2, closest first, as in tiers",
        "f: nodes n[2-3] in nodes[0] (leaf m0/l0) and nodes[1] (leaf m0/l1); expected each node once; "
        "remove it from one of them",
        "f: node n5 in nodes[2] (leaf l2) and nodes[2] (leaf l2); expected each node once; remove it from one of them",
        "f: states[1]: found n1 idle, but down in states[0]; expected one state",
        "f: states[0].names: found n[8-9]; expected nodes that a [[nodes]] table lists",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "f: not valid TOML: "),
        ('name = "c"\nnodes = []\n', "f: nodes: found none; expected at least one [[nodes]] table"),
        ('name = "c"\ntiers = []\n' + table("n1", '["m"]'), "f: tiers: found ; expected different names"),
        (
            'name = "c"\n' + table("n1", '["m"]') + table("n2", '["l", "m"]'),
            "f: nodes[1].switches: found 2 (l, m); expected 1, closest first, as in nodes[0]",
        ),
    ],
)
def test_one_mistake(text: str, said: str) -> None:
    assert faults(text)[0].startswith(said)


def test_a_leaf_name_under_two_parents_is_two_leaves(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('name = "c"\n' + table("n1", '["l", "m0", "c"]') + table("n2", '["l", "m1", "c"]'))
    cluster, findings = read_cluster_with_findings(path)
    assert not findings
    assert len(cluster.minipods()) == len(cluster.switch_labels("leaf")) == 2


text = st.text(st.characters(codec="utf-8"), max_size=6)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
node_names = st.one_of(words.filter(is_plain_name), st.integers(0, 30).map("n{}".format))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    tiers = draw(
        st.permutations(draw(st.sampled_from([["minipod"], ["minipod", "core"], ["leaf", "minipod", "x\x7f"]])))
    )
    fabrics = draw(st.lists(st.tuples(*[words] * len(tiers)), min_size=1, max_size=3))
    nodes = [
        Node(
            name=name,
            fabric=draw(st.sampled_from(fabrics)),
            ngpus=draw(st.none() | st.integers(0, 16)),
            gpu_model=draw(st.none() | text),
            accelerator_domain=draw(st.none() | text),
            state=draw(st.sampled_from(NodeState)),
        )
        for name in draw(st.lists(node_names, min_size=1, max_size=8, unique=True))
    ]
    return Cluster(name=draw(text), tiers=tuple(tiers), nodes=tuple(nodes))


@settings(max_examples=50)
@given(clusters())
def test_reading_back_what_was_written(cluster: Cluster) -> None:
    assert parse_cluster(render_cluster(cluster), "f") == cluster


def test_written_file_is_short_and_plain() -> None:
    text = render_cluster(read_cluster(DATA / "two_minipods.toml"))
    assert text.count("[[nodes]]") == 4
    assert 'names = "m0l0h[0-3]"\nswitches = ["m0l0", "m0", "core"]\nngpus = 8\ngpu_model = "H100"\n' in text
    assert text.endswith('[[states]]\nnames = "m0l0h2"\nstate = "drained"\n')

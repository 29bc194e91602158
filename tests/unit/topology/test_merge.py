from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.compare import compare
from spanfit.topology.merge import Merged, crossing, merge
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.topology.reading import CLUSTER_FILE, HostDevices, NodeFacts, Reading, Reservation

Paths = dict[str, tuple[str, ...]]
PATHS: Paths = {"n1": ("l0", "core"), "n2": ("l0", "core"), "n3": ("l1", "core")}


def make_reading(origin: str, kind: str, facts: dict[str, dict[str, Any]], **more: Any) -> Reading:
    nodes = tuple(NodeFacts(name=name, **keys) for name, keys in facts.items())
    return Reading(origin=origin, kind=kind, nodes=nodes, **more)


def fabric(paths: Mapping[str, tuple[str, ...]], kind: str = "tree", origin: str = "tree.conf") -> Reading:
    return make_reading(origin, kind, {name: {"fabric": path} for name, path in paths.items()})


def states(origin: str = "nodes.json", kind: str = "nodes", **told: str) -> Reading:
    return make_reading(origin, kind, {name: {"state": NodeState(state)} for name, state in told.items()})


def merged(*readings: Reading) -> Merged:
    return merge(readings, "c")


def labels(found: Merged) -> list[str]:
    return [finding.label for finding in found.findings]


def told_states(found: Merged) -> dict[str, str]:
    return {node.name: node.state.value for node in found.cluster.nodes}


def test_fabric_of_one_and_states_of_another() -> None:
    found = merged(states(n1="idle", n2="drained", n3="allocated"), fabric(PATHS))
    assert {node.name: node.fabric for node in found.cluster.nodes} == PATHS
    assert told_states(found) == {"n1": "idle", "n2": "drained", "n3": "allocated"}
    assert found.findings == ()


def test_without_a_source_of_states_all_are_idle() -> None:
    assert set(told_states(merged(fabric(PATHS))).values()) == {"idle"}


def test_nodes_that_only_one_source_knows() -> None:
    found = merged(fabric(PATHS), states(n1="idle", n2="idle", x1="idle", x2="down"))
    assert told_states(found) == {"n1": "idle", "n2": "idle", "n3": "down"}
    assert labels(found) == ["node-without-topology:x[1-2]", "node-without-state:n3"]


def test_of_two_states_the_more_severe_counts_and_both_are_named() -> None:
    told = states(n1="idle", n2="idle", n3="idle"), states("sinfo.txt", "sinfo", n1="idle", n2="drained", n3="drained")
    for readings in (told, told[::-1]):
        found = merged(fabric(PATHS), *readings)
        assert told_states(found) == {"n1": "idle", "n2": "drained", "n3": "drained"}
        assert labels(found) == ["conflict:state:n[2-3]"]
        assert all(origin in found.findings[0].text for origin in ("nodes.json", "sinfo.txt"))


def test_states_of_a_cluster_file_give_way() -> None:
    facts: dict[str, dict[str, Any]] = {name: {"fabric": path, "state": NodeState.DOWN} for name, path in PATHS.items()}
    file = make_reading("c.toml", CLUSTER_FILE, facts, tiers=("minipod", "core"), name="own")
    assert set(told_states(merged(file)).values()) == {"down"}
    found = merged(file, states(n1="idle", n2="idle", n3="idle"))
    assert set(told_states(found).values()) == {"idle"}
    assert (found.findings, found.cluster.name) == ((), "own")


@pytest.mark.parametrize(("is_active", "state"), [(True, "reserved"), (None, "reserved"), (False, "idle")])
def test_reservations_hold_nodes_while_active(is_active: bool | None, state: str) -> None:
    one = Reservation(name="r", nodes=("n1", "n2", "x"), start="a", end="b", is_active=is_active)
    reserved = Reading(origin="res", kind="reservations", reservations=(one,))
    found = merged(fabric(PATHS), states(n1="idle", n2="drained", n3="idle"), reserved)
    assert told_states(found) == {"n1": state, "n2": "drained", "n3": "idle"}
    assert labels(found) == (["reservation-ahead:r"] if is_active is False else [])
    over = Reading(origin="res", kind="reservations", reservations=(replace(one, is_over=True),))
    assert labels(merged(fabric(PATHS), over)) == []


def test_the_first_to_tell_of_gpus_counts() -> None:
    one = make_reading("a", "a", {"n1": {"gpus": (("h100", 8),)}, "n2": {"gpus": (("h100", 2), ("h200", 4))}})
    two = make_reading("b", "b", {"n1": {"gpus": (("h200", 8),), "accelerator_domain": "d"}})
    found = merged(fabric(PATHS), one, two)
    n1, n2, n3 = found.cluster.nodes
    assert (n1.gpu_model, n1.ngpus, n1.accelerator_domain) == ("h100", 8, "d")
    assert (n2.gpu_model, n2.ngpus) == ("h100+h200", 6)
    assert (n3.gpu_model, n3.ngpus) == (None, None)
    assert labels(found) == ["conflict:gpu_model:n1", "mixed-models-in-node:n2"]


def test_a_host_that_has_other_gpus_is_told() -> None:
    host = HostDevices(gpus=("GPU0",) * 8, nics=(), closest_nics=(), numa=(), has_nvlink=True, is_nvlink_full=True)
    counts: dict[str, dict[str, Any]] = {"n1": {"gpus": (("", 8),)}, "n2": {"gpus": (("", 4),)}}
    found = merged(fabric(PATHS), make_reading("a", "a", counts), Reading(origin="x.xml", kind="xml", host=host))
    assert labels(found) == ["conflict:ngpus:n2"]


def test_two_files_of_one_kind_add_up() -> None:
    found = merged(fabric(PATHS), fabric({"n3": ("l9", "core"), "n4": ("l1", "core")}, origin="more.conf"))
    assert {node.name: node.fabric for node in found.cluster.nodes} == PATHS | {"n4": ("l1", "core")}
    assert labels(found) == ["conflict:fabric:n3"]
    assert "core" in found.findings[0].text
    assert "more.conf" in found.findings[0].text


def test_cluster_files_of_unlike_depth_add_up() -> None:
    one = make_reading("a.toml", CLUSTER_FILE, {"n1": {"fabric": ("m0",)}}, tiers=("minipod",))
    two = make_reading("b.toml", CLUSTER_FILE, {"n2": {"fabric": ("m1", "core")}}, tiers=("minipod", "core"))
    found = merged(one, two)
    assert {node.name: node.fabric for node in found.cluster.nodes} == {"n1": ("m0", "m0"), "n2": ("m1", "core")}


def test_two_fabrics_are_compared_by_their_groups() -> None:
    renamed = {"n1": ("a", "top"), "n2": ("a", "top"), "n3": ("b", "top")}
    assert labels(merged(fabric(PATHS), fabric(renamed, "ib"))) == []
    finer = {"n1": ("a", "m"), "n2": ("b", "m"), "n3": ("c", "m")}
    assert labels(merged(fabric(PATHS), fabric(finer, "ib"))) == []
    paths = {f"n{index}": (f"l{index // 4}", "core") for index in range(8)}
    moved = paths | {"n1": paths["n7"]}
    assert labels(merged(fabric(paths), fabric(moved, "ib"))) == ["conflict:fabric:n1"]


def test_a_node_that_only_the_second_fabric_places_is_left_out() -> None:
    found = merged(fabric(PATHS), fabric(PATHS | {"n4": ("l1", "core")}, "ib"))
    assert [node.name for node in found.cluster.nodes] == list(PATHS)
    assert labels(found) == ["node-without-topology:n4"]


@pytest.mark.parametrize("name", ["a b", "a\n", "a,b", "a[1]", "", "x" * 300, "a\x1b", "-oX=y", "`id`", "a:8"])
def test_names_that_no_hostfile_can_hold_are_left_out(name: str) -> None:
    found = merged(fabric(PATHS | {name: ("l0", "core")}))
    assert [node.name for node in found.cluster.nodes] == list(PATHS)
    assert [finding.code for finding in found.findings] == ["unusable-name"]
    assert str(found.findings[0]).isprintable()
    with pytest.raises(ConfigError, match="no node has a usable name and place"):
        merged(fabric({name: ("l0",)}))


@pytest.mark.parametrize("switch", ["none", "no-topology"])
def test_nodes_under_no_real_switch_are_left_out(switch: str) -> None:
    more = {"x1": (switch, "core"), "x2": ("l0", switch)}
    for readings in ([fabric(PATHS | more)], [fabric(PATHS), fabric(more)]):
        found = merged(*readings)
        assert [node.name for node in found.cluster.nodes] == list(PATHS)
        assert labels(found) == [f"placeholder-switch:{switch}"]
        assert "x[1-2]" in found.findings[0].text


def test_no_places_at_all_are_refused_with_what_was_read() -> None:
    with pytest.raises(ConfigError) as caught:
        merged(states(n1="idle"))
    assert str(caught.value).splitlines()[0] == "nodes.json: gives no node a place (nodes)"


trees = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=9).map(
    lambda places: {f"n{index}": (f"m{m}l{leaf}", f"m{m}", "c") for index, (m, leaf) in enumerate(places)}
)


@given(trees, st.randoms(use_true_random=False))
def test_renamed_trees_never_cross(tree: dict[str, tuple[str, ...]], random: Any) -> None:
    names = sorted({switch for path in tree.values() for switch in path})
    new = dict(zip(names, random.sample(range(100), len(names)), strict=True))
    renamed = {name: tuple(str(new[switch]) for switch in path) for name, path in tree.items()}
    assert crossing(tree, renamed) == []


@given(trees)
def test_coarser_trees_never_cross(tree: dict[str, tuple[str, ...]]) -> None:
    coarser = {name: path[1:] for name, path in tree.items()}
    assert crossing(tree, coarser) == crossing(coarser, tree) == []


def make_cluster(paths: Mapping[str, tuple[str, ...]], **more: Any) -> Cluster:
    nodes = tuple(Node(name=name, fabric=path, **more) for name, path in paths.items())
    return Cluster(name="c", tiers=("minipod", "core"), nodes=nodes)


def test_differences_are_folded_by_what_changed() -> None:
    paths = {"n3": ("l1", "core"), "n1": ("x0", "core"), "n2": ("x0", "core"), "n9": ("l1", "core")}
    before = make_cluster(PATHS | {"n8": ("l1", "core")}, ngpus=4, state=NodeState.DOWN)
    after = make_cluster(paths, ngpus=8, gpu_model="h100")  # a model that only one tells is no difference
    found = compare(before, after)
    assert (found.added, found.removed, found.regrouped) == (("n9",), ("n8",), ())
    assert [(one.key, one.names, one.before, one.after) for one in found.changes] == [
        ("switches", ("n1", "n2"), "core/l0", "core/x0"),
        ("state", ("n1", "n2", "n3"), "down", "idle"),
        ("ngpus", ("n1", "n2", "n3"), "4", "8"),
    ]
    assert [one.key for one in compare(before, after, with_states=False).changes] == ["switches", "ngpus"]


def test_a_cluster_does_not_differ_from_itself_in_another_order() -> None:
    cluster = make_cluster(PATHS)
    other = make_cluster(dict(reversed(PATHS.items())))
    assert compare(cluster, other).is_empty


def test_a_node_that_moved_is_regrouped() -> None:
    paths = {f"n{index}": (f"l{index // 4}", "core") for index in range(8)}
    found = compare(make_cluster(paths), make_cluster(paths | {"n1": paths["n7"]}))
    assert found.regrouped == ("n1",)

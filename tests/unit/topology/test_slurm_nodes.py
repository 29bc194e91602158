import json

import pytest

from spanfit.errors import ConfigError
from spanfit.topology.model import NodeState
from spanfit.topology.readers.slurm_nodes import parse_nodes_json, parse_show_nodes, parse_sinfo, parse_sinfo_json
from spanfit.topology.readers.slurm_reservations import parse_reservations_json, parse_show_reservation
from spanfit.topology.readers.slurm_states import node_state, parse_gres, state_words
from spanfit.topology.reading import NodeFacts, Reading


def by_name(reading: Reading) -> dict[str, NodeFacts]:
    return {node.name: node for node in reading.nodes}


def labels(reading: Reading) -> list[str]:
    return [finding.label for finding in reading.findings]


@pytest.mark.parametrize(
    ("text", "words", "state"),
    [
        ("IDLE", "IDLE", "idle"),
        ("IDLE+CLOUD", "IDLE CLOUD", "idle"),
        ("idle*", "IDLE NOT_RESPONDING", "down"),
        ("idle~", "IDLE POWERED_DOWN", "down"),
        ("mix-", "MIX PLANNED", "reserved"),
        ("IDLE+PLANNED", "IDLE PLANNED", "reserved"),
        ("IDLE+DRAIN+MAINTENANCE", "IDLE DRAIN MAINTENANCE", "drained"),
        ("drng", "DRNG", "drained"),
        ("IDLE+COMPLETING", "IDLE COMPLETING", "allocated"),
        ("MIXED", "MIXED", "allocated"),
        ("resv", "RESV", "reserved"),
        ("maint$", "MAINT MAINTENANCE", "reserved"),
        ("DOWN+DRAIN", "DOWN DRAIN", "down"),
        ("IDLE+REBOOT_ISSUED", "IDLE REBOOT_ISSUED", "down"),
        ("IDLE+NEW_WORD", "IDLE NEW_WORD", "down"),
        ("", "", "down"),
    ],
)
def test_states_of_every_spelling(text: str, words: str, state: str) -> None:
    assert state_words(text) == tuple(words.split())
    assert node_state(state_words(text)) == state


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", {}),
        ("gpu:4", {"": 4}),
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:h100:2,gpu:h200:4", {"h100": 2, "h200": 4}),
        ("gpu:h100:1(IDX:0,2),gpu:h100:1(IDX:3)", {"h100": 2}),
        ("nic:2,gpu:a100:8,mps:800", {"a100": 8}),
        ("gpu:1g.5gb:7,gpu:a100:4", {"a100": 4}),
        ("craynetwork:1", {}),
        ("gpu:$(reboot):1", {"$": 1}),
    ],
)
def test_gpus_of_every_spelling(text: str, gpus: dict[str, int]) -> None:
    assert dict(parse_gres(text)) == gpus


ONE = (
    "NodeName=n1 Arch=x86_64 Gres=gpu:h100:8 OS=Linux State=of the art #1 State=IDLE+DRAIN ThreadsPerCore=1 "
    "Partitions=gpu,debug  BootTime=None Reason=State=IDLE Gres=gpu:9 [root@2026-11-30T02:41:40]\n"
)


def test_words_of_states_that_are_not_known_are_told() -> None:
    nodes = [{"name": f"n{index}", "state": ["IDLE", "NEW", "CLOUD"], "topology": "t:l"} for index in range(3)]
    reading = parse_nodes_json({"nodes": nodes}, "f")
    assert labels(reading) == ["unknown-state:NEW"]
    assert "n[0-2]" in reading.findings[0].text


def test_free_text_spoils_no_field() -> None:
    many = (
        ONE.replace(" Gres=gpu:h", "\n   Gres=gpu:h")
        .replace(" State=IDLE+", "\n   State=IDLE+")
        .replace(" Re", "\n   Re")
    )
    for text in (ONE, many + "\n", ONE + "NodeName=n2 State=IDLE ThreadsPerCore=1\n"):
        node = by_name(parse_show_nodes(text, "f"))["n1"]
        assert (node.state, node.ngpus, node.partitions) == (NodeState.DRAINED, 8, ("gpu", "debug"))
        assert node.reason == "State=IDLE Gres=gpu:9"


def test_a_reason_gives_no_gpus() -> None:
    text = "NodeName=n1 State=DOWN ThreadsPerCore=1 Reason=lost Gres=gpu:8 of Partitions=gpu\n"
    node = by_name(parse_show_nodes(text, "f"))["n1"]
    assert (node.ngpus, node.partitions, node.reason) == (0, (), "lost Gres=gpu:8 of Partitions=gpu")


def test_a_cut_listing_is_refused_with_every_node() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_show_nodes("NodeName=n1 Arch=x\nNodeName=n2 State=IDLE ThreadsPerCore=1\nNodeName=n3\n", "f")
    assert [line.partition(":")[2][:9] for line in str(caught.value).splitlines()] == [" node n1:", " node n3:"]


def test_old_and_new_json_say_the_same() -> None:
    old = {"nodes": [{"name": "n1", "state": "idle", "state_flags": ["DRAIN"], "gres": "gpu:8", "partitions": ["p"]}]}
    new = {"nodes": [{"name": "n1", "state": ["IDLE", "DRAIN"], "gres": "gpu:8", "partitions": ["p"]}]}
    one, two = (parse_nodes_json(document, "f") for document in (old, new))
    assert one.nodes == two.nodes
    assert (one.kind, two.kind) == ("sinfo-json", "slurm-nodes-json")
    assert labels(two) == ["no-topology-field"]


def test_of_several_topologies_the_one_with_most_nodes_then_the_deepest_counts() -> None:
    fields = {
        "n1": "blk:b1,tree:c:m:l1",
        "n2": "tree:c:m:l2,blk:b1",
        "n3": "tree:c:m:l2",
        "n4": "blk:b2",
        "n5": "tree:",
    }
    nodes = [{"name": name, "state": ["IDLE"], "gres": "gpu:8", "topology": field} for name, field in fields.items()]
    reading = parse_nodes_json({"nodes": nodes}, "f")
    assert {name: node.fabric for name, node in by_name(reading).items()} == {
        "n1": ("l1", "m", "c"),
        "n2": ("l2", "m", "c"),
        "n3": ("l2", "m", "c"),
        "n4": None,
        "n5": None,
    }
    assert by_name(reading)["n1"].other == (("blk", "b1"),)
    assert labels(reading) == ["node-without-topology:n4", "node-without-topology:n5"]


def test_nodes_without_gpus_are_told_only_among_nodes_with_some() -> None:
    nodes = [
        {"name": "g1", "state": ["IDLE"], "gres": "gpu:8", "partitions": ["gpu"], "topology": "t:l"},
        {"name": "g2", "state": ["IDLE"], "gres": "(null)", "partitions": ["gpu"], "topology": "t:l"},
        {"name": "g3", "state": ["IDLE"], "gres": "gpu:1g.5gb:7", "partitions": ["gpu"], "topology": "t:l"},
        {"name": "c1", "state": ["IDLE"], "gres": "", "partitions": ["cpu"], "topology": "t:l"},
    ]
    reading = parse_nodes_json({"nodes": nodes}, "f")
    assert labels(reading) == ["no-gres:g2", "mig-sliced:g3"]
    assert by_name(reading)["g3"].ngpus == 0


def test_new_sinfo_json_collects_partitions() -> None:
    row = {"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["n1", "n2"]}, "gres": {"total": "gpu:h100:8"}}
    document = {"sinfo": [row | {"partition": {"name": name}, "reason": {"description": ""}} for name in ("a", "b")]}
    node = by_name(parse_sinfo_json(document, "f"))["n2"]
    assert (node.partitions, node.gpus, node.state) == (("a", "b"), (("h100", 8),), NodeState.IDLE)


def test_sinfo_text_by_its_heading() -> None:
    text = (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "gpu*         up   infinite      2   idle n[1-2]\n"
        "debug        up   infinite      1   idle n1\n"
        "gpu*         up   infinite      1  down* n3\n"
        "empty        up   infinite      0    n/a \n"
    )
    nodes = by_name(parse_sinfo(text, "f"))
    assert {name: node.state for name, node in nodes.items()} == {"n1": "idle", "n2": "idle", "n3": "down"}
    assert nodes["n1"].partitions == ("gpu", "debug")
    assert nodes["n1"].gpus is None
    long = "Mon Nov 30 02:41:40 2026\nNODELIST   NODES PARTITION       STATE CPUS\nn1 1 gpu* drained 8\n"
    assert by_name(parse_sinfo(long, "f"))["n1"].state is NodeState.DRAINED
    reasons = "NODELIST STATE GRES REASON\nn1 drain gpu:8 fan broken [3]\nn2 idle (null)\n"
    nodes = by_name(parse_sinfo(reasons, "f"))
    assert (nodes["n1"].reason, nodes["n1"].ngpus) == ("fan broken [3]", 8)
    assert (nodes["n2"].reason, nodes["n2"].ngpus) == ("", 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NODELIST NODES\nn1 1\n", "found columns 'NODELIST NODES'"),
        ("STATE X NODELIST\nidle n1\n", "expected 3 columns"),
        ("REASON NODELIST STATE\nfan broken n1 idle\n", "REASON last if at all"),
    ],
)
def test_sinfo_without_the_columns_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_sinfo(text, "f")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"nodes": 3}, "f: nodes: found 3; expected a list"),
        ({"nodes": [{"state": ["IDLE"]}]}, "f: nodes[0].name: found nothing; expected a name"),
        ({"nodes": ["n1"]}, 'f: nodes[0]: found "n1"; expected a table with state'),
        ({"nodes": [{"name": "n1", "state": [1]}]}, "f: nodes[0].state[0]: found 1; expected a name"),
    ],
)
def test_json_of_another_shape_says_where(document: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_nodes_json(document, "f")
    assert str(caught.value) == said


RESERVATIONS = (
    "ReservationName=now StartTime=2026-01-01T00:00:00 EndTime=2026-01-02T00:00:00 Duration=1-00:00:00 "
    "Nodes=n[1-2] NodeCnt=2\n     NodeName=n1 CoreIDs=0-3\n   Users=a,b Flags=MAINT State=ACTIVE\n"
    "ReservationName=bare StartTime=2026-01-01T00:00:00 EndTime=2026-01-02T00:00:00 Nodes=(null) Users=(null)\n\n"
    "ReservationName=odd StartTime=Unknown EndTime=Unknown\n   Nodes= NodeCnt=0\n"
)


def test_reservations_of_lines_wrapped_anyhow() -> None:
    noon_s = 1_767_225_600.0  # 2026-01-01 in UTC; local zones are within a day of it
    now, bare, odd = parse_show_reservation(RESERVATIONS, "f", noon_s + 43_200).reservations
    assert (now.nodes, now.users, now.flags, now.is_active) == (("n1", "n2"), ("a", "b"), ("MAINT",), True)
    assert (bare.nodes, bare.users, bare.is_active) == ((), (), True)
    assert (odd.nodes, odd.is_active) == ((), None)
    later = parse_show_reservation(RESERVATIONS, "f", noon_s + 10 * 86_400).reservations
    assert [one.is_active for one in later] == [True, False, None]  # the first says so itself
    assert [one.is_over for one in later] == [True, True, False]


def test_reservations_as_json() -> None:
    def set_(number: int, infinite: bool = False) -> dict[str, object]:
        return {"set": True, "infinite": infinite, "number": number}

    listed = [
        {
            "name": "a",
            "node_list": "n[1-2]",
            "start_time": set_(100),
            "end_time": set_(200),
            "users": "u",
            "flags": ["X"],
        },
        {"name": "b", "node_list": "n3", "start_time": set_(100), "end_time": set_(0, infinite=True)},
        {"name": "c", "node_list": "n4", "start_time": {"set": False, "number": 0}, "end_time": set_(9)},
    ]
    reading = parse_reservations_json(json.loads(json.dumps({"reservations": listed})), "f", 150.0)
    a, b, c = reading.reservations
    assert (a.nodes, a.start, a.end, a.is_active) == (
        ("n1", "n2"),
        "1970-01-01T00:01:40+00:00",
        "1970-01-01T00:03:20+00:00",
        True,
    )
    assert (a.users, a.flags) == (("u",), ("X",))
    assert (b.end, b.is_active, c.start, c.is_active) == ("", True, "", None)
    assert (a.is_over, b.is_over, c.is_over) == (False, False, True)
    with pytest.raises(ConfigError, match=r"f: reservation 'a': Nodes: found '\[1' at position 1"):
        parse_reservations_json({"reservations": [{"name": "a", "node_list": "n[1"}]}, "f", 0.0)

"""Slurm of several generations, played by a scontrol and a sinfo on PATH."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spanfit.errors import ConfigError, LaunchError, TimedOutError
from spanfit.topology.merge import Merged, merge
from spanfit.topology.probe import LiveSource, live_source, read_live
from spanfit.topology.probe_slurm import run_slurm, user_name
from tests.fakes import slurm as fake

PING = "Slurmctld(primary) at ctl is UP\n"
TREE = "SwitchName=l0 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
TREE += "SwitchName=s Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=l[0-1]\n"
TEXT_NODES = "".join(
    f"NodeName=n{index} Arch=x86_64 CoresPerSocket=1 Gres=gpu:h200:8 OS=Linux 6.1 State={state} ThreadsPerCore=1 "
    f"Partitions=all  Reason={reason} [root@2026-11-30T10:00:00]\n"
    for index, (state, reason) in enumerate(
        (("IDLE", ""), ("IDLE+RESERVED", ""), ("IDLE+DRAIN", "bad $(nic)"), ("MIXED", "")), start=1
    )
)
TEXT_RESERVATIONS = (
    "ReservationName=train StartTime=2026-11-30T10:00:00 EndTime=2026-12-30T10:00:00 Duration=30-00:00:00 Nodes=n2 "
    f"NodeCnt=1 Flags=SPEC_NODES,STATIC Users=root,{user_name()} State=ACTIVE\n"
    "ReservationName=later StartTime=2026-12-01T12:00:00 EndTime=2026-12-01T14:00:00 Duration=02:00:00 Nodes=n1 "
    "NodeCnt=1 Flags=MAINT Users=root State=INACTIVE\n"
)
OLD = {
    "scontrol ping": PING,
    "scontrol show topology": TREE,
    "scontrol show nodes --oneliner": TEXT_NODES,
    "scontrol show reservation --oneliner": TEXT_RESERVATIONS,
}
TOPOCONF = """---
- topology: default
  cluster_default: true
  tree: {switches: [{switch: l0, nodes: "n[1-2]"}, {switch: l1, nodes: "n[3-4]"}, {switch: s, children: "l[0-1]"}]}
- topology: racks
  block: {block_sizes: [1], blocks: [{block: b0, nodes: "n[1,3]"}, {block: b1, nodes: "n[2,4]"}]}
"""
JSON_NODES = {
    "nodes": [
        {
            "name": f"n{index}",
            "state": state,
            "gres": "gpu:h200:8",
            "topology": f"default:s:l{index // 3},racks:b{(index + 1) % 2}",
        }
        for index, state in enumerate((["IDLE"], ["IDLE", "PLANNED"], ["IDLE"], ["DOWN"]), start=1)
    ]
}
NEW = {
    "scontrol ping": PING,
    "scontrol show topoconf": TOPOCONF,
    "scontrol show nodes --json": json.dumps(JSON_NODES),
    "scontrol show reservation --json": '{"reservations": []}',
}
Tell = Callable[[dict[str, str]], None]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Give a function that sets what Slurm's commands say; what is not set is an option that they do not know."""
    fake.install(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("SLURM_TOPO_LEN", "10")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    return partial(fake.tell, tmp_path)


def read(own: str = "", until_s: float | None = None, topology: str | None = None) -> Merged:
    now_s = 1_796_083_200.0  # 2026-12-01 00:00 UTC
    return merge(read_live(LiveSource.SLURM, now_s, own=own, until_s=until_s, topology=topology), "live")


def states(merged: Merged) -> list[str]:
    return [node.state.value for node in merged.cluster.nodes]


def codes(merged: Merged) -> list[str]:
    return [finding.label for finding in merged.findings]


def test_an_old_slurm_is_asked_for_text(slurm: Tell, tmp_path: Path) -> None:
    slurm(OLD)
    merged = read()
    assert [node.fabric for node in merged.cluster.nodes] == [("l0", "s")] * 2 + [("l1", "s")] * 2
    assert states(merged) == ["idle", "reserved", "drained", "allocated"]
    assert {(node.gpu_model, node.ngpus) for node in merged.cluster.nodes} == {("h200", 8)}
    assert codes(merged) == ["reservation-ahead:later"]
    # LC_ALL ends each line, and would be followed by what shortens or changes the output.
    assert [line.removesuffix(" C") for line in fake.asked(tmp_path)] == [
        "scontrol ping",
        "scontrol show topoconf",
        "scontrol show topology",
        "scontrol show nodes --json",
        "scontrol show nodes --oneliner",
        "scontrol show reservation --json",
        "scontrol show reservation --oneliner",
    ]


def test_what_a_command_that_fails_has_printed_is_no_answer(slurm: Tell) -> None:
    failing = {f"{command}.code": "1" for command in ("scontrol show nodes --json", "scontrol show topoconf")}
    slurm(NEW | OLD | failing)
    assert states(read()) == ["idle", "reserved", "drained", "allocated"]


def test_a_new_slurm_is_asked_for_yaml_and_json(slurm: Tell, tmp_path: Path) -> None:
    slurm(NEW)
    merged = read()
    assert states(merged) == ["idle", "reserved", "idle", "down"]
    assert codes(merged) == []
    assert len(fake.asked(tmp_path)) == 4


def test_of_several_topologies_one_may_be_chosen(slurm: Tell) -> None:
    slurm(NEW)
    fabric = {node.name: node.fabric[0] for node in read(topology="racks").cluster.nodes}
    assert fabric == {"n1": "b0", "n2": "b1", "n3": "b0", "n4": "b1"}
    with pytest.raises(ConfigError, match="found no topology 'none'; expected one of default, racks"):
        read(topology="none")
    slurm(OLD)
    with pytest.raises(ConfigError, match="scontrol show topology: prints one topology only, found none named racks"):
        read(topology="racks")


def test_sinfo_answers_where_scontrol_does_not(slurm: Tell) -> None:
    said = {key: text for key, text in OLD.items() if "nodes" not in key}
    slurm(
        said
        | {"sinfo --Node --format=%N %T %P %G %E": "NODELIST STATE PARTITION GRES REASON\nn1 idle all gpu:8 none\n"}
    )
    merged = read()
    assert states(merged) == ["idle", "down", "down", "down"]
    assert codes(merged) == ["node-without-state:n[2-4]", "reservation-ahead:later"]


def test_a_slurm_without_switches_is_named_in_the_error(slurm: Tell) -> None:
    slurm({key: text for key, text in OLD.items() if "topology" not in key})
    with pytest.raises(ConfigError, match=r"(?s)flat-topology: Slurm says nothing of switches.*expected a source"):
        read()


def test_reservations_that_are_not_told_are_a_warning(slurm: Tell) -> None:
    slurm({key: text for key, text in OLD.items() if "reservation" not in key})
    merged = read()
    assert states(merged) == ["idle", "reserved", "drained", "allocated"]
    assert codes(merged) == ["reservations-unread"]
    assert "scontrol show reservation --oneliner: invalid entity or option" in merged.findings[0].text


def test_the_own_reservation_leaves_its_nodes_free_but_no_other_does(slurm: Tell) -> None:
    slurm(OLD)
    assert states(read("train")) == ["idle", "idle", "drained", "allocated"]
    assert states(read("later")) == ["idle", "reserved", "drained", "allocated"]
    others = TEXT_RESERVATIONS.replace(f"root,{user_name()} ", "somebody ")
    slurm(OLD | {"scontrol show reservation --oneliner": others})
    assert states(read("train")) == ["idle", "reserved", "drained", "allocated"]
    double = TEXT_RESERVATIONS.replace("ReservationName=later", "ReservationName=other").replace("INACTIVE", "ACTIVE")
    slurm(OLD | {"scontrol show reservation --oneliner": double.replace("Nodes=n1 ", "Nodes=n2 ")})
    assert states(read("train")) == ["idle", "reserved", "drained", "allocated"]


def test_a_reservation_that_begins_in_time_holds_its_nodes(slurm: Tell) -> None:
    slurm(OLD)
    begin_s = 1_796_126_400.0  # 2026-12-01 12:00 UTC; times of Slurm's text are local
    assert states(read("train", until_s=begin_s - 86_400))[0] == "idle"
    assert states(read("train", until_s=begin_s + 86_400))[0] == "reserved"
    assert states(read("train", until_s=float("inf")))[0] == "reserved"


def test_without_slurm_or_its_controller_the_message_says_what_to_do(
    slurm: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm({"scontrol ping": "Slurmctld(primary) at ctl is DOWN\n*** RESTORE SLURMCTLD DAEMON TO SERVICE ***\n"})
    with pytest.raises(LaunchError, match=r"at ctl is DOWN.*; expected a Slurm controller that is up; run this on"):
        read()
    slurm({})
    with pytest.raises(LaunchError, match=r"scontrol ping: found invalid entity"):
        read()
    slurm({"scontrol ping": PING, "scontrol show topology": TREE})
    with pytest.raises(LaunchError, match=r"(?s)does not list its nodes:.*sinfo --Node .*: invalid entity"):
        read()
    (tmp_path / "scontrol").unlink()
    (tmp_path / "scontrol").mkdir()
    for path in (tmp_path, tmp_path / "none"):
        monkeypatch.setenv("PATH", str(path))
        with pytest.raises(LaunchError, match="scontrol is not on PATH; run this where Slurm's commands are"):
            read()


def test_a_command_that_hangs_is_ended(slurm: Tell, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\nPATH=/usr/bin:/bin exec sleep 10\n")
    with pytest.raises(TimedOutError, match="scontrol ping: no answer within 0 s"):
        run_slurm(("scontrol", "ping"), timeout_s=0.2)


def test_bytes_that_are_no_text_break_nothing(slurm: Tell, tmp_path: Path) -> None:
    slurm(OLD)
    (tmp_path / "scontrol").write_text('#!/bin/sh\nprintf "Slurmctld \\377 is UP\\033[2J\\n"; exit 1\n')
    with pytest.raises(LaunchError, match=r"Slurmctld � is UP.u001b.2J; expected"):
        read()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("slurm:live", LiveSource.SLURM),
        ("kubernetes:live", LiveSource.KUBERNETES),
        ("./slurm:live", None),
        ("slurm", None),
    ],
)
def test_names_of_live_sources(name: str, source: LiveSource | None) -> None:
    assert live_source(name) is source

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.bench.case import CaseKind, LaunchPlan
from spanfit.bench.lines import render_failure
from spanfit.errors import ConfigError
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.failures import last_error
from spanfit.results.schema import Status
from spanfit.results.shards import Shard, append_failure, measurements
from spanfit.topology.model import Cluster, Node

CLUSTER = """
name = "tiny"
tiers = ["minipod", "core"]
[[nodes]]
names = "m0l0h[0-1]"
switches = ["m0", "core"]
[[nodes]]
names = "m1l0h[0-1]"
switches = ["m1", "core"]
[[nodes]]
names = "spare"
switches = ["m1", "core"]
state = "drained"
"""
TESTBED = """
name = "tiny"
minipods = 2
hosts_per_leaf = 2
[links.host]
rate = "400mbit"
"""
CAMPAIGN = """
name = "tiny"
cluster = "cluster.toml"
launches = 2
blocks = 2
[launch]
launcher = "testbed"
testbed = "testbed.toml"
ranks_per_node = 2
port = 4000
[launch.environment]
NCCL_ALGO = "Ring"
[collectives]
operations = ["all_reduce"]
sizes = ["1M"]
nodes_per_group = 2
spans = [1, 2]
"""


def campaign_in(folder: Path, text: str = CAMPAIGN, *, again: bool = False) -> Campaign:
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "testbed.toml").write_text(TESTBED)
    (folder / "campaign.toml").write_text(text)
    return Campaign(folder / "campaign.toml", folder / "store", again=again)


def complaint(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        campaign_in(folder, text)
    return str(error.value).splitlines()


def test_a_campaign_measures_the_idle_nodes_minipod_by_minipod(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    assert campaign.node_names == ("m0l0h0", "m0l0h1", "m1l0h0", "m1l0h1")
    assert campaign.minipods == ("m0", "m0", "m1", "m1")
    assert [(case.kind, case.span) for case in campaign.cases] == [(CaseKind.COLLECTIVE, 1), (CaseKind.COLLECTIVE, 2)]
    assert [len(visits) for visits in campaign.visits] == [4, 4]
    assert not campaign.is_finished
    assert not (tmp_path / "store").exists()


def test_nodes_that_are_named_are_taken_minipod_by_minipod(tmp_path: Path) -> None:
    text = 'nodes = "m1l0h1,m0l0h[0-1],m1l0h0"\n' + CAMPAIGN
    assert campaign_in(tmp_path, text).node_names == ("m1l0h1", "m1l0h0", "m0l0h0", "m0l0h1")


def test_the_run_id_is_the_content_and_counts_what_is_finished(tmp_path: Path) -> None:
    first = campaign_in(tmp_path)
    assert first.run_id == campaign_in(tmp_path).run_id
    assert first.run_id.startswith("tiny-") and len(first.run_id) == len("tiny-") + 8
    for text in (CAMPAIGN.replace("launches = 2", "launches = 3"), 'nodes = "m[0-1]l0h[0-1]"\n' + CAMPAIGN):
        assert campaign_in(tmp_path, text).run_id != first.run_id
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / f"{first.run_id}.parquet").touch()
    done = campaign_in(tmp_path)
    assert (done.run_id, done.is_finished) == (first.run_id, True)
    anew = campaign_in(tmp_path, again=True)
    assert (anew.run_id, anew.is_finished) == (f"{first.run_id}-2", False)
    (tmp_path / "store" / f"{anew.run_id}.parquet").touch()
    assert campaign_in(tmp_path).run_id == f"{first.run_id}-2"
    assert campaign_in(tmp_path, again=True).run_id == f"{first.run_id}-3"


def test_another_fabric_is_another_run(tmp_path: Path) -> None:
    first = campaign_in(tmp_path)
    (tmp_path / "testbed.toml").write_text(TESTBED.replace("400mbit", "200mbit"))
    assert Campaign(tmp_path / "campaign.toml", tmp_path / "store").run_id != first.run_id


def test_missing_is_what_has_no_finished_line(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    assert campaign.missing(0) == campaign.visits[0]
    first, second, *rest = campaign.visits[0]
    campaign.folder.mkdir(parents=True)
    plan = plan_of(campaign)
    good = render_failure(plan, first, Status.OK, "")
    append_failure(campaign.shard_path(0), good)
    append_failure(campaign.shard_path(0), render_failure(plan, second, Status.FAILED, "rank 1 died"))
    assert campaign.missing(0) == (second, *rest)
    assert campaign.missing(1) == campaign.visits[1]
    # The same case in another block is another visit.
    assert any(visit.case == first.case for visit in rest)


def plan_of(campaign: Campaign) -> LaunchPlan:
    return LaunchPlan(
        run_id=campaign.run_id,
        launch=0,
        attempt=1,
        backend="gloo",
        node_names=campaign.node_names,
        ngpus_per_node=2,
        timeout_s=1.0,
        shard="shard",
        visits=campaign.visits[0],
    )


def test_a_render_failure_becomes_rows_that_say_why(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    visit = campaign.visits[0][0]
    visit = replace(visit, case=replace(visit.case, groups=((0, 2), (1, 3))))
    line = json.loads(json.dumps(render_failure(plan_of(campaign), visit, Status.FAILED, "rank 3 died")))
    assert (line["status"], line["comm_id"], line["block"]) == ("failed", f"0.1.{visit.block}", visit.block)
    assert line["ranks"] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    rows = list(measurements("run", [Shard(worlds=(), cases=(line,))], 2, campaign.switches))
    assert [(row.status, row.reason, row.group, row.nranks, row.span) for row in rows] == [
        (Status.FAILED, "rank 3 died", group, 4, 2) for group in range(2)
    ]
    assert all(row.case_id == visit.case.case_id for row in rows)


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("", ""),
        ("starting\nall well\n\n", "all well"),
        ("Traceback:\n  frame\nValueError: wrong\nbye\n", "ValueError: wrong"),
        (
            "KeyError: 1\ntorch.distributed.DistBackendError: peer gone\n[rank0] exits\n",
            "torch.distributed.DistBackendError: peer gone",
        ),
        ("Errors were found\n", "Errors were found"),
        ("RuntimeError: " + "x" * 900, "RuntimeError: " + "x" * 486),
    ],
)
def test_the_line_of_a_log_that_says_most_is_found(tmp_path: Path, log: str, found: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert last_error(path) == found


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none") == ""


def test_bytes_in_a_log_do_not_hide_the_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\nOSError: \xff\n")
    assert last_error(tmp_path / "log").startswith("OSError: ")


def test_every_mistake_of_a_campaign_file_is_told_at_once(tmp_path: Path) -> None:
    text = (
        CAMPAIGN.replace('"testbed"\n', '"tesbed"\n')
        .replace("launches = 2", "lanches = 2")
        .replace("blocks = 2", "blocks = -2")
        .replace('["1M"]', '["1M", "4Q"]')
        .replace("nodes_per_group = 2\n", "")
        .replace('name = "tiny"', 'name = "../tiny"')
    )
    path = tmp_path / "campaign.toml"
    lines = sorted(complaint(tmp_path, text))
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert [line.removeprefix(f"{path}: ").partition(":")[0] for line in lines] == [
        "blocks",
        "collectives.nodes_per_group",
        "collectives.sizes[1]",
        "lanches",
        "launch.launcher",
        "name",
    ]
    assert lines[2] == (
        f"{path}: collectives.sizes[1]: '4Q' is not a size; expected a number with K, M, G or T, such as 4M"
    )


def test_names_that_are_no_library_settings_nodes_and_spans_are_refused_together(tmp_path: Path) -> None:
    text = 'nodes = "m0l0h[0-1],spare"\n' + CAMPAIGN.replace(
        'NCCL_ALGO = "Ring"', 'NCCL_ALGO = "Ring"\nLD_PRELOAD = "x.so"\nPATH = "/tmp"'
    ).replace("[1, 2]", "[1, 3]")
    path = tmp_path / "campaign.toml"
    setting = "expected a setting of the communication library such as NCCL_*"
    assert complaint(tmp_path, text) == [
        f"{path}: launch.environment.LD_PRELOAD: found 'LD_PRELOAD', {setting}",
        f"{path}: launch.environment.PATH: found 'PATH', {setting}",
        f"{path}: nodes: testbed tiny has no host spare",
        f"{path}: collectives: groups of 2 nodes cannot span 3 domains; expected nodes_per_group of at least 3",
    ]


LOCAL = """
[[launch.local_environment]]
GLOO_SOCKET_IFNAME = "eth0"
[[launch.local_environment]]
GLOO_SOCKET_IFNAME = "eth1"
"""


def test_settings_by_local_rank_are_names_of_the_library_and_a_table_for_each(tmp_path: Path) -> None:
    path = tmp_path / "campaign.toml"
    text = CAMPAIGN.replace("ranks_per_node = 2", "ranks_per_node = 3") + LOCAL.replace("GLOO", "MY", 1)
    assert complaint(tmp_path, text) == [
        f"{path}: launch.local_environment[0].MY_SOCKET_IFNAME: found 'MY_SOCKET_IFNAME', "
        "expected a setting of the communication library such as NCCL_*",
        f"{path}: launch.local_environment: found 2 tables, expected one for each local rank: 3, "
        "as ranks_per_node says",
    ]


def local_environment_in(folder: Path, text: str, rails: int) -> tuple[dict[str, str], ...]:
    campaign_in(folder, text)
    (folder / "testbed.toml").write_text(TESTBED.replace("minipods", f"rails = {rails}\nminipods"))
    return Campaign(folder / "campaign.toml", folder / "store")._plan(0, 0, ()).local_environment


def test_ranks_of_a_testbed_with_a_rail_for_each_take_their_own_device_unless_told(tmp_path: Path) -> None:
    eth0, eth1 = ({"GLOO_SOCKET_IFNAME": device, "TP_SOCKET_IFNAME": device} for device in ("eth0", "eth1"))
    assert local_environment_in(tmp_path, CAMPAIGN, 2) == (eth0, eth1)
    assert local_environment_in(tmp_path, CAMPAIGN, 1) == ()
    assert local_environment_in(tmp_path, CAMPAIGN, 3) == ()
    told = ({"GLOO_SOCKET_IFNAME": "eth0"}, {"GLOO_SOCKET_IFNAME": "eth1"})
    assert local_environment_in(tmp_path, CAMPAIGN + LOCAL, 2) == told
    for_all = CAMPAIGN.replace("NCCL_ALGO", 'TP_SOCKET_IFNAME = "lo"\nNCCL_ALGO')
    assert local_environment_in(tmp_path, for_all, 2) == told
    over_mpi = 'backend = "mpi"\n' + CAMPAIGN.replace('launcher = "testbed"', 'launcher = "testbed-mpirun"')
    assert local_environment_in(tmp_path, over_mpi, 2)[1] == {
        "OMPI_MCA_btl_tcp_if_include": "eth1",
        "FI_TCP_IFACE": "eth1",
    }
    on_machines = CAMPAIGN.replace('launcher = "testbed"', 'launcher = "ssh"')
    assert local_environment_in(tmp_path, on_machines, 2) == ()


def test_ranks_write_their_stacks_before_the_watcher_ends_them(tmp_path: Path) -> None:
    plan = campaign_in(tmp_path, CAMPAIGN.replace("port", 'timeout = "10s"\nport'))._plan(0, 0, ())
    assert plan.stacks_after_s == pytest.approx(9.0)


def test_a_node_that_the_cluster_lacks_is_refused(tmp_path: Path) -> None:
    (line,) = complaint(tmp_path, 'nodes = "m0l0h[0-2]"\n' + CAMPAIGN)
    assert line == f"{tmp_path}/campaign.toml: nodes: no such node in cluster tiny: m0l0h2"


def test_ssh_needs_no_testbed(tmp_path: Path) -> None:
    text = CAMPAIGN.replace('launcher = "testbed"\ntestbed = "testbed.toml"', 'launcher = "ssh"')
    request = campaign_in(tmp_path, text).request(0, 0)
    assert request.environment == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"}


def test_each_launch_is_asked_for_with_files_and_a_port_of_its_own(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    request = campaign.request(1, 2)
    assert request.rank_map.node_names == campaign.node_names
    assert request.rank_map.nranks == 8
    assert request.module == "spanfit.bench.worker"
    assert request.argv == (str(campaign.folder / "launch-001.2.plan.json"),)
    assert request.logs == campaign.folder / "launch-001.2.logs"
    assert request.port == 4001
    assert request.environment == {
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1",
    }
    others = [campaign.request(launch, attempt) for launch, attempt in ((0, 0), (0, 1), (1, 0))]
    assert len({other.argv for other in others} | {request.argv}) == 4


def test_minipods_that_share_a_name_are_told_apart_by_their_path() -> None:
    def node(name: str, *switches: str) -> Node:
        return Node(name=name, fabric=switches)

    nodes = (node("a", "m0", "east"), node("b", "m0", "west"), node("c", "m1", "west"))
    cluster = Cluster(name="c", tiers=("minipod", "core"), nodes=nodes)
    expected = {"minipod": ("m1", "west/m0", "east/m0"), "core": ("west", "west", "east")}
    assert cluster.switch_names(("c", "b", "a")) == expected
